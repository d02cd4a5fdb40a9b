"""Persistence of responses and idempotency keys, replays, ids."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from antiphon.agents.demo import demo
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.engine.persistence import (
    KEY_SECONDS,
    MAX_KEYS,
    Context,
    ContextCache,
    IdempotencyKeys,
    ResponsePersistence,
    random_padding,
    replay_response,
)
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import StoreError
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.struct import encode
from antiphon.store.base import IdempotencyRecord, Store, StoredResponse
from antiphon.store.memory import MemoryStore
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.sqlite.store import SqliteStore
from antiphon.wire.openresponses import decode_request
from tests.engine.builders import FailingStore
from tests.protocol.builders import final_response, make_response, synthesize
from tests.protocol.strategies import part_lists
from tests.store.builders import assistant_message, ended_response, new_response, user_message

pytestmark = pytest.mark.anyio

REQUEST = Request.from_message("m", "hello")
HELLO = user_message("msg_in")
BEGUN = new_response("resp_0")
DONE = ended_response(BEGUN, assistant_message("msg_out"))
HISTORY = Context().extend([user_message("msg_before")], "resp_before")
ALL = (*HISTORY.items, HELLO, *DONE.output)


def make_persistence(store: Store | None, cache: ContextCache | None = None, **changes: Any) -> ResponsePersistence:
    """Return the persistence of a response to one message, with an earlier response."""
    if cache is None:
        cache = ContextCache(10**9, 3600)
    return replace(ResponsePersistence(BEGUN, store, cache, tenant="", history=HISTORY, new_items=[HELLO]), **changes)


async def commit_end(persistence: ResponsePersistence, events: Sequence[Event] = ()) -> list[Event]:
    """Store the end of the response; return the events that may be sent then."""
    commit = persistence.end(list(events), DONE)
    assert commit
    return await commit


async def test_a_response_is_stored_when_it_begins() -> None:
    store = MemoryStore()
    assert await make_persistence(store).begin(REQUEST, None) is None
    assert await store.find("resp_0") == StoredResponse(BEGUN)
    assert await store.list_input_items("resp_0", PageCursor()) == ItemPage([HELLO], has_more=False)


async def test_only_a_background_request_is_stored_with_the_ids_of_its_items() -> None:
    store = MemoryStore()
    background = replace(REQUEST, background=True)
    await make_persistence(store).begin(background, None)
    stored = await store.find("resp_0")
    assert stored
    assert stored.request == encode(replace(background, input=[HELLO]))


async def test_the_end_is_stored_and_cached_before_its_events_are_returned() -> None:
    store, cache = MemoryStore(), ContextCache(10**9, 3600)
    persistence = make_persistence(store, cache)
    await persistence.begin(REQUEST, None)
    events = synthesize()
    assert await commit_end(persistence, events) == events
    assert await store.find("resp_0") == StoredResponse(DONE)
    cached = cache.find("resp_0")
    assert cached
    assert (cached.items, cached.responses) == (ALL, ("resp_before", "resp_0"))


async def test_a_taken_idempotency_key_returns_its_record() -> None:
    store = MemoryStore()
    await make_persistence(store).begin(REQUEST, ("key", "print"))
    second = make_persistence(store, response=new_response("resp_1"))
    assert await second.begin(REQUEST, ("key", "other")) == IdempotencyRecord("print", "resp_0")
    assert await store.find("resp_1") is None


async def test_a_response_that_is_not_stored_is_cached() -> None:
    cache = ContextCache(10**9, 3600)
    persistence = make_persistence(None, cache)
    assert await persistence.begin(REQUEST, ("key", "print")) is None
    assert persistence.end([], DONE) is None  # there is nothing to await
    cached = cache.find("resp_0")
    assert cached
    assert cached.items == ALL


async def test_a_response_deleted_while_it_ran_is_not_cached() -> None:
    store, cache = MemoryStore(), ContextCache(10**9, 3600)
    persistence = make_persistence(store, cache)
    await persistence.begin(REQUEST, None)
    await store.delete("resp_0")
    await commit_end(persistence)
    assert await store.find("resp_0") is None
    assert cache.find("resp_0") is None


async def test_a_response_whose_end_cannot_be_stored_is_not_cached() -> None:
    store, cache = FailingStore(), ContextCache(10**9, 3600)
    persistence = make_persistence(store, cache)
    await persistence.begin(REQUEST, None)
    store.failures = 1
    with pytest.raises(StoreError):
        await commit_end(persistence)
    assert cache.find("resp_0") is None


async def test_the_stored_history_equals_the_cached_context(tmp_path: Path) -> None:
    store, cache = SqliteStore(tmp_path), ContextCache(10**9, 3600)
    persistence = make_persistence(store, cache, history=Context())
    await persistence.begin(REQUEST, None)
    await commit_end(persistence)
    history = await store.read_history("resp_0")
    cached = cache.find("resp_0")
    assert history
    assert cached
    assert tuple(history.items) == cached.items
    await store.close()


def test_a_second_claim_of_a_key_returns_the_first_record() -> None:
    keys = IdempotencyKeys()
    assert keys.claim(("k", "print"), "resp_0", tenant="") is None
    assert keys.claim(("k", "other"), "resp_1", tenant="") == IdempotencyRecord("print", "resp_0")
    assert keys.claim(("k2", "print"), "resp_2", tenant="") is None
    assert keys.claim(("k", "print"), "resp_3", tenant="t") is None


def test_the_response_of_a_key_is_found_when_it_has_ended() -> None:
    keys = IdempotencyKeys()
    keys.claim(("k", "print"), "resp_0", tenant="")
    assert keys.find_response("resp_0") is None
    response = make_response(status="completed")
    keys.record_response(response)
    assert keys.find_response("resp_0") is response


def test_a_response_without_a_key_is_not_kept() -> None:
    keys = IdempotencyKeys()
    keys.record_response(make_response())
    assert keys.find_response("resp_0") is None


def test_a_key_expires_after_a_day() -> None:
    now = 0.0
    keys = IdempotencyKeys(lambda: now)
    keys.claim(("k", "print"), "resp_0", tenant="")
    keys.record_response(make_response())
    now = KEY_SECONDS - 1
    assert keys.claim(("k", "print"), "resp_1", tenant="") == IdempotencyRecord("print", "resp_0")
    now = KEY_SECONDS
    assert keys.claim(("k", "print"), "resp_1", tenant="") is None
    assert keys.find_response("resp_0") is None


def test_the_oldest_keys_are_removed_first() -> None:
    keys = IdempotencyKeys()
    for number in range(MAX_KEYS + 1):
        assert keys.claim((f"k{number}", "print"), f"resp_{number}", tenant="") is None
    assert keys.claim(("k1", "print"), "resp_x", tenant="") is not None
    assert keys.claim(("k0", "print"), "resp_x", tenant="") is None


@settings(deadline=None, max_examples=100)
@given(part_lists())
def test_a_replay_of_any_response_is_valid_and_ends_with_it(parts: list[Part]) -> None:
    response = final_response(synthesize(*parts))
    events = replay_response(response)
    assert find_violations(events) == []
    assert fold(events) == response
    assert final_response(events) == response


def test_a_background_response_can_be_replayed() -> None:
    response = final_response(synthesize(response=make_response(background=True)))
    assert find_violations(replay_response(response)) == []
    assert final_response(replay_response(response)) == response


TOOL = {"type": "function", "name": "ping"}


async def test_the_prefix_of_an_id_names_its_kind() -> None:
    engine = Engine(Models([demo]))
    reasoning = {"model": "demo", "input": "Hi!", "reasoning": {"effort": "low"}}
    calling = {"model": "demo", "input": "ping", "tools": [TOOL]}
    ids: list[object] = []
    for body in [reasoning, calling] * 10:
        run = await engine.create_run(decode_request(body))
        response = await run.execute()
        ids += [response.id, *(item.id for item in response.output)]
        ids += [item.call_id for item in response.output if isinstance(item, FunctionCall)]
    assert len(set(ids)) == len(ids) == 10 * (3 + 3)
    assert all(re.fullmatch(r"(resp|msg|rs|fc|call)_[0-9a-f]{40,}", str(id)) for id in ids)
    assert {str(id).partition("_")[0] for id in ids} == {"resp", "msg", "rs", "fc", "call"}


@pytest.mark.parametrize("text", ["", "a", "fifteen letters", "sixteen letters!", "日本語", "\n", "x" * 100])
def test_padding_fills_an_encoded_text_to_a_multiple_of_sixteen_bytes(text: str) -> None:
    pad = random_padding(text)
    assert len(encode(text) + pad.encode()) % 16 == 0
    assert 1 <= len(pad) <= 16
    assert re.fullmatch(r"[A-Za-z0-9_-]+", pad)


def test_padding_is_random() -> None:
    assert len({random_padding("") for _ in range(100)}) == 100
