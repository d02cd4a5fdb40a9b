"""Responses that are made whether or not anyone listens.

A background response is durable before its id is known to anyone. It runs as a task of this
process, its events go to the log, and readers are cursors over the log. It can be cancelled until
it has ended; whoever comes first, its end or the cancellation, the other changes nothing.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine

from antiphon.engine.event_log import Fenced
from antiphon.engine.persistence import new_id
from antiphon.engine.run import INTERNAL_ERROR, SERVER_STOPPED_ERROR, SERVER_STOPPING
from antiphon.protocol import parts, token_estimate
from antiphon.protocol.errors import ErrorPayload, StoreError, drop_tracebacks
from antiphon.protocol.events import Event, decode_event
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode, encode
from antiphon.protocol.synth import Synth
from antiphon.store.base import (
    TERMINAL_STATUSES,
    Feed,
    Store,
    StoredResponse,
)
from antiphon.wire import json

logger = logging.getLogger("antiphon.engine")

MAX_WAITING = 1000
"""How many background responses may wait for a free slot."""

Work = Callable[[], Coroutine[object, object, object]]


class Background:
    """The responses that this process makes in the background."""

    def __init__(self, store: Store, clock: Callable[[], float], slots: int) -> None:
        self._store = store
        self._clock = clock
        self._slots = asyncio.Semaphore(slots)
        self._max_jobs = slots + MAX_WAITING
        self._jobs: dict[str, asyncio.Task[None]] = {}

    @property
    def full(self) -> bool:
        """Whether too many wait already."""
        return len(self._jobs) >= self._max_jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self, id: str, announce: Work, work: Work, *, tenant: str = "") -> None:
        """Announce a response at once, and make it as soon as there is a free slot."""
        job = self._jobs[id] = asyncio.create_task(self._run(id, announce, work, tenant))
        job.add_done_callback(lambda _: self._jobs.pop(id, None))

    async def _run(self, id: str, announce: Work, work: Work, tenant: str) -> None:
        try:
            await announce()
            async with self._slots:
                await work()
        except Fenced:
            logger.info("%s is made by someone else, or has ended", id)
        except Exception as error:
            # A process boundary: nobody awaits this task, and its readers must not wait for ever.
            logger.exception("%s broke", id)
            drop_tracebacks(error)
            if stored := await self._store.find(id, tenant=tenant):
                await self.fail(stored, tenant=tenant, error=INTERNAL_ERROR)

    async def cancel(self, stored: StoredResponse, *, tenant: str) -> Response:
        """Stop a response, unless it has ended; return it as it ended."""
        id = stored.response.id
        if job := self._jobs.get(id):
            _cancel_once(job)
            await asyncio.wait([job], timeout=5)
        found = await self._store.find(id, tenant=tenant)
        while found is not None and found.response.status not in TERMINAL_STATUSES:
            # It waited for its turn, or belongs to a process that is not there any more. If
            # another cancels it too, the one that took it over last ends it.
            await self._end_orphan(found, tenant, _finish_cancelled)
            found = await self._store.find(id, tenant=tenant)
        return (found or stored).response

    def stop(self, id: str) -> None:
        """Stop a response that nobody will ever ask for again."""
        if job := self._jobs.get(id):
            _cancel_once(job)

    async def fail(
        self, stored: StoredResponse, *, tenant: str, error: ErrorPayload = SERVER_STOPPED_ERROR
    ) -> None:
        """End a response that nobody makes any more; what its log holds is kept."""
        await self._end_orphan(stored, tenant, lambda synth: synth.fail(error))

    async def stop_all(self) -> None:
        """Stop everything that runs; it ends as interrupted."""
        jobs = list(self._jobs.values())
        for job in jobs:
            _cancel_once(job, SERVER_STOPPING)
        if jobs:
            await asyncio.wait(jobs, timeout=5)

    async def _end_orphan(
        self, stored: StoredResponse, tenant: str, finish: Callable[[Synth], list[Event]]
    ) -> None:
        """Take a response over from whoever had it, and end it as its events were left."""
        id = stored.response.id
        epoch = await self._store.claim(id, tenant=tenant)
        if epoch is None:
            return
        synth = Synth(stored.response, ids=new_id, clock=self._clock)
        try:
            events = [event async for event in read_events(self._store, id, tenant=tenant)]
            synth.resume(events)
        except StoreError:
            raise
        except Exception:
            # Whatever is wrong with its log, a response must not stay unfinished for ever.
            logger.exception("the events of %s cannot be read: it is ended without them", id)
            await self._end_without_log(stored, tenant, finish)
            return
        told = [] if events else synth.start()
        for part in _estimate_usage(stored, synth.response):
            synth.feed(part)
        told += finish(synth)
        kept = [encode(event) for event in told] if stored.response.background else []
        last = events[-1].sequence_number if events else -1
        await self._store.append(id, epoch, last, kept, final=synth.response, tenant=tenant)

    async def _end_without_log(
        self, stored: StoredResponse, tenant: str, finish: Callable[[Synth], list[Event]]
    ) -> None:
        """End a response whose events cannot be read, and leave them as they are."""
        synth = Synth(stored.response, ids=new_id, clock=self._clock)
        synth.start()
        for part in _estimate_usage(stored, synth.response):
            synth.feed(part)
        finish(synth)
        await self._store.end(synth.response, tenant=tenant)


async def read_events(
    feed: Feed, id: str, after: int = -1, *, tenant: str = ""
) -> AsyncGenerator[Event]:
    """Give the events that the log has after a number, and no more."""
    while (found := await feed.read(id, after, tenant=tenant)) and found.events:
        for body in found.events:
            event = decode_event(json.decode_lenient(body))
            after = event.sequence_number
            yield event


async def follow_events(
    feed: Feed, id: str, after: int = -1, *, tenant: str = ""
) -> AsyncGenerator[list[Event]]:
    """Give the events after a number, as they come, until the response has ended."""
    while found := await feed.read(id, after, tenant=tenant):
        if found.events:
            events = [decode_event(json.decode_lenient(body)) for body in found.events]
            after = events[-1].sequence_number
            yield events
        elif found.ended:
            return
        else:
            await feed.wait(id, after)


def _cancel_once(job: asyncio.Task[None], reason: str | None = None) -> None:
    """Cancel a job, once: it may be busy with keeping its end."""
    if not job.cancelling():
        job.cancel(reason)


def _finish_cancelled(synth: Synth) -> list[Event]:
    synth.feed(parts.Finish("cancelled"))
    return synth.end()


def decode_stored_request(stored: StoredResponse) -> Request:
    """Read the request of a stored response; raises ValueError if it cannot be read.

    The limits of the HTTP door do not apply: the normalised form of a request that was let in may
    be larger than the body that came.
    """
    return decode(Request, json.decode_lenient(stored.request))


def _decode_request_or_empty(stored: StoredResponse) -> Request:
    """Return what was asked for, as far as it is known and can still be read."""
    try:
        return decode_stored_request(stored) if stored.request else Request()
    except ValueError:
        return Request()


def _estimate_usage(stored: StoredResponse, response: Response) -> list[parts.Part]:
    """Estimate the tokens of a response that nobody will count any more."""
    request = _decode_request_or_empty(stored)
    read = token_estimate.estimate_prompt(request.instructions, request.tools, request.input)
    message = "The response was interrupted; these are estimates."
    return [
        parts.Usage(
            input_tokens=read, output_tokens=token_estimate.estimate_items(response.output)
        ),
        parts.Warn("usage_estimated", message, "usage"),
    ]
