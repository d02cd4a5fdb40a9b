"""Migrations: once, whoever comes first; and beside programs of the version before."""

import asyncio

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.store.postgres import schema
from antiphon.store.postgres.store import PostgresStore
from tests.store.builders import new_response

pytestmark = pytest.mark.anyio


async def test_processes_that_start_at_once_migrate_once(database_url: str) -> None:
    stores = [PostgresStore(database_url) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    for n, store in enumerate(stores):
        await store.begin(new_response(f"r{n}"), [])
    assert len(await stores[0].list_unfinished()) == 5
    for store in stores:
        await store.close()


async def test_a_program_works_on_a_newer_database_that_allows_it(store: PostgresStore, database_url: str) -> None:
    await store.database.run(
        lambda connection: schema.migrate(connection, [*schema.MIGRATIONS, "ALTER TABLE responses ADD COLUMN x text"])
    )
    older = PostgresStore(database_url)
    await older.open()
    await older.begin(new_response("r"), [])
    await older.close()


async def test_a_program_that_is_too_old_for_the_database_is_refused(store: PostgresStore, database_url: str) -> None:
    await store.database.fetch("UPDATE schema_version SET version = 9, oldest_program = 8")
    with pytest.raises(StoreError, match=r"version 9, which needs a program of version 8 .* Use a newer Antiphon"):
        await PostgresStore(database_url).open()
