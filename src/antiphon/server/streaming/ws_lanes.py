"""The lanes of a connection: within one, things are done in order; lanes go side by side."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.protocol.errors import RequestError

MAX_NAMED_LANES = 32
"""How many names a connection may give to its lanes in its life."""
MAX_ACTIVE_LANES = 16
"""How many lanes may be at work at once; the others wait."""
MAX_QUEUED = 32
"""How much may wait in all lanes together."""

LaneJob = Callable[[], Awaitable[None]]


class LaneScheduler:
    """What a connection has been asked to do, lane by lane; the default lane has no name."""

    def __init__(self, limit: int) -> None:
        self._lanes: dict[str, deque[tuple[LaneJob, int]]] = {"": deque()}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(MAX_ACTIVE_LANES)
        self._queued = 0
        self._queued_bytes = 0
        self._max_queued_bytes = limit

    def is_busy(self, name: str) -> bool:
        """Tell whether something in a lane comes first."""
        return name in self._tasks

    def add(self, name: str, job: LaneJob, size: int) -> None:
        """Have something done when its lane comes to it; raises RequestError if it is too much.

        `size` is how many bytes it holds while it waits. Work is expected never to raise.
        """
        if name not in self._lanes and len(self._lanes) > MAX_NAMED_LANES:
            raise RequestError(
                f"This connection has {MAX_NAMED_LANES} named lanes, and may have no more. "
                "Use one of their names as 'stream_id', or another connection.",
                param="stream_id",
                code="websocket_stream_limit_reached",
            )
        if self._queued >= MAX_QUEUED or (
            self._queued and self._queued_bytes + size > self._max_queued_bytes
        ):
            raise RequestError(
                "Too much is waiting on this connection. Read some answers first.",
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
                    work, size = lane.popleft()
                    self._queued -= 1
                    self._queued_bytes -= size
                    await work()
        finally:
            del self._tasks[name]

    async def wait_idle(self) -> None:
        """Return when nothing is left to do."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def stop(self) -> None:
        """Stop at once, and forget what waits."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
