"""What came before a request: from memory while it is hot, from the store otherwise."""

import pytest

from antiphon.core.errors import ErrorPayload, RequestError
from antiphon.core.items import Item
from antiphon.engine.chain import HistoryLoader
from antiphon.engine.recent import Context, ContextCache
from antiphon.store.memory import MemoryStore
from tests.store.making import assistant_message, new_response, ended_response, user_message

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
    chain: HistoryLoader, id: str, *, local: ContextCache | None = None, stored: bool = True, tenant: str = ""
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


async def test_a_stored_chain_is_input_and_output_of_each_turn_in_order() -> None:
    store = MemoryStore()
    turns = [await store_response(store, "a"), await store_response(store, "b", "a"), await store_response(store, "c", "b")]
    context = await load(HistoryLoader(store, make_cache()), "c")
    assert context.items == tuple(item for turn in turns for item in turn)
    assert context.responses == ("a", "b", "c")


async def test_a_chain_read_once_is_hot() -> None:
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
async def test_what_is_not_here_is_not_found(store: MemoryStore | None) -> None:
    assert await load_error(HistoryLoader(store, make_cache()), "a") == not_found_payload("a")


async def test_what_belongs_to_another_is_not_found() -> None:
    store = MemoryStore()
    await store_response(store, "a")
    chain = HistoryLoader(store, make_cache())
    assert await load_error(chain, "a", tenant="t") == not_found_payload("a")
    await load(chain, "a")
    assert await load_error(chain, "a", tenant="t") == not_found_payload("a")


async def test_a_response_that_is_still_being_made_cannot_be_continued_yet() -> None:
    store = MemoryStore()
    await store.begin(new_response("a"), [user_message("m")])
    assert await load_error(HistoryLoader(store, make_cache()), "a") == ErrorPayload(
        message="Response 'a' is still being made. Continue it when it has ended.",
        type="invalid_request",
        param="previous_response_id",
        code="previous_response_in_progress",
    )


async def test_a_chain_whose_middle_was_deleted_is_not_found() -> None:
    store = MemoryStore()
    for id, after in (("a", None), ("b", "a"), ("c", "b")):
        await store_response(store, id, after)
    await store.delete("b")
    chain = HistoryLoader(store, make_cache())
    assert await load_error(chain, "c") == not_found_payload("c")
    assert (await load(chain, "a")).responses == ("a",)


async def test_a_stored_child_of_an_unstored_parent_needs_the_memory() -> None:
    store, recent = MemoryStore(), make_cache()
    parent = Context().extend([user_message("in_p"), assistant_message("out_p")], "p")
    recent.add("p", parent)
    child = await store_response(store, "c", "p")
    chain = HistoryLoader(store, recent)
    assert (await load(chain, "c")).items == (*parent.items, *child)
    recent.invalidate("p")
    assert await load_error(chain, "c") == not_found_payload("c")


async def test_a_connections_own_memory_comes_first() -> None:
    local = make_cache()
    mine = Context().extend([user_message("m")], "a")
    local.add("a", mine)
    assert await load(HistoryLoader(None, make_cache()), "a", local=local, stored=False) is mine


async def test_on_a_connection_what_others_left_in_memory_is_not_seen() -> None:
    recent = make_cache()
    recent.add("a", Context().extend([user_message("m")], "a"))
    chain = HistoryLoader(MemoryStore(), recent)
    for stored in (False, True):
        assert await load_error(chain, "a", local=make_cache(), stored=stored) == not_found_payload("a")


async def test_on_a_connection_only_a_stored_response_continues_what_is_stored_elsewhere() -> None:
    store = MemoryStore()
    turn = await store_response(store, "a")
    chain = HistoryLoader(store, make_cache())
    assert (await load(chain, "a", local=make_cache())).items == tuple(turn)
    assert await load_error(chain, "a", local=make_cache(), stored=False) == not_found_payload("a")
