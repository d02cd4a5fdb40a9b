"""One response while it is produced: parts in from the model, events out to the sink.

This is the one place that turns an exception into `response.failed`. An error with an HTTP status
that comes before any output is raised instead, so that the server can still answer with the status.
Calls that `tool_choice` does not allow are removed before they become events.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence

from antiphon.agents.turn import Turn
from antiphon.engine.models import AgentError, EventSink, PartSink, WriteText
from antiphon.protocol import context, parts
from antiphon.protocol.errors import (
    ErrorPayload,
    RequestError,
    StoreError,
    UpstreamError,
    answer_too_large_error,
    describe_for_log,
    drop_tracebacks,
)
from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath
from antiphon.protocol.items import CUSTOM_TOOL_CALL, ExtensionItem, FunctionCall, FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request, TextFormat
from antiphon.protocol.response import Response
from antiphon.protocol.synth import NO_USAGE, Synth, add_usage
from antiphon.protocol.synth_items import MAX_PIECES
from antiphon.protocol.tools import (
    CUSTOM_TOOL,
    AllowedTools,
    ExtensionToolChoice,
    FunctionToolChoice,
    callable_names,
    may_call,
    must_call,
    tool_name,
)

CHECKED_PARTS = frozenset({parts.Call, parts.Whole, parts.Finish})
"""The parts that the filter looks at; all others pass."""


class ToolChoiceFilter:
    """Removes the calls that one request does not allow.

    A tool choice concerns the client's tools only: the calls of a model's own tools pass, if it has such tools.
    """

    def __init__(self, request: Request, *, has_own_tools: bool = False) -> None:
        choice = request.tool_choice
        self._client_names = callable_names(request.tools, "auto") if has_own_tools else None
        self._allowed_names = callable_names(request.tools, choice)
        self._restricts_names = (
            choice == "none"
            or isinstance(choice, AllowedTools | FunctionToolChoice)
            or (isinstance(choice, ExtensionToolChoice) and choice.type == CUSTOM_TOOL)
        )
        self._single_call = not request.parallel_tool_calls
        self._call_required = requires_call(request)
        self._rejected_keys: set[parts.Key] = set()
        self._accepted_call: tuple[parts.Key, str] | None = None

    @classmethod
    def for_request(cls, request: Request, *, has_own_tools: bool = False) -> "ToolChoiceFilter | None":
        """Return the filter of a request, None if it restricts nothing."""
        if request.tool_choice == "auto" and request.parallel_tool_calls:
            return None
        new = cls(request, has_own_tools=has_own_tools)
        return new if new._restricts_names or new._single_call or new._call_required else None

    def filter(self, batch: Sequence[Part]) -> Iterable[Part]:
        """Return the parts without the calls that are not allowed."""
        return batch if CHECKED_PARTS.isdisjoint(map(type, batch)) else self._filter_calls(batch)

    def _filter_calls(self, batch: Sequence[Part]) -> Iterator[Part]:
        for part in batch:
            match part:
                case parts.Call():
                    checked = self.check_call(part)
                case parts.Whole(item=ExtensionItem(type=type) as item) if type == CUSTOM_TOOL_CALL:
                    checked = self._check_whole_call(part, str(item.get("name", "")), str(item.get("call_id", "")))
                case parts.Whole(item=FunctionCall(name=name, call_id=call_id)):
                    checked = self._check_whole_call(part, name, call_id)
                case parts.Whole(item=ExtensionItem()):
                    self._call_required = self._call_required and self._client_names is not None
                    checked = part
                case parts.Finish(reason=reason):
                    if reason == "stop":
                        yield from self.end()
                    self._call_required = False
                    checked = part
                case _:
                    checked = part
            if checked is not None:
                yield checked

    def end(self) -> Iterator[Part]:
        """Yield a warning if the response must contain a call and has none."""
        if self._call_required:
            self._call_required = False
            yield TOOL_NOT_CALLED

    def _check_whole_call(self, whole: parts.Whole, name: str, call_id: str) -> Part | None:
        call = parts.Call(f"whole {call_id}", name, call_id=call_id)
        checked = self.check_call(call)
        return whole if checked is call else checked

    def check_call(self, call: parts.Call) -> Part | None:
        """Return an allowed call; instead of any other, a warning or None."""
        if not call.name:  # more arguments of a call that was checked before
            return None if call.key in self._rejected_keys else call
        if self._client_names is not None and call.name not in self._client_names:
            self._rejected_keys.discard(call.key)
            return call
        self._call_required = False
        if self._restricts_names and call.name not in self._allowed_names:
            return self._reject_call(call, "tool_not_allowed", "which tool_choice does not allow")
        first_key, first_id = self._accepted_call or (call.key, "")
        # Providers may repeat the name of a call, and a new id on a known key is a new call.
        is_second = call.key != first_key or (call.call_id and first_id and call.call_id != first_id)
        if self._single_call and is_second:
            return self._reject_call(call, "parallel_call", "beside another call, which was not wanted")
        self._rejected_keys.discard(call.key)
        self._accepted_call = (call.key, call.call_id or first_id)
        return call

    def _reject_call(self, call: parts.Call, code: str, reason: str) -> Part | None:
        repeated = call.key in self._rejected_keys and not call.call_id
        self._rejected_keys.add(call.key)
        if len(self._rejected_keys) > MAX_PIECES:
            raise answer_too_large_error(f"it has more than {MAX_PIECES} calls that are not allowed.")
        message = f"The model called '{call.name[:80]}', {reason}; the call was left out."
        return None if repeated else parts.Warn(code, message, "tool_choice")


TOOL_NOT_CALLED = parts.Warn(
    "tool_not_called", "The model answered without the call that tool_choice demands.", "tool_choice"
)


def requires_call(request: Request) -> bool:
    """Tell whether the response must contain a call."""
    # A JSON format may be implemented by a tool call that the response shows as text.
    if not must_call(request.tool_choice) or not isinstance(request.text.format, TextFormat):
        return False
    allowed = [tool for tool in request.tools if may_call(tool, request.tool_choice)]
    # A tool without a name is hosted: the provider may run it without showing a call.
    return bool(allowed) and all(tool_name(tool) is not None for tool in allowed)


logger = logging.getLogger("antiphon.engine")

AnswerFunction = Callable[[Turn, PartSink], Awaitable[None]]
"""Answers a turn into a sink; see `models.py`."""

PendingCommit = Coroutine[object, object, list[Event]]
"""Stores an end; returns the events that may be sent then. Raises StoreError or FencedError."""

PersistEnd = Callable[[list[Event], Response], PendingCommit | None]
"""Stores how a response ended; returns what to await before its events are sent, if anything."""

SERVER_STOPPING = "drain"
"""The message of a task's cancellation when the server stops, and not its client."""

