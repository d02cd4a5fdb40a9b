"""Access to one SQLite database: a writer thread with group commit, and reader threads.

A commit costs a flush to the disk, however much it holds. While one commit runs, further changes
queue up, and the next transaction takes them all. Each change runs in a savepoint of its own, so
that one that fails does not affect the others. Only opening the database blocks the event loop.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread, local
from typing import Concatenate, ParamSpec, TypeVar, cast

from msgspec import MsgspecError, Struct

from antiphon.protocol.errors import StoreError
from antiphon.protocol.struct import InvalidValueError
from antiphon.store.sqlite.schema import migrate

READER_THREADS = 4
BUSY_MILLISECONDS = 5_000
WAL_LIMIT_BYTES = 64 * 1024 * 1024
TRUNCATE_SECONDS = 1.0
"""How long deleted text stays in the write-ahead log: many deletions share one truncation."""
TRUNCATE_MILLISECONDS = 100
"""How long a truncation waits for readers."""
MAX_BATCH = 1024
"""The most changes in one transaction."""

Change = Callable[[sqlite3.Connection], object]
P = ParamSpec("P")
T = TypeVar("T")

_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}",
    "PRAGMA foreign_keys = ON",
    # Sorting must not write temporary files: they would hold user data outside our file.
    "PRAGMA temp_store = MEMORY",
)
_WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    # NORMAL loses acknowledged rows on a power cut (378 of 400 simulated ones); FULL lost none.
    "PRAGMA synchronous = FULL",
    # A deleted response must not be readable in the file's free pages.
    "PRAGMA secure_delete = ON",
    f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}",
)


class Database:
    """A database file with its writer and its readers; the only place that maps SQLite errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._map_errors():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _restrict_access(path)
            self.writer = GroupCommitWriter(partial(connect_writer, path))
        self._reader_uri = f"{path.absolute().as_uri()}?mode=ro"
        self._local = local()
        """Holds the `connection` of each reader thread."""
        self._connections: set[sqlite3.Connection] = set()
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="antiphon-reader")
        self._closed = False

    async def write(
        self,
        change: Callable[[sqlite3.Connection], T],
        on_commit: Callable[[], None] | None = None,
        *,
        deletes: bool = False,
    ) -> T:
        """Run a change in a transaction; it is durable when this returns.

        If it `deletes` something, and so returns a true value, that leaves the log about a second later.
        """
        with self._map_errors():
            return cast("T", await self.writer.submit(change, on_commit, deletes=deletes))

    async def read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a query on a snapshot of the database, in a reader thread."""
        with self._map_errors():
            if self._closed:
                raise StoreError("The store is closed.")
            run = partial(self._run_query, lambda connection: query(connection, *args, **kwargs))
            return await asyncio.get_running_loop().run_in_executor(self._readers, run)

    async def close(self) -> None:
        """Finish queued changes and close every connection."""
        self._closed = True
        await asyncio.to_thread(self._close_connections)

    def _close_connections(self) -> None:
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        # The writer closes last: the last connection of a database removes its WAL file.
        self.writer.close()

    def _run_query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = _open_connection(self._reader_uri)
            self._connections.add(connection)
        try:
            # One transaction for the whole query, so that all its statements see one snapshot.
            connection.execute("BEGIN")
            return query(connection)
        except sqlite3.Error:
            self._local.connection = None  # the next query opens a new one
            self._connections.discard(connection)
            connection.close()
            raise
        finally:
            with suppress(sqlite3.ProgrammingError):  # closed above
                if connection.in_transaction:
                    connection.execute("COMMIT")

    @contextmanager
    def _map_errors(self) -> Generator[None]:
        """Turn errors of SQLite, of the file system and of unreadable rows into StoreError."""
        try:
            yield
        except (InvalidValueError, MsgspecError) as error:
            raise StoreError(f"{self.path} holds a row that cannot be read: {error}") from error
        except (sqlite3.Error, OSError, OverflowError, UnicodeEncodeError) as error:
            raise StoreError(f"{self.path} cannot be used: {error}") from error


def _restrict_access(path: Path) -> None:
    """Create a database that only its owner may read, or make an existing one so."""
    # Only a new file is opened: closing a descriptor would release SQLite's locks on an open database.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError, PermissionError):
            path.with_name(path.name + suffix).chmod(0o600)


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open a database for writing, and migrate it to the newest version."""
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
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.row_factory = sqlite3.Row
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


class _PendingChange(Struct):
    """A queued change and its outcome."""

    change: Change
    on_commit: Callable[[], None] | None
    future: "asyncio.Future[object]"
    deletes: bool
    result: object = None
    error: Exception | None = None


