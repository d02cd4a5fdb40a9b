"""The contract of ConversationStore."""

import asyncio
from functools import partial
from itertools import product
from typing import get_args

import pytest

from antiphon.protocol.response import ResponseStatus
from antiphon.store.base import ConversationBusyError, Store, StoredConversation
from antiphon.store.pagination import ItemPage, Order, PageCursor
from tests.store.builders import (
    ITEMS,
    NOW,
    assistant_message,
    content_text_of,
    ended_response,
    list_all,
    new_response,
    user_message,
)

CONVERSATION = StoredConversation(id="conv_1", created_at=NOW, metadata={"topic": "it's \0 🎵"})
ALL = PageCursor(limit=100, order="asc")


class ConversationsContract:
    """Tests of conversations."""

    async def test_a_conversation_is_found_as_it_was_saved(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        assert await store.find_conversation("conv_1") == CONVERSATION
        assert await store.list_items("conv_1", ALL) == ItemPage([], has_more=False)

    async def test_a_conversation_changes_and_keeps_its_items(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.add_items("conv_1", [user_message("a")])
        changed = StoredConversation(id="conv_1", created_at=NOW, metadata={})
        await store.save_conversation(changed)
        assert await store.find_conversation("conv_1") == changed
        assert await store.list_items("conv_1", ALL) == ItemPage([user_message("a")], has_more=False)

    async def test_a_missing_conversation_has_no_items(self, store: Store) -> None:
        assert await store.find_conversation("conv_1") is None
        assert await store.list_items("conv_1", ALL) is None
        assert not await store.add_items("conv_1", [user_message("a")])
        assert not await store.delete_item("conv_1", "a")
        assert not await store.delete_conversation("conv_1")
        assert await store.find_item("a") is None

    async def test_every_field_of_every_item_is_stored(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        assert await store.add_items("conv_1", ITEMS[:3])
        assert await store.add_items("conv_1", ITEMS[3:])
        assert await store.list_items("conv_1", ALL) == ItemPage(ITEMS, has_more=False)
        for item in ITEMS:
            expected = None if item.type == "item_reference" else item
            assert await store.find_item(str(item.id)) == expected

    async def test_pages_cover_a_conversation_without_gaps(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        items = [user_message(f"m{n}") for n in range(7)]
        await store.add_items("conv_1", items)
        orders: list[Order] = ["asc", "desc"]
        for order, expected in zip(orders, [items, items[::-1]], strict=True):
            after = None
            for n in range(0, 7, 3):
                page = await store.list_items("conv_1", PageCursor(3, order, after=after))
                assert page == ItemPage([*expected[n : n + 3]], has_more=n < 6)
                after = str(expected[n : n + 3][-1].id)
            page = await store.list_items("conv_1", PageCursor(2, order, before=str(expected[5].id)))
            assert page == ItemPage([*expected[3:5]], has_more=True)

    async def test_a_replayed_item_gets_an_id_of_its_own(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        added = await store.add_items("conv_1", [user_message("msg_a", "0"), user_message("msg_a", "1")])
        replayed = [user_message("msg_a", "2"), user_message("msg_b", "3")]
        await store.begin(new_response("r"), replayed, conversation="conv_1")
        await store.end(ended_response(new_response("r"), assistant_message("msg_c", "4")))
        added = [*(added or []), *(await store.add_items("conv_1", [user_message("msg_c", "5")]) or [])]
        everything = await store.list_items("conv_1", ALL)
        items = everything.items if everything else []
        assert [*map(content_text_of, items)] == ["0", "1", "2", "3", "4", "5"]
        assert len({item.id for item in items}) == 6
        assert (items[0].id, items[3].id, items[4].id) == ("msg_a", "msg_b", "msg_c")
        assert added == [*items[:2], items[5]]
        for limit, order in product((1, 2, 4), get_args(Order)):
            pages = list_all(partial(store.list_items, "conv_1"), limit, order)
            assert await pages == (items if order == "asc" else items[::-1])
        # The response's own input keeps the ids that the client sent.
        page = await store.list_input_items("r", ALL)
        assert page == ItemPage([*replayed], has_more=False)

    async def test_an_item_is_found_only_in_its_conversation(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.save_conversation(StoredConversation(id="conv_2", created_at=NOW, metadata={}))
        await store.add_items("conv_1", [assistant_message("a"), user_message("b")])
        await store.add_items("conv_2", [user_message("b", "elsewhere")])
        assert await store.find_conversation_item("conv_1", "a") == assistant_message("a")
        assert await store.find_conversation_item("conv_1", "b") == user_message("b")
        assert await store.find_conversation_item("conv_2", "b") == user_message("b", "elsewhere")
        assert await store.find_conversation_item("conv_2", "a") is None
        assert await store.find_conversation_item("conv_3", "a") is None
        assert await store.find_conversation_item("conv_1", "a", tenant="other") is None

    async def test_an_item_can_be_deleted_from_a_conversation(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.add_items("conv_1", [user_message(id) for id in "abc"])
        assert await store.delete_item("conv_1", "b")
        assert not await store.delete_item("conv_1", "b")
        await store.add_items("conv_1", [user_message("d")])
        page = await store.list_items("conv_1", ALL)
        assert page == ItemPage([user_message(id) for id in "acd"], has_more=False)
        assert await store.delete_item("conv_1", "d")
        await store.add_items("conv_1", [user_message("e")])
        page = await store.list_items("conv_1", PageCursor(order="asc", after="a"))
        assert page == ItemPage([user_message("c"), user_message("e")], has_more=False)
        assert await store.find_item("b") is None

    async def test_deleting_a_conversation_deletes_its_items(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.add_items("conv_1", [user_message("a")])
        assert await store.delete_conversation("conv_1")
        assert await store.find_conversation("conv_1") is None
        assert await store.find_item("a") is None
        await store.save_conversation(CONVERSATION)
        assert await store.list_items("conv_1", ALL) == ItemPage([], has_more=False)

    async def test_two_tenants_can_use_the_same_conversation_id(self, store: Store) -> None:
        other = StoredConversation(id="conv_1", created_at=0, metadata={})
        await store.save_conversation(CONVERSATION, tenant="a")
        await store.add_items("conv_1", [user_message("x")], tenant="a")
        assert await store.find_conversation("conv_1", tenant="b") is None
        assert await store.list_items("conv_1", ALL, tenant="b") is None
        assert not await store.add_items("conv_1", [user_message("y")], tenant="b")
        assert not await store.delete_item("conv_1", "x", tenant="b")
        assert not await store.delete_conversation("conv_1", tenant="b")
        assert await store.find_item("x", tenant="b") is None
        await store.save_conversation(other, tenant="b")
        await store.begin(new_response("r1"), [], conversation="conv_1", tenant="a")
        await store.begin(new_response("r2"), [user_message("z")], conversation="conv_1", tenant="b")
        await store.end(ended_response(new_response("r2")), tenant="b")
        assert await store.find_conversation("conv_1", tenant="a") == CONVERSATION
        page = await store.list_items("conv_1", ALL, tenant="a")
        assert page == ItemPage([user_message("x")], has_more=False)
        page = await store.list_items("conv_1", ALL, tenant="b")
        assert page == ItemPage([user_message("z")], has_more=False)

    # --- responses in them -------------------------------------------------------------------

    @pytest.mark.parametrize("status", ["completed", "incomplete"])
    @pytest.mark.parametrize("logged", [True, False])
    async def test_the_items_of_a_response_are_appended_when_it_ends(
        self, store: Store, status: ResponseStatus, logged: bool
    ) -> None:
        await store.save_conversation(CONVERSATION)
        await store.add_items("conv_1", [user_message("before")])
        await store.begin(new_response("r"), ITEMS, conversation="conv_1")
        before = await store.list_items("conv_1", ALL)
        assert before == ItemPage([user_message("before")], has_more=False)
        final = ended_response(new_response("r"), assistant_message("x"), assistant_message("y"), status=status)
        if logged:
            await store.append("r", 0, -1, [b"{}"], final=final)
        else:
            await store.end(final)
            await store.end(final)  # the second changes nothing
        joined = [user_message("before"), *ITEMS, assistant_message("x"), assistant_message("y")]
        assert await store.list_items("conv_1", ALL) == ItemPage(joined, has_more=False)

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    async def test_the_items_of_a_failed_response_are_not_appended(self, store: Store, status: ResponseStatus) -> None:
        await store.save_conversation(CONVERSATION)
        await store.begin(new_response("r"), [user_message("a")], conversation="conv_1")
        await store.end(ended_response(new_response("r"), assistant_message("x"), status=status))
        assert await store.list_items("conv_1", ALL) == ItemPage([], has_more=False)
        await store.begin(new_response("s"), [], conversation="conv_1")

    async def test_a_conversation_allows_one_response_at_a_time(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.begin(new_response("r"), [], conversation="conv_1", key=("key", "print"))
        with pytest.raises(ConversationBusyError, match="conv_1"):
            await store.begin(new_response("s"), [user_message("a")], conversation="conv_1", key=("new", "print"))
        assert await store.find("s") is None
        assert await store.find_item("a") is None
        claim = await store.begin(new_response("s"), [], conversation="conv_1", key=("key", "print"))
        assert claim is not None  # the same request again is no other response
        await store.begin(new_response("t"), [], conversation="conv_2")
        await store.begin(new_response("u"), [])
        await store.end(ended_response(new_response("r")))
        assert await store.begin(new_response("s"), [], conversation="conv_1", key=("new", "p")) is None

    async def test_of_concurrent_responses_one_gets_the_conversation(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        tries = [store.begin(new_response(f"r{n}"), [], conversation="conv_1") for n in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(str(type(result).__name__) for result in results) == [*["ConversationBusyError"] * 19, "NoneType"]

    async def test_a_conversation_deleted_during_a_response_stays_deleted(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.begin(new_response("r"), [user_message("a")], conversation="conv_1")
        await store.delete_conversation("conv_1")
        final = ended_response(new_response("r"), assistant_message("x"))
        assert await store.end(final) == final
        assert await store.find_conversation("conv_1") is None

    async def test_a_conversation_keeps_the_items_of_a_deleted_response(self, store: Store) -> None:
        await store.save_conversation(CONVERSATION)
        await store.begin(new_response("r"), [user_message("a")], conversation="conv_1")
        await store.end(ended_response(new_response("r"), assistant_message("x")))
        await store.delete("r")
        page = await store.list_items("conv_1", ALL)
        assert page == ItemPage([user_message("a"), assistant_message("x")], has_more=False)
        assert await store.find_item("x") == assistant_message("x")
