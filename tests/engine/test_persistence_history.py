"""The context cache, and histories loaded from the store."""

import tracemalloc

import pytest

from antiphon.engine.persistence import (
    ITEM_OVERHEAD_BYTES,
    MAX_DELETED,
    Context,
    ContextCache,
    HistoryLoader,
    estimate_size,
)
from antiphon.protocol import items
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.struct import encode
from antiphon.store.memory import MemoryStore
from tests.store.builders import assistant_message, ended_response, new_response, user_message

HELLO = items.user_message("hello")
SIZE = estimate_size(HELLO) + ITEM_OVERHEAD_BYTES


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_context(*ids: str) -> Context:
    """Return the context of a chain with one message per response."""
    made = Context()
    for id in ids:
        made = made.extend([HELLO], id)
    return made


def make_cache_of(room: int = 100, seconds: float = 60, clock: Clock | None = None) -> ContextCache:
    """Return a cache with room for some messages."""
    return ContextCache(room * SIZE, seconds, clock or Clock())


def test_a_context_grows_by_items_and_knows_its_size() -> None:
    first = Context().extend([HELLO], "a")
    assert first == Context((HELLO,), ("a",), SIZE)
    assert first.extend([HELLO, HELLO], "b", "c") == Context((HELLO, HELLO, HELLO), ("a", "b", "c"), 3 * SIZE)
    assert first == Context((HELLO,), ("a",), SIZE)


def test_a_context_is_found_by_its_own_tenant_only() -> None:
    cache = make_cache_of()
    cache.add("a", make_context("a"), tenant="t")
    assert cache.find("a", tenant="t") == make_context("a")
    assert cache.find("a") is None
    assert cache.find("b", tenant="t") is None


def test_the_least_recently_used_context_is_removed_first() -> None:
    cache = make_cache_of(room=3)
    for id in "abc":
        cache.add(id, make_context(id))
    cache.find("a")
    cache.add("d", make_context("d"))
    assert [id for id in "abcd" if cache.find(id)] == ["a", "c", "d"]


def test_items_that_contexts_share_count_in_each() -> None:
    cache = make_cache_of(room=5)
    cache.add("a", make_context("a"))
    cache.add("b", make_context("a", "b"))
    cache.add("c", make_context("a", "b", "c"))
    assert [id for id in "abc" if cache.find(id)] == ["b", "c"]


def test_a_context_larger_than_the_cache_is_not_added() -> None:
    cache = make_cache_of(room=1)
    cache.add("b", make_context("a", "b"))
    assert len(cache) == 0
    cache.add("a", make_context("a"))
    assert cache.find("a")


def test_a_context_larger_than_the_cache_removes_no_others() -> None:
    cache = make_cache_of(room=2)
    cache.add("a", make_context("a"))
    cache.add("d", make_context("b", "c", "d"))
    assert [id for id in "abcd" if cache.find(id)] == ["a"]


def test_adding_a_context_again_replaces_it() -> None:
    cache = make_cache_of(room=2)
    for _ in range(10):
        cache.add("a", make_context("a"))
    cache.add("b", make_context("b"))
    assert len(cache) == 2


def test_use_does_not_extend_the_age_of_a_context() -> None:
    clock = Clock()
    cache = make_cache_of(seconds=60, clock=clock)
    cache.add("a", make_context("a"))
    clock.now = 60
    assert cache.find("a")
    clock.now = 60.5
    assert cache.find("a") is None
    assert len(cache) == 0


def test_only_expired_contexts_are_removed() -> None:
    clock = Clock()
    cache = make_cache_of(seconds=60, clock=clock)
    cache.add("a", make_context("a"))
    clock.now = 30
    cache.add("b", make_context("b"))
    clock.now = 61
    cache.remove_expired()
    assert len(cache) == 1
    assert cache.find("b")


def test_invalidating_a_response_removes_every_context_that_contains_it() -> None:
    cache = make_cache_of()
    cache.add("a", make_context("a"))
    cache.add("b", make_context("a", "b"))
    cache.add("c", make_context("a", "b", "c"))
    cache.add("b", make_context("a", "b"), tenant="t")
    cache.invalidate("b")
    assert [id for id in "abc" if cache.find(id)] == ["a"]
    assert cache.find("b", tenant="t")


def test_a_deleted_response_does_not_come_back_with_a_response_that_was_running() -> None:
    cache = make_cache_of()
    cache.invalidate("a")
    cache.add("b", make_context("a", "b"))
    cache.add("b", make_context("a", "b"), tenant="t")
    cache.add("c", make_context("c"))
    assert [id for id in "abc" if cache.find(id)] == ["c"]
    assert cache.find("b", tenant="t")


def test_the_number_of_remembered_deletions_is_limited() -> None:
    cache = make_cache_of()
    for number in range(MAX_DELETED + 1):
        cache.invalidate(str(number))
    cache.add("0", make_context("0"))
    cache.add("1", make_context("1"))
    assert [id for id in "01" if cache.find(id)] == ["0"]


def test_evicting_removes_one_context_only() -> None:
    cache = make_cache_of()
    cache.add("a", make_context("a"))
    cache.add("b", make_context("a", "b"))
    cache.evict("a")
    cache.evict("never there")
    assert [id for id in "ab" if cache.find(id)] == ["b"]


pytestmark = pytest.mark.anyio


def make_cache() -> ContextCache:
    """Return a cache that never fills up."""
    return ContextCache(10**9, 3600)


