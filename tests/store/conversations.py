"""The contract of conversations: one response at a time, joined whole, paged like any list."""

import asyncio

import pytest

from antiphon.core.response import ResponseStatus
from antiphon.store.base import Conversation, ConversationBusy, Cursor, Order, Page, Store
from tests.store.making import ITEMS, NOW, answered, begun, done, said

TALK = Conversation(id="conv_1", created_at=NOW, metadata={"topic": "it's \0 🎵"})
ALL = Cursor(limit=100, order="asc")


class ConversationsContract:
    """What conversations are made of."""

    async def test_a_conversation_is_found_as_it_was_given(self, store: Store) -> None:
        await store.save_conversation(TALK)
        assert await store.conversation("conv_1") == TALK
        assert await store.list_items("conv_1", ALL) == Page([], has_more=False)

    async def test_a_conversation_changes_and_keeps_its_items(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.add_items("conv_1", [said("a")])
        changed = Conversation(id="conv_1", created_at=NOW, metadata={})
        await store.save_conversation(changed)
        assert await store.conversation("conv_1") == changed
        assert await store.list_items("conv_1", ALL) == Page([said("a")], has_more=False)

    async def test_there_is_nothing_in_a_conversation_that_is_not_there(self, store: Store) -> None:
        assert await store.conversation("conv_1") is None
        assert await store.list_items("conv_1", ALL) is None
        assert not await store.add_items("conv_1", [said("a")])
        assert not await store.delete_item("conv_1", "a")
        assert not await store.delete_conversation("conv_1")
        assert await store.find_item("a") is None

    async def test_every_field_of_every_item_survives_in_it(self, store: Store) -> None:
        await store.save_conversation(TALK)
        assert await store.add_items("conv_1", ITEMS[:3])
        assert await store.add_items("conv_1", ITEMS[3:])
        assert await store.list_items("conv_1", ALL) == Page(ITEMS, has_more=False)
        for item in ITEMS:
            wanted = None if item.type == "item_reference" else item
            assert await store.find_item(str(item.id)) == wanted

    async def test_pages_of_a_conversation_tile_it(self, store: Store) -> None:
        await store.save_conversation(TALK)
        items = [said(f"m{n}") for n in range(7)]
        await store.add_items("conv_1", items)
        orders: list[Order] = ["asc", "desc"]
        for order, wanted in zip(orders, [items, items[::-1]], strict=True):
            after = None
            for n in range(0, 7, 3):
                page = await store.list_items("conv_1", Cursor(3, order, after=after))
                assert page == Page([*wanted[n : n + 3]], has_more=n < 6)
                after = str(wanted[n : n + 3][-1].id)
            page = await store.list_items("conv_1", Cursor(2, order, before=str(wanted[5].id)))
            assert page == Page([*wanted[3:5]], has_more=True)

    async def test_an_item_is_found_in_its_conversation_only(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.save_conversation(Conversation(id="conv_2", created_at=NOW, metadata={}))
        await store.add_items("conv_1", [said("a"), answered("a"), said("b")])
        await store.add_items("conv_2", [said("b", "elsewhere")])
        assert await store.conversation_item("conv_1", "a") == answered("a")  # the newest
        assert await store.conversation_item("conv_1", "b") == said("b")
        assert await store.conversation_item("conv_2", "b") == said("b", "elsewhere")
        assert await store.conversation_item("conv_2", "a") is None
        assert await store.conversation_item("conv_3", "a") is None
        assert await store.conversation_item("conv_1", "a", tenant="other") is None

    async def test_an_item_leaves_a_conversation(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.add_items("conv_1", [said(id) for id in "abc"])
        assert await store.delete_item("conv_1", "b")
        assert not await store.delete_item("conv_1", "b")
        await store.add_items("conv_1", [said("d")])
        page = await store.list_items("conv_1", ALL)
        assert page == Page([said(id) for id in "acd"], has_more=False)
        assert await store.delete_item("conv_1", "d")
        await store.add_items("conv_1", [said("e")])
        page = await store.list_items("conv_1", Cursor(order="asc", after="a"))
        assert page == Page([said("c"), said("e")], has_more=False)
        assert await store.find_item("b") is None

    async def test_a_conversation_goes_with_its_items(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.add_items("conv_1", [said("a")])
        assert await store.delete_conversation("conv_1")
        assert await store.conversation("conv_1") is None
        assert await store.find_item("a") is None
        await store.save_conversation(TALK)
        assert await store.list_items("conv_1", ALL) == Page([], has_more=False)

    async def test_conversations_of_two_tenants_may_have_one_name(self, store: Store) -> None:
        other = Conversation(id="conv_1", created_at=0, metadata={})
        await store.save_conversation(TALK, tenant="a")
        await store.add_items("conv_1", [said("x")], tenant="a")
        assert await store.conversation("conv_1", tenant="b") is None
        assert await store.list_items("conv_1", ALL, tenant="b") is None
        assert not await store.add_items("conv_1", [said("y")], tenant="b")
        assert not await store.delete_item("conv_1", "x", tenant="b")
        assert not await store.delete_conversation("conv_1", tenant="b")
        assert await store.find_item("x", tenant="b") is None
        await store.save_conversation(other, tenant="b")
        await store.begin(begun("r1"), [], conversation="conv_1", tenant="a")
        await store.begin(begun("r2"), [said("z")], conversation="conv_1", tenant="b")
        await store.end(done(begun("r2")), tenant="b")
        assert await store.conversation("conv_1", tenant="a") == TALK
        page = await store.list_items("conv_1", ALL, tenant="a")
        assert page == Page([said("x")], has_more=False)
        page = await store.list_items("conv_1", ALL, tenant="b")
        assert page == Page([said("z")], has_more=False)

    # --- responses in them -------------------------------------------------------------------

    @pytest.mark.parametrize("status", ["completed", "incomplete"])
    @pytest.mark.parametrize("logged", [True, False])
    async def test_a_response_joins_when_it_ends(
        self, store: Store, status: ResponseStatus, logged: bool
    ) -> None:
        await store.save_conversation(TALK)
        await store.add_items("conv_1", [said("before")])
        await store.begin(begun("r"), ITEMS, conversation="conv_1")
        before = await store.list_items("conv_1", ALL)
        assert before == Page([said("before")], has_more=False)
        final = done(begun("r"), answered("x"), answered("y"), status=status)
        if logged:
            await store.append("r", 0, -1, [b"{}"], final=final)
        else:
            await store.end(final)
            await store.end(final)  # the second changes nothing
        joined = [said("before"), *ITEMS, answered("x"), answered("y")]
        assert await store.list_items("conv_1", ALL) == Page(joined, has_more=False)

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    async def test_a_response_that_came_to_nothing_does_not_join(
        self, store: Store, status: ResponseStatus
    ) -> None:
        await store.save_conversation(TALK)
        await store.begin(begun("r"), [said("a")], conversation="conv_1")
        await store.end(done(begun("r"), answered("x"), status=status))
        assert await store.list_items("conv_1", ALL) == Page([], has_more=False)
        await store.begin(begun("s"), [], conversation="conv_1")

    async def test_a_conversation_takes_one_response_at_a_time(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.begin(begun("r"), [], conversation="conv_1", key=("key", "print"))
        with pytest.raises(ConversationBusy, match="conv_1"):
            await store.begin(begun("s"), [said("a")], conversation="conv_1", key=("new", "print"))
        assert await store.find("s") is None
        assert await store.find_item("a") is None
        claim = await store.begin(begun("s"), [], conversation="conv_1", key=("key", "print"))
        assert claim is not None  # the same request again is no other response
        await store.begin(begun("t"), [], conversation="conv_2")
        await store.begin(begun("u"), [])
        await store.end(done(begun("r")))
        assert await store.begin(begun("s"), [], conversation="conv_1", key=("new", "p")) is None

    async def test_of_many_responses_one_gets_the_conversation(self, store: Store) -> None:
        await store.save_conversation(TALK)
        tries = [store.begin(begun(f"r{n}"), [], conversation="conv_1") for n in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(str(type(result).__name__) for result in results) == [
            *["ConversationBusy"] * 19,
            "NoneType",
        ]

    async def test_a_conversation_deleted_meanwhile_takes_nothing(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.begin(begun("r"), [said("a")], conversation="conv_1")
        await store.delete_conversation("conv_1")
        final = done(begun("r"), answered("x"))
        assert await store.end(final) == final
        assert await store.conversation("conv_1") is None

    async def test_a_conversation_keeps_what_a_deleted_response_said(self, store: Store) -> None:
        await store.save_conversation(TALK)
        await store.begin(begun("r"), [said("a")], conversation="conv_1")
        await store.end(done(begun("r"), answered("x")))
        await store.delete("r")
        page = await store.list_items("conv_1", ALL)
        assert page == Page([said("a"), answered("x")], has_more=False)
        assert await store.find_item("x") == answered("x")