class GroupCommitWriter:
    """The writing connection and its thread. `commits` is the number of transactions so far."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self.commits = 0
        self._connect = connect
        self._connection: sqlite3.Connection | None = connect()
        self._queue: SimpleQueue[_PendingChange | None] = SimpleQueue()
        self._lock = Lock()
        self._closed = False
        # A crash may have left deleted text in the log: it is truncated soon after the start.
        self._truncate_at: float | None = time.monotonic() + TRUNCATE_SECONDS
        # A daemon thread, so that a process without a clean shutdown can exit: everything that
        # was acknowledged is on the disk already.
        self._thread = Thread(target=self._run, name="antiphon-writer", daemon=True)
        self._thread.start()

    def submit(
        self, change: Change, on_commit: Callable[[], None] | None = None, *, deletes: bool = False
    ) -> "asyncio.Future[object]":
        """Queue a change; `on_commit` runs on the loop once it is durable, even if nobody waits."""
        pending = _PendingChange(change, on_commit, asyncio.get_running_loop().create_future(), deletes)
        with self._lock:
            if self._closed:
                raise StoreError("The store is closed.")
            self._queue.put(pending)
        return pending.future

    def close(self) -> None:
        """Write all queued changes, then stop; blocks."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._take_batch()
            if batch:
                self._write(batch)
                _resolve_on_loops(batch)
            if self._truncate_at is not None and time.monotonic() >= self._truncate_at:
                self._truncate_log()
            del batch  # or this frame would keep the last changes in memory until the next ones
        self._close_connection()

    def _take_batch(self) -> tuple[list[_PendingChange], bool]:
        """Wait for a change or the next truncation, take all that are queued; return False with the last ones."""
        batch: list[_PendingChange] = []
        wait = None if self._truncate_at is None else max(0.0, self._truncate_at - time.monotonic())
        try:
            pending = self._queue.get(timeout=wait)
        except Empty:
            return batch, True
        with suppress(Empty):
            while pending is not None:
                batch.append(pending)
                if len(batch) == MAX_BATCH:
                    break
                pending = self._queue.get_nowait()
        return batch, pending is not None

    def _write(self, batch: Sequence[_PendingChange]) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.execute("BEGIN IMMEDIATE")
            for pending in batch:
                _apply_change(self._connection, pending)
            self._connection.execute("COMMIT")
            self.commits += 1
            if self._truncate_at is None and any(pending.deletes and pending.result for pending in batch):
                self._truncate_at = time.monotonic() + TRUNCATE_SECONDS
        except (sqlite3.Error, StoreError) as error:
            for pending in batch:
                pending.error = error
            # Closing rolls back, and the next batch starts with a connection in a known state.
            self._close_connection()

    def _truncate_log(self) -> None:
        """Move the write-ahead log into the database and empty it: it still holds what was deleted."""
        self._truncate_at = time.monotonic() + TRUNCATE_SECONDS
        with suppress(sqlite3.Error):
            if self._connection:
                # Briefly: other writers wait meanwhile. With a reader in the way, it is tried again.
                self._connection.execute(f"PRAGMA busy_timeout = {TRUNCATE_MILLISECONDS}")
                busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
                self._truncate_at = self._truncate_at if busy else None

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        with suppress(sqlite3.Error):
            if connection:
                connection.close()


def _apply_change(connection: sqlite3.Connection, pending: _PendingChange) -> None:
    """Run one change; if it fails, roll back this one only."""
    connection.execute("SAVEPOINT change")
    try:
        pending.result = pending.change(connection)
    # Any exception belongs to the caller who submitted the change; the thread must survive it.
    except Exception as error:
        pending.error = error
        # On a full disk SQLite itself rolls back the whole transaction: the batch has failed.
        if not connection.in_transaction:
            raise sqlite3.OperationalError(str(error)) from error
        connection.execute("ROLLBACK TO change")
    connection.execute("RELEASE change")


def _resolve_on_loops(batch: Sequence[_PendingChange]) -> None:
    """Complete the futures of a batch, with one call per event loop."""
    for loop, own in groupby(batch, lambda pending: pending.future.get_loop()):
        with suppress(RuntimeError):  # the loop is closed, and so nobody waits
            loop.call_soon_threadsafe(_resolve, list(own))


def _resolve(batch: Sequence[_PendingChange]) -> None:
    for pending in batch:
        if pending.on_commit and pending.error is None:
            pending.on_commit()
        if pending.future.done():
            continue
        if pending.error is None:
            pending.future.set_result(pending.result)
        else:
            pending.future.set_exception(pending.error)
