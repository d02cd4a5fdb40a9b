"""The contract, kept in a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.store.sqlite import SqliteStore
from tests.store.contract import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Give an empty store."""
    store = SqliteStore(tmp_path / "responses")
    yield store
    await store.close()


class TestSqlite(StoreContract):
    """Everything that every store must do."""
