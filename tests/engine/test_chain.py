"""What came before a request: from memory while it is hot, from the store otherwise."""

import pytest

from antiphon.core.errors import ErrorPayload, RequestError
from antiphon.core.items import Item
from antiphon.engine.chain import Chain
from antiphon.engine.recent import Context, Recent
from antiphon.store.memory import MemoryStore
from tests.store.making import answered, begun, done, said

pytestmark = pytest.mark.anyio


def memory() -> Recent:
    """Make a memory with room for everything here."""
    return Recent(10**9, 3600)


async def tell(store: MemoryStore, id: str, after: str | None = None) -> list[Item]:
    """Store a turn, and return what was said in it."""
    turn: list[Item] = [said(f"in_{id}"), answered(f"out_{id}")]
    response = begun(id, after)
    await store.begin(response, turn[:1])
    await store.end(done(response, *turn[1:]))
    return turn


async def found(
    chain: Chain, id: str, *, local: Recent | None = None, stored: bool = True, tenant: str = ""
) -> Context:
    """Look a context up."""
    return await chain.context(id, tenant=tenant, local=local, stored=stored)


async def refusal(chain: Chain, id: str, **options: object) -> ErrorPayload:
    """Return why there is no context."""
    with pytest.raises(RequestError) as caught:
        await found(chain, id, **options)  # pyright: ignore[reportArgumentType]
    return caught.value.payload


def not_found(id: str) -> ErrorPayload:
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
    turns = [await tell(store, "a"), await tell(store, "b", "a"), await tell(store, "c", "b")]
    context = await found(Chain(store, memory()), "c")
    assert context.items == tuple(item for turn in turns for item in turn)
    assert context.responses == ("a", "b", "c")


async def test_a_chain_read_once_is_hot() -> None:
    store, recent = MemoryStore(), memory()
    await tell(store, "a")
    context = await found(Chain(store, recent), "a")
    assert recent.find("a") is context
    assert await found(Chain(None, recent), "a") is context


async def test_forks_do_not_see_each_other() -> None:
    store = MemoryStore()
    root, left, right = [
        await tell(store, "a"),
        await tell(store, "b", "a"),
        await tell(store, "c", "a"),
    ]
    chain = Chain(store, memory())
    assert (await found(chain, "b")).items == (*root, *left)
    assert (await found(chain, "c")).items == (*root, *right)


@pytest.mark.parametrize("store", [None, MemoryStore()])
async def test_what_is_not_here_is_not_found(store: MemoryStore | None) -> None:
    assert await refusal(Chain(store, memory()), "a") == not_found("a")


async def test_what_belongs_to_another_is_not_found() -> None:
    store = MemoryStore()
    await tell(store, "a")
    chain = Chain(store, memory())
    assert await refusal(chain, "a", tenant="t") == not_found("a")
    await found(chain, "a")
    assert await refusal(chain, "a", tenant="t") == not_found("a")


async def test_a_response_that_is_still_being_made_cannot_be_continued_yet() -> None:
    store = MemoryStore()
    await store.begin(begun("a"), [said("m")])
    assert await refusal(Chain(store, memory()), "a") == ErrorPayload(
        message="Response 'a' is still being made. Continue it when it has ended.",
        type="invalid_request",
        param="previous_response_id",
        code="previous_response_in_progress",
    )


async def test_a_chain_whose_middle_was_deleted_is_not_found() -> None:
    store = MemoryStore()
    for id, after in (("a", None), ("b", "a"), ("c", "b")):
        await tell(store, id, after)
    await store.delete("b")
    chain = Chain(store, memory())
    assert await refusal(chain, "c") == not_found("c")
    assert (await found(chain, "a")).responses == ("a",)


async def test_a_stored_child_of_an_unstored_parent_needs_the_memory() -> None:
    store, recent = MemoryStore(), memory()
    parent = Context().then([said("in_p"), answered("out_p")], "p")
    recent.add("p", parent)
    child = await tell(store, "c", "p")
    chain = Chain(store, recent)
    assert (await found(chain, "c")).items == (*parent.items, *child)
    recent.forget("p")
    assert await refusal(chain, "c") == not_found("c")


async def test_a_connections_own_memory_comes_first() -> None:
    local = memory()
    mine = Context().then([said("m")], "a")
    local.add("a", mine)
    assert await found(Chain(None, memory()), "a", local=local, stored=False) is mine


async def test_on_a_connection_what_others_left_in_memory_is_not_seen() -> None:
    recent = memory()
    recent.add("a", Context().then([said("m")], "a"))
    chain = Chain(MemoryStore(), recent)
    for stored in (False, True):
        assert await refusal(chain, "a", local=memory(), stored=stored) == not_found("a")


async def test_on_a_connection_only_a_stored_response_continues_what_is_stored_elsewhere() -> None:
    store = MemoryStore()
    turn = await tell(store, "a")
    chain = Chain(store, memory())
    assert (await found(chain, "a", local=memory())).items == tuple(turn)
    assert await refusal(chain, "a", local=memory(), stored=False) == not_found("a")
