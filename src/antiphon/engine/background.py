"""Responses that are made whether or not anyone listens.

A background response is durable before its id is known to anyone. It runs as a task of this
process, its events go to the log, and readers are cursors over the log. It can be cancelled until
it has ended; whoever comes first, its end or the cancellation, the other changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from antiphon.core.errors import ErrorPayload, StoreError
from antiphon.core.events import Event, decode_event
from antiphon.core.parts import Finish
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.core.value import encode
from antiphon.engine.log import Fenced
from antiphon.store.base import TERMINAL, Store, Stored
from antiphon.wire import json

logger = logging.getLogger("antiphon.engine")

LOST = ErrorPayload(
    message="The server stopped while this response was being made. What had been made is kept.",
    type="server_error",
    code="server_error",
)


class Background:
    """The responses that this process makes in the background."""

    def __init__(self, store: Store, clock: Callable[[], float], limit: int) -> None:
        self._store = store
        self._clock = clock
        self._slots = asyncio.Semaphore(limit)
        self._jobs: dict[str, asyncio.Task[None]] = {}

    def start(self, id: str, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Make a response, as soon as there is a free slot."""
        job = self._jobs[id] = asyncio.create_task(self._run(id, work))
        job.add_done_callback(lambda _: self._jobs.pop(id, None))

    async def _run(self, id: str, work: Callable[[], Coroutine[object, object, object]]) -> None:
        async with self._slots:
            try:
                await work()
            except Fenced:
                logger.info("%s is made by someone else, or has ended", id)

    async def cancel(self, stored: Stored, *, tenant: str) -> Response:
        """Stop a response, unless it has ended; return it as it ended."""
        id = stored.response.id
        if job := self._jobs.get(id):
            job.cancel()
            await asyncio.wait([job], timeout=5)
        found = await self._store.find(id, tenant=tenant)
        if found is not None and found.response.status not in TERMINAL:
            # It waits for its turn, or belongs to a process that is not there any more.
            await self._close(found, lambda synth: _cancelled(synth), tenant)
            found = await self._store.find(id, tenant=tenant)
        return found.response if found else stored.response

    async def interrupt(self, stored: Stored, *, tenant: str) -> None:
        """End a response whose process died; what was made of it is kept."""
        await self._close(stored, lambda synth: synth.fail(LOST), tenant)

    async def _close(
        self, stored: Stored, finish: Callable[[Synth], list[Event]], tenant: str
    ) -> None:
        """Take a response over from whoever had it, and end it."""
        id = stored.response.id
        epoch = await self._store.claim(id, tenant=tenant)
        if epoch is None:
            return
        events = await self._events(id, tenant)
        synth = Synth.resume(stored.response, events, clock=self._clock)
        closing = finish(synth)
        last = events[-1].sequence_number if events else -1
        encoded = [encode(event) for event in closing] if events else []
        await self._store.append(id, epoch, last, encoded, final=synth.response, tenant=tenant)

    async def _events(self, id: str, tenant: str) -> list[Event]:
        events: list[Event] = []
        while logged := await self._store.read(
            id, events[-1].sequence_number if events else -1, tenant=tenant
        ):
            if not logged.events:
                break
            events += [decode_event(json.decode(event)) for event in logged.events]
        return events

    async def drain(self) -> None:
        """Stop everything that runs; it will be ended as interrupted."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        if jobs:
            await asyncio.wait(jobs, timeout=5)


def _cancelled(synth: Synth) -> list[Event]:
    synth.feed(Finish("cancelled"))
    return synth.end()


async def give_up(store: Store, stored: Stored, clock: Callable[[], float], tenant: str) -> None:
    """End a foreground response whose process died."""
    synth = Synth.resume(stored.response, [], clock=clock)
    synth.fail(LOST)
    try:
        await store.end(synth.response, tenant=tenant)
    except StoreError as error:
        logger.warning("%s could not be ended: %s", stored.response.id, error)
