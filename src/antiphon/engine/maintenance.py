"""Recovery after a crash, checkpoints, removal of expired data, and a clean shutdown."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from antiphon.engine.background import follow_events
from antiphon.engine.engine import Engine
from antiphon.engine.run import CHECKPOINT_SECONDS, NOT_STORED_ERROR, SERVER_STOPPED_ERROR
from antiphon.protocol.errors import StoreError
from antiphon.protocol.events import ResponseCreated, ResponseInProgress, ResponseQueued
from antiphon.store.base import StoredResponse

logger = logging.getLogger("antiphon.engine")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long responses and events are kept after their end, and how often they are removed."""

    response_seconds: float
    event_seconds: float
    sweep_seconds: float


CLOCK_TOLERANCE = 60.0
"""How far, in seconds, the wall clock may move between two sweeps beyond the time that has passed."""

CLOCK_SETTLE_SECONDS = 3600.0
"""How long nothing is removed after the wall clock was set: a wrong time is mostly corrected soon."""

POLL_SECONDS = 0.5
"""How often a process looks for queued responses, and for those that another process has taken over."""

RECOVER_SECONDS = 5.0
"""How often a process looks for the responses of processes that are gone."""

ANNOUNCEMENTS = (ResponseCreated, ResponseQueued, ResponseInProgress)
"""The events before any output."""

CHECKPOINT_PAUSES = 20
"""The least pause between two checkpoints, in multiples of the time that one takes."""


class Maintenance:
    """Recovers unfinished responses at start-up, removes expired data and writes checkpoints periodically."""

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        clock: Callable[[], float] = time.time,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._retention = retention
        self._clock = clock
        self._monotonic = monotonic
        self._clock_offset = clock() - monotonic()
        self._sweep_allowed_at = monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Recover unfinished responses and run queued ones; then do this and the other work periodically."""
        await self.recover()
        await self._engine.poll_queue()
        self._tasks = [
            asyncio.create_task(_repeat(POLL_SECONDS, self._engine.poll_queue)),
            asyncio.create_task(_repeat(min(RECOVER_SECONDS, self._retention.sweep_seconds), self.recover)),
            asyncio.create_task(_repeat(self._retention.sweep_seconds, self.end_orphans, self.sweep)),
            asyncio.create_task(_repeat(CHECKPOINT_SECONDS / 2, self.write_checkpoints)),
        ]

    async def recover(self) -> None:
        """Recover the unfinished responses that nobody makes, such as those of processes that are gone."""
        for tenant, stored in await self._engine.list_abandoned():
            if not self._engine.is_running(stored.response.id, tenant):
                await self._recover(tenant, stored)

    async def stop(self) -> None:
        """Stop the periodic work and the background responses, and close the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._engine.background.stop_all()
        await self._engine.store.close()

    async def _recover(self, tenant: str, stored: StoredResponse) -> None:
        """Give a response back to the queue if nobody has seen its output; end any other as failed."""
        engine, id = self._engine, stored.response.id
        if engine.can_repeat(stored) and await self._has_no_output(id, tenant):
            # Another process may have recovered it meanwhile, and it runs again.
            epoch = await engine.store.claim(id, tenant=tenant, expected=stored.epoch)
            if epoch is not None and await engine.store.requeue(id, epoch, tenant=tenant):
                logger.warning("%s was interrupted before its output, and is made again", id)
            return
        await engine.background.end_orphan(stored, SERVER_STOPPED_ERROR, tenant=tenant, expected=stored.epoch)

    async def _has_no_output(self, id: str, tenant: str) -> bool:
        async for batch in follow_events(self._engine.store, id, tenant=tenant, wait=False):
            if not all(isinstance(event, ANNOUNCEMENTS) for event in batch):
                return False
        return True

    async def end_orphans(self) -> None:
        """End the responses that nobody runs, such as those whose end could not be stored."""
        orphans = self._engine.orphans
        while orphans:
            tenant, id = orphans[0]
            try:
                stored = await self._engine.store.find(id, tenant=tenant)
                if stored is not None:
                    await self._engine.background.end_orphan(stored, NOT_STORED_ERROR, tenant=tenant)
            except StoreError:
                orphans.rotate(-1)  # one unreadable row must not hold up the others
                raise
            orphans.popleft()

    async def sweep(self) -> int:
        """Remove what has expired; return how many rows there were."""
        self._engine.history.cache.remove_expired()
        if self._clock_was_set():
            return 0
        now, removed = self._clock(), 0
        # In chunks: between two of them the writer thread serves other requests.
        while count := await self._engine.store.sweep(
            responses_before=int(now - self._retention.response_seconds),
            events_before=int(now - self._retention.event_seconds),
        ):
            removed += count
        if removed:
            logger.info("%d expired rows (responses, events and threads) were removed", removed)
        return removed

    def _clock_was_set(self) -> bool:
        """Tell whether the wall clock was set lately: then what looks expired may not be."""
        now, before = self._monotonic(), self._clock_offset
        self._clock_offset = self._clock() - now
        if abs(jump := self._clock_offset - before) > CLOCK_TOLERANCE:
            self._sweep_allowed_at = now + CLOCK_SETTLE_SECONDS
            logger.warning("the clock was set by %+.0fs: nothing is removed for %.0fs", jump, CLOCK_SETTLE_SECONDS)
        return now < self._sweep_allowed_at

    async def write_checkpoints(self) -> None:
        """Store the output of foreground responses that are still being made, each about once a second."""
        now, changes = self._monotonic(), list[Awaitable[None]]()
        due = [(tenant, run) for (tenant, _), run in self._engine.foreground.items() if run.checkpoint_at <= now]
        for tenant, run in due:
            run.checkpoint_at = now + CHECKPOINT_SECONDS
            if response := run.take_checkpoint():
                changes.append(self._engine.store.save_output(response, tenant=tenant))
        await asyncio.gather(*changes)
        # Long outputs and slow disks are written less often, so that this never takes much of the time.
        next_at = now + max(CHECKPOINT_SECONDS, CHECKPOINT_PAUSES * (self._monotonic() - now))
        for _, run in due:
            run.checkpoint_at = next_at


async def _repeat(seconds: float, *work: Callable[[], Awaitable[object]]) -> None:
    """Do some work periodically; a failure of the store is logged."""
    while True:
        await asyncio.sleep(seconds)
        for one in work:
            try:
                await one()
            except StoreError as error:
                logger.warning("the periodic maintenance failed: %s", error)
