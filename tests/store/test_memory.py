"""MemoryStore: the contract, and its own properties."""

import pytest

from antiphon.protocol.items import ItemReference
from antiphon.store.memory import MemoryStore
from tests.store.builders import ended_response, new_response, user_message
from tests.store.contract import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    """Return an empty store."""
    return MemoryStore()


class TestMemory(StoreContract):
    """The contract."""


async def test_subscriptions_are_removed(store: MemoryStore) -> None:
    await store.begin(new_response("r"), [])
    await store.wait("unknown", -1)
    await store.end(ended_response(new_response("r")))
    await store.wait("r", -1)
    assert len(store.notifier) == 0


async def test_the_repr_counts_responses(store: MemoryStore) -> None:
    await store.begin(new_response("r"), [])
    await store.close()
    assert repr(store) == "<MemoryStore of 1 responses>"


async def test_deleting_a_reference_keeps_the_item_that_it_names(store: MemoryStore) -> None:
    await store.begin(new_response("a"), [user_message("m")])
    await store.begin(new_response("b"), [ItemReference(id="m"), ItemReference(id="elsewhere")])
    assert await store.delete("b")
    assert await store.find_item("m") == user_message("m")
