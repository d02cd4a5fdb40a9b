"""`POST /hashbrown/chat`: the same responses, as frames for Hashbrown's clients; with threads.

The answer is always a stream, and begins at once: whatever goes wrong after the body has been read
is a frame in it, because that is where the client looks. What a thread is told in, and when, is
Hashbrown's own order: load, answer, save.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from antiphon.core.errors import ErrorPayload, RequestError, drop_tracebacks
from antiphon.core.items import Item
from antiphon.core.manner import Manner
from antiphon.core.response import Response
from antiphon.core.threads import Json, assistant, bare, merge
from antiphon.engine.engine import ANYONE, Caller, Engine
from antiphon.engine.ids import new_uuid
from antiphon.engine.run import Run
from antiphon.server.edge import direct
from antiphon.server.failures import explain
from antiphon.server.http import Direct, Receive, Scope, Send, read_json
from antiphon.server.responses import Making
from antiphon.server.service import Service, stopping
from antiphon.server.stream import EventStream
from antiphon.server.threads import KeptThreads, ThreadError, Threads
from antiphon.wire import frames
from antiphon.wire.dialects import failure_of
from antiphon.wire.hashbrown import FILTERED, HashbrownDialect, error_frame, in_its_words
from antiphon.wire.hashbrown_request import Asked, Understood, read_hashbrown

logger = logging.getLogger("antiphon.server")

T = TypeVar("T")

MANNER = Manner(keep_empty=True, one_message=True, calls_by_id=True, ids=new_uuid)
"""How a response is written for these clients: one text, calls under their own ids."""

UNAVAILABLE = "Thread loading is not available for this transport."
ANOTHER = "Save returned a different threadId than the existing thread"
"""Hashbrown's own words."""


