"""The contract of responses: kept whole, ended once, chained, paged, and nobody else's."""

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from antiphon.core.errors import RequestError, StoreError
from antiphon.core.items import Item
from antiphon.store.base import Claim, Cursor, History, Order, Page, Store, Stored
from tests.store.making import FULL, ITEMS, answered, begun, done, said


async def ended(store: Store, id: str, after: str | None = None, tenant: str = "") -> None:
    """Keep a response that asked one thing and was answered."""
    response = begun(id, after)
    await store.begin(response, [said(f"{id}_in")], tenant=tenant)
    await store.end(done(response, answered(f"{id}_out")), tenant=tenant)


def turns(ids: Iterable[str]) -> list[Item]:
    """Return what responses made by `ended` hold."""
    return [item for id in ids for item in (said(f"{id}_in"), answered(f"{id}_out"))]


class ResponsesContract:
    """Where responses and their items rest."""

    # --- whole values ------------------------------------------------------------------------

    async def test_a_response_is_found_as_it_was_given(self, store: Store) -> None:
        queued = replace(FULL, status="queued", completed_at=None)
        await store.begin(queued, [], request=b"\0\xff{}", conversation="conv_1")
        assert await store.find(FULL.id) == Stored(queued, b"\0\xff{}", "conv_1", 0, -1)
        assert await store.end(FULL) == FULL
        assert await store.find(FULL.id) == Stored(FULL, b"\0\xff{}", "conv_1", 0, -1)

    async def test_a_plain_response_is_found_as_it_was_given(self, store: Store) -> None:
        response = begun("resp_1")
        await store.begin(response, [])
        assert await store.find("resp_1") == Stored(response)

    async def test_every_field_of_every_item_survives(self, store: Store) -> None:
        await store.begin(begun("resp_1"), ITEMS)
        page = await store.input_items("resp_1", Cursor(limit=100, order="asc"))
        assert page == Page(ITEMS, has_more=False)

    async def test_a_response_that_begins_at_its_end_has_ended(self, store: Store) -> None:
        response = done(begun("resp_1"), answered("out"))
        await store.begin(response, [])
        assert await store.unfinished() == []
        assert await store.end(replace(response, status="failed")) == response
        assert await store.find_item("out") == answered("out")

    async def test_an_id_is_used_once(self, store: Store) -> None:
        await store.begin(begun("resp_1"), [said("a")])
        with pytest.raises(StoreError):
            await store.begin(begun("resp_1", model="other"), [said("b")])
        assert await store.find("resp_1") == Stored(begun("resp_1"))
        assert await store.input_items("resp_1", Cursor()) == Page([said("a")], has_more=False)

    async def test_unknown_ids_are_nothing(self, store: Store) -> None:
        assert await store.find("resp_1") is None
        assert await store.history("resp_1") is None
        assert await store.input_items("resp_1", Cursor()) is None
        assert await store.find_item("msg_1") is None
        assert await store.end(done(begun("resp_1"))) is None
        assert not await store.delete("resp_1")

    # --- ending ------------------------------------------------------------------------------

    @pytest.mark.parametrize("first", ["completed", "failed", "incomplete", "cancelled"])
    async def test_a_terminal_status_never_changes(self, store: Store, first: str) -> None:
        response = begun("resp_1")
        await store.begin(response, [])
        kept = done(response, answered("out"), status=first)  # pyright: ignore[reportArgumentType]
        assert await store.end(kept) == kept
        for status in ("completed", "failed", "incomplete", "cancelled"):
            assert await store.end(done(response, status=status)) == kept
        assert await store.find("resp_1") == Stored(kept)

    async def test_of_many_who_end_a_response_one_wins(self, store: Store) -> None:
        response = begun("resp_1")
        await store.begin(response, [])
        endings = [done(response, answered(f"out_{n}")) for n in range(50)]
        kept = await asyncio.gather(*map(store.end, endings))
        assert len({r.output[0].id for r in kept if r}) == 1
        assert await store.find("resp_1") == Stored(kept[0] or response)

    async def test_unfinished_responses_are_listed_oldest_first(self, store: Store) -> None:
        responses = [begun(f"resp_{n}", created_at=at) for n, at in enumerate([30, 10, 20, 10])]
        for n, response in enumerate(responses):
            await store.begin(response, [], tenant=f"t{n}", request=b"%d" % n)
        await store.end(done(responses[2]), tenant="t2")
        assert await store.unfinished() == [
            (f"t{n}", Stored(responses[n], b"%d" % n)) for n in (1, 3, 0)
        ]

    # --- chains ------------------------------------------------------------------------------

    async def test_a_chain_is_told_from_its_beginning(self, store: Store) -> None:
        for id, parent in zip("abcdef", [None, *"abcde"], strict=True):
            await ended(store, id, parent)
        assert await store.history("f") == History(turns("abcdef"), list("abcdef"))
        assert await store.history("c") == History(turns("abc"), list("abc"))
        assert await store.history("a") == History(turns("a"), list("a"))

    async def test_a_turn_may_be_without_input_or_output(self, store: Store) -> None:
        await ended(store, "a")
        await store.begin(begun("b", "a"), [])
        await store.end(done(begun("b", "a")))
        await store.begin(begun("c", "b"), ITEMS)
        assert await store.history("c") == History([*turns("a"), *ITEMS], list("abc"))

    async def test_forks_do_not_see_each_other(self, store: Store) -> None:
        for id, parent in ["1.", "21", "32", "42", "53", "64", "74", "82", "98"]:
            await ended(store, id, None if parent == "." else parent)
        chains = ["1", "12", "123", "124", "1235", "1246", "1247", "128", "1289"]
        for chain in chains:
            assert await store.history(chain[-1]) == History(turns(chain), list(chain)), chain

    async def test_a_chain_through_a_deleted_response_is_nothing(self, store: Store) -> None:
        for id, parent in ["a.", "ba", "cb", "dc", "eb"]:
            await ended(store, id, None if parent == "." else parent)
        await store.delete("b")
        assert [await store.history(id) for id in "bcde"] == [None] * 4
        assert await store.history("a") == History(turns("a"), list("a"))
        await ended(store, "x", "a")  # takes the place that became free
        await ended(store, "y", "x")
        assert [await store.history(id) for id in "cde"] == [None] * 3
        assert await store.history("y") == History(turns("axy"), list("axy"))

    async def test_a_chain_whose_beginning_was_deleted_is_nothing(self, store: Store) -> None:
        for id, parent in ["a.", "ba", "ca", "dc"]:
            await ended(store, id, None if parent == "." else parent)
        await store.delete("a")
        assert [await store.history(id) for id in "bcd"] == [None] * 3

    async def test_a_parent_that_was_never_kept_is_named(self, store: Store) -> None:
        await ended(store, "b", "a")
        await ended(store, "c", "b")
        await ended(store, "d", "b")
        assert await store.history("c") == History(turns("bc"), list("bc"), "a")
        assert await store.history("d") == History(turns("bd"), list("bd"), "a")

    # --- pages -------------------------------------------------------------------------------

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_pages_tile_the_list(self, store: Store, order: Order) -> None:
        items = [said(f"m{n}") for n in range(7)]
        await store.begin(begun("resp_1"), items)
        wanted = items if order == "asc" else items[::-1]
        for limit in range(1, 9):
            pages = [wanted[n : n + limit] for n in range(0, 7, limit)]
            after: str | None = None
            for number, page in enumerate(pages, 1):
                cursor = Cursor(limit, order, after=after)
                expected = Page([*page], has_more=number < len(pages))
                assert await store.input_items("resp_1", cursor) == expected
                after = str(page[-1].id)
            assert await store.input_items("resp_1", Cursor(limit, order, after=after)) == Page(
                [], has_more=False
            )

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_pages_tile_the_list_backwards(self, store: Store, order: Order) -> None:
        items = [said(f"m{n}") for n in range(7)]
        await store.begin(begun("resp_1"), items)
        wanted = items if order == "asc" else items[::-1]
        for limit in range(1, 9):
            end = 6  # the last item is where we come from
            while end > 0:
                cursor = Cursor(limit, order, before=str(wanted[end].id))
                first = max(end - limit, 0)
                expected = Page([*wanted[first:end]], has_more=first > 0)
                assert await store.input_items("resp_1", cursor) == expected
                end = first

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_a_page_may_lie_between_two_items(self, store: Store, order: Order) -> None:
        items = [said(f"m{n}") for n in range(7)]
        await store.begin(begun("resp_1"), items)
        wanted = items if order == "asc" else items[::-1]
        between = {"after": str(wanted[1].id), "before": str(wanted[5].id)}
        page = await store.input_items("resp_1", Cursor(2, order, **between))
        assert page == Page([*wanted[2:4]], has_more=True)
        page = await store.input_items("resp_1", Cursor(3, order, **between))
        assert page == Page([*wanted[2:5]], has_more=False)
        around = {"after": between["before"], "before": between["after"]}
        page = await store.input_items("resp_1", Cursor(3, order, **around))
        assert page == Page([], has_more=False)

    async def test_twenty_items_come_newest_first_if_nothing_is_said(self, store: Store) -> None:
        items = [said(f"m{n}") for n in range(21)]
        await store.begin(begun("resp_1"), items)
        page = await store.input_items("resp_1", Cursor())
        assert page == Page([*items[:0:-1]], has_more=True)

    @pytest.mark.parametrize("param", ["after", "before"])
    async def test_a_cursor_must_be_in_the_list(self, store: Store, param: str) -> None:
        await store.begin(begun("resp_1"), [said("a")])
        await store.begin(begun("resp_2"), [said("b")])
        with pytest.raises(RequestError, match="'b'") as caught:
            await store.input_items("resp_1", replace(Cursor(), **{param: "b"}))
        assert caught.value.payload.param == param

    async def test_paging_ends_even_if_an_id_comes_twice(self, store: Store) -> None:
        items = [said(id) for id in "abab"]
        await store.begin(begun("resp_1"), items)
        for order in ("asc", "desc"):
            cursor, seen = Cursor(1, order), 0
            while (page := await store.input_items("resp_1", cursor)) and page.items:
                cursor, seen = Cursor(1, order, after=str(page.items[-1].id)), seen + 1
            assert 0 < seen <= 4

    # --- items -------------------------------------------------------------------------------

    async def test_an_item_is_found_wherever_it_is(self, store: Store) -> None:
        await ended(store, "resp_1")
        assert await store.find_item("resp_1_in") == said("resp_1_in")
        assert await store.find_item("resp_1_out") == answered("resp_1_out")
        await store.begin(begun("resp_2"), ITEMS)
        for item in ITEMS:
            wanted = None if item.type == "item_reference" else item
            assert await store.find_item(str(item.id)) == wanted

    async def test_an_item_may_come_again(self, store: Store) -> None:
        await ended(store, "a")
        await store.begin(begun("b"), [answered("a_out"), said("new")])
        await store.delete("a")
        assert await store.find_item("a_out") == answered("a_out")
        await store.delete("b")
        assert await store.find_item("a_out") is None

    # --- deletion and tenants ----------------------------------------------------------------

    async def test_a_deleted_response_leaves_nothing(self, store: Store) -> None:
        await store.begin(begun("resp_1"), [said("in")], key=("key", "print"))
        await store.append("resp_1", 0, -1, [b"{}"])
        await store.end(done(begun("resp_1"), answered("out")))
        assert await store.delete("resp_1")
        assert not await store.delete("resp_1")
        assert await store.find("resp_1") is None
        assert await store.read("resp_1", -1) is None
        assert [await store.find_item(id) for id in ("in", "out")] == [None, None]
        assert await store.begin(begun("resp_2"), [], key=("key", "other")) is None

    async def test_a_response_deleted_while_it_runs_does_not_come_back(self, store: Store) -> None:
        await store.begin(begun("resp_1"), [], conversation="conv_1")
        await store.delete("resp_1")
        assert not await store.append("resp_1", 0, -1, [b"{}"])
        assert await store.end(done(begun("resp_1"))) is None
        assert await store.find("resp_1") is None
        assert await store.unfinished() == []
        await store.begin(begun("resp_2"), [], conversation="conv_1")

    async def test_what_belongs_to_another_does_not_exist(self, store: Store) -> None:
        response = begun("resp_1")
        await store.begin(response, [said("in")], tenant="a", key=("key", "print"))
        await store.append("resp_1", 0, -1, [b"{}"], tenant="a")
        for tenant in ("b", "", "A", "a "):
            assert await store.find("resp_1", tenant=tenant) is None
            assert await store.history("resp_1", tenant=tenant) is None
            assert await store.input_items("resp_1", Cursor(), tenant=tenant) is None
            assert await store.find_item("in", tenant=tenant) is None
            assert await store.claim("resp_1", tenant=tenant) is None
            assert not await store.append("resp_1", 0, 0, [b"{}"], tenant=tenant)
            assert await store.read("resp_1", -1, tenant=tenant) is None
            assert await store.end(done(response), tenant=tenant) is None
            assert not await store.delete("resp_1", tenant=tenant)
        assert await store.find("resp_1", tenant="a") == Stored(response, last=0)

    async def test_another_tenants_parent_is_a_parent_that_is_not_there(self, store: Store) -> None:
        await ended(store, "a", tenant="one")
        await ended(store, "b", "a", tenant="two")
        assert await store.history("b", tenant="two") == History(turns("b"), list("b"), "a")

    # --- idempotency -------------------------------------------------------------------------

    async def test_a_key_leads_to_its_first_response(self, store: Store) -> None:
        assert await store.begin(begun("resp_1"), [], key=("key", "print")) is None
        claim = await store.begin(begun("resp_2"), [said("in")], key=("key", "other"))
        assert claim == Claim("print", "resp_1")
        assert await store.find("resp_2") is None
        assert await store.find_item("in") is None
        assert await store.begin(begun("resp_3"), [], tenant="b", key=("key", "other")) is None
        assert await store.begin(begun("resp_4"), [], key=("another", "print")) is None

    async def test_a_key_is_claimed_once_by_many(self, store: Store) -> None:
        claims = await asyncio.gather(
            *(store.begin(begun(f"r{n}"), [], key=("key", "print")) for n in range(50))
        )
        counted = Counter(claim.response_id for claim in claims if claim)
        assert list(counted.values()) == [49]
        assert len(await store.unfinished()) == 1

    async def test_a_key_is_free_again_when_its_response_could_not_begin(
        self, store: Store
    ) -> None:
        await store.begin(begun("resp_1"), [])
        with pytest.raises(StoreError):
            await store.begin(begun("resp_1"), [], key=("key", "print"))
        assert await store.begin(begun("resp_2"), [], key=("key", "print")) is None
