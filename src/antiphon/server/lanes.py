"""The lanes of a connection: within one, things are done in order; lanes go side by side."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.core.errors import RequestError

NAMED = 32
"""How many names a connection may give to its lanes in its life."""
RUNNING = 16
"""How many lanes may be at work at once; the others wait."""
WAITING = 32
"""How much may wait in all lanes together."""

Work = Callable[[], Awaitable[None]]


class Lanes:
    """What a connection has been asked to do, lane by lane; the default lane has no name."""

    def __init__(self, limit: int) -> None:
        self._lanes: dict[str, deque[tuple[Work, int]]] = {"": deque()}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(RUNNING)
        self._waiting = 0
        self._size = 0
        self._limit = limit

    def is_busy(self, name: str) -> bool:
        """Tell whether something in a lane comes first."""
        return name in self._tasks

    def add(self, name: str, work: Work, size: int) -> None:
        """Have something done when its lane comes to it; raises RequestError if it is too much.

        `size` is how many bytes it holds while it waits. Work is expected never to raise.
        """
        if name not in self._lanes and len(self._lanes) > NAMED:
            raise RequestError(
                f"This connection has {NAMED} named lanes, and may have no more. "
                "Use one of their names as 'stream_id', or another connection.",
                param="stream_id",
                code="websocket_stream_limit_reached",
            )
        if self._waiting >= WAITING or (self._waiting and self._size + size > self._limit):
            raise RequestError(
                "Too much is waiting on this connection. Read some answers first.",
                type="too_many_requests",
                code="websocket_queue_full",
            )
        self._lanes.setdefault(name, deque()).append((work, size))
        self._waiting += 1
        self._size += size
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._work(name))

    async def _work(self, name: str) -> None:
        lane = self._lanes[name]
        try:
            while lane:
                async with self._slots:
                    work, size = lane.popleft()
                    self._waiting -= 1
                    self._size -= size
                    await work()
        finally:
            del self._tasks[name]

    async def idle(self) -> None:
        """Return when nothing is left to do."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def stop(self) -> None:
        """Stop at once, and forget what waits."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
