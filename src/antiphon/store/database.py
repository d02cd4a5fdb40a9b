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

from antiphon.core.errors import StoreError
from antiphon.core.value import ShapeError
from antiphon.store.schema import migrate
from antiphon.store.writer import Writer

READERS = 4
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
        with self._mapped():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.writer = Writer(partial(connect, path))
        self._readers = Readers(path)

    async def write(
        self, change: Callable[[sqlite3.Connection], T], then: Callable[[], None] | None = None
    ) -> T:
        """Make a change; it is durable when this returns."""
        with self._mapped():
            return cast("T", await self.writer.submit(change, then))

    async def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Look at one moment of the database."""
        with self._mapped():
            return await self._readers.run(look)

    async def close(self) -> None:
        """Finish what is queued, and close every connection; the writer's last, to tidy up."""
        await asyncio.to_thread(self._readers.close)
        await asyncio.to_thread(self.writer.close)

    @contextmanager
    def _mapped(self) -> Generator[None]:
        """Turn what SQLite, the file system and unreadable rows raise into StoreError."""
        try:
            yield
        except (ShapeError, MsgspecError) as error:
            raise StoreError(f"{self.path} holds what cannot be read: {error}") from error
        except (sqlite3.Error, OSError, OverflowError, UnicodeEncodeError) as error:
            raise StoreError(f"{self.path} cannot be used: {error}") from error


def connect(path: Path) -> sqlite3.Connection:
    """Open a database to write to, and bring it to the newest version."""
    connection = _opened(f"{path.absolute().as_uri()}?mode=rwc")
    try:
        for pragma in _WRITER_PRAGMAS:
            connection.execute(pragma)
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


class _Own(local):
    """A thread's own connection."""

    connection: sqlite3.Connection | None = None


class Readers:
    """A few threads, each with a connection that cannot write."""

    def __init__(self, path: Path) -> None:
        self._uri = f"{path.absolute().as_uri()}?mode=ro"
        self._own = _Own()
        self._open: set[sqlite3.Connection] = set()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="antiphon-reader")
        self._closed = False

    async def run(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Look, in a thread, at one moment."""
        if self._closed:
            raise StoreError("The store is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look, look)

    def close(self) -> None:
        """Let those who look finish, then close; blocks until it is done."""
        self._closed = True
        self._threads.shutdown()
        for connection in self._open:
            connection.close()
        self._open.clear()

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            return look(connection)
        except sqlite3.Error:
            self._own.connection = None  # the next look gets a new one
            self._open.discard(connection)
            connection.close()
            raise
        finally:
            with suppress(sqlite3.ProgrammingError):  # closed above
                if connection.in_transaction:
                    connection.execute("COMMIT")

    def _connection(self) -> sqlite3.Connection:
        if self._own.connection is None:
            self._own.connection = _opened(self._uri)
            self._open.add(self._own.connection)
        return self._own.connection
