"""A response is kept when it begins, and kept again before anybody hears how it ended."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from antiphon.engine import persistence as keys_module
from antiphon.engine.history import Context, ContextCache
from antiphon.engine.persistence import IdempotencyKeys, ResponsePersistence, replay_response
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import StoreError
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.struct import encode
from antiphon.store.base import (
    IdempotencyRecord,
    ItemPage,
    PageCursor,
    Store,
    StoredResponse,
)
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from tests.engine.builders import FailingStore
from tests.protocol.builders import final_response, make_response, synthesize
from tests.protocol.strategies import part_lists
from tests.store.builders import (
    assistant_message,
    ended_response,
    new_response,
    user_message,
)

pytestmark = pytest.mark.anyio

REQUEST = Request.from_message("m", "hello")
HELLO = user_message("msg_in")
BEGUN = new_response("resp_0")
DONE = ended_response(BEGUN, assistant_message("msg_out"))
BEFORE = Context().extend([user_message("msg_before")], "resp_before")
ALL = (*BEFORE.items, HELLO, *DONE.output)


def make_persistence(
    store: Store | None, recent: ContextCache | None = None
) -> ResponsePersistence:
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


def test_a_key_is_taken_once_and_then_leads_to_its_first_claim() -> None:
    keys = IdempotencyKeys()
    assert keys.claim(("k", "print"), "resp_0", tenant="") is None
    assert keys.claim(("k", "other"), "resp_1", tenant="") == IdempotencyRecord("print", "resp_0")
    assert keys.claim(("k2", "print"), "resp_2", tenant="") is None
    assert keys.claim(("k", "print"), "resp_3", tenant="t") is None


def test_what_a_key_led_to_is_known_when_it_has_ended() -> None:
    keys = IdempotencyKeys()
    keys.claim(("k", "print"), "resp_0", tenant="")
    assert keys.find_response("resp_0") is None
    response = make_response(status="completed")
    keys.record_response(response)
    assert keys.find_response("resp_0") is response


def test_what_no_key_led_to_is_not_kept() -> None:
    keys = IdempotencyKeys()
    keys.record_response(make_response())
    assert keys.find_response("resp_0") is None


def test_a_key_is_free_again_after_a_day() -> None:
    now = 0.0
    keys = IdempotencyKeys(lambda: now)
    keys.claim(("k", "print"), "resp_0", tenant="")
    keys.record_response(make_response())
    now = keys_module.KEY_SECONDS - 1
    assert keys.claim(("k", "print"), "resp_1", tenant="") == IdempotencyRecord("print", "resp_0")
    now = keys_module.KEY_SECONDS
    assert keys.claim(("k", "print"), "resp_1", tenant="") is None
    assert keys.find_response("resp_0") is None


def test_only_so_many_keys_are_kept_and_the_oldest_go_first() -> None:
    keys = IdempotencyKeys()
    for number in range(keys_module.MAX_KEYS + 1):
        assert keys.claim((f"k{number}", "print"), f"resp_{number}", tenant="") is None
    assert keys.claim(("k1", "print"), "resp_x", tenant="") is not None
    assert keys.claim(("k0", "print"), "resp_x", tenant="") is None


@settings(deadline=None, max_examples=300)
@given(part_lists())
def test_any_response_can_be_told_again(parts: list[Part]) -> None:
    response = final_response(synthesize(*parts))
    events = replay_response(response)
    assert find_violations(events) == []
    assert fold(events) == response
    assert final_response(events) == response


def test_a_background_response_can_be_told_again() -> None:
    response = final_response(synthesize(response=make_response(background=True)))
    assert find_violations(replay_response(response)) == []
    assert final_response(replay_response(response)) == response
