"""One response being made: parts in from the model, events out to whoever listens.

This is the one place that turns an exception into `response.failed`. A model that fails before its
first part has not answered at all: if the error has a status of its own, it is raised, so that the
caller can still give it as one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from antiphon.agents.turn import Turn
from antiphon.engine.event_log import Fenced
from antiphon.engine.interfaces import EventSink, WriteText
from antiphon.engine.models import PartSink
from antiphon.engine.tool_choice import ToolChoiceFilter
from antiphon.protocol import parts, token_estimate
from antiphon.protocol.errors import (
    ErrorPayload,
    RequestError,
    StoreError,
    UpstreamError,
    describe_for_log,
    drop_tracebacks,
)
from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth

logger = logging.getLogger("antiphon.engine")

AnswerFunction = Callable[[Turn, PartSink], Awaitable[None]]
"""Answers a turn into a sink; see `models.py`."""


PendingCommit = Coroutine[object, object, list[Event]]
"""The keeping of an end; returns the events that may be told then, and may raise StoreError."""

PersistEnd = Callable[[list[Event], Response], PendingCommit | None]
"""Keeps how a response ended; returns what is to be waited for before it is told, if anything."""

SERVER_STOPPING = "drain"
"""What a task is cancelled with when the server stops, and not its client."""

SERVER_STOPPED_ERROR = ErrorPayload(
    message="The server stopped while this response was being made.",
    type="server_error",
    code="server_error",
)
INTERNAL_ERROR = ErrorPayload(
    message="Something broke on our side while this response was being made.",
    type="server_error",
    code="server_error",
)
NOT_STORED_ERROR = ErrorPayload(
    message="The response was made but could not be stored. Try again, or set store to false.",
    type="server_error",
    code="store_unavailable",
)


class Run:
    """One response being made; the sink of its model."""

    def __init__(
        self,
        answer: AnswerFunction,
        turn: Turn,
        synth: Synth,
        sink: EventSink | None = None,
        persist_end: PersistEnd | None = None,
        discard: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._answer_function = answer
        self._turn = turn
        self._tool_choice_filter = ToolChoiceFilter.for_request(turn.request)
        self._synth = synth
        self._sink = sink
        self._persist_end = persist_end
        self._discard = discard
        self.answering = False
        """Whether the model has begun to answer, or the caller has been promised a stream."""
        self.has_output = False
        """Whether anything of the answer has been told, be it one word."""
        self.started = asyncio.Event()
        """Set when the model has begun to answer, or has ended without."""
        self.full = False
        """Whether the listener was too far behind when parts were last told."""
        self._fast_path: TextFastPath | None = None
        self._write_text: WriteText | None = None
        """What tells more of that text, if there is a way past the making of events."""
        self._model_ending: list[Event] = []
        """The events of an end that the model itself brought about."""
        self.error: RequestError | UpstreamError | None = None
        """The error with a status of its own that ended the response, if one did: before the
        answer or in the middle of it. A response says less."""

    @property
    def response_id(self) -> str:
        """The id of the response, also before anything is made of it."""
        return self._turn.response_id

    @property
    def response(self) -> Response:
        """The response as far as it has been made."""
        return self._synth.response

    async def execute(self) -> Response:
        """Make the response, to its end; raises a refusal that came before any answer."""
        try:
            self._emit(
                self._synth.mark_in_progress() if self._synth.started else self._synth.start()
            )
            try:
                await self._execute()
            except Exception as error:
                if error is self.error or isinstance(error, Fenced):
                    raise
                await self._fail_without_output(error)
                drop_tracebacks(error)
        finally:
            self.started.set()
        return self.response

    async def _execute(self) -> None:
        try:
            ending = await self._run_model()
        except asyncio.CancelledError as error:
            if is_cancelled():
                await self._persist_and_emit(self._end_cancelled(error))
                raise
            ending = (
                self._end_internal_error()
            )  # a cancellation of the model's own, which it let escape
            drop_tracebacks(error)
        except (RequestError, UpstreamError) as error:
            if not self._model_ending:  # or else it comes after the end
                self.error = error
            ending = self._end_failed(error.payload)
            drop_tracebacks(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a boundary: models raise anything
            ending = self._end_internal_error()
            drop_tracebacks(error)
        if self.error and not self.answering:
            await self._discard_response()
            raise self.error
        await self._persist_and_emit(ending)

    async def _run_model(self) -> list[Event]:
        """Have the model answer; return the events of its end."""
        await self._answer_function(self._turn, self)
        self._estimate_missing_usage()
        return self._model_ending or self._synth.end()

    # --- the sink ---

    @property
    def streaming(self) -> bool:
        """Whether somebody listens."""
        return self._sink is not None

    async def drain(self) -> None:
        """Wait for the listener."""
        if self._sink:
            await self._sink.drain()
        self.full = False

    def mark_answering(self) -> None:
        """Take note that the model answers."""
        if not self.answering:
            self.answering = True
            self.started.set()

    def feed(self, batch: Sequence[Part]) -> bool:
        """Feed parts to the synthesizer, and tell what comes of them; false after the end."""
        if batch and type(failure := batch[0]) is parts.Failure:
            self.error = failure.exception
            word, model = describe_for_log(failure.status, failure.error), self._turn.model
            logger.warning("%s: %.100r broke (%s)", self._turn.response_id, model, word)
            self._estimate_missing_usage()
        told = self._synth.feed_all(
            self._tool_choice_filter.filter(batch) if self._tool_choice_filter else batch
        )
        if not told:
            return True
        self.has_output = self.has_output or any(map(is_output, batch))
        if not self.answering:
            self.mark_answering()
        if self._synth.ended:
            self._model_ending = told
            return False
        if outlet := self._sink:
            outlet.write(told)
            self.full = outlet.full
        return True

    def text_fast_path(self) -> WriteText | None:
        """Return what tells more of the text that was told last: the hot path of a stream."""
        flow = self._synth.text_fast_path() if self._sink else None
        if flow is not self._fast_path:
            self._fast_path = flow
            self._write_text = self._sink.text_fast_path(flow) if self._sink and flow else None
        return self._write_text

    def reset_for_fallback(self) -> None:
        """Have another model answer, as if none had begun to."""
        self._synth.reset_for_fallback()

    # --- the end ---

    def _end_cancelled(self, error: asyncio.CancelledError) -> list[Event]:
        """End as cancelled, or as failed if the server stops, unless it has ended already."""
        self._turn.cancelled.set()
        if error.args == (SERVER_STOPPING,):
            return self._end_failed(SERVER_STOPPED_ERROR)
        if not self._synth.ended:
            self._synth.feed(parts.Finish("cancelled"))
        self._estimate_missing_usage()
        return self._model_ending or self._synth.end()

    def _end_internal_error(self) -> list[Event]:
        """Fail for a reason that only the log may know."""
        model = self._turn.model
        logger.exception("model %s failed in %s", model, self._turn.response_id)
        message = f"The model '{model}' failed while answering."
        return self._end_failed(
            ErrorPayload(message=message, type="server_error", code="server_error")
        )

    def _end_failed(self, error: ErrorPayload) -> list[Event]:
        self._estimate_missing_usage()
        return self._model_ending or self._synth.fail(error)

    async def _persist_and_emit(self, ending: list[Event]) -> None:
        """Keep the end, then tell it. It is kept whoever else gives up waiting meanwhile."""
        if self._persist_end and (keeping := self._persist_end(ending, self.response)):
            try:
                kept = asyncio.create_task(keeping)
                kept.add_done_callback(_log_unawaited_error)
                ending = await asyncio.shield(kept)
            except StoreError:
                logger.exception("%s could not be kept", self._turn.response_id)
                ending[-1:] = self._synth.replace_end_with_failure(NOT_STORED_ERROR)
        self._emit(ending)

    async def _fail_without_output(self, error: Exception) -> None:
        """Say at least that the response failed, when its end could not be told."""
        logger.error("the end of %s could not be told", self._turn.response_id, exc_info=error)
        await self._persist_and_emit(self._synth.fail_without_output(INTERNAL_ERROR))
        if is_cancelled():
            raise asyncio.CancelledError from error

    async def _discard_response(self) -> None:
        """Leave nothing of a response that was refused: nobody has heard of it."""
        if self._discard:
            try:
                await asyncio.shield(asyncio.ensure_future(self._discard()))
            except StoreError:
                logger.exception("%s could not be discarded", self._turn.response_id)

    def _estimate_missing_usage(self) -> None:
        """Estimate the tokens that the model did not count, and say that they are estimates."""
        known, turn = self._synth.usage, self._turn
        if self._synth.ended or not (known.input_tokens is None or known.output_tokens is None):
            return
        if known.input_tokens is None:
            read = token_estimate.estimate_prompt(turn.instructions, turn.tools, turn.items)
            self._synth.feed(parts.Usage(input_tokens=read))
        if known.output_tokens is None:
            written = token_estimate.estimate_items(self.response.output)
            self._synth.feed(parts.Usage(output_tokens=written))
        message = "The model did not count its tokens; these are estimates."
        self._synth.feed(parts.Warn("usage_estimated", message, "usage"))

    def _emit(self, events: list[Event]) -> None:
        if self._sink and events:
            self._sink.write(events)


def is_output(part: Part) -> bool:
    """Tell whether a part is some of the answer itself, and not only a sign that one comes."""
    if isinstance(part, parts.Text):
        return bool(part.text or part.logprobs)
    if isinstance(part, parts.Refusal):
        return bool(part.text)
    return not isinstance(part, parts.Usage | parts.Warn | parts.Finish)


def _log_unawaited_error(commit: asyncio.Future[list[Event]]) -> None:
    """Take note of an error that nobody may be waiting for any more."""
    if not commit.cancelled() and (error := commit.exception()):
        logger.info("an end was not kept: %r", error)


def is_cancelled() -> bool:
    """Tell whether this task was asked to stop, and not only something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
