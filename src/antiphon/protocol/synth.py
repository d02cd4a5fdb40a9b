"""Parts in, events out: the only source of ids, indexes and sequence numbers.

Adapters and agents say what the model produced; the synthesizer decides everything else. This module holds the
lifecycle of the response, `synth_items` that of its items. For Hashbrown, all text of a response goes into one message.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import UNSET
from msgspec.structs import asdict, astuple, replace

from antiphon.protocol import events, parts
from antiphon.protocol.errors import ErrorPayload, LocalProtocolError
from antiphon.protocol.events import OUTPUT_TEXT, Event
from antiphon.protocol.fast_text import EventEmitter, FilteringEmitter, TextFastPath
from antiphon.protocol.fold import Fold
from antiphon.protocol.items import Item, ItemStatus, Message, Phase, UrlCitation
from antiphon.protocol.parts import Key, Part
from antiphon.protocol.response import IncompleteDetails, Response, ResponseError, ResponseUsage, ResponseWarning
from antiphon.protocol.struct import is_extension_type, omit
from antiphon.protocol.surrogates import repair_value
from antiphon.protocol.synth_items import DEFAULT_OPTIONS, ID_PREFIXES, ItemSynth, OpenItem, SynthOptions, empty_message

FIRST_TEXT: tuple[Key, int] = (0, 0)
"""The key and the part of a source's first text."""


class SingleMessageSynth(ItemSynth):
    """An item synthesizer that puts all text into one message."""

    def __init__(self, emitter: EventEmitter, ids: Callable[[str], str], options: SynthOptions) -> None:
        super().__init__(emitter, ids, options)
        self._message: OpenItem | None = None
        self._text_offsets: dict[tuple[Key, int], int] = {}
        """The offset within the one text of each text of the source, by its key and part."""

    def add_text(self, part: parts.Text) -> None:
        """Add text to the message; an empty delta never ends a refusal."""
        open_text = self._message.open_text if self._message else None
        if open_text and open_text.kind is not OUTPUT_TEXT:
            # Hashbrown gets empty deltas too; one of them must not close an open refusal.
            if not (part.text or part.logprobs):
                return
            open_text = None
        source_text = (part.key, part.part)
        if source_text not in self._text_offsets:
            # Summed, not joined: the text is not built while it is streamed.
            self._text_offsets[source_text] = sum(map(len, open_text.pieces)) if open_text else 0
        if source_text != FIRST_TEXT or part.phase:
            part = parts.Text(part.text, logprobs=part.logprobs)
        super().add_text(part)

    def add_refusal(self, part: parts.Refusal) -> None:
        super().add_refusal(part if (part.key, part.part) == FIRST_TEXT else parts.Refusal(part.text))

    def add_annotation(self, part: parts.Annotation) -> None:
        """Add an annotation, with its indexes shifted to the one text."""
        offset = self._text_offsets.get((part.key, part.part), 0)
        annotation = part.annotation
        if offset and isinstance(annotation, UrlCitation):
            annotation = replace(
                annotation, start_index=annotation.start_index + offset, end_index=annotation.end_index + offset
            )
        super().add_annotation(parts.Annotation(annotation))

    def _add_whole_message(self, message: Message, key: Key) -> None:
        for index, piece in enumerate(message.content):
            self._add_whole_content(piece, key, index)

    def _ensure_item(self, type: str, key: Key, phase: Phase | None = None) -> OpenItem:
        message = self._message
        if type != "message" or message is None:
            return super()._ensure_item(type, key, phase)
        # Text ends reasoning and whole calls, as it does where each has a message of its own.
        if self._current_item is not message:
            self._finish_growing()
        self._current_item = self._last_grown = message
        return message

    def _open_item(self, key: Key, item: Item) -> OpenItem:
        if self._message is None:
            first = item if isinstance(item, Message) else empty_message(self._new_id(ID_PREFIXES["message"]))
            super()._open_item(0, first)
            # Kept out of the queue, so that no other item waits for it.
            self._message = self._unclosed.pop()
            if first is item:
                return self._message
        return super()._open_item(key, item)

    def _finish_item(self, item: OpenItem) -> None:
        if item is self._message:
            self._current_item = None
        else:
            super()._finish_item(item)

    def close_all(self, status: ItemStatus) -> None:
        """Close every item, the message first."""
        if self._message:
            self._unclosed.insert(0, self._message)
            self._message = None
        super().close_all(status)


INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter", "cancelled": "cancelled"}
"""The reason in `incomplete_details`, by finish reason; the other reasons complete a response."""

NO_USAGE = parts.Usage()
MAX_WARNINGS = 100
"""The most warnings of a response; a provider can cause any number."""

SOURCE_PROGRESS = ("queued", "in_progress")
"""What a source may report before its output, in this order."""

RESERVED_FIELDS = frozenset({"type", "sequence_number"})
"""The fields of an extension event that only the synthesizer sets."""


