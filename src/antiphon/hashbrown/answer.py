"""One request of Hashbrown's, from its body to its last frame.

The order of thread frames is Hashbrown's: load, response, save. Any error becomes the last frame.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from antiphon.adapters.errors import error_type
from antiphon.engine.engine import Caller, Engine
from antiphon.engine.models import EventSink
from antiphon.engine.persistence import new_uuid
from antiphon.engine.run import Run
from antiphon.hashbrown.threads import ThreadError, ThreadStorage
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError, drop_tracebacks
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.synth_items import SynthOptions
from antiphon.wire.chat.request import make_unused_warning
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
from antiphon.wire.openresponses import failure_payload

logger = logging.getLogger("antiphon.hashbrown")

T = TypeVar("T")

Described = tuple[ErrorPayload, Mapping[str, str]]
"""What a client may know of an error: the error, and headers with retry advice."""

SYNTH_OPTIONS = SynthOptions(
    keep_empty=True, single_message=True, reuse_call_ids=True, new_id=new_uuid, source_progress=True
)
"""Hashbrown's clients expect one message per response, and calls identified by their ids."""

NO_THREADS = "No threads are stored for this model: send the whole conversation with each request."
THREADS_UNAVAILABLE = "Thread loading is not available for this transport."
THREAD_ID_CHANGED = "Save returned a different threadId than the existing thread"
"""These two messages are Hashbrown's own."""


def decode_or_error(raw: object) -> tuple[HashbrownBody, Sequence[Json]] | RequestError:
    """Decode a body; an error takes its place, because it is sent as a frame."""
    try:
        return decode_hashbrown(raw)
    except RequestError as error:
        return error


class FrameSink(EventSink, Protocol):
    """Where the frames of an answer go."""

    def buffer(self, chunk: bytes) -> None:
        """Take frames that are no events of the response, without waiting."""


@dataclass
class HashbrownAnswer:
    """The answer to one request."""

    engine: Engine
    dialect: HashbrownDialect
    sink: FrameSink
    threads: ThreadStorage | None
    describe_error: Callable[[Exception], Described]
    """Logs an error if it is our own, and returns what the client may know of it."""
    request_id: str = ""
    """The name of the request in the log."""
    request: HashbrownRequest | None = None

    async def write(self, body: tuple[HashbrownBody, Sequence[Json]] | RequestError) -> None:
        """Write the whole answer to the sink."""
        try:
            if isinstance(body, RequestError):
                raise body
            await self._write(*body)
        except Exception as error:  # noqa: BLE001 - a process boundary, like the server's middleware
            payload, headers = self.describe_error(error)
            payload = self._client_payload(payload, error)
            self.sink.buffer(frames.add_length(frames.error_frame_json(payload, headers=headers)))
            drop_tracebacks(error)

    async def _write(self, body: HashbrownBody, messages: Sequence[Json]) -> None:
        load_only = body.operation == "load-thread"
        if load_only and body.thread_id is None:
            advice = "There is no thread to load. Send its id as 'threadId'."
            raise RequestError(advice, param="threadId", code="missing_required_parameter")
        thread_id, models = body.thread_id, self.engine.models.find(body.model)
        if models and not models[0].has_threads:
            # The application keeps the thread of such a model, and no frame speaks of it.
            self.threads = thread_id = None
        if load_only and self.threads is None:
            raise RequestError(NO_THREADS, param="operation", code="unsupported_value")
        saved: Sequence[Json] | None = []
        if thread_id is not None:
            saved = await self._load_thread(thread_id, include_messages=load_only)
        if saved is None or load_only:
            return
        request = continue_thread(body, messages, saved)
        if body.thread_id != thread_id:
            request = dataclasses.replace(request, warnings=[*request.warnings, make_unused_warning("threadId")])
        self.request = request
        if response := await self._generate(request):
            await self._save_thread(request, thread_id, self.dialect.order_items(response))

    async def _generate(self, request: HashbrownRequest) -> Response | None:
        """Write the frames of the response; return it if the client keeps it."""
        self.dialect.client_functions = request.client_functions
        self.dialect.warnings = request.warnings
        options = replace(SYNTH_OPTIONS, taken_call_ids=request.call_ids)
        run = await self.engine.create_run(
            request.request, self.sink, Caller(request_id=self.request_id), synth_options=options
        )
        run.accepts_missing_end = True
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
        return response if response.status in ("completed", "incomplete") and not is_filtered else None

    async def _load_thread(self, thread_id: str, *, include_messages: bool) -> Sequence[Json] | None:
        """Send the frames of a load; return the messages, or None if the load failed."""
        self._write_frame("thread-load-start")
        if self.threads is None:
            self._write_frame("thread-load-failure", error=THREADS_UNAVAILABLE)
            return None
        load = partial(self.threads.load, thread_id, tenant="")
        saved = await self._call_storage(load, "thread-load-failure", "The thread cannot be loaded.")
        if saved is not None:
            shown = {"thread": [strip_metadata(message) for message in saved]} if include_messages else {}
            self._write_frame("thread-load-success", **shown)
        return saved

    async def _save_thread(self, request: HashbrownRequest, before: str | None, items: Sequence[Item]) -> None:
        """Save a thread if threads are stored, and send the frames of the save."""
        answer = assistant_message(items)
        # The client drops an unusable answer, and would send the user's message again.
        if self.threads is None or not is_usable(answer):
            return
        messages = merge_messages(request.messages, [answer])
        self._write_frame("thread-save-start")
        save = partial(self.threads.save, messages, before, tenant="")
        id = await self._call_storage(save, "thread-save-failure", "The thread cannot be saved.")
        if id is not None and id != (before or id):
            self._write_frame("thread-save-failure", error=THREAD_ID_CHANGED)
        elif id is not None:
            self._write_frame("thread-save-success", threadId=id)

    async def _call_storage(self, operation: Callable[[], Awaitable[T]], failure_type: str, message: str) -> T | None:
        """Call the thread storage; send a failure frame and return None if it fails.

        The call is completed even if the client disconnects meanwhile.
        """
        try:
            # Shielded: half-saved threads would lose messages that the client has shown already.
            return await asyncio.shield(asyncio.ensure_future(operation()))
        except ThreadError as error:
            self._write_frame(failure_type, error=str(error))
        except Exception:  # a process boundary: the storage may be user code
            logger.exception("%s: %s", self.request_id, message)
            self._write_frame(failure_type, error=message)
        return None

    def _write_frame(self, type: str, **fields: object) -> None:
        self.sink.buffer(frames.encode_frame({"type": type, **fields}))

    def _response_error(self, run: Run, response: Response) -> ErrorPayload:
        """Return why a response failed; an error with a status of its own is more specific."""
        return self._client_payload(run.error.payload, run.error) if run.error else failure_payload(response)

    def _client_payload(self, payload: ErrorPayload, error: Exception) -> ErrorPayload:
        """Return an error with the provider's type and code, or with the parameter names of the client."""
        if isinstance(error, UpstreamError):
            # A provider that sends neither a type nor a code has a status.
            if payload.code is None and payload.type == error_type(error.status) != error_type(0):
                return replace(payload, code=str(error.status))
            return frames.use_provider_error_type(payload)
        if not isinstance(error, RequestError):
            return payload
        # Hashbrown's error types have no `not_found`.
        kind = "invalid_request" if payload.type == "not_found" else payload.type
        param, message = payload.param, payload.message
        if self.request:
            param, message = param and self.request.param_name(param), self.request.translate_message(message)
        return replace(payload, type=kind, param=param, message=message)
