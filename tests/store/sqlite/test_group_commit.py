"""The writer thread: group commit, and recovery from failures."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.store.base import LoggedEvents, StoredResponse
from antiphon.store.sqlite.database import MAX_BATCH
from antiphon.store.sqlite.store import SqliteStore
from tests.store.builders import assistant_message, ended_response, make_events, new_response, user_message

pytestmark = pytest.mark.anyio

BIG = "x" * 100_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return an empty store."""
    store = SqliteStore(tmp_path)
    yield store
    await store.close()


class LimitedDisk:
    """Limits the pages that a store can write."""

    def __init__(self, store: SqliteStore) -> None:
        self.writer = store.database.writer
        self.connect = self.writer._connect
        self.writer._connect = self.connect_limited
        self.max_pages = 2**30

    async def limit(self, room: int | None) -> None:
        """Let the database grow by some pages, on every connection; None for no limit."""

        def measure(connection: sqlite3.Connection) -> None:
            used = connection.execute("PRAGMA page_count").fetchone()[0]
            self.max_pages = 2**30 if room is None else used + room
            self.apply_limit(connection)

        await self.writer.submit(measure)

    def connect_limited(self) -> sqlite3.Connection:
        """Open a connection with the limit."""
        connection = self.connect()
        self.apply_limit(connection)
        return connection

    def apply_limit(self, connection: sqlite3.Connection) -> None:
        """Apply the limit to a connection."""
        connection.execute(f"PRAGMA max_page_count = {self.max_pages}")


async def check_integrity(store: SqliteStore) -> None:
    """Check the file with SQLite's integrity checks."""

    def query(connection: sqlite3.Connection) -> list[str]:
        problems = connection.execute("PRAGMA foreign_key_check").fetchall()
        return [*map(str, problems), connection.execute("PRAGMA integrity_check").fetchone()[0]]

    assert await store.database.read(query) == ["ok"]


async def test_many_changes_share_a_transaction(store: SqliteStore) -> None:
    before = store.database.writer.commits
    for number in range(10):
        await asyncio.gather(*(store.begin(new_response(f"r{number}_{n}"), []) for n in range(100)))
    assert len(await store.list_unfinished()) == 1000
    assert store.database.writer.commits - before <= 100


async def test_a_failing_change_does_not_affect_others(store: SqliteStore) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO conversations VALUES ('', 'half', 0, '{}')")
        raise ZeroDivisionError

    before = store.database.writer.commits
    results = await asyncio.gather(
        store.begin(new_response("a"), []),
        store.database.write(fail),
        store.begin(new_response("a"), []),
        store.begin(new_response("b"), []),
        return_exceptions=True,
    )
    kinds = [type(result) for result in results]
    assert kinds == [type(None), ZeroDivisionError, StoreError, type(None)]
    assert store.database.writer.commits - before <= 2
    assert await store.list_unfinished() == [
        ("", StoredResponse(new_response("a"))),
        ("", StoredResponse(new_response("b"))),
    ]
    assert await store.find_conversation("half") is None


async def test_a_full_disk_is_a_store_error_and_writing_recovers(store: SqliteStore) -> None:
    disk = LimitedDisk(store)
    await store.begin(new_response("r"), [user_message("in")])
    assert await store.append("r", 0, -1, make_events(0, 5))
    await disk.limit(0)
    for change in (
        lambda: store.begin(new_response("s"), [user_message("s", BIG)]),
        lambda: store.append("r", 0, 4, [BIG.encode()]),
        lambda: store.end(ended_response(new_response("r"), assistant_message("out", BIG))),
    ):
        with pytest.raises(StoreError, match="full"):
            await change()
    assert await store.find("r") == StoredResponse(new_response("r"), last_sequence=4)  # reading goes on
    assert await store.find("s") is None
    await disk.limit(None)
    assert await store.append("r", 0, 4, make_events(5, 1), final=ended_response(new_response("r")))
    assert await store.read("r", -1) == LoggedEvents(make_events(0, 6), ended=True)
    await check_integrity(store)


async def test_acknowledged_events_survive_a_repeatedly_full_disk(store: SqliteStore) -> None:
    disk, body = LimitedDisk(store), b"x" * 2000
    last_numbers = {f"r{n}": -1 for n in range(5)}
    for id in last_numbers:
        await store.begin(new_response(id), [])

    async def stream(id: str) -> int:
        failures = 0
        for _ in range(30):
            try:
                assert await store.append(id, 0, last_numbers[id], [body])
                last_numbers[id] += 1
            except StoreError:
                failures += 1
        return failures

    for room in (3, 1, 0, 7, 20):
        await disk.limit(room)
        assert sum(await asyncio.gather(*map(stream, last_numbers))) > 50
        await disk.limit(None)
        for id, last in last_numbers.items():
            log = await store.read(id, -1)
            assert log == LoggedEvents([body] * (last + 1), ended=False)
    await check_integrity(store)


async def test_a_broken_connection_is_replaced(store: SqliteStore) -> None:
    await store.begin(new_response("a"), [])
    with pytest.raises(StoreError):
        await store.database.write(lambda connection: connection.close())
    await store.begin(new_response("b"), [])
    assert [stored.response.id for _, stored in await store.list_unfinished()] == ["a", "b"]


async def test_a_broken_reader_is_replaced(store: SqliteStore) -> None:
    await store.begin(new_response("a"), [])
    for _ in range(10):
        with pytest.raises(StoreError):
            await store.database.read(lambda connection: connection.execute("nonsense"))
    assert await store.find("a") == StoredResponse(new_response("a"))


async def test_a_locked_database_is_a_store_error_and_writing_recovers(store: SqliteStore) -> None:
    await store.database.write(lambda connection: connection.execute("PRAGMA busy_timeout = 20"))
    other = sqlite3.connect(store.database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await store.begin(new_response("a"), [])
    other.execute("ROLLBACK")
    other.close()
    assert await store.begin(new_response("a"), []) is None


async def test_a_store_closes_after_a_failed_write(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.begin(new_response("a"), [])
    with pytest.raises(StoreError):
        await store.database.write(lambda connection: connection.close())
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["responses.db"]


async def test_a_transaction_has_a_limited_number_of_changes(store: SqliteStore) -> None:
    writer = store.database.writer
    before = writer.commits
    started, gate = threading.Event(), threading.Event()

    def hold_up(_: sqlite3.Connection) -> None:
        started.set()
        gate.wait(20)

    first = asyncio.ensure_future(store.database.write(hold_up))
    async with asyncio.timeout(20):
        while not started.is_set():
            await asyncio.sleep(0.001)
    others = [asyncio.ensure_future(store.database.write(lambda _: None)) for _ in range(MAX_BATCH + 1)]
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(first, *others)
    assert writer.commits - before == 3
