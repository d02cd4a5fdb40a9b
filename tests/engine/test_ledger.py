"""A response is kept when it begins, and kept again before anybody hears how it ended."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon.core.errors import StoreError
from antiphon.core.events import Event
from antiphon.core.request import Request
from antiphon.core.value import encode
from antiphon.engine.ledger import ResponsePersistence
from antiphon.engine.recent import Context, ContextCache
from antiphon.store.base import IdempotencyRecord, PageCursor, ItemPage, Store, StoredResponse
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from tests.core.making import synthesize
from tests.engine.storing import FailingStore
from tests.store.making import assistant_message, new_response, ended_response, user_message

pytestmark = pytest.mark.anyio

REQUEST = Request.from_message("m", "hello")
HELLO = user_message("msg_in")
BEGUN = new_response("resp_0")
DONE = ended_response(BEGUN, assistant_message("msg_out"))
BEFORE = Context().extend([user_message("msg_before")], "resp_before")
ALL = (*BEFORE.items, HELLO, *DONE.output)


def make_persistence(store: Store | None, recent: ContextCache | None = None) -> ResponsePersistence:
    """Make a ledger of a response to a greeting."""
    memory = ContextCache(10**9, 3600) if recent is None else recent
    return ResponsePersistence(store, memory, "", BEFORE, [HELLO])


async def end(book: ResponsePersistence, events: Sequence[Event] = ()) -> list[Event]:
    """Keep the end in a ledger that has a store."""
    keeping = book.end(list(events), DONE)
    assert keeping
    return await keeping


async def test_a_stored_response_is_there_before_it_is_made() -> None:
    store = MemoryStore()
    assert await make_persistence(store).begin(BEGUN, REQUEST, None) is None
    assert await store.find("resp_0") == StoredResponse(BEGUN)
    assert await store.list_input_items("resp_0", PageCursor()) == ItemPage([HELLO], has_more=False)


async def test_the_request_is_kept_only_if_it_may_be_needed_and_with_its_items_ids() -> None:
    store = MemoryStore()
    background = replace(REQUEST, background=True)
    await make_persistence(store).begin(BEGUN, background, None)
    stored = await store.find("resp_0")
    assert stored
    assert stored.request == encode(replace(background, input=[HELLO]))


async def test_the_end_is_kept_and_remembered_and_its_events_may_be_told() -> None:
    store, recent = MemoryStore(), ContextCache(10**9, 3600)
    book = make_persistence(store, recent)
    await book.begin(BEGUN, REQUEST, None)
    events = synthesize()
    assert await end(book, events) == events
    assert await store.find("resp_0") == StoredResponse(DONE)
    remembered = recent.find("resp_0")
    assert remembered
    assert (remembered.items, remembered.responses) == (ALL, ("resp_before", "resp_0"))


async def test_a_key_that_is_taken_leads_to_its_claim() -> None:
    store = MemoryStore()
    await make_persistence(store).begin(BEGUN, REQUEST, ("key", "print"))
    again = await make_persistence(store).begin(new_response("resp_1"), REQUEST, ("key", "other"))
    assert again == IdempotencyRecord("print", "resp_0")
    assert await store.find("resp_1") is None


async def test_what_is_not_to_be_stored_is_remembered_all_the_same() -> None:
    recent = ContextCache(10**9, 3600)
    book = make_persistence(None, recent)
    assert await book.begin(BEGUN, REQUEST, ("key", "print")) is None
    assert book.end([], DONE) is None  # there is nothing to wait for
    remembered = recent.find("resp_0")
    assert remembered
    assert remembered.items == ALL


async def test_a_response_deleted_while_it_was_made_is_not_remembered() -> None:
    store, recent = MemoryStore(), ContextCache(10**9, 3600)
    book = make_persistence(store, recent)
    await book.begin(BEGUN, REQUEST, None)
    await store.delete("resp_0")
    await end(book)
    assert await store.find("resp_0") is None
    assert recent.find("resp_0") is None


async def test_an_end_that_cannot_be_kept_is_not_remembered() -> None:
    store, recent = FailingStore(), ContextCache(10**9, 3600)
    book = make_persistence(store, recent)
    await book.begin(BEGUN, REQUEST, None)
    store.failures = 1
    with pytest.raises(StoreError):
        await end(book)
    assert recent.find("resp_0") is None


async def test_a_chain_on_disk_and_the_chain_in_memory_are_the_same(tmp_path: Path) -> None:
    store, recent = SqliteStore(tmp_path), ContextCache(10**9, 3600)
    first = ResponsePersistence(store, recent, "", Context(), [HELLO])
    await first.begin(BEGUN, REQUEST, None)
    await end(first)
    history = await store.read_history("resp_0")
    remembered = recent.find("resp_0")
    assert history
    assert remembered
    assert tuple(history.items) == remembered.items
    await store.close()