CHECKPOINT_SECONDS = 1.0
"""How often the output of a stored foreground response is stored while it is being made."""

SERVER_STOPPED_ERROR = ErrorPayload(
    message="The server stopped while this response was being made.", type="server_error", code="server_error"
)
INTERNAL_ERROR = ErrorPayload(
    message="Something broke on our side while this response was being made.", type="server_error", code="server_error"
)
NOT_STORED_ERROR = ErrorPayload(
    message="The response was made but could not be stored. Try again, or set store to false.",
    type="server_error",
    code="store_unavailable",
)


MAX_OUTPUT_BYTES = 32 * 1024 * 1024
"""The largest output of a response, unless a setting says otherwise: text, arguments, and about 50 bytes per delta."""


class FencedError(Exception):
    """Another worker has taken the response over, or it has ended: nothing may be appended."""


class Run:
    """Produces one response; it is the sink of its model."""

    def __init__(  # noqa: PLR0913 - a run is where model, synthesizer, sink and store meet
        self,
        answer: AnswerFunction,
        turn: Turn,
        synth: Synth,
        sink: EventSink | None = None,
        persist_end: PersistEnd | None = None,
        discard: Callable[[], Awaitable[None]] | None = None,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> None:
        self._answer_function = answer
        self._max_output = max_output
        self._turn = turn
        self._tool_choice_filter: ToolChoiceFilter | None = None
        self._synth = synth
        self._sink = sink
        self._persist_end = persist_end
        self._discard = discard
        self.answering = False
        """Whether the model has begun to answer, or the client has its status 200 already."""
        self.accepts_missing_end = False
        """Whether an answer whose stream ends cleanly, but without a reason, is complete."""
        self.has_output = False
        """Whether any output has been sent."""
        self.started = asyncio.Event()
        """Set when the model has begun to answer, or the run has ended without an answer."""
        self.full = False
        """Whether the sink was full after the last batch."""
        self._fast_path: TextFastPath | None = None
        self._write_text: WriteText | None = None
        """Writes more deltas of that text, if the sink has a fast path."""
        self._model_ending: list[Event] = []
        """The last events, if a part of the model has ended the response."""
        self.checkpoint_at = time.monotonic() + CHECKPOINT_SECONDS
        """When its output is stored next, while it is being made; see `maintenance.py`."""
        self._checkpointed_events = 0
        self.error: RequestError | UpstreamError | None = None
        """The error that ended the response, if it has an HTTP status: the response has none."""

    @property
    def response_id(self) -> str:
        """The id of the response, also before it has started."""
        return self._turn.response_id

    @property
    def response(self) -> Response:
        """The response so far."""
        return self._synth.response

    def take_checkpoint(self) -> Response | None:
        """Return the response so far if it has changed since the last call and has not ended."""
        count = self._synth.event_count
        if self._synth.ended or count == self._checkpointed_events:
            return None
        self._checkpointed_events = count
        return self.response

    async def execute(self) -> Response:
        """Produce the response; raises an error with a status that comes before any answer."""
        try:
            synth = self._synth
            if not synth.started:
                self._emit(synth.start())
            elif synth.response.status == "queued":
                self._emit(synth.mark_in_progress())
            try:
                await self._execute()
            except Exception as error:
                if error is self.error or isinstance(error, FencedError):
                    raise
                # The end could not be sent: perhaps it can without the output.
                logger.exception("the end of %s could not be sent", self._turn.response_id)
                await self._persist_and_emit(synth.fail_without_output(INTERNAL_ERROR))
                if is_cancelled():
                    raise asyncio.CancelledError from error
                drop_tracebacks(error)
        finally:
            self.started.set()
        return self.response

    async def end_unexecuted(self, error: asyncio.CancelledError) -> None:
        """End a response whose client left, or whose server stopped, before `execute`."""
        self._emit(self._synth.start())
        await self._persist_and_emit(self._end_cancelled(error))

    async def _execute(self) -> None:
        try:
            await self._answer_function(self._turn, self)
            if self._tool_choice_filter and not self._synth.ended:
                self._synth.feed_all(self._tool_choice_filter.end())
            self._estimate_missing_usage()
            ending = self._model_ending or self._synth.end()
        except asyncio.CancelledError as error:
            if is_cancelled():
                await self._persist_and_emit(self._end_cancelled(error))
                raise
            # Not ours: the model has cancelled something of its own and let the error escape.
            ending = self._end_internal_error(error)
            drop_tracebacks(error)
        except (RequestError, UpstreamError) as error:
            if not self._model_ending:  # an error after the end changes nothing
                self.error = error
            ending = self._end_failed(error.payload)
            drop_tracebacks(error)
        except Exception as error:  # noqa: BLE001 - a boundary: models raise anything
            ending = self._end_internal_error(error)
            drop_tracebacks(error)
        # Nothing has been sent yet, so the error can still be the HTTP status.
        if self.error and not self.answering:
            await self._discard_response()
            raise self.error
        await self._persist_and_emit(ending)

    @property
    def streaming(self) -> bool:
        """Whether there is a sink that wants events as they come."""
        return self._sink is not None

    async def drain(self) -> None:
        """Wait until the sink takes more."""
        if self._sink:
            await self._sink.drain()
        self.full = False

    def mark_answering(self) -> None:
        """Note that the model has begun to answer."""
        if not self.answering:
            self.answering = True
            self.started.set()

    def feed(self, batch: Sequence[Part]) -> bool:
        """Turn parts into events and write them to the sink; return False after the end."""
        if batch and type(failure := batch[0]) is parts.Failure:
            self.error = failure.exception
            reason, model = describe_for_log(failure.status, failure.error), self._turn.model
            logger.warning("%s: %.100r broke (%s)", self._turn.response_id, model, reason)
            # The failure ends the response, and nothing can be added to it then.
            self._estimate_missing_usage()
        choice = self._tool_choice_filter
        events = self._synth.feed_all(choice.filter(batch) if choice else batch)
        if not events:
            return True
        self.has_output = self.has_output or any(map(is_output, batch))
        if not self.answering:
            self.mark_answering()
        if self._synth.ended:
            # Sent by `_persist_and_emit`: the end is stored before anybody sees it.
            self._model_ending = events
            return False
        if sink := self._sink:
            sink.write(events)
            self.full = sink.full
        return True

    def accepts_end(self) -> bool:
        """Return whether an answer may end here without a reason: not without output, nor within a call."""
        return self.accepts_missing_end and self.has_output and not self._synth.has_cut_call

    def text_fast_path(self) -> WriteText | None:
        """Return a function that writes more of the last text: the hot path of a stream."""
        path = self._synth.text_fast_path() if self._sink else None
        if path is not self._fast_path:
            self._fast_path = path
            self._write_text = self._sink.text_fast_path(path) if self._sink and path else None
        return self._write_text

    def check_size(self) -> None:
        """Check the size of the output so far; raises UpstreamError if it is too large."""
        if not self._synth.ended and self._synth.measure_output() > self._max_output:
            raise answer_too_large_error(f"it takes more than {self._max_output} bytes (the setting answer_bytes).")

    def begin_answer(self, *, has_own_tools: bool) -> None:
        """Forget what an earlier model has fed, and filter the calls of the model that answers now."""
        self._synth.reset_for_fallback()
        self._tool_choice_filter = ToolChoiceFilter.for_request(self._turn.request, has_own_tools=has_own_tools)

    def add_nested(self, usage: parts.Usage, warnings: Sequence[parts.Warn]) -> None:
        """Add the tokens and the warnings of a model that the answering agent has asked."""
        if not self._synth.ended:
            self._synth.nested_usage = add_usage(self._synth.nested_usage, usage)
            self._synth.feed_all(warnings)

    def _end_cancelled(self, error: asyncio.CancelledError) -> list[Event]:
        """End as cancelled, or as failed if the server stops, unless the model has ended it."""
        if error.args == (SERVER_STOPPING,):
            return self._end_failed(SERVER_STOPPED_ERROR)
        if not self._synth.ended:
            self._synth.feed(parts.Finish("cancelled"))
        self._estimate_missing_usage()
        return self._model_ending or self._synth.end()

    def _end_internal_error(self, error: BaseException) -> list[Event]:
        """End as failed; the cause is only logged, it may hold secrets, unless the client may see it."""
        turn, cause = self._turn, error
        message = f"The model '{turn.model}' failed while answering."
        if isinstance(error, AgentError) and error.__cause__:
            message, cause = f"{message} {error}", error.__cause__
        logger.error("%s: model %s failed in %s", turn.request_id or "-", turn.model, turn.response_id, exc_info=cause)
        return self._end_failed(ErrorPayload(message=message, type="server_error", code="server_error"))

    def _end_failed(self, error: ErrorPayload) -> list[Event]:
        self._estimate_missing_usage()
        return self._model_ending or self._synth.fail(error)

    async def _persist_and_emit(self, ending: list[Event]) -> None:
        if self._persist_end and (pending := self._persist_end(ending, self.response)):
            try:
                # Shielded: a client that disconnects now must not lose a finished response.
                commit = asyncio.create_task(pending)
                commit.add_done_callback(_log_unawaited_error)
                ending = await asyncio.shield(commit)
            except StoreError:
                logger.exception("%s could not be stored", self._turn.response_id)
                # The client must not believe that it can continue this response.
                ending[-1:] = self._synth.replace_end_with_failure(NOT_STORED_ERROR)
        self._emit(ending)

    async def _discard_response(self) -> None:
        """Delete a response that failed before its client knew of it."""
        if self._discard:
            try:
                await asyncio.shield(asyncio.ensure_future(self._discard()))
            except StoreError:
                logger.exception("%s could not be discarded", self._turn.response_id)

    def _estimate_missing_usage(self) -> None:
        known, turn = self._synth.usage, self._turn
        if self._synth.ended or not (known.input_tokens is None or known.output_tokens is None):
            return
        # An agent that asks models has no tokens of its own, unless it counts some.
        if known == NO_USAGE and self._synth.nested_usage != NO_USAGE:
            return
        if known.input_tokens is None:
            input_tokens = context.estimate_prompt(turn.instructions, turn.tools, turn.items)
            self._synth.feed(parts.Usage(input_tokens=input_tokens))
        if known.output_tokens is None:
            limit = turn.request.max_output_tokens
            written = (item for item in self.response.output if not isinstance(item, FunctionCallOutput))
            output_tokens = min(context.estimate_items(written), limit or sys.maxsize)
            self._synth.feed(parts.Usage(output_tokens=output_tokens))
        message = "The model did not count its tokens; these are estimates."
        self._synth.feed(parts.Warn("usage_estimated", message, "usage"))

    def _emit(self, events: list[Event]) -> None:
        if self._sink and events:
            self._sink.write(events)


def is_output(part: Part) -> bool:
    """Tell whether a part is output that a client sees, and not only metadata."""
    if isinstance(part, parts.Text):
        return bool(part.text or part.logprobs)
    if isinstance(part, parts.Refusal):
        return bool(part.text)
    return not isinstance(part, parts.Progress | parts.Usage | parts.Warn | parts.Finish)


def _log_unawaited_error(commit: asyncio.Future[list[Event]]) -> None:
    """Retrieve an error that nobody may await any more; asyncio would complain about it."""
    if not commit.cancelled() and (error := commit.exception()):
        logger.info("an end was not stored: %r", error)


def is_cancelled() -> bool:
    """Tell whether this task itself was cancelled, and not only something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
