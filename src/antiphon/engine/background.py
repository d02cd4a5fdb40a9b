"""Background responses: jobs of this process, their event log, and the readers of the log.

A background response is durable before its id is known to anyone. Its events are durable before
anybody sees them: they are collected for at most 20 ms or 64 events, then appended in one
transaction. The append is fenced: a worker that has been replaced cannot write. While the store
fails, the run waits, and nothing is lost. A response can be cancelled until it has ended.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import chain, repeat
from typing import TypeVar

from msgspec.structs import replace

from antiphon.engine.models import EventSink
from antiphon.engine.run import INTERNAL_ERROR, SERVER_STOPPING, FencedError
from antiphon.protocol import context, parts
from antiphon.protocol.errors import ErrorPayload, StoreError, drop_tracebacks
from antiphon.protocol.events import Event, decode_event
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode, encode
from antiphon.protocol.synth import Synth
from antiphon.store.base import TERMINAL_STATUSES, Feed, Store, StoredResponse
from antiphon.store.ids import new_id
from antiphon.wire import json

logger = logging.getLogger("antiphon.engine")

T = TypeVar("T")

MAX_WAITING = 1000
"""How many background responses may wait for a free slot."""

# Long enough that a fast model fills a transaction, short enough that no reader notices.
BATCH_SECONDS = 0.02
BATCH_EVENTS = 64
MAX_PENDING_EVENTS = 1024
"""How many events may wait for a slow store before the model has to wait too."""

RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""The delays after failures of the store; the last one repeats."""

Work = Callable[[], Coroutine[object, object, object]]


class Background:
    """The background responses that this process runs, or that wait here for a free slot.

    What waits is in the store's queue, from which any other process with a free slot may take it.
    """

    def __init__(self, store: Store, clock: Callable[[], float], slots: int) -> None:
        self._store = store
        self._clock = clock
        self._free = slots
        self._slots = asyncio.Semaphore(slots)
        self._max_jobs = slots + MAX_WAITING
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._is_draining = False
        self._waiting: dict[str, int] = {}
        """The epochs of the responses that wait here for a slot; 0 of those that are still in the store's queue."""
        self.claims: dict[str, int] = {}
        """The epochs of the responses that are being made here."""

    @property
    def full(self) -> bool:
        """Whether too many responses are waiting."""
        return len(self._jobs) >= self._max_jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, id: str) -> bool:
        return id in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def start(self, id: str, announce: Work, work: Work, *, tenant: str = "", epoch: int = 0) -> None:
        """Call `announce` at once, and `work` when a slot is free; `epoch` is that of a response claimed already."""
        job = self._jobs[id] = asyncio.create_task(self._run(id, announce, work, tenant, epoch))
        job.add_done_callback(lambda job: self._forget(id, job))

    def _forget(self, id: str, job: asyncio.Task[None]) -> None:
        """Remove a job, unless the queue has given its response to a newer one."""
        if self._jobs.get(id) is job:
            del self._jobs[id]
            self.claims.pop(id, None)
            self._waiting.pop(id, None)

    async def _run(self, id: str, announce: Work, work: Work, tenant: str, epoch: int) -> None:
        try:
            await announce()
            if self._is_draining and epoch == 0 and self._slots.locked():
                return  # it stays in the queue, for another process
            self._waiting[id] = epoch
            async with self._slots:
                self._waiting.pop(id, None)
                self._free -= 1
                try:
                    await work()
                finally:
                    self._free += 1
        except FencedError:
            logger.info("%s is made by someone else, or has ended", id)
        except Exception as error:
            # A process boundary: nobody awaits this task, and its readers must not wait for ever.
            logger.exception("%s broke", id)
            drop_tracebacks(error)
            epoch = self.claims.get(id, 0)
            stored = await retry_store(id, lambda: self._store.find(id, tenant=tenant))
            if stored and stored.epoch == epoch:
                await retry_store(id, lambda: self.end_orphan(stored, INTERNAL_ERROR, tenant=tenant, expected=epoch))

    @property
    def room(self) -> int:
        """How many more responses of the store's queue may run here."""
        return max(0, self._free - (len(self._jobs) - len(self.claims)))

    async def stop_lost(self) -> None:
        """Stop the responses that another process has taken, taken over, cancelled or deleted."""
        claims = [*self.claims.items(), *self._waiting.items()]
        for id in await self._store.find_lost(claims) if claims else ():
            self.stop(id)

    def release_waiting(self) -> None:
        """Take no more work: what waits here for a slot stays in the store's queue, for another process."""
        self._is_draining = True
        self._free = -self._max_jobs
        for id, epoch in self._waiting.items():
            if epoch == 0:
                self.stop(id)

    async def cancel(self, stored: StoredResponse, *, tenant: str) -> Response:
        """Cancel a response, unless it has ended; return it as it ended, at the latest after some seconds."""
        id = stored.response.id
        if job := self._jobs.get(id):
            _cancel_once(job)
            await asyncio.wait([job], timeout=5)
        found = await self._store.find(id, tenant=tenant)
        while found is not None and found.response.status not in TERMINAL_STATUSES:
            # It was waiting for a slot, or its process is gone. If two requests cancel it at once,
            # the one with the newer epoch ends it.
            await self.end_orphan(found, None, tenant=tenant)
            found = await self._store.find(id, tenant=tenant)
        return (found or stored).response

    def stop(self, id: str) -> None:
        """Stop a response that was deleted or taken over."""
        if job := self._jobs.get(id):
            _cancel_once(job)

    async def stop_all(self) -> None:
        """Stop all running responses, which end as failed."""
        jobs = list(self._jobs.values())
        for job in jobs:
            _cancel_once(job, SERVER_STOPPING)
        if jobs:
            await asyncio.wait(jobs, timeout=5)

    async def end_orphan(
        self, stored: StoredResponse, error: ErrorPayload | None, *, tenant: str, expected: int | None = None
    ) -> None:
        """End a response that nobody runs any more, as failed or, without an error, as cancelled.

        It is taken over from its worker, if there is one, and with `expected` only if this is still its epoch.
        Its logged output is kept.
        """
        id = stored.response.id
        epoch = await self._store.claim(id, tenant=tenant, expected=expected)
        if epoch is None:
            return
        response = close_output(stored.response)
        synth = Synth(response, ids=new_id, clock=self._clock)
        logged: list[Event] | None = []
        try:
            async for batch in follow_events(self._store, id, tenant=tenant, wait=False):
                logged += batch
            synth.resume(logged)
        except StoreError:
            raise
        except Exception:
            # Whatever is wrong with its log, a response must not stay unfinished for ever.
            logger.exception("the events of %s cannot be read: it is ended without them", id)
            logged = None
            synth = Synth(response, ids=new_id, clock=self._clock)
        events = [] if logged else synth.start()
        synth.feed_all(_estimate_usage(stored, synth.response))
        if error is None:
            synth.feed(parts.Finish("cancelled"))
        events += synth.fail(error) if error else synth.end()
        if logged is None:  # the numbers of new events could not follow those in the log
            await self._store.end(synth.response, tenant=tenant)
            return
        # The log of a foreground response has no readers.
        bodies = [encode(event) for event in events] if stored.response.background else []
        last = logged[-1].sequence_number if logged else -1
        await self._store.append(id, epoch, last, bodies, final=synth.response, tenant=tenant)


