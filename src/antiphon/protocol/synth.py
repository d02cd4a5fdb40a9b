"""Parts in, events out: the only source of ids, indexes and sequence numbers.

Adapters and agents say what the model produced; the synthesizer decides everything else. Here is
the life of the response; `output.py` holds the life of its items, `opened.py` what is open.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import UNSET
from msgspec.structs import asdict, replace

from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, LocalProtocolError
from antiphon.protocol.events import (
    Event,
    ExtensionEvent,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
)
from antiphon.protocol.fast_text import EventEmitter, TextFastPath, find_open_items
from antiphon.protocol.fold import Fold
from antiphon.protocol.parts import Part
from antiphon.protocol.response import (
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseUsage,
    ResponseWarning,
)
from antiphon.protocol.struct import is_extension_type
from antiphon.protocol.surrogates import repair_value
from antiphon.protocol.synth_items import DEFAULT_OPTIONS, ItemSynth, SynthOptions
from antiphon.protocol.synth_single_message import SingleMessageSynth

INCOMPLETE_REASONS = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "cancelled": "cancelled",
}


TERMINAL_EVENT_BY_STATUS = {
    "completed": ResponseCompleted,
    "failed": ResponseFailed,
    "incomplete": ResponseIncomplete,
    "cancelled": ResponseIncomplete,
}
"""The event that each end of a response is told by."""


UNKEYED_TEXT = parts.Text("")
"""Words of no key or piece in particular."""


class Synth:
    """One response being made."""

    def __init__(
        self,
        response: Response,
        *,
        ids: Callable[[str], str],
        clock: Callable[[], float],
        options: SynthOptions = DEFAULT_OPTIONS,
        allow_no_output: bool = False,
    ) -> None:
        self._allow_no_output = allow_no_output
        self._initial_response = response
        self._clock = clock
        self._emitter = EventEmitter()
        output = SingleMessageSynth if options.one_message else ItemSynth
        self._items = output(self._emitter, options.ids or ids, options)
        self._warnings: list[ResponseWarning] = list(response.warnings or ())
        self._initial_warning_count = 0
        """How many of them were there before the response was announced."""
        self._finish_reason: parts.Reason = "stop"
        self.usage = parts.Usage()
        self.ended = False
        self._item_handlers: dict[type, Callable[..., None]] = {
            parts.Text: self._items.add_text,
            parts.Refusal: self._items.add_refusal,
            parts.Reasoning: self._items.add_reasoning,
            parts.Annotation: self._items.add_annotation,
            parts.Call: self._items.add_call,
        }

    def resume(self, events: Sequence[Event]) -> None:
        """Go on where an earlier synthesizer stopped, as its events tell."""
        for event in events:
            self._emitter.fold.feed(event)
            self._emitter.next_number = event.sequence_number + 1
        self._items.adopt_open_items(*find_open_items(events))

    @property
    def response(self) -> Response:
        """The response as far as it has been made."""
        return self._emitter.fold.response

    @property
    def started(self) -> bool:
        """Whether the response has been announced."""
        return self._emitter.next_number > 0

    def start(self) -> list[Event]:
        """Announce the response: created, then queued or in progress."""
        self._initial_warning_count = len(self._warnings)
        self._emitter.emit(ResponseCreated, response=self._initial_response)
        if self._initial_response.status != "queued":
            return self.mark_in_progress()
        self._emitter.emit(ResponseQueued, response=self._initial_response)
        return self._emitter.take()

    def mark_in_progress(self) -> list[Event]:
        """Say that the response is being made."""
        self._emitter.emit(
            ResponseInProgress, response=replace(self._initial_response, status="in_progress")
        )
        return self._emitter.take()

    def feed(self, part: Part) -> list[Event]:
        """Turn one part into the events it causes, perhaps none."""
        return self.feed_all((part,))

    def feed_all(self, batch: Iterable[Part]) -> list[Event]:
        """Turn parts into the events they cause."""
        speech, stream = self._item_handlers, self._emitter
        stream.flow = None
        for part in batch:
            if self.ended:
                raise LocalProtocolError(f"{type(part).__name__} after the end of the response")
            if say := speech.get(type(part)):
                say(part)
            else:
                self.HANDLERS[type(part)](self, part)
        said, stream.said = stream.said, []
        return said

    def text_fast_path(self) -> TextFastPath | None:
        """Return what adds plain words to the text that grew last, until a part is fed."""
        stream, strand = (
            self._emitter,
            self._items.find_growing_text(UNKEYED_TEXT.key, UNKEYED_TEXT.part),
        )
        if strand is None:
            return None
        stream.flow = strand.flow = strand.flow or TextFastPath(stream, strand)
        return stream.flow

    def reset_for_fallback(self) -> None:
        """Forget what a model gave of which nothing was told: another one answers in its place."""
        self.usage = parts.Usage()
        self._finish_reason = "stop"
        self._items.forget_nameless_calls()
        del self._warnings[self._initial_warning_count :]

    def end(self) -> list[Event]:
        """Close everything and say how the response ended."""
        if self.ended:
            return []
        self.ended = True
        if reason := INCOMPLETE_REASONS.get(self._finish_reason):
            self._items.close_all("incomplete")
            status = "cancelled" if reason == "cancelled" else "incomplete"
            details = IncompleteDetails(reason=reason)
            response = replace(self._final_response(), status=status, incomplete_details=details)
            self._emitter.emit(ResponseIncomplete, response=response)
        else:
            self._items.close_all("completed")
            if not (self._items.item_count or self._allow_no_output):
                self._items.add_empty_message()
            self._emitter.emit(
                ResponseCompleted, response=replace(self._final_response(), status="completed")
            )
        return self._emitter.take()

    def fail(self, error: ErrorPayload) -> list[Event]:
        """Close everything as incomplete and say what broke."""
        if self.ended:
            return []
        self.ended = True
        self._items.close_all("incomplete")
        failure = _build_response_error(error)
        response = replace(
            self._final_response(), status="failed", error=failure, incomplete_details=None
        )
        self._emitter.emit(ResponseFailed, response=response)
        return self._emitter.take()

    def end_as(self, response: Response) -> list[Event]:
        """End exactly as a response ended that was made before from the same items."""
        self.ended = True
        self._items.close_all("completed" if response.status == "completed" else "incomplete")
        self._emitter.emit(TERMINAL_EVENT_BY_STATUS[response.status], response=response)
        return self._emitter.take()

    def replace_end_with_failure(self, error: ErrorPayload) -> list[Event]:
        """Fail after all: the end that was said last has been heard by nobody."""
        self.ended = False
        self._emitter.next_number -= 1
        return self.fail(error)

    def fail_without_output(self, error: ErrorPayload) -> list[Event]:
        """Fail with nothing of what was made, which cannot be told."""
        self.ended = True
        self._emitter.take()
        self._emitter.fold = Fold()
        begun = replace(self._initial_response, completed_at=int(self._clock()))
        failed = replace(begun, status="failed", error=_build_response_error(error))
        self._emitter.emit(ResponseFailed, response=failed)
        return self._emitter.take()

    def _final_response(self) -> Response:
        if self._items.dropped_arguments:
            self._items.dropped_arguments = (
                False  # it is said once, also by an end that is retracted
            )
            message = "Arguments came that belong to no call; they were left out."
            self._add_warning(parts.Warn("nameless_call", message))
        counts = self.usage
        usage = ResponseUsage.of(
            counts.input_tokens or 0,
            counts.output_tokens or 0,
            cached=counts.cached_tokens or 0,
            reasoning=counts.reasoning_tokens or 0,
        )
        return replace(
            self.response,
            completed_at=int(self._clock()),
            usage=None if counts == self.NO_USAGE else usage,
            warnings=self._warnings or UNSET,
        )

    NO_USAGE: ClassVar = parts.Usage()
    RESERVED_FIELDS: ClassVar = frozenset({"type", "sequence_number"})

    # --- the parts that make no item ---

    def _add_whole(self, part: parts.Whole) -> None:
        self._items.add_whole(part.item)

    def _emit_extension(self, part: parts.Extension) -> None:
        if not is_extension_type(part.type):
            raise LocalProtocolError(f"'{part.type}' is not of the form slug:name")
        data = {name: part.data[name] for name in part.data if name not in self.RESERVED_FIELDS}
        self._emitter.emit(ExtensionEvent, type=part.type, extra=repair_value(data) or UNSET)

    def _update_usage(self, part: parts.Usage) -> None:
        given = asdict(part).items()  # less than nothing is no count
        known = {name: value for name, value in given if value is not None and value >= 0}
        self.usage = replace(self.usage, **known)

    def _add_warning(self, part: parts.Warn) -> None:
        param = UNSET if part.param is None else part.param
        warning = ResponseWarning(code=part.code, message=part.message, param=param)
        self._warnings.append(repair_value(warning))

    def _set_finish_reason(self, part: parts.Finish) -> None:
        self._finish_reason = part.reason

    def _fail_with_part(self, part: parts.Failure) -> None:
        self._emitter.said = self.fail(part.error)

    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        parts.Whole: _add_whole,
        parts.Extension: _emit_extension,
        parts.Usage: _update_usage,
        parts.Warn: _add_warning,
        parts.Finish: _set_finish_reason,
        parts.Failure: _fail_with_part,
    }
    """The steps of the others. Bound methods of its own would have it wait for the collector."""


def _build_response_error(error: ErrorPayload) -> ResponseError:
    code = error.code or error.type
    return repair_value(ResponseError(code=code, message=error.message, type=error.type))