async def store_response(store: MemoryStore, id: str, after: str | None = None) -> list[Item]:
    """Store a response; return its input and output."""
    turn: list[Item] = [user_message(f"in_{id}"), assistant_message(f"out_{id}")]
    response = new_response(id, after)
    await store.begin(response, turn[:1])
    await store.end(ended_response(response, *turn[1:]))
    return turn


async def load(
    loader: HistoryLoader, id: str, *, local: ContextCache | None = None, stored: bool = True, tenant: str = ""
) -> Context:
    """Load a context."""
    return await loader.load(id, tenant=tenant, connection_cache=local, will_store=stored)


async def load_error(loader: HistoryLoader, id: str, **options: object) -> ErrorPayload:
    """Return the error of loading a context."""
    with pytest.raises(RequestError) as caught:
        await load(loader, id, **options)  # pyright: ignore[reportArgumentType]
    return caught.value.payload


def not_found_payload(id: str) -> ErrorPayload:
    """Return the error for any response that does not exist."""
    return ErrorPayload(
        message=f"Previous response with id '{id}' not found. Send the whole context in 'input' instead.",
        type="invalid_request",
        param="previous_response_id",
        code="previous_response_not_found",
    )


async def test_a_stored_history_is_the_input_and_output_of_each_turn_in_order() -> None:
    store = MemoryStore()
    turns = [
        await store_response(store, "a"),
        await store_response(store, "b", "a"),
        await store_response(store, "c", "b"),
    ]
    context = await load(HistoryLoader(store, make_cache()), "c")
    assert context.items == tuple(item for turn in turns for item in turn)
    assert context.responses == ("a", "b", "c")


async def test_a_loaded_history_is_cached() -> None:
    store, cache = MemoryStore(), make_cache()
    await store_response(store, "a")
    context = await load(HistoryLoader(store, cache), "a")
    assert cache.find("a") is context
    assert await load(HistoryLoader(MemoryStore(), cache), "a") is context


async def test_forks_do_not_see_each_other() -> None:
    store = MemoryStore()
    root, left, right = [
        await store_response(store, "a"),
        await store_response(store, "b", "a"),
        await store_response(store, "c", "a"),
    ]
    loader = HistoryLoader(store, make_cache())
    assert (await load(loader, "b")).items == (*root, *left)
    assert (await load(loader, "c")).items == (*root, *right)


async def test_an_unknown_response_is_not_found() -> None:
    loader = HistoryLoader(MemoryStore(), make_cache())
    assert await load_error(loader, "a") == not_found_payload("a")


async def test_the_response_of_another_tenant_is_not_found() -> None:
    store = MemoryStore()
    await store_response(store, "a")
    loader = HistoryLoader(store, make_cache())
    assert await load_error(loader, "a", tenant="t") == not_found_payload("a")
    await load(loader, "a")
    assert await load_error(loader, "a", tenant="t") == not_found_payload("a")


async def test_a_running_response_cannot_be_continued() -> None:
    store = MemoryStore()
    await store.begin(new_response("a"), [user_message("m")])
    assert await load_error(HistoryLoader(store, make_cache()), "a") == ErrorPayload(
        message="Response 'a' is still being made. Continue it when it has ended.",
        type="invalid_request",
        param="previous_response_id",
        code="previous_response_in_progress",
    )


async def test_a_history_with_a_deleted_response_is_not_found() -> None:
    store = MemoryStore()
    for id, after in (("a", None), ("b", "a"), ("c", "b")):
        await store_response(store, id, after)
    await store.delete("b")
    loader = HistoryLoader(store, make_cache())
    assert await load_error(loader, "c") == not_found_payload("c")
    assert (await load(loader, "a")).responses == ("a",)


async def test_a_stored_child_of_an_unstored_parent_needs_the_cache() -> None:
    store, cache = MemoryStore(), make_cache()
    parent = Context().extend([user_message("in_p"), assistant_message("out_p")], "p")
    cache.add("p", parent)
    child = await store_response(store, "c", "p")
    loader = HistoryLoader(store, cache)
    assert (await load(loader, "c")).items == (*parent.items, *child)
    cache.invalidate("p")
    assert await load_error(loader, "c") == not_found_payload("c")


async def test_the_cache_of_the_connection_comes_first() -> None:
    local = make_cache()
    mine = Context().extend([user_message("m")], "a")
    local.add("a", mine)
    assert await load(HistoryLoader(MemoryStore(), make_cache()), "a", local=local, stored=False) is mine


async def test_a_connection_does_not_see_the_shared_cache() -> None:
    cache = make_cache()
    cache.add("a", Context().extend([user_message("m")], "a"))
    loader = HistoryLoader(MemoryStore(), cache)
    for stored in (False, True):
        assert await load_error(loader, "a", local=make_cache(), stored=stored) == not_found_payload("a")


async def test_on_a_connection_only_a_stored_response_continues_a_stored_response() -> None:
    store = MemoryStore()
    turn = await store_response(store, "a")
    loader = HistoryLoader(store, make_cache())
    assert (await load(loader, "a", local=make_cache())).items == tuple(turn)
    assert await load_error(loader, "a", local=make_cache(), stored=False) == not_found_payload("a")


def test_the_size_of_an_item_is_estimated_without_a_copy() -> None:
    long = items.user_message("x" * 5_000_000)
    tracemalloc.start()
    try:
        size = Context().extend([long]).size
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert 0 <= len(encode(long)) + ITEM_OVERHEAD_BYTES - size < 200
