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

from antiphon.engine.interfaces import EventSink
from antiphon.protocol.errors import StoreError
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.store.base import Feed

logger = logging.getLogger("antiphon.engine")

T = TypeVar("T")

BATCH_SECONDS = 0.02
BATCH_EVENTS = 64
MAX_PENDING_EVENTS = 1024
"""How many events may wait for a slow store before the model has to wait too."""

RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""How long to wait after each failure of the store; the last stands for all that follow."""


class Fenced(Exception):
    """Someone else makes this response now, or it has ended."""


class EventLog(EventSink):
    """One response's events on their way to the feed."""

    def __init__(self, feed: Feed, id: str, epoch: int, last: int, *, tenant: str = "") -> None:
        self._feed = feed
        self._id = id
        self._epoch = epoch
        self._last = last
        self._tenant = tenant
        self._pending: list[bytes] = []
        self._has_events = asyncio.Event()
        self._has_room = asyncio.Event()
        self._batch_full = asyncio.Event()
        self._append_lock = asyncio.Lock()

    @property
    def full(self) -> bool:
        """Whether the store is so far behind that the model has to wait."""
        return len(self._pending) > MAX_PENDING_EVENTS

    def write(self, events: list[Event]) -> None:
        """Take events; they will be durable soon."""
        self._pending += map(encode, events)
        self._has_events.set()
        if len(self._pending) >= BATCH_EVENTS:
            self._batch_full.set()

    async def drain(self) -> None:
        """Return when the store has caught up."""
        while self.full:
            self._has_room.clear()
            await self._has_room.wait()

    async def append_during(self, work: Coroutine[object, object, object]) -> None:
        """Do the work that writes here, and append what it writes meanwhile.

        When someone else has taken the response over, the work is cancelled.
        """
        task = asyncio.current_task()
        keeper = asyncio.create_task(self._append_loop(task.cancel if task else lambda: None))
        try:
            await work
        finally:
            async with (
                self._append_lock
            ):  # what is being appended now will have been, or will have failed
                keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def append(self, events: list[Event], final: Response | None = None) -> None:
        """Append events at once, and with them the end of the response if it is; raises Fenced."""
        async with self._append_lock:
            self._pending += map(encode, events)
            await self._flush(final)

    async def _append_loop(self, stop: Callable[[], object]) -> None:
        try:
            while True:
                await self._has_events.wait()
                self._has_events.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BATCH_SECONDS):
                        await self._batch_full.wait()
                async with self._append_lock:
                    await self._flush(None)
        except Fenced:
            stop()

    async def _flush(self, final: Response | None) -> None:
        self._batch_full.clear()
        batch, self._pending = self._pending, []
        self._has_room.set()
        if not batch and final is None:
            return
        place = (self._id, self._epoch, self._last, batch)
        kept = await retry_store(
            self._id, lambda: self._feed.append(*place, final=final, tenant=self._tenant)
        )
        if not kept:
            raise Fenced(self._id)
        self._last += len(batch)


async def retry_store(id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Do what a response needs of the store, as soon as the store can."""
    pauses = chain(RETRY_SECONDS, repeat(RETRY_SECONDS[-1]))
    while True:
        try:
            return await attempt()
        except StoreError as error:
            pause = next(pauses)
            logger.warning("%s waits %.1fs for the store: %s", id, pause, error)
            await asyncio.sleep(pause)
