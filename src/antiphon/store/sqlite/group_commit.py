"""The one thread that writes: whatever is waiting when it looks becomes one transaction.

A commit costs a flush to the disk, however much is in it. While one runs, changes queue up; the
next takes them all. Each change is a savepoint, so that one that fails harms no other. What fails
as a whole, because the disk does, is undone and told to everybody in it; then the thread goes on.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from msgspec import Struct

from antiphon.protocol.errors import StoreError

MAX_BATCH = 1024
"""How many changes one transaction takes at most."""

Change = Callable[[sqlite3.Connection], object]


class _PendingChange(Struct):
    """A change that somebody waits for, and how it came out."""

    change: Change
    on_commit: Callable[[], None] | None
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[object]"
    result: object = None
    error: Exception | None = None

    def resolve(self) -> None:
        """Tell the one who waits, if still there; run on the loop."""
        if self.on_commit and self.error is None:
            self.on_commit()
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class GroupCommitWriter:
    """The writing connection and its thread. `commits` counts transactions."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self.commits = 0
        self._connect = connect
        self._connection: sqlite3.Connection | None = connect()
        self._queue: SimpleQueue[_PendingChange | None] = SimpleQueue()
        self._lock = Lock()
        self._closed = False
        # A daemon, because what was acknowledged is on the disk whenever the process ends.
        self._thread = Thread(target=self._run, name="antiphon-writer", daemon=True)
        self._thread.start()

    def submit(
        self, change: Change, on_commit: Callable[[], None] | None = None
    ) -> "asyncio.Future[object]":
        """Queue a change; `then` runs on the loop when it is durable, whoever still waits."""
        loop = asyncio.get_running_loop()
        op = _PendingChange(change, on_commit, loop, loop.create_future())
        with self._lock:
            if self._closed:
                raise StoreError("The store is closed.")
            self._queue.put(op)
        return op.future

    def close(self) -> None:
        """Write what is queued, then stop; blocks until it is done."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            ops, going = self._take_batch()
            if ops:
                self._write(ops)
                _resolve_on_loops(ops)
            del ops  # or the last changes would be held until the next come
        self._close_connection()

    def _take_batch(self) -> tuple[list[_PendingChange], bool]:
        """Wait for a change and take all that are there; False with the last of them."""
        ops: list[_PendingChange] = []
        op = self._queue.get()
        with suppress(Empty):
            while op is not None:
                ops.append(op)
                if len(ops) == MAX_BATCH:
                    break
                op = self._queue.get_nowait()
        return ops, op is not None

    def _write(self, batch: Sequence[_PendingChange]) -> None:
        try:
            self._commit_batch(batch)
        except (sqlite3.Error, StoreError) as error:
            for op in batch:
                op.error = error
            self._close_connection()  # closing undoes what was begun, and a new connection knows no harm  # noqa: E501

    def _commit_batch(self, batch: Sequence[_PendingChange]) -> None:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.execute("BEGIN IMMEDIATE")
        for op in batch:
            _apply_change(self._connection, op)
        self._connection.execute("COMMIT")
        self.commits += 1

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        with suppress(sqlite3.Error):
            if connection:
                connection.close()


def _apply_change(connection: sqlite3.Connection, op: _PendingChange) -> None:
    """Make one change; if it fails, undo it alone."""
    connection.execute("SAVEPOINT change")
    try:
        op.result = op.change(connection)
    except Exception as error:  # whatever it is, it is the caller's: the thread goes on
        op.error = error
        if not connection.in_transaction:  # the engine gave up on all of it
            raise sqlite3.OperationalError(str(error)) from error
        connection.execute("ROLLBACK TO change")
    connection.execute("RELEASE change")


def _resolve_on_loops(batch: Sequence[_PendingChange]) -> None:
    """Tell everybody, with one call to each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_PendingChange]] = {}
    for op in batch:
        by_loop.setdefault(op.loop, []).append(op)
    for loop, own in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_resolve_all, own)


def _resolve_all(batch: Sequence[_PendingChange]) -> None:
    for op in batch:
        op.resolve()
