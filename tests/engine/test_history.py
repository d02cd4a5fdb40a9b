"""The context cache, and histories loaded from the store."""

import pytest

from antiphon.engine.history import (
    ITEM_OVERHEAD_BYTES,
    MAX_DELETED,
    Context,
    ContextCache,
    HistoryLoader,
)
from antiphon.protocol import items
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.struct import encode
from antiphon.store.memory import MemoryStore
from tests.store.builders import assistant_message, ended_response, new_response, user_message

HELLO = items.user_message("hello")
SIZE = len(encode(HELLO)) + ITEM_OVERHEAD_BYTES


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_context(*ids: str) -> Context:
    """Make the context of a chain in which everyone said hello."""
    made = Context()
    for id in ids:
        made = made.extend([HELLO], id)
    return made


def make_cache_of(room: int = 100, seconds: float = 60, clock: Clock | None = None) -> ContextCache:
    """Make a memory with room for some greetings."""
    return ContextCache(room * SIZE, seconds, clock or Clock())


def test_a_context_grows_by_items_and_knows_its_size() -> None:
    first = Context().extend([HELLO], "a")
    assert first == Context((HELLO,), ("a",), SIZE)
    assert first.extend([HELLO, HELLO], "b", "c") == Context(
        (HELLO, HELLO, HELLO), ("a", "b", "c"), 3 * SIZE
    )
    assert first == Context((HELLO,), ("a",), SIZE)


def test_a_context_is_found_by_its_own_tenant_only() -> None:
    memory = make_cache_of()
    memory.add("a", make_context("a"), tenant="t")
    assert memory.find("a", tenant="t") == make_context("a")
    assert memory.find("a") is None
    assert memory.find("b", tenant="t") is None


def test_the_least_recently_used_context_is_removed_first() -> None:
    memory = make_cache_of(room=3)
    for id in "abc":
        memory.add(id, make_context(id))
    memory.find("a")
    memory.add("d", make_context("d"))
    assert [id for id in "abcd" if memory.find(id)] == ["a", "c", "d"]


def test_items_that_contexts_share_count_in_each() -> None:
    memory = make_cache_of(room=5)
    memory.add("a", make_context("a"))
    memory.add("b", make_context("a", "b"))
    memory.add("c", make_context("a", "b", "c"))
    assert [id for id in "abc" if memory.find(id)] == ["b", "c"]


def test_a_context_larger_than_the_cache_is_not_added() -> None:
    memory = make_cache_of(room=1)
    memory.add("b", make_context("a", "b"))
    assert len(memory) == 0
    memory.add("a", make_context("a"))
    assert memory.find("a")


def test_a_context_larger_than_the_cache_removes_no_others() -> None:
    memory = make_cache_of(room=2)
    memory.add("a", make_context("a"))
    memory.add("d", make_context("b", "c", "d"))
    assert [id for id in "abcd" if memory.find(id)] == ["a"]


def test_adding_a_context_again_replaces_it() -> None:
    memory = make_cache_of(room=2)
    for _ in range(10):
        memory.add("a", make_context("a"))
    memory.add("b", make_context("b"))
    assert len(memory) == 2


def test_use_does_not_extend_the_age_of_a_context() -> None:
    clock = Clock()
    memory = make_cache_of(seconds=60, clock=clock)
    memory.add("a", make_context("a"))
    clock.now = 60
    assert memory.find("a")
    clock.now = 60.5
    assert memory.find("a") is None
    assert len(memory) == 0


def test_only_expired_contexts_are_removed() -> None:
    clock = Clock()
    memory = make_cache_of(seconds=60, clock=clock)
    memory.add("a", make_context("a"))
    clock.now = 30
    memory.add("b", make_context("b"))
    clock.now = 61
    memory.remove_expired()
    assert len(memory) == 1
    assert memory.find("b")


def test_invalidating_a_response_removes_every_context_that_contains_it() -> None:
    memory = make_cache_of()
    memory.add("a", make_context("a"))
    memory.add("b", make_context("a", "b"))
    memory.add("c", make_context("a", "b", "c"))
    memory.add("b", make_context("a", "b"), tenant="t")
    memory.invalidate("b")
    assert [id for id in "abc" if memory.find(id)] == ["a"]
    assert memory.find("b", tenant="t")


def test_a_deleted_response_does_not_come_back_with_a_response_that_was_running() -> None:
    memory = make_cache_of()
    memory.invalidate("a")
    memory.add("b", make_context("a", "b"))
    memory.add("b", make_context("a", "b"), tenant="t")
    memory.add("c", make_context("c"))
    assert [id for id in "abc" if memory.find(id)] == ["c"]
    assert memory.find("b", tenant="t")


