"""The lanes of a WebSocket: turns run in order within a lane, and lanes run concurrently."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.protocol.errors import RequestError

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
        """Return whether a job in a lane is running or waiting."""
        return name in self._tasks

    def add(self, name: str, job: LaneJob, size: int) -> None:
        """Queue a job in a lane; raises RequestError if a limit is reached.

        `size` is the number of bytes that the job holds while it waits. Jobs must not raise.
        """
        # The names are never forgotten: a client could otherwise create lanes without limit.
        if name not in self._lanes and len(self._lanes) > MAX_NAMED_LANES:
            raise RequestError(
                f"This connection already uses {MAX_NAMED_LANES} named lanes, which is the limit. "
                "Reuse one of their names as 'stream_id', or open another connection.",
                param="stream_id",
                code="websocket_stream_limit_reached",
            )
        # One job is always accepted, however large: its size was checked as a message's.
        too_large = self._queued and self._queued_bytes + size > self._max_queued_bytes
        if self._queued >= MAX_QUEUED or too_large:
            raise RequestError(
                "Too many turns are waiting on this connection. Read some responses first.",
                type="too_many_requests",
                code="websocket_queue_full",
            )
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
