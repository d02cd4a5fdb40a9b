"""`POST /hashbrown/chat`: responses as frames for Hashbrown's clients, with threads.

The response is always a stream that starts at once. Any error after the body was read is sent as a
frame, because Hashbrown's clients look for errors there. The order of thread frames is Hashbrown's:
load, response, save.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

from msgspec.structs import replace
from starlette.routing import BaseRoute

from antiphon.engine.engine import Engine
from antiphon.engine.persistence import new_uuid
from antiphon.engine.run import Run
from antiphon.protocol.errors import ErrorPayload, RequestError, drop_tracebacks
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.synth_items import SynthOptions
from antiphon.server.asgi import Receive, Scope, Send, WriteChunk, read_json
from antiphon.server.endpoints.base import Endpoints, route
from antiphon.server.middleware import direct_write, report_error
from antiphon.server.streaming.event_stream import EventStream, StreamTask
from antiphon.server.threads import StoredThreads, ThreadError, ThreadStorage
from antiphon.wire.hashbrown import frames
from antiphon.wire.hashbrown.frames import HashbrownDialect
from antiphon.wire.hashbrown.request import (
    HashbrownBody,
    HashbrownRequest,
    Json,
    assistant_message,
    continue_thread,
    decode_hashbrown,
    is_usable,
    merge_messages,
    strip_metadata,
)
from antiphon.wire.json import replace_lone_surrogates
from antiphon.wire.openresponses import failure_payload

logger = logging.getLogger("antiphon.server")

T = TypeVar("T")

SYNTH_OPTIONS = SynthOptions(
    keep_empty=True, single_message=True, reuse_call_ids=True, new_id=new_uuid, source_progress=True
)
"""Hashbrown's clients expect one message per response, and calls identified by their ids."""

NO_THREADS = "No threads are stored here. Send the whole conversation with each request."
THREADS_UNAVAILABLE = "Thread loading is not available for this transport."
THREAD_ID_CHANGED = "Save returned a different threadId than the existing thread"
"""These two messages are Hashbrown's own."""