class EventLog(EventSink):
    """Writes the events of one run to the store's feed, in batches."""

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
        """Take events; they are appended with the next batch."""
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
        """Await the work that writes here, and append batches meanwhile."""
        task = asyncio.current_task()
        appending = asyncio.create_task(self._append_loop(task.cancel if task else lambda: None))
        try:
            await work
        finally:
            # With the lock no append is under way, whose outcome would be unknown.
            async with self._append_lock:
                appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)

    async def append(self, events: list[Event], final: Response | None = None) -> None:
        """Append events now, and the end of the response if it is `final`; raises FencedError."""
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
        except FencedError:  # another worker has taken the response over
            stop()

    async def _flush(self, final: Response | None) -> None:
        self._batch_full.clear()
        batch, self._pending = self._pending, []
        self._has_room.set()
        if not batch and final is None:
            return
        position = (self._id, self._epoch, self._last, batch)
        appended = await retry_store(self._id, lambda: self._feed.append(*position, final=final, tenant=self._tenant))
        if not appended:
            raise FencedError(self._id)
        self._last += len(batch)


async def retry_store(id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat an operation of the store for as long as it raises StoreError."""
    pauses = chain(RETRY_SECONDS, repeat(RETRY_SECONDS[-1]))
    while True:
        try:
            return await attempt()
        except StoreError as error:
            pause = next(pauses)
            logger.warning("%s waits %.1fs for the store: %s", id, pause, error)
            await asyncio.sleep(pause)


async def follow_events(
    feed: Feed, id: str, after: int = -1, *, tenant: str = "", wait: bool = True
) -> AsyncGenerator[list[Event]]:
    """Yield the logged events after a sequence number; with `wait`, until the response has ended."""
    while found := await feed.read(id, after, tenant=tenant):
        if found.events:
            events = [decode_event(json.decode_lenient(body)) for body in found.events]
            after = events[-1].sequence_number
            yield events
        elif found.ended or not wait:
            return
        else:
            await feed.wait(id, after)


def decode_stored_request(stored: StoredResponse) -> Request:
    """Decode the request of a stored response; raises ValueError if it is unreadable."""
    # Without the size limits of the HTTP endpoints: the normalised form of an accepted request may
    # be larger than the body that the client sent.
    return decode(Request, json.decode_lenient(stored.request))


def close_output(response: Response) -> Response:
    """Close the items that were still open when the output of a response was last stored."""
    output = [
        replace(item, status="incomplete") if getattr(item, "status", None) == "in_progress" else item
        for item in response.output
    ]
    return replace(response, output=output)


def _cancel_once(job: asyncio.Task[None], reason: str | None = None) -> None:
    """Cancel a job unless it is cancelled already: a second time would interrupt its commit."""
    if not job.cancelling():
        job.cancel(reason)


def _estimate_usage(stored: StoredResponse, response: Response) -> list[parts.Part]:
    try:
        request = decode_stored_request(stored) if stored.request else Request()
    except ValueError:
        request = Request()
    message = "The response was interrupted; these are estimates."
    return [
        parts.Usage(
            context.estimate_prompt(request.instructions, request.tools, request.input),
            context.estimate_items(response.output),
        ),
        parts.Warn("usage_estimated", message, "usage"),
    ]