class Synth:
    """The synthesizer of one response."""

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
        omitted = options.omitted_events
        self._emitter = FilteringEmitter(omitted) if omitted else EventEmitter()
        item_synth = SingleMessageSynth if options.single_message else ItemSynth
        self._items = item_synth(self._emitter, options.new_id or ids, options)
        self._source_progress = options.source_progress
        self._next_progress = 0
        """The index in SOURCE_PROGRESS of the earliest status that may still be reported."""
        self._warnings: list[ResponseWarning] = list(response.warnings or ())
        self._initial_warning_count = 0
        """How many warnings there were before the response was announced."""
        self._finish_reason: parts.Reason = "stop"
        self.usage = NO_USAGE
        self.nested_usage = NO_USAGE
        """The tokens of the models that an agent has asked; they are added to its own."""
        self.ended = False
        self._item_handlers: dict[type, Callable[..., None]] = {
            parts.Text: self._items.add_text,
            parts.Refusal: self._items.add_refusal,
            parts.Reasoning: self._items.add_reasoning,
            parts.Annotation: self._items.add_annotation,
            parts.Call: self._items.add_call,
            parts.Whole: self._items.add_whole,
            parts.ItemState: self._items.set_item_state,
        }

    def resume(self, events: Sequence[Event]) -> None:
        """Continue a stream that another synthesizer began, from its events."""
        for event in events:
            self._emitter.fold.feed(event)
            self._emitter.next_number = event.sequence_number + 1
        self._items.adopt_open_items(events)

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._emitter.fold.response

    def measure_output(self) -> int:
        """Return about how many bytes the output takes; slow for a long text."""
        return self._emitter.fold.measure_output()

    @property
    def event_count(self) -> int:
        """How many events there are so far."""
        return self._emitter.next_number

    @property
    def started(self) -> bool:
        """Whether the response has been announced."""
        return self.event_count > 0

    def start(self) -> list[Event]:
        """Announce the response: `created`, then `queued` or `in_progress`."""
        created = self.create()
        if self._source_progress or self._initial_response.status == "queued":
            return created
        return created + self.mark_in_progress()

    def create(self) -> list[Event]:
        """Emit `created`, then `queued` if the response is; `mark_in_progress` must follow before any output."""
        self._initial_warning_count = len(self._warnings)
        self._emitter.emit(events.ResponseCreated, response=self._initial_response)
        if self._initial_response.status == "queued":
            self._emitter.emit(events.ResponseQueued, response=self._initial_response)
        return self._emitter.take()

    def mark_in_progress(self) -> list[Event]:
        """Emit `in_progress`."""
        self._emitter.emit(events.ResponseInProgress, response=replace(self._initial_response, status="in_progress"))
        return self._emitter.take()

    def feed(self, part: Part) -> list[Event]:
        """Return the events that one part causes, perhaps none; a Failure ends the response at once.

        Raises LocalProtocolError after the end.
        """
        return self.feed_all((part,))

    def feed_all(self, batch: Iterable[Part]) -> list[Event]:
        """Return the events that some parts cause."""
        # One list for the whole batch: what arrived in one read leaves in one write.
        handlers, emitter = self._item_handlers, self._emitter
        emitter.text_fast_path = None
        for part in batch:
            if self.ended:
                raise LocalProtocolError(f"{type(part).__name__} after the end of the response")
            if handle := handlers.get(type(part)):
                handle(part)
            else:
                self.HANDLERS[type(part)](self, part)
        pending, emitter.pending = emitter.pending, []
        return pending

    def text_fast_path(self) -> TextFastPath | None:
        """Return the fast path of the text that grew last, valid until the next part is fed."""
        # Key 0 and part 0 are those of a `Text` that names none, as the chat decoder's.
        emitter, open_text = self._emitter, self._items.find_growing_text(0, 0)
        if open_text is None:
            return None
        path = open_text.text_fast_path or TextFastPath(emitter, open_text)
        emitter.text_fast_path = open_text.text_fast_path = path
        return path

    def reset_for_fallback(self) -> None:
        """Forget the parts of a model that has emitted nothing, so that another can answer."""
        self.usage = self.nested_usage = NO_USAGE
        self._finish_reason = "stop"
        self._items.nameless_calls.clear()
        del self._warnings[self._initial_warning_count :]

    def end(self) -> list[Event]:
        """Close every item and emit the terminal event: completed, or incomplete by the finish reason."""
        if self.ended:
            return []
        if reason := INCOMPLETE_REASONS.get(self._finish_reason):
            status = "cancelled" if reason == "cancelled" else "incomplete"
            return self._end_with(status, incomplete_details=IncompleteDetails(reason=reason))
        # A model that produced nothing has answered with an empty text.
        if not (self._items.item_count or self._allow_no_output):
            self._items.open_empty_message()
        return self._end_with("completed")

    def fail(self, error: ErrorPayload) -> list[Event]:
        """Close every unfinished item as incomplete and emit `failed`."""
        if self.ended:
            return []
        return self._end_with("failed", error=_build_response_error(error), incomplete_details=None)

    def end_as(self, response: Response) -> list[Event]:
        """End exactly as an earlier response did that was built from the same items."""
        self._close_items(response.status)
        return self._emit_end(response)

    def _end_with(self, status: str, **fields: object) -> list[Event]:
        self._close_items(status)
        return self._emit_end(replace(self._final_response(), status=status, **fields))

    def _close_items(self, status: str) -> None:
        self.ended = True
        self._items.close_all("completed" if status == "completed" else "incomplete")

    def _emit_end(self, response: Response) -> list[Event]:
        self._emitter.emit(events.TERMINAL_EVENT_BY_STATUS[response.status], response=response)
        return self._emitter.take()

    def replace_end_with_failure(self, error: ErrorPayload) -> list[Event]:
        """Fail after all; the terminal event that was emitted must not have been sent."""
        self.ended = False
        # The terminal event that is replaced was never sent, so its number is free.
        self._emitter.next_number -= 1
        return self.fail(error)

    def fail_without_output(self, error: ErrorPayload) -> list[Event]:
        """Fail and drop the output, when ending the response with it raised an exception."""
        self.ended = True
        self._emitter.take()
        self._emitter.fold = Fold()
        failure, now = _build_response_error(error), int(self._clock())
        return self._emit_end(replace(self._initial_response, completed_at=now, status="failed", error=failure))

    def _final_response(self) -> Response:
        if self._items.dropped_arguments:
            # Reset it, so that an end which is replaced by a failure does not warn twice.
            self._items.dropped_arguments = False
            message = "Arguments arrived that belong to no call; they were left out."
            self._add_warning(parts.Warn("nameless_call", message))
        usage = None
        if (total := add_usage(self.usage, self.nested_usage)) != NO_USAGE:
            input, output, cached, reasoning = (count or 0 for count in astuple(total))
            usage = ResponseUsage.of(input, output, cached=cached, reasoning=reasoning)
        now, warnings = int(self._clock()), self._warnings or UNSET
        return replace(self.response, completed_at=now, usage=usage, warnings=warnings)

    @property
    def has_cut_call(self) -> bool:
        """Whether a call is still open whose arguments, or whose name, are not whole."""
        return self._items.has_cut_call()

    def _report_progress(self, part: parts.Progress) -> None:
        # A source may repeat itself, and after a fallback another one begins: never go back.
        position = SOURCE_PROGRESS.index(part.status)
        if not self._source_progress or self._items.item_count or position < self._next_progress:
            return
        self._next_progress = position + 1
        kind = events.ResponseQueued if part.status == "queued" else events.ResponseInProgress
        self._emitter.emit(kind, response=replace(self._initial_response, status=part.status))

    def _emit_extension(self, part: parts.Extension) -> None:
        if not is_extension_type(part.type):
            raise LocalProtocolError(f"'{part.type}' is not of the form slug:name")
        data = omit(part.data, RESERVED_FIELDS)
        self._emitter.emit(events.ExtensionEvent, type=part.type, extra=repair_value(data) or UNSET)

    def _update_usage(self, part: parts.Usage) -> None:
        # A negative number is not a count: keep what is known.
        known = {name: value for name, value in asdict(part).items() if value is not None and value >= 0}
        self.usage = replace(self.usage, **known)

    def _add_warning(self, part: parts.Warn) -> None:
        if len(self._warnings) >= MAX_WARNINGS:
            part = parts.Warn("more_warnings", "There were more warnings; they were left out.")
            del self._warnings[MAX_WARNINGS - 1 :]
        param = UNSET if part.param is None else part.param
        warning = ResponseWarning(code=part.code, message=part.message, param=param)
        self._warnings.append(repair_value(warning))

    def _set_finish_reason(self, part: parts.Finish) -> None:
        self._finish_reason = part.reason

    def _fail_with_part(self, part: parts.Failure) -> None:
        self._emitter.pending = self.fail(part.error)

    # Unbound functions, unlike `_item_handlers`: bound methods of the synthesizer itself would be
    # a reference cycle, and every response would wait for the garbage collector.
    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        parts.Extension: _emit_extension,
        parts.Progress: _report_progress,
        parts.Usage: _update_usage,
        parts.Warn: _add_warning,
        parts.Finish: _set_finish_reason,
        parts.Failure: _fail_with_part,
    }


def _build_response_error(error: ErrorPayload) -> ResponseError:
    code = error.code or error.type
    return repair_value(ResponseError(code=code, message=error.message, type=error.type))


def add_usage(one: parts.Usage, other: parts.Usage) -> parts.Usage:
    """Return the sum of two usages; a count is None only if both do not know it."""
    pairs = zip(astuple(one), astuple(other), strict=True)
    return parts.Usage(*(a if b is None else b if a is None else a + b for a, b in pairs))
