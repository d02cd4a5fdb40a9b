"""Appends of all streams of this process: what waits while one flush runs goes into the next, in one transaction.

A flush calls `append_events` of the schema. It takes a shared lock on the row of this process in `workers`: a process
that was fenced writes nothing, and a fence waits until the flush has committed. Then it inserts all events with one
statement, which checks for each response that it has not ended, that this process owns it by the newest claim, and that
no number is missing. The responses that end with their last events do so in the same transaction.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence

from msgspec import Struct

from antiphon.protocol.errors import StoreError
from antiphon.protocol.response import Response
from antiphon.store.postgres import sql
from antiphon.store.postgres.database import CONNECTION_ERRORS, Connection, Database, MissingPartition, close_connection
from antiphon.store.postgres.operations import end_response, ensure_partition
from antiphon.store.postgres.workers import WorkerLease

logger = logging.getLogger("antiphon.store")

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""The most bytes of events in one transaction, unless a single append is larger."""


class Append(Struct, gc=False):
    """One append, and what is known of its outcome."""

    id: str
    tenant: str
    epoch: int
    after: int
    events: list[bytes]
    bodies: bytes
    final: Response | None
    ended_at: int
    future: "asyncio.Future[bool]"

    @property
    def position(self) -> tuple[int, int, bytes]:
        """What the retry of an append has in common with it."""
        return self.epoch, self.after, self.bodies


class AppendWriter:
    """One connection and one task that write the appends of this process."""

    def __init__(self, database: Database, lease: WorkerLease) -> None:
        self._database = database
        self._lease = lease
        self._waiting: deque[Append] = deque()
        self._has_waiting = asyncio.Event()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._uncertain: dict[str, tuple[int, int, bytes]] = {}
        """By response, the append whose commit was under way when the connection broke."""
        self.flushes = 0
        """The number of transactions so far."""
        self.refused = 0
        """The number of appends that were refused because this process was fenced."""

    def start(self) -> None:
        """Write until `stop`."""
        self._task = asyncio.create_task(self._run())

    async def append(self, append: Append) -> bool:
        """Queue an append; return whether it was accepted, once it is durable."""
        if self._closed:
            raise StoreError("The store is closed.")
        self._waiting.append(append)
        self._has_waiting.set()
        return await append.future

    async def stop(self) -> None:
        """Write what is queued, then stop."""
        self._closed = True
        self._has_waiting.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            await close_connection(self._connection)

    async def _run(self) -> None:
        while self._waiting or not self._closed:
            await self._has_waiting.wait()
            batch = self._take_batch()
            if not self._waiting and not self._closed:
                self._has_waiting.clear()
            if batch:
                await self._write(batch)

    def _take_batch(self) -> list[Append]:
        """Take the first append of each response, up to a size; later ones wait for its outcome."""
        batch: dict[str, Append] = {}
        left: list[Append] = []
        size = 0
        while self._waiting and (size < MAX_BATCH_BYTES or not batch):
            append = self._waiting.popleft()
            if append.id in batch:
                left.append(append)
            else:
                batch[append.id] = append
                size += len(append.bodies)
        self._waiting.extendleft(reversed(left))
        return list(batch.values())

    async def _write(self, batch: Sequence[Append]) -> None:
        """Write a batch; if it fails for another reason than its connection, write each append alone."""
        try:
            with self._database.map_errors():
                accepted = await self._flush(batch)
        # Any exception belongs to those who wait for the batch; this task must survive it.
        except Exception as error:  # noqa: BLE001
            if len(batch) > 1 and not isinstance(error.__cause__, CONNECTION_ERRORS):
                for append in batch:
                    await self._write([append])
                return
            for append in batch:
                if not append.future.done():
                    append.future.set_exception(StoreError(str(error)))
            return
        for append in batch:
            if not append.future.done():
                append.future.set_result(append.id in accepted)

    async def _flush(self, batch: Sequence[Append]) -> set[str]:
        """Write a batch in one transaction; return the ids of the responses whose append was accepted."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
        connection = self._connection
        try:
            accepted = await self._insert(connection, batch)
            return accepted | await self._find_committed(connection, batch, accepted)
        except CONNECTION_ERRORS:
            connection.terminate()
            self._uncertain |= {append.id: append.position for append in batch}
            raise

    async def _find_committed(
        self, connection: Connection, batch: Sequence[Append], accepted: Collection[str]
    ) -> set[str]:
        """Return the ids of appends that were refused because they were committed by an attempt before."""
        # Not before this attempt: the earlier transaction may have been under way in the database until now.
        committed: set[str] = set()
        for append in batch if self._uncertain else ():
            if append.id not in accepted and self._uncertain.get(append.id) == append.position:
                values = (append.id, append.tenant, append.epoch, append.after + 1, len(append.events), append.bodies)
                status = await connection.fetchval(sql.FIND_APPENDED, *values)
                if status is not None and (append.events or (append.final and status == append.final.status)):
                    committed.add(append.id)
        for append in batch:
            self._uncertain.pop(append.id, None)
        return committed

    async def _insert(self, connection: Connection, batch: Sequence[Append]) -> set[str]:
        try:
            return await self._insert_once(connection, batch)
        except MissingPartition:  # there is no partition for the day of a response
            for row in await connection.fetch(sql.FIND_DAYS, [append.id for append in batch]):
                await ensure_partition(connection, row["day"])
            return await self._insert_once(connection, batch)

    async def _insert_once(self, connection: Connection, batch: Sequence[Append]) -> set[str]:
        worker = self._lease.id
        if not any(append.final for append in batch):  # one statement is a transaction of its own
            accepted = await self._append_events(connection, worker, batch)
        else:
            async with connection.transaction():
                accepted = await self._append_events(connection, worker, batch)
                for append in batch:
                    if append.final and append.id in accepted:
                        last = append.after + len(append.events)
                        ended = await end_response(
                            connection, append.final, append.tenant, worker, append.ended_at, last_sequence=last
                        )
                        if not ended:
                            accepted.discard(append.id)
        self.flushes += 1
        return accepted

    async def _append_events(self, connection: Connection, worker: str, batch: Sequence[Append]) -> set[str]:
        """Insert the events; return the ids of the responses whose append was accepted."""
        columns = (
            [append.id for append in batch],
            [append.tenant for append in batch],
            [append.epoch for append in batch],
            [append.after for append in batch],
            [len(append.events) for append in batch],
            [append.bodies for append in batch],
        )
        accepted = await connection.fetchval(sql.APPEND_EVENTS, worker, *columns)
        if accepted is None:
            self.refused += len(batch)
            logger.error("%s has lost its lease: %d of its writes were refused", worker, len(batch))
        return set(accepted or ())
