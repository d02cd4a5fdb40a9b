"""The contract of the lists of responses and conversations."""

from itertools import product
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, InputImage, Message
from antiphon.protocol.request import ConversationParam
from antiphon.protocol.response import ResponseUsage
from antiphon.store import lists
from antiphon.store.base import Store, StoredConversation
from antiphon.store.lists import ConversationSummary, ListFilter, ResponseFilter, ResponseSummary, SummaryPage
from antiphon.store.pagination import Order, PageCursor
from tests.store.builders import FULL, LATER, NASTY, NOW, assistant_message, ended_response, new_response, user_message

ALL = PageCursor(limit=100)
NO_FILTER = ResponseFilter()


def ids_of(page: SummaryPage[Any]) -> list[str]:
    """Return the ids of a page."""
    return [row.id for row in page.rows]


async def add_responses(store: Store, count: int, *, background: bool = False) -> None:
    """Store responses `r0`, `r1` and so on, two of them per second."""
    for n in range(count):
        response = new_response(f"r{n}", created_at=NOW + n // 2, background=background)
        await store.begin(response, [user_message(f"m{n}", f"Question {n}")])


async def find_ids(store: Store, **conditions: Any) -> list[str]:
    """Return the ids of the responses that meet conditions."""
    return ids_of(await store.list_responses(ALL, ResponseFilter(**conditions)))


async def find_conversations(store: Store, **conditions: Any) -> list[str]:
    """Return the ids of the conversations that meet conditions."""
    return ids_of(await store.list_conversations(ALL, ListFilter(**conditions)))


class ListsContract:
    """Tests of lists."""

    async def test_a_row_says_what_is_known_without_the_items(self, store: Store) -> None:
        response = new_response("r", "before", background=True, metadata={"a": NASTY}, tools=FULL.tools)
        input = [Message(id="s", role="system", content=[]), user_message("m", "  What\n is \0 this? " + "x" * 100)]
        await store.begin(response, input, conversation="conv_1")
        usage = ResponseUsage.of(3, 4, cached=1)
        await store.end(replace(ended_response(response, status="failed"), usage=usage, error=FULL.error))
        page = await store.list_responses(ALL, NO_FILTER)
        title = ("What is \0 this? " + "x" * 100)[:80]
        row = ResponseSummary(
            id="r",
            created_at=NOW,
            completed_at=LATER,
            status="failed",
            model="m",
            title=title,
            usage=usage,
            previous_response_id="before",
            conversation=ConversationParam(id="conv_1"),
            background=True,
            metadata={"a": NASTY},
            error=FULL.error,
        )
        assert page == SummaryPage([row], "r", "r", has_more=False)

    async def test_a_list_without_rows_is_empty(self, store: Store) -> None:
        assert await store.list_responses(ALL, NO_FILTER) == SummaryPage([], None, None, has_more=False)
        assert await store.list_conversations(ALL, ListFilter()) == SummaryPage([], None, None, has_more=False)

    async def test_a_response_in_progress_is_listed(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        page = await store.list_responses(ALL, NO_FILTER)
        assert [(row.status, row.completed_at, row.title) for row in page.rows] == [("in_progress", None, "")]

    async def test_pages_of_responses_cover_the_list_in_both_orders(self, store: Store) -> None:
        await add_responses(store, 7)
        expected = [f"r{n}" for n in range(7)]
        for limit, order in product((1, 2, 3, 7, 8), get_args(Order)):
            found: list[str] = []
            page, after = None, None
            while page is None or page.has_more:
                page = await store.list_responses(PageCursor(limit, order, after=after), NO_FILTER)
                assert (page.first_id, page.last_id) == (page.rows[0].id, page.rows[-1].id)
                found += ids_of(page)
                after = page.last_id
            assert found == (expected if order == "asc" else expected[::-1])

    async def test_a_page_before_a_response_ends_next_to_it(self, store: Store) -> None:
        await add_responses(store, 7)
        page = await store.list_responses(PageCursor(2, "asc", before="r5"), NO_FILTER)
        assert (ids_of(page), page.first_id, page.last_id, page.has_more) == (["r3", "r4"], "r3", "r4", True)
        page = await store.list_responses(PageCursor(5, "desc", before="r5"), NO_FILTER)
        assert (ids_of(page), page.has_more) == (["r6"], False)
        page = await store.list_responses(PageCursor(5, "asc", after="r1", before="r4"), NO_FILTER)
        assert (ids_of(page), page.has_more) == (["r2", "r3"], False)

    @pytest.mark.parametrize("param", ["after", "before"])
    async def test_a_cursor_that_is_not_in_the_list_is_an_error(self, store: Store, param: str) -> None:
        await store.begin(new_response("theirs"), [], tenant="other")
        for id in ("unknown", "theirs", "\0"):
            cursor = PageCursor(after=id) if param == "after" else PageCursor(before=id)
            with pytest.raises(RequestError) as caught:
                await store.list_responses(cursor, NO_FILTER)
            assert caught.value.payload.param == param
            with pytest.raises(RequestError):
                await store.list_conversations(cursor, ListFilter())

    async def test_tenants_do_not_see_each_other(self, store: Store) -> None:
        await store.begin(new_response("a"), [user_message("m", "needle")], tenant="t")
        await store.save_conversation(StoredConversation("c", NOW, {}), tenant="t")
        await store.add_items("c", [user_message("n", "needle")], tenant="t")
        assert await find_ids(store) == await find_ids(store, search="needle") == []
        assert await find_conversations(store) == await find_conversations(store, search="needle") == []
        assert ids_of(await store.list_responses(ALL, NO_FILTER, tenant="t")) == ["a"]
        assert ids_of(await store.list_conversations(ALL, ListFilter(search="needle"), tenant="t")) == ["c"]

    async def test_a_deleted_response_is_not_listed(self, store: Store) -> None:
        await add_responses(store, 3)
        await store.delete("r1")
        assert await find_ids(store) == ["r2", "r0"]

    async def test_filters_select_responses(self, store: Store) -> None:
        await store.begin(new_response("a", created_at=NOW, model=NASTY), [])
        await store.begin(new_response("b", "a", created_at=NOW + 1, metadata={"k": "1", "l": NASTY}), [])
        await store.end(ended_response(new_response("b", "a", created_at=NOW + 1, metadata={"k": "1", "l": NASTY})))
        await store.begin(new_response("c", created_at=NOW + 2, background=True, metadata={"k": "2"}), [])
        await store.begin(new_response("d", created_at=NOW + 3), [], conversation="conv_1")
        assert await find_ids(store, model=NASTY) == ["a"]
        assert await find_ids(store, model="m") == ["d", "c", "b"]
        assert await find_ids(store, status="completed") == ["b"]
        assert await find_ids(store, background=True) == ["c"]
        assert await find_ids(store, background=False) == ["d", "b", "a"]
        assert await find_ids(store, previous_response_id="a") == ["b"]
        assert await find_ids(store, conversation="conv_1") == ["d"]
        assert await find_ids(store, metadata={"k": "1"}) == ["b"]
        assert await find_ids(store, metadata={"k": "1", "l": NASTY}) == ["b"]
        assert await find_ids(store, metadata={"k": "1", "x": ""}) == []
        assert await find_ids(store, created_after=NOW) == ["d", "c", "b"]
        assert await find_ids(store, created_before=NOW + 3) == ["c", "b", "a"]
        assert await find_ids(store, created_after=NOW, created_before=NOW + 2, model="m") == ["b"]

    async def test_a_search_finds_text_of_input_and_output(self, store: Store) -> None:
        call = FunctionCall(id="f", call_id="c", name="weather", arguments='{"city": "Köln"}')
        await store.begin(new_response("a"), [user_message("m", f"About 100% of {NASTY}")])
        await store.begin(new_response("b"), [user_message("n", "An_Apple")])
        await store.end(ended_response(new_response("b"), call, assistant_message("o", "The Pear!")))
        assert await find_ids(store, search=NASTY) == ["a"]
        assert await find_ids(store, search="100%") == ["a"]
        assert await find_ids(store, search="n_a") == ["b"]
        assert await find_ids(store, search="the PEAR") == ["b"]
        assert await find_ids(store, search='"KÖLN') == []  # only ASCII letters have no case
        assert await find_ids(store, search='"köln') == ["b"]
        assert await find_ids(store, search="WEATHER") == ["b"]
        # Not the names of fields or types, and no patterns.
        for text in ("output_text", "message", "call_id", "1%f", "a_apple", "!", "completed"):
            assert await find_ids(store, search=text) == (["b"] if text == "!" else [])

    async def test_a_filter_looks_at_a_limited_number_of_rows(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lists, "SCAN_LIMIT", 3)
        await add_responses(store, 8)
        wanted = ResponseFilter(search="question 1")
        page = await store.list_responses(PageCursor(), wanted)
        assert page == SummaryPage([], "r5", "r5", has_more=True)
        page = await store.list_responses(PageCursor(after=page.last_id), wanted)
        assert page == SummaryPage([], "r2", "r2", has_more=True)
        page = await store.list_responses(PageCursor(after=page.last_id), wanted)
        assert (ids_of(page), page.last_id, page.has_more) == (["r1"], "r1", False)
        page = await store.list_responses(PageCursor(order="asc", after="r0"), wanted)
        assert (ids_of(page), page.first_id, page.last_id, page.has_more) == (["r1"], "r1", "r3", True)
        page = await store.list_responses(PageCursor(order="desc", before="r0"), wanted)
        assert (ids_of(page), page.first_id, page.last_id, page.has_more) == (["r1"], "r3", "r1", True)

    async def test_a_filtered_page_has_more_only_if_there_is_one(self, store: Store) -> None:
        await add_responses(store, 120, background=True)
        await store.begin(new_response("x", created_at=NOW + 100), [])
        page = await store.list_responses(PageCursor(60), ResponseFilter(background=True))
        assert (page.first_id, page.last_id, page.has_more) == ("r119", "r60", True)
        page = await store.list_responses(PageCursor(60, after="r60"), ResponseFilter(background=True))
        assert (page.first_id, page.last_id, page.has_more) == ("r59", "r0", False)
        page = await store.list_responses(PageCursor(1), ResponseFilter(background=False))
        assert (ids_of(page), page.has_more) == (["x"], False)

    async def test_conversations_are_listed_with_their_titles(self, store: Store) -> None:
        for n in range(5):
            await store.save_conversation(StoredConversation(f"c{n}", NOW + n // 2, {"n": str(n)}))
        image = Message(id="i", role="user", content=[InputImage(image_url="https://a.example/a.png")])
        await store.add_items("c3", [assistant_message("x"), image, user_message("y", "The  title")])
        page = await store.list_conversations(PageCursor(2), ListFilter())
        rows = [
            ConversationSummary(id="c4", created_at=NOW + 2, title="", metadata={"n": "4"}),
            ConversationSummary(id="c3", created_at=NOW + 1, title="The title", metadata={"n": "3"}),
        ]
        assert page == SummaryPage(rows, "c4", "c3", has_more=True)
        page = await store.list_conversations(PageCursor(2, "asc", before="c3"), ListFilter())
        assert (ids_of(page), page.has_more) == (["c1", "c2"], True)

    async def test_filters_select_conversations(self, store: Store) -> None:
        await store.save_conversation(StoredConversation("a", NOW, {"k": NASTY}))
        await store.save_conversation(StoredConversation("b", NOW + 1, {}))
        await store.add_items("a", [user_message("m", "An apple"), assistant_message("n", NASTY)])
        await store.add_items("b", [user_message("o", "A pear")])
        assert await find_conversations(store, metadata={"k": NASTY}) == ["a"]
        assert await find_conversations(store, search="APPLE") == ["a"]
        assert await find_conversations(store, search=NASTY) == ["a"]
        assert await find_conversations(store, search="a") == ["b", "a"]
        assert await find_conversations(store, search="message") == []
        assert await find_conversations(store, created_after=NOW) == ["b"]
        assert await find_conversations(store, created_before=NOW + 1) == ["a"]

    async def test_a_search_looks_at_the_last_items_of_a_conversation(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lists, "SEARCHED_ITEMS", 2)
        await store.save_conversation(StoredConversation("c", NOW, {}))
        await store.add_items("c", [user_message(f"m{n}", f"Number {n}") for n in range(4)])
        assert [await find_conversations(store, search=f"number {n}") for n in range(4)] == [[], [], ["c"], ["c"]]
