"""The outlet of a background run: events are durable before anybody sees them.

Events gather for at most 20 ms or 64 of them, then go to the feed in one append. The append is
fenced: a worker that has been replaced, or a response that has ended, takes no more. While the
store fails, the run waits; nothing that was made is lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from itertools import chain, repeat
from typing import TypeVar

from antiphon.core.errors import StoreError
from antiphon.core.events import Event
from antiphon.core.response import Response
from antiphon.core.value import encode
from antiphon.engine.outlet import Outlet
from antiphon.store.base import Feed

logger = logging.getLogger("antiphon.engine")

T = TypeVar("T")

GATHER_SECONDS = 0.02
GATHER_EVENTS = 64
WAITING_EVENTS = 1024
"""How many events may wait for a slow store before the model has to wait too."""

PATIENCE = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""How long to wait after each failure of the store; the last stands for all that follow."""


class Fenced(Exception):
    """Someone else makes this response now, or it has ended."""


class Log(Outlet):
    """One response's events on their way to the feed."""

    def __init__(self, feed: Feed, id: str, epoch: int, last: int, *, tenant: str = "") -> None:
        self._feed = feed
        self._id = id
        self._epoch = epoch
        self._last = last
        self._tenant = tenant
        self._waiting: list[bytes] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._many = asyncio.Event()
        self._turn = asyncio.Lock()

    @property
    def full(self) -> bool:
        """Whether the store is so far behind that the model has to wait."""
        return len(self._waiting) > WAITING_EVENTS

    def write(self, events: list[Event]) -> None:
        """Take events; they will be durable soon."""
        self._waiting += map(encode, events)
        self._wake.set()
        if len(self._waiting) >= GATHER_EVENTS:
            self._many.set()

    async def drained(self) -> None:
        """Return when the store has caught up."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    async def during(self, work: Coroutine[object, object, object]) -> None:
        """Do the work that writes here, and append what it writes meanwhile.

        When someone else has taken the response over, the work is cancelled.
        """
        task = asyncio.current_task()
        keeper = asyncio.create_task(self._keep_appending(task.cancel if task else lambda: None))
        try:
            await work
        finally:
            async with self._turn:  # what is being appended now will have been, or will have failed
                keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def append(self, events: list[Event], final: Response | None = None) -> None:
        """Append events at once, and with them the end of the response if it is; raises Fenced."""
        async with self._turn:
            self._waiting += map(encode, events)
            await self._flush(final)

    async def _keep_appending(self, stop: Callable[[], object]) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(GATHER_SECONDS):
                        await self._many.wait()
                async with self._turn:
                    await self._flush(None)
        except Fenced:
            stop()

    async def _flush(self, final: Response | None) -> None:
        self._many.clear()
        batch, self._waiting = self._waiting, []
        self._room.set()
        if not batch and final is None:
            return
        place = (self._id, self._epoch, self._last, batch)
        kept = await patiently(
            self._id, lambda: self._feed.append(*place, final=final, tenant=self._tenant)
        )
        if not kept:
            raise Fenced(self._id)
        self._last += len(batch)


async def patiently(id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Do what a response needs of the store, as soon as the store can."""
    pauses = chain(PATIENCE, repeat(PATIENCE[-1]))
    while True:
        try:
            return await attempt()
        except StoreError as error:
            pause = next(pauses)
            logger.warning("%s waits %.1fs for the store: %s", id, pause, error)
            await asyncio.sleep(pause)
