"""One SQLite database: a thread that writes, threads that read, and no error of SQLite's beyond.

Nothing here blocks the event loop but opening, which happens once.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import local
from typing import TypeVar, cast

from msgspec import MsgspecError

from antiphon.protocol.errors import StoreError
from antiphon.protocol.struct import InvalidValueError
from antiphon.store.sqlite.group_commit import GroupCommitWriter
from antiphon.store.sqlite.schema import migrate

READER_THREADS = 4
BUSY_MILLISECONDS = 5_000
WAL_LIMIT_BYTES = 64 * 1024 * 1024

T = TypeVar("T")

_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",  # what is sorted is never written to a file beside ours
)
_WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # NORMAL loses acknowledged rows when the power goes
    "PRAGMA secure_delete = ON",
    f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}",
)


class Database:
    """A database file and everybody who works on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._map_errors():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.writer = GroupCommitWriter(partial(connect_writer, path))
        self._readers = ReaderPool(path)

    async def write(
        self, change: Callable[[sqlite3.Connection], T], on_commit: Callable[[], None] | None = None
    ) -> T:
        """Make a change; it is durable when this returns."""
        with self._map_errors():
            return cast("T", await self.writer.submit(change, on_commit))

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Look at one moment of the database."""
        with self._map_errors():
            return await self._readers.run(query)

    async def close(self) -> None:
        """Finish what is queued, and close every connection; the writer's last, to tidy up."""
        await asyncio.to_thread(self._readers.close)
        await asyncio.to_thread(self.writer.close)

    @contextmanager
    def _map_errors(self) -> Generator[None]:
        """Turn what SQLite, the file system and unreadable rows raise into StoreError."""
        try:
            yield
        except (InvalidValueError, MsgspecError) as error:
            raise StoreError(f"{self.path} holds what cannot be read: {error}") from error
        except (sqlite3.Error, OSError, OverflowError, UnicodeEncodeError) as error:
            raise StoreError(f"{self.path} cannot be used: {error}") from error


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open a database to write to, and bring it to the newest version."""
    connection = _open_connection(f"{path.absolute().as_uri()}?mode=rwc")
    try:
        for pragma in _WRITER_PRAGMAS:
            connection.execute(pragma)
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_connection(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


class _ThreadConnection(local):
    """A thread's own connection."""

    connection: sqlite3.Connection | None = None


class ReaderPool:
    """A few threads, each with a connection that cannot write."""

    def __init__(self, path: Path) -> None:
        self._uri = f"{path.absolute().as_uri()}?mode=ro"
        self._local = _ThreadConnection()
        self._connections: set[sqlite3.Connection] = set()
        self._executor = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="antiphon-reader")
        self._closed = False

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Look, in a thread, at one moment."""
        if self._closed:
            raise StoreError("The store is closed.")
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self._run_query, query
        )

    def close(self) -> None:
        """Let those who look finish, then close; blocks until it is done."""
        self._closed = True
        self._executor.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _run_query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._thread_connection()
        try:
            connection.execute("BEGIN")
            return query(connection)
        except sqlite3.Error:
            self._local.connection = None  # the next look gets a new one
            self._connections.discard(connection)
            connection.close()
            raise
        finally:
            with suppress(sqlite3.ProgrammingError):  # closed above
                if connection.in_transaction:
                    connection.execute("COMMIT")

    def _thread_connection(self) -> sqlite3.Connection:
        if self._local.connection is None:
            self._local.connection = _open_connection(self._uri)
            self._connections.add(self._local.connection)
        return self._local.connection
