"""The contract of ResponseStore."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import get_args

import pytest
from msgspec.structs import replace

from antiphon.protocol.errors import RequestError, StoreError
from antiphon.protocol.items import Item
from antiphon.store.base import History, IdempotencyRecord, Store, StoredResponse
from antiphon.store.pagination import ItemPage, Order, PageCursor
from tests.store.builders import (
    FULL,
    ITEMS,
    assistant_message,
    content_text_of,
    ended_response,
    list_all,
    new_response,
    user_message,
)


async def add_ended_response(store: Store, id: str, previous: str | None = None, tenant: str = "") -> None:
    """Store a response with one input and one output message."""
    response = new_response(id, previous)
    await store.begin(response, [user_message(f"{id}_in")], tenant=tenant)
    await store.end(ended_response(response, assistant_message(f"{id}_out")), tenant=tenant)


def expected_items(ids: Iterable[str]) -> list[Item]:
    """Return the items of responses made by `add_ended_response`."""
    return [item for id in ids for item in (user_message(f"{id}_in"), assistant_message(f"{id}_out"))]


class ResponsesContract:
    """Tests of responses."""

    # --- whole values ------------------------------------------------------------------------

    async def test_a_response_is_found_as_it_was_stored(self, store: Store) -> None:
        queued = replace(FULL, status="queued", completed_at=None)
        await store.begin(queued, [], request=b"\0\xff{}", conversation="conv_1")
        assert await store.find(FULL.id) == StoredResponse(queued, b"\0\xff{}", "conv_1", 0, -1)
        assert await store.end(FULL) == FULL
        assert await store.find(FULL.id) == StoredResponse(FULL, b"\0\xff{}", "conv_1", 0, -1)

    async def test_a_minimal_response_is_found_as_it_was_stored(self, store: Store) -> None:
        response = new_response("resp_1")
        await store.begin(response, [])
        assert await store.find("resp_1") == StoredResponse(response)

    async def test_every_field_of_every_item_is_stored(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), ITEMS)
        page = await store.list_input_items("resp_1", PageCursor(limit=100, order="asc"))
        assert page == ItemPage(ITEMS, has_more=False)

    async def test_a_response_can_begin_with_a_terminal_status(self, store: Store) -> None:
        response = ended_response(new_response("resp_1"), assistant_message("out"))
        await store.begin(response, [])
        assert await store.list_unfinished() == []
        assert await store.end(replace(response, status="failed")) == response
        assert await store.find_item("out") == assistant_message("out")

    async def test_a_duplicate_id_is_an_error(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), [user_message("a")])
        with pytest.raises(StoreError):
            await store.begin(new_response("resp_1", model="other"), [user_message("b")])
        assert await store.find("resp_1") == StoredResponse(new_response("resp_1"))
        assert await store.list_input_items("resp_1", PageCursor()) == ItemPage([user_message("a")], has_more=False)

    async def test_unknown_ids_are_not_found(self, store: Store) -> None:
        assert await store.find("resp_1") is None
        assert await store.read_history("resp_1") is None
        assert await store.list_input_items("resp_1", PageCursor()) is None
        assert await store.find_item("msg_1") is None
        assert await store.end(ended_response(new_response("resp_1"))) is None
        assert not await store.delete("resp_1")

    # --- ending ------------------------------------------------------------------------------

    @pytest.mark.parametrize("first", ["completed", "failed", "incomplete", "cancelled"])
    async def test_a_terminal_status_never_changes(self, store: Store, first: str) -> None:
        response = new_response("resp_1")
        await store.begin(response, [])
        stored = ended_response(response, assistant_message("out"), status=first)  # pyright: ignore[reportArgumentType]
        assert await store.end(stored) == stored
        for status in ("completed", "failed", "incomplete", "cancelled"):
            assert await store.end(ended_response(response, status=status)) == stored
        assert await store.find("resp_1") == StoredResponse(stored)

    async def test_of_concurrent_ends_one_succeeds(self, store: Store) -> None:
        response = new_response("resp_1")
        await store.begin(response, [])
        endings = [ended_response(response, assistant_message(f"out_{n}")) for n in range(50)]
        stored = await asyncio.gather(*map(store.end, endings))
        assert len({r.output[0].id for r in stored if r}) == 1
        assert await store.find("resp_1") == StoredResponse(stored[0] or response)

    async def test_unfinished_responses_are_listed_oldest_first(self, store: Store) -> None:
        responses = [new_response(f"resp_{n}", created_at=at) for n, at in enumerate([30, 10, 20, 10])]
        for n, response in enumerate(responses):
            await store.begin(response, [], tenant=f"t{n}", request=b"%d" % n)
        await store.end(ended_response(responses[2]), tenant="t2")
        assert await store.list_unfinished() == [(f"t{n}", StoredResponse(responses[n], b"%d" % n)) for n in (1, 3, 0)]

    # --- chains ------------------------------------------------------------------------------

    async def test_a_history_starts_with_the_oldest_items(self, store: Store) -> None:
        for id, parent in zip("abcdef", [None, *"abcde"], strict=True):
            await add_ended_response(store, id, parent)
        assert await store.read_history("f") == History(expected_items("abcdef"), list("abcdef"))
        assert await store.read_history("c") == History(expected_items("abc"), list("abc"))
        assert await store.read_history("a") == History(expected_items("a"), list("a"))

    async def test_a_turn_may_have_no_input_or_output(self, store: Store) -> None:
        await add_ended_response(store, "a")
        await store.begin(new_response("b", "a"), [])
        await store.end(ended_response(new_response("b", "a")))
        await store.begin(new_response("c", "b"), ITEMS)
        assert await store.read_history("c") == History([*expected_items("a"), *ITEMS], list("abc"))

    async def test_forks_do_not_see_each_other(self, store: Store) -> None:
        for id, parent in ["1.", "21", "32", "42", "53", "64", "74", "82", "98"]:
            await add_ended_response(store, id, None if parent == "." else parent)
        chains = ["1", "12", "123", "124", "1235", "1246", "1247", "128", "1289"]
        for chain in chains:
            assert await store.read_history(chain[-1]) == History(expected_items(chain), list(chain)), chain

    async def test_a_chain_through_a_deleted_response_has_no_history(self, store: Store) -> None:
        for id, parent in ["a.", "ba", "cb", "dc", "eb"]:
            await add_ended_response(store, id, None if parent == "." else parent)
        await store.delete("b")
        assert [await store.read_history(id) for id in "bcde"] == [None] * 4
        assert await store.read_history("a") == History(expected_items("a"), list("a"))
        await add_ended_response(store, "x", "a")  # takes the place that became free
        await add_ended_response(store, "y", "x")
        assert [await store.read_history(id) for id in "cde"] == [None] * 3
        assert await store.read_history("y") == History(expected_items("axy"), list("axy"))

    async def test_a_chain_whose_start_was_deleted_has_no_history(self, store: Store) -> None:
        for id, parent in ["a.", "ba", "ca", "dc"]:
            await add_ended_response(store, id, None if parent == "." else parent)
        await store.delete("a")
        assert [await store.read_history(id) for id in "bcd"] == [None] * 3

    async def test_a_parent_that_was_never_stored_is_reported(self, store: Store) -> None:
        await add_ended_response(store, "b", "a")
        await add_ended_response(store, "c", "b")
        await add_ended_response(store, "d", "b")
        assert await store.read_history("c") == History(expected_items("bc"), list("bc"), "a")
        assert await store.read_history("d") == History(expected_items("bd"), list("bd"), "a")

    # --- pages -------------------------------------------------------------------------------

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_pages_cover_the_list_without_gaps(self, store: Store, order: Order) -> None:
        items = [user_message(f"m{n}") for n in range(7)]
        await store.begin(new_response("resp_1"), items)
        expected_page = items if order == "asc" else items[::-1]
        for limit in range(1, 9):
            pages = [expected_page[n : n + limit] for n in range(0, 7, limit)]
            after: str | None = None
            for number, page in enumerate(pages, 1):
                cursor = PageCursor(limit, order, after=after)
                expected = ItemPage([*page], has_more=number < len(pages))
                assert await store.list_input_items("resp_1", cursor) == expected
                after = str(page[-1].id)
            assert await store.list_input_items("resp_1", PageCursor(limit, order, after=after)) == ItemPage(
                [], has_more=False
            )

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_pages_cover_the_list_backwards(self, store: Store, order: Order) -> None:
        items = [user_message(f"m{n}") for n in range(7)]
        await store.begin(new_response("resp_1"), items)
        expected_page = items if order == "asc" else items[::-1]
        for limit in range(1, 9):
            end = 6  # the last item is where we come from
            while end > 0:
                cursor = PageCursor(limit, order, before=str(expected_page[end].id))
                first = max(end - limit, 0)
                expected = ItemPage([*expected_page[first:end]], has_more=first > 0)
                assert await store.list_input_items("resp_1", cursor) == expected
                end = first

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_a_page_can_be_between_two_items(self, store: Store, order: Order) -> None:
        items = [user_message(f"m{n}") for n in range(7)]
        await store.begin(new_response("resp_1"), items)
        expected_page = items if order == "asc" else items[::-1]
        between = {"after": str(expected_page[1].id), "before": str(expected_page[5].id)}
        page = await store.list_input_items("resp_1", PageCursor(2, order, **between))
        assert page == ItemPage([*expected_page[2:4]], has_more=True)
        page = await store.list_input_items("resp_1", PageCursor(3, order, **between))
        assert page == ItemPage([*expected_page[2:5]], has_more=False)
        around = {"after": between["before"], "before": between["after"]}
        page = await store.list_input_items("resp_1", PageCursor(3, order, **around))
        assert page == ItemPage([], has_more=False)

    async def test_the_default_page_is_the_newest_twenty_items(self, store: Store) -> None:
        items = [user_message(f"m{n}") for n in range(21)]
        await store.begin(new_response("resp_1"), items)
        page = await store.list_input_items("resp_1", PageCursor())
        assert page == ItemPage([*items[:0:-1]], has_more=True)

    @pytest.mark.parametrize("param", ["after", "before"])
    async def test_a_cursor_that_is_not_in_the_list_is_an_error(self, store: Store, param: str) -> None:
        await store.begin(new_response("resp_1"), [user_message("a")])
        await store.begin(new_response("resp_2"), [user_message("b")])
        with pytest.raises(RequestError, match="'b'") as caught:
            await store.list_input_items("resp_1", replace(PageCursor(), **{param: "b"}))
        assert caught.value.payload.param == param

    async def test_items_that_repeat_an_id_get_one_of_their_own(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), [user_message("msg_a", text) for text in "012"])
        everything = await store.list_input_items("resp_1", PageCursor(order="asc"))
        items = everything.items if everything else []
        ids = [str(item.id) for item in items]
        assert [*map(content_text_of, items)] == ["0", "1", "2"]
        assert ids[0] == "msg_a"
        assert len(set(ids)) == 3
        assert all(re.fullmatch("msg_[0-9a-f]{48}", id) for id in ids[1:])
        for limit, order in product((1, 2), get_args(Order)):
            pages = list_all(partial(store.list_input_items, "resp_1"), limit, order)
            assert await pages == (items if order == "asc" else items[::-1])

    # --- items -------------------------------------------------------------------------------

    async def test_an_item_is_found_in_inputs_and_outputs(self, store: Store) -> None:
        await add_ended_response(store, "resp_1")
        assert await store.find_item("resp_1_in") == user_message("resp_1_in")
        assert await store.find_item("resp_1_out") == assistant_message("resp_1_out")
        await store.begin(new_response("resp_2"), ITEMS)
        for item in ITEMS:
            expected_page = None if item.type == "item_reference" else item
            assert await store.find_item(str(item.id)) == expected_page

    async def test_an_item_id_may_repeat_in_another_response(self, store: Store) -> None:
        await add_ended_response(store, "a")
        await store.begin(new_response("b"), [assistant_message("a_out"), user_message("new")])
        await store.delete("a")
        assert await store.find_item("a_out") == assistant_message("a_out")
        await store.delete("b")
        assert await store.find_item("a_out") is None

    # --- deletion and tenants ----------------------------------------------------------------

    async def test_deleting_a_response_deletes_everything_of_it(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), [user_message("in")], key=("key", "print"))
        await store.append("resp_1", 0, -1, [b"{}"])
        await store.end(ended_response(new_response("resp_1"), assistant_message("out")))
        assert await store.delete("resp_1")
        assert not await store.delete("resp_1")
        assert await store.find("resp_1") is None
        assert await store.read("resp_1", -1) is None
        assert [await store.find_item(id) for id in ("in", "out")] == [None, None]
        assert await store.begin(new_response("resp_2"), [], key=("key", "other")) is None

    async def test_a_response_deleted_while_in_progress_stays_deleted(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), [], conversation="conv_1")
        await store.delete("resp_1")
        assert not await store.append("resp_1", 0, -1, [b"{}"])
        assert await store.end(ended_response(new_response("resp_1"))) is None
        assert await store.find("resp_1") is None
        assert await store.list_unfinished() == []
        await store.begin(new_response("resp_2"), [], conversation="conv_1")

    async def test_objects_of_another_tenant_are_not_found(self, store: Store) -> None:
        response = new_response("resp_1")
        await store.begin(response, [user_message("in")], tenant="a", key=("key", "print"))
        await store.append("resp_1", 0, -1, [b"{}"], tenant="a")
        for tenant in ("b", "", "A", "a "):
            assert await store.find("resp_1", tenant=tenant) is None
            assert await store.read_history("resp_1", tenant=tenant) is None
            assert await store.list_input_items("resp_1", PageCursor(), tenant=tenant) is None
            assert await store.find_item("in", tenant=tenant) is None
            assert await store.claim("resp_1", tenant=tenant) is None
            assert not await store.append("resp_1", 0, 0, [b"{}"], tenant=tenant)
            assert await store.read("resp_1", -1, tenant=tenant) is None
            assert await store.end(ended_response(response), tenant=tenant) is None
            assert not await store.delete("resp_1", tenant=tenant)
        assert await store.find("resp_1", tenant="a") == StoredResponse(response, last_sequence=0)

    async def test_a_parent_of_another_tenant_is_missing(self, store: Store) -> None:
        await add_ended_response(store, "a", tenant="one")
        await add_ended_response(store, "b", "a", tenant="two")
        assert await store.read_history("b", tenant="two") == History(expected_items("b"), list("b"), "a")

    # --- checkpoints -------------------------------------------------------------------------

    async def test_the_output_of_a_response_in_progress_can_be_stored(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        partial = new_response("r", output=ITEMS, model="other")
        await store.save_output(partial, tenant="b")
        assert await store.find("r") == StoredResponse(new_response("r"))
        await store.save_output(partial)
        assert await store.find("r") == StoredResponse(new_response("r", output=ITEMS))
        assert len(await store.list_unfinished()) == 1
        ended = ended_response(new_response("r"), assistant_message("out"))
        await store.end(ended)
        await store.save_output(partial)
        assert await store.find("r") == StoredResponse(ended)
        await store.save_output(new_response("unknown"))
        assert await store.find("unknown") is None

    # --- idempotency -------------------------------------------------------------------------

    async def test_an_idempotency_key_returns_its_first_response(self, store: Store) -> None:
        assert await store.begin(new_response("resp_1"), [], key=("key", "print")) is None
        claim = await store.begin(new_response("resp_2"), [user_message("in")], key=("key", "other"))
        assert claim == IdempotencyRecord("print", "resp_1")
        assert await store.find("resp_2") is None
        assert await store.find_item("in") is None
        assert await store.begin(new_response("resp_3"), [], tenant="b", key=("key", "other")) is None
        assert await store.begin(new_response("resp_4"), [], key=("another", "print")) is None

    async def test_of_concurrent_uses_of_a_key_one_succeeds(self, store: Store) -> None:
        claims = await asyncio.gather(
            *(store.begin(new_response(f"r{n}"), [], key=("key", "print")) for n in range(50))
        )
        counted = Counter(claim.response_id for claim in claims if claim)
        assert list(counted.values()) == [49]
        assert len(await store.list_unfinished()) == 1

    async def test_a_key_is_not_used_if_its_response_could_not_begin(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), [])
        with pytest.raises(StoreError):
            await store.begin(new_response("resp_1"), [], key=("key", "print"))
        assert await store.begin(new_response("resp_2"), [], key=("key", "print")) is None

    async def test_a_released_key_can_be_used_again(self, store: Store) -> None:
        await store.begin(new_response("resp_1"), [], key=("key", "print"))
        await store.release_key("resp_1", tenant="b")
        assert await store.begin(new_response("resp_2"), [], key=("key", "print")) is not None
        await store.release_key("resp_1")
        await store.release_key("resp_1")
        assert await store.begin(new_response("resp_2"), [], key=("key", "other")) is None
        assert await store.find("resp_1") is not None
        assert await store.delete("resp_1")
        assert await store.begin(new_response("resp_3"), [], key=("key", "x")) == IdempotencyRecord("other", "resp_2")
