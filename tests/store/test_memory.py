"""The contract, kept in dictionaries."""

import pytest

from antiphon.store.memory import MemoryStore
from tests.store.builders import ended_response, new_response
from tests.store.contract import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    """Give an empty store."""
    return MemoryStore()


class TestMemory(StoreContract):
    """Everything that every store must do."""


async def test_bells_do_not_pile_up(store: MemoryStore) -> None:
    await store.begin(new_response("r"), [])
    await store.wait("unknown", -1)
    await store.end(ended_response(new_response("r")))
    await store.wait("r", -1)
    assert len(store.notifier) == 0


async def test_a_store_tells_how_much_it_holds(store: MemoryStore) -> None:
    await store.begin(new_response("r"), [])
    await store.close()
    assert repr(store) == "<MemoryStore of 1 responses>"
