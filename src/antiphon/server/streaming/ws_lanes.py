"""The lanes of a WebSocket: turns run in order within a lane, and lanes run concurrently.

All lanes share one queue of outgoing messages, which makes the models wait for a slow client.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.engine.models import EventSink
from antiphon.engine.run import Run
from antiphon.protocol.errors import RequestError
from antiphon.protocol.events import TERMINAL_EVENTS, Event, ResponseFailed
from antiphon.server.asgi import Send
from antiphon.server.middleware import ReportedError
from antiphon.wire.openresponses import Dialect
from antiphon.wire.websocket import add_lane, websocket_error


class OutgoingQueue:
    """The outgoing messages of one connection, of all lanes, in order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._queued = self._sent = 0
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._close_reason: tuple[int, str] | None = None

    @property
    def full(self) -> bool:
        """Whether the client is so far behind that models must wait."""
        return self._size > self._limit

    def put(self, message: bytes) -> None:
        """Queue a message; ignored after `close`."""
        if self._close_reason is None:
            self._messages.append(message)
            self._size += len(message)
            self._queued += 1
            self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close the connection after the queued messages."""
        self._close_reason = self._close_reason or (code, reason)
        self._wake.set()
        self._progress.set()

    async def drain(self) -> None:
        """Wait until the client has caught up."""
        while self.full and self._close_reason is None:
            await self._wait_for_progress()

    async def flush(self) -> None:
        """Wait until all messages queued so far are sent."""
        until = self._queued
        while self._sent < until and self._close_reason is None:
            await self._wait_for_progress()

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    async def run(self, send: Send) -> None:
        """Send messages until the queue is closed; raises ClientDisconnected."""
        while self._messages or self._close_reason is None:
            await self._wake.wait()
            self._wake.clear()
            while self._messages:
                message = self._messages.popleft()
                await send({"type": "websocket.send", "text": message.decode()})
                # Counted after the send, which returns when the transport has room again.
                self._size -= len(message)
                self._sent += 1
                self._progress.set()
        code, reason = self._close_reason
        await send({"type": "websocket.close", "code": code, "reason": reason})


class TurnSink(EventSink):
    """The event sink of one turn: sends its events as messages of its lane.

    The first events are held until the model starts to answer. A turn that fails before they are
    sent ends with an error message; one that fails later ends with `response.failed`.
    """

    def __init__(self, outgoing: OutgoingQueue, dialect: Dialect, lane: str) -> None:
        self._outgoing = outgoing
        self._dialect = dialect
        self._lane = lane
        self._pending: list[Event] = []
        self._announced = False
        self.ended = False
        """Whether the last message of the turn was sent."""
        self.status = 200
        """The outcome of the turn as an HTTP status."""

    @property
    def full(self) -> bool:
        return self._outgoing.full

    async def drain(self) -> None:
        await self._outgoing.drain()

    def write(self, events: list[Event]) -> None:
        """Send events; the first batch, which announces the response, with the second."""
        # `response.created` and `response.in_progress` come in the first batch.
        self._pending += events
        if self._announced:
            self._flush()
        self._announced = True

    def commit(self, run: Run) -> None:
        """Send the held events of a response whose model takes long to start."""
        # From now on a failure is a `response.failed` event, as the client has seen the response.
        if run.error is None:
            run.answering = True
            self._flush()

    def _flush(self) -> None:
        for event in self._pending:
            self._outgoing.put(add_lane(self._dialect.encode_message(event), self._lane))
            if isinstance(event, TERMINAL_EVENTS):
                self.ended = True
                self.status = 500 if isinstance(event, ResponseFailed) else 200
        self._pending.clear()

    def fail(self, reported: ReportedError) -> None:
        """End the turn with an error message."""
        self.ended = True
        self.status = reported.status
        message = self._dialect.encode_websocket_error(websocket_error(*reported))
        self._outgoing.put(add_lane(message, self._lane))


MAX_NAMED_LANES = 32
"""How many named lanes a connection may ever use."""
MAX_ACTIVE_LANES = 16
"""How many lanes may run a turn at the same time."""
MAX_QUEUED = 32
"""How many turns may wait in all lanes together."""

LaneJob = Callable[[], Awaitable[None]]


class LaneScheduler:
    """Runs the jobs of one connection, lane by lane; the default lane has an empty name."""

    def __init__(self, limit: int) -> None:
        self._lanes: dict[str, deque[tuple[LaneJob, int]]] = {"": deque()}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(MAX_ACTIVE_LANES)
        self._queued = 0
        self._queued_bytes = 0
        self._max_queued_bytes = limit

    def is_busy(self, name: str) -> bool:
        return name in self._tasks

    def add(self, name: str, job: LaneJob, size: int) -> None:
        """Queue a job in a lane; raises RequestError if a limit is reached.

        `size` is the number of bytes that the job holds while it waits. Jobs must not raise.
        """
        # The names are never forgotten: a client could otherwise create lanes without limit.
        if name not in self._lanes and len(self._lanes) > MAX_NAMED_LANES:
            reason = f"This connection already uses {MAX_NAMED_LANES} named lanes, which is the limit"
            message = f"{reason}. Reuse one of their names as 'stream_id', or open another connection."
            raise RequestError(message, param="stream_id", code="websocket_stream_limit_reached")
        # One job is always accepted, however large: its size was checked as a message's.
        too_large = self._queued and self._queued_bytes + size > self._max_queued_bytes
        if self._queued >= MAX_QUEUED or too_large:
            message = "Too many turns are waiting on this connection. Read some responses first."
            raise RequestError(message, type="too_many_requests", code="websocket_queue_full")
        self._lanes.setdefault(name, deque()).append((job, size))
        self._queued += 1
        self._queued_bytes += size
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._run_lane(name))

    async def _run_lane(self, name: str) -> None:
        lane = self._lanes[name]
        try:
            while lane:
                async with self._slots:
                    job, size = lane.popleft()
                    self._queued -= 1
                    self._queued_bytes -= size
                    await job()
        finally:
            del self._tasks[name]

    async def wait_idle(self) -> None:
        """Wait until all jobs are done."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def stop(self) -> None:
        """Cancel the running jobs, and drop the queued ones."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