class FrameStream(EventStream):
    """A stream of length-prefixed frames.

    The format has no comments, but its clients ignore frames of unknown types.
    """

    response_headers: ClassVar[Sequence[tuple[bytes, bytes]]] = [
        (b"content-type", b"application/octet-stream"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    heartbeat: ClassVar[bytes] = frames.encode_frame({"type": frames.HEARTBEAT})
    end_marker: ClassVar[bytes] = b""

    def __init__(self, dialect: HashbrownDialect, limit: int, direct: WriteChunk | None) -> None:
        super().__init__(dialect, limit, direct)
        self._encode = dialect.encode_frames

    def write_frame(self, type: str, **fields: object) -> None:
        """Encode and send a frame that is not an event of the response."""
        self.buffer(frames.encode_frame({"type": type, **fields}))


class HashbrownEndpoint(Endpoints):
    """The endpoint of Hashbrown's clients."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [route(f"{prefix}/hashbrown/chat", POST=self.chat)]

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        body = await read_json(scope, receive, settings.body_limit, decode_or_error, replace_lone_surrogates)
        engine = await self._service.engine()
        self._service.reject_when_draining()
        dialect = HashbrownDialect()
        stream = FrameStream(dialect, settings.outlet_bytes, direct_write(scope, send))
        threads = settings.threads
        if isinstance(threads, bool):
            threads = StoredThreads(engine.store, engine.ids) if threads else None
        run = HashbrownRun(engine, dialect, stream, threads, scope["antiphon.request_id"])
        task = self._service.start_task(run.run(body))
        async with StreamTask(task, receive, stream) as producer:
            await stream.send(send, settings.heartbeat_seconds)
            producer.check_connected()


def decode_or_error(raw: object) -> tuple[HashbrownBody, Sequence[Json]] | RequestError:
    """Decode a body; an error takes its place, because it is sent as a frame."""
    try:
        return decode_hashbrown(raw)
    except RequestError as error:
        return error


@dataclass
class HashbrownRun:
    """The processing of one request."""

    engine: Engine
    dialect: HashbrownDialect
    stream: FrameStream
    threads: ThreadStorage | None
    request_id: str
    request: HashbrownRequest | None = None

    async def run(self, body: tuple[HashbrownBody, Sequence[Json]] | RequestError) -> None:
        """Process a request; an error becomes the last frame."""
        try:
            if isinstance(body, RequestError):
                raise body
            await self._run(*body)
        except Exception as error:  # noqa: BLE001 - a process boundary, like the middleware
            failure = report_error(error, self.dialect, self.request_id)
            payload = self._client_payload(failure.payload, isinstance(error, RequestError))
            self.stream.buffer(frames.add_length(frames.error_frame_json(payload, headers=failure.headers)))
            drop_tracebacks(error)

    async def _run(self, body: HashbrownBody, messages: Sequence[Json]) -> None:
        thread_id = body.thread_id
        load_only = body.operation == "load-thread"
        if load_only and thread_id is None:
            advice = "There is no thread to load. Send its id as 'threadId'."
            raise RequestError(advice, param="threadId", code="missing_required_parameter")
        if load_only and self.threads is None:
            raise RequestError(NO_THREADS, param="operation", code="unsupported_value")
        saved: Sequence[Json] | None = []
        if thread_id is not None:
            saved = await self._load_thread(thread_id, include_messages=load_only)
        if saved is None or load_only:
            return
        self.request = request = continue_thread(body, messages, saved)
        self.dialect.client_functions = request.client_functions
        self.dialect.warnings = request.warnings
        options = replace(SYNTH_OPTIONS, taken_call_ids=request.call_ids)
        run = await self.engine.create_run(request.request, self.stream, synth_options=options)
        self.dialect.failure_payload = lambda response: self._response_error(run, response)
        try:
            response = await run.execute()
        finally:
            # The function above refers to the run, which refers to the dialect: without this, only
            # the garbage collector could free the cycle and the request in it.
            self.dialect.failure_payload = failure_payload
        details = response.incomplete_details
        is_filtered = details is not None and details.reason == frames.CONTENT_FILTER_ERROR.code
        # Hashbrown's client does not append a filtered response to its thread either.
        if response.status in ("completed", "incomplete") and not is_filtered:
            await self._save_thread(request, self.dialect.order_items(response))

    async def _load_thread(self, thread_id: str, *, include_messages: bool) -> Sequence[Json] | None:
        """Send the frames of a load; return the messages, or None if the load failed."""
        self.stream.write_frame("thread-load-start")
        if self.threads is None:
            self.stream.write_frame("thread-load-failure", error=THREADS_UNAVAILABLE)
            return None
        load = partial(self.threads.load, thread_id, tenant="")
        saved = await self._call_store(load, "thread-load-failure", "The thread cannot be loaded.")
        if saved is not None:
            shown = {"thread": [strip_metadata(message) for message in saved]} if include_messages else {}
            self.stream.write_frame("thread-load-success", **shown)
        return saved

    async def _save_thread(self, request: HashbrownRequest, items: Sequence[Item]) -> None:
        """Save a thread if threads are stored, and send the frames of the save."""
        if self.threads is None:
            return
        before = request.body.thread_id
        answer = assistant_message(items)
        # The client drops such an answer, and would send the user's message again.
        if not is_usable(answer):
            return
        messages = merge_messages(request.messages, [answer])
        self.stream.write_frame("thread-save-start")
        save = partial(self.threads.save, messages, before, tenant="")
        id = await self._call_store(save, "thread-save-failure", "The thread cannot be saved.")
        if id is not None and id != (before or id):
            self.stream.write_frame("thread-save-failure", error=THREAD_ID_CHANGED)
        elif id is not None:
            self.stream.write_frame("thread-save-success", threadId=id)

    async def _call_store(self, operation: Callable[[], Awaitable[T]], failure_type: str, message: str) -> T | None:
        """Call the thread storage; send a failure frame and return None if it fails.

        The call is completed even if the client disconnects meanwhile.
        """
        try:
            # Shielded: half-saved threads would lose messages that the client has shown already.
            return await asyncio.shield(asyncio.ensure_future(operation()))
        except ThreadError as error:
            self.stream.write_frame(failure_type, error=str(error))
        except Exception:  # a process boundary: the storage may be user code
            logger.exception("%s: %s", self.request_id, message)
            self.stream.write_frame(failure_type, error=message)
        return None

    def _response_error(self, run: Run, response: Response) -> ErrorPayload:
        """Return why a response failed; an error with a status of its own is more specific."""
        if run.error is None:
            return failure_payload(response)
        return self._client_payload(run.error.payload, isinstance(run.error, RequestError))

    def _client_payload(self, payload: ErrorPayload, is_request_error: bool) -> ErrorPayload:
        """Return an error with the provider's type, or with the parameter names of the client."""
        if not is_request_error:
            return frames.use_provider_error_type(payload)
        # Hashbrown's error types have no `not_found`.
        kind = "invalid_request" if payload.type == "not_found" else payload.type
        param, message = payload.param, payload.message
        if self.request:
            param, message = param and self.request.param_name(param), self.request.translate_message(message)
        return replace(payload, type=kind, param=param, message=message)
