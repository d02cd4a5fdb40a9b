"""What keeps a server in order: what a crash left is ended, what is too old is removed."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.engine.background import decode_stored_request
from antiphon.engine.engine import Engine
from antiphon.engine.run import NOT_STORED_ERROR
from antiphon.protocol.errors import RequestError, StoreError
from antiphon.store.base import StoredResponse

logger = logging.getLogger("antiphon.engine")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept after their end, and how often that is looked at."""

    response_seconds: float
    event_seconds: float
    sweep_seconds: float


class Maintenance:
    """The housekeeping of one engine."""

    def __init__(
        self, engine: Engine, retention: Retention, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._retention = retention
        self._clock = clock
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, *, recover: bool = True) -> None:
        """End what a crash left, take up what was queued, and keep sweeping.

        Without `recover`, what is unfinished is left alone: another server may be making it.
        """
        if recover:
            for tenant, stored in await self._engine.store.list_unfinished():
                await self._recover(tenant, stored)
        self._sweeper = asyncio.create_task(self._sweep_loop())

    async def stop(self) -> None:
        """Stop, and let go of the store."""
        if self._sweeper:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._engine.background.stop_all()
        await self._engine.store.close()

    async def _recover(self, tenant: str, stored: StoredResponse) -> None:
        """Take up one response, or end it as failed; raises StoreError if the store is broken."""
        if stored.epoch == 0 and stored.request:
            try:
                await self._engine.resubmit(decode_stored_request(stored), stored, tenant)
            except (RequestError, ValueError) as error:
                logger.warning("%s cannot be made any more: %s", stored.response.id, error)
            except Exception:
                # A process boundary: no single row may keep the server from starting.
                logger.exception("%s cannot be taken up", stored.response.id)
            else:
                return
        await self._engine.background.fail(stored, tenant=tenant)

    async def end_orphans(self) -> None:
        """End the responses whose end could not be stored when it came."""
        unkept = self._engine.orphans
        while unkept:
            tenant, id = unkept[0]
            try:
                stored = await self._engine.store.find(id, tenant=tenant)
                if stored is not None:
                    await self._engine.background.fail(
                        stored, tenant=tenant, error=NOT_STORED_ERROR
                    )
            except StoreError:
                unkept.rotate(-1)  # so that a row that cannot be read does not hold up the others
                raise
            unkept.popleft()

    async def sweep(self) -> int:
        """Remove everything that is too old; return how much there was."""
        now = self._clock()
        self._engine.history.cache.remove_expired()
        gone = 0
        while count := await self._engine.store.sweep(
            responses_before=int(now - self._retention.response_seconds),
            events_before=int(now - self._retention.event_seconds),
        ):
            gone += count
        return gone

    async def _sweep_loop(self) -> None:
        while True:
            await asyncio.sleep(self._retention.sweep_seconds)
            for work in (self.end_orphans, self.sweep):
                try:
                    await work()
                except StoreError as error:
                    logger.warning("nothing could be swept: %s", error)