def test_the_number_of_remembered_deletions_is_limited() -> None:
    memory = make_cache_of()
    for number in range(MAX_DELETED + 1):
        memory.invalidate(str(number))
    memory.add("0", make_context("0"))
    memory.add("1", make_context("1"))
    assert [id for id in "01" if memory.find(id)] == ["0"]


def test_evicting_removes_one_context_only() -> None:
    memory = make_cache_of()
    memory.add("a", make_context("a"))
    memory.add("b", make_context("a", "b"))
    memory.evict("a")
    memory.evict("never there")
    assert [id for id in "ab" if memory.find(id)] == ["b"]


pytestmark = pytest.mark.anyio


def make_cache() -> ContextCache:
    """Make a memory with room for everything here."""
    return ContextCache(10**9, 3600)


async def store_response(store: MemoryStore, id: str, after: str | None = None) -> list[Item]:
    """Store a turn, and return what was said in it."""
    turn: list[Item] = [user_message(f"in_{id}"), assistant_message(f"out_{id}")]
    response = new_response(id, after)
    await store.begin(response, turn[:1])
    await store.end(ended_response(response, *turn[1:]))
    return turn


async def load(
    chain: HistoryLoader,
    id: str,
    *,
    local: ContextCache | None = None,
    stored: bool = True,
    tenant: str = "",
) -> Context:
    """Look a context up."""
    return await chain.load(id, tenant=tenant, connection_cache=local, will_store=stored)


async def load_error(chain: HistoryLoader, id: str, **options: object) -> ErrorPayload:
    """Return why there is no context."""
    with pytest.raises(RequestError) as caught:
        await load(chain, id, **options)  # pyright: ignore[reportArgumentType]
    return caught.value.payload


def not_found_payload(id: str) -> ErrorPayload:
    """Return the one answer for everything that is not here."""
    return ErrorPayload(
        message=f"Previous response with id '{id}' not found. "
        "Send the whole context in 'input' instead.",
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
    store, recent = MemoryStore(), make_cache()
    await store_response(store, "a")
    context = await load(HistoryLoader(store, recent), "a")
    assert recent.find("a") is context
    assert await load(HistoryLoader(None, recent), "a") is context


async def test_forks_do_not_see_each_other() -> None:
    store = MemoryStore()
    root, left, right = [
        await store_response(store, "a"),
        await store_response(store, "b", "a"),
        await store_response(store, "c", "a"),
    ]
    chain = HistoryLoader(store, make_cache())
    assert (await load(chain, "b")).items == (*root, *left)
    assert (await load(chain, "c")).items == (*root, *right)


@pytest.mark.parametrize("store", [None, MemoryStore()])
async def test_an_unknown_response_is_not_found(store: MemoryStore | None) -> None:
    assert await load_error(HistoryLoader(store, make_cache()), "a") == not_found_payload("a")


async def test_the_response_of_another_tenant_is_not_found() -> None:
    store = MemoryStore()
    await store_response(store, "a")
    chain = HistoryLoader(store, make_cache())
    assert await load_error(chain, "a", tenant="t") == not_found_payload("a")
    await load(chain, "a")
    assert await load_error(chain, "a", tenant="t") == not_found_payload("a")


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
    chain = HistoryLoader(store, make_cache())
    assert await load_error(chain, "c") == not_found_payload("c")
    assert (await load(chain, "a")).responses == ("a",)


async def test_a_stored_child_of_an_unstored_parent_needs_the_cache() -> None:
    store, recent = MemoryStore(), make_cache()
    parent = Context().extend([user_message("in_p"), assistant_message("out_p")], "p")
    recent.add("p", parent)
    child = await store_response(store, "c", "p")
    chain = HistoryLoader(store, recent)
    assert (await load(chain, "c")).items == (*parent.items, *child)
    recent.invalidate("p")
    assert await load_error(chain, "c") == not_found_payload("c")


async def test_the_cache_of_the_connection_comes_first() -> None:
    local = make_cache()
    mine = Context().extend([user_message("m")], "a")
    local.add("a", mine)
    assert await load(HistoryLoader(None, make_cache()), "a", local=local, stored=False) is mine


async def test_a_connection_does_not_see_the_shared_cache() -> None:
    recent = make_cache()
    recent.add("a", Context().extend([user_message("m")], "a"))
    chain = HistoryLoader(MemoryStore(), recent)
    for stored in (False, True):
        assert await load_error(chain, "a", local=make_cache(), stored=stored) == not_found_payload(
            "a"
        )


async def test_on_a_connection_only_a_stored_response_continues_a_stored_response() -> None:
    store = MemoryStore()
    turn = await store_response(store, "a")
    chain = HistoryLoader(store, make_cache())
    assert (await load(chain, "a", local=make_cache())).items == tuple(turn)
    assert await load_error(chain, "a", local=make_cache(), stored=False) == not_found_payload("a")
