"""A database for each test, on a server that all of them share."""

from collections.abc import AsyncIterator

import pytest

from antiphon.store.postgres.store import PostgresStore
from tests.postgres_server import create_database


@pytest.fixture
def database_url() -> str:
    """Give the address of an empty database."""
    return create_database()


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    """Give an empty store."""
    store = PostgresStore(database_url)
    await store.open()
    yield store
    await store.close()