class FrameStream(EventStream):
    """Frames on their way to a client. There is nothing to say in silence, and no last word."""

    headers: ClassVar[Sequence[tuple[bytes, bytes]]] = [
        (b"content-type", b"application/octet-stream"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    last: ClassVar[bytes] = b""

    def __init__(self, dialect: HashbrownDialect, limit: int, direct: Direct | None) -> None:
        super().__init__(dialect, limit, direct)
        self._encode = dialect.frames

    def tell(self, frame: bytes) -> None:
        """Have a frame sent that is no event's."""
        self._put(frame)
        self._wake.set()

    def say(self, type: str, **fields: object) -> None:
        """Have a frame of a type sent."""
        self.tell(frames.encode({"type": type, **fields}))

    def _beat(self, seconds: float) -> Callable[[], None]:
        del seconds
        return lambda: None


class AnswerHashbrown:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        settings = self._service.settings
        body = await read_json(scope, receive, settings.body_limit)
        engine = await self._service.engine()
        if self._service.draining:
            raise stopping()
        dialect = HashbrownDialect()
        stream = FrameStream(dialect, settings.outlet_bytes, direct(scope, send))
        visit = Visit(self._service, engine, dialect, stream, scope["antiphon.request_id"])
        async with Making(self._service.run(visit.answer(body)), receive, stream) as making:
            await stream.send(send, settings.heartbeat_seconds)
            making.check()


class Visit:
    """One request being answered."""

    def __init__(
        self,
        service: Service,
        engine: Engine,
        dialect: HashbrownDialect,
        stream: FrameStream,
        request_id: str,
    ) -> None:
        self._service = service
        self._engine = engine
        self._dialect = dialect
        self._stream = stream
        self._request_id = request_id
        self._caller: Caller = ANYONE
        self._understood: Understood | None = None

    @property
    def _threads(self) -> Threads | None:
        chosen = self._service.settings.threads
        if isinstance(chosen, bool):
            return KeptThreads(self._engine.store, self._engine.ids) if chosen else None
        return chosen

    async def answer(self, body: object) -> None:
        """Answer a request to its end; what goes wrong is the last frame."""
        try:
            await self._answer(read_hashbrown(body))
        except Exception as error:  # noqa: BLE001 - a process boundary, as the edge is for others
            failure = explain(error, self._dialect, self._request_id)
            payload = self._named(failure.payload, isinstance(error, RequestError))
            self._stream.tell(frames.framed(error_frame(payload, headers=failure.headers)))
            drop_tracebacks(error)

    async def _answer(self, asked: Asked) -> None:
        thread_id = asked.body.thread_id
        showing = asked.body.operation == "load-thread"
        if showing and thread_id is None:
            message = "There is no thread to load. Send its id as 'threadId'."
            raise RequestError(message, param="threadId", code="missing_required_parameter")
        saved: Sequence[Json] | None = []
        if thread_id is not None:
            saved = await self._load(thread_id, showing=showing)
        if saved is None or showing:
            return
        self._understood = understood = asked.after(saved)
        self._dialect.offered, self._dialect.warnings = understood.offered, understood.warnings
        run = await self._engine.open(understood.request, self._stream, self._caller, manner=MANNER)
        self._dialect.fault = lambda response: self._fault(run, response)
        try:
            response = await run.drive()
        finally:
            self._dialect.fault = failure_of  # the dialect must not keep the run, nor the run it
        if is_answer(response):
            await self._save(understood, self._dialect.in_order(response))

    # --- threads ---

    async def _load(self, thread_id: str, *, showing: bool) -> Sequence[Json] | None:
        """Return what a thread holds, None if it cannot be loaded; tell of it."""
        self._stream.say("thread-load-start")
        if (threads := self._threads) is None:
            self._stream.say("thread-load-failure", error=UNAVAILABLE)
            return None
        load = partial(threads.load, thread_id, tenant=self._caller.tenant)
        saved = await self._tried(load, "thread-load-failure", "The thread cannot be loaded.")
        if saved is not None:
            shown = {"thread": [bare(message) for message in saved]} if showing else {}
            self._stream.say("thread-load-success", **shown)
        return saved

    async def _save(self, understood: Understood, items: Sequence[Item]) -> None:
        """Keep the thread, if threads are kept; tell of it."""
        if (threads := self._threads) is None:
            return
        before = understood.body.thread_id
        messages = merge(understood.messages, [assistant(items)])
        self._stream.say("thread-save-start")
        save = partial(threads.save, messages, before, tenant=self._caller.tenant)
        id = await self._tried(save, "thread-save-failure", "The thread cannot be saved.")
        if id is not None and id != (before or id):
            self._stream.say("thread-save-failure", error=ANOTHER)
        elif id is not None:
            self._stream.say("thread-save-success", threadId=id)

    async def _tried(
        self, work: Callable[[], Awaitable[T]], failure: str, otherwise: str
    ) -> T | None:
        """Have a place for threads do something; tell of a failure in words fit for the client.

        It is done also if the client leaves meanwhile.
        """
        try:
            return await asyncio.shield(asyncio.ensure_future(work()))
        except ThreadError as error:
            self._stream.say(failure, error=str(error))
        except Exception:  # a process boundary: the place may be anybody's
            logger.exception("%s: %s", self._request_id, otherwise)
            self._stream.say(failure, error=otherwise)
        return None

    # --- errors ---

    def _fault(self, run: Run, response: Response) -> ErrorPayload:
        """Tell why a response failed: in the error's own words, if there was one."""
        if run.refusal is None:
            return failure_of(response)
        return self._named(run.refusal.payload, isinstance(run.refusal, RequestError))

    def _named(self, payload: ErrorPayload, ours: bool) -> ErrorPayload:
        """Write an error in its provider's words, or in the client's if it was found here."""
        if not ours:
            return in_its_words(payload)
        kind = "invalid_request" if payload.type == "not_found" else payload.type
        param = payload.param
        if self._understood and param:
            param = self._understood.place(param)
        return replace(payload, type=kind, param=param)


def is_answer(response: Response) -> bool:
    """Tell whether a response ended as one that its client keeps."""
    details = response.incomplete_details
    filtered = details is not None and details.reason == FILTERED.code
    return response.status in ("completed", "incomplete") and not filtered
