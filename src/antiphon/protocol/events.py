"""The 24 streaming events and the extension event, and the table of streamed texts.

Every event is either a delta or a step of a state machine; `rules` has the tables of both. The
synthesizer, the fold, the rules and the reader of foreign streams all use the one table of texts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from msgspec import UNSET, UnsetType

from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.items import Content, Item, LogProb, TextAnnotation
from antiphon.protocol.response import Response
from antiphon.protocol.struct import ExtensionStruct, ProtocolStruct, decode_as, type_names


class SequencedEvent(ProtocolStruct):
    """Any event of a stream."""

    type: str
    sequence_number: int


class ResponseCreated(SequencedEvent):
    """The response has been created."""

    type: Literal["response.created"] = "response.created"
    response: Response


class ResponseQueued(SequencedEvent):
    """The response waits in the background queue."""

    type: Literal["response.queued"] = "response.queued"
    response: Response


class ResponseInProgress(SequencedEvent):
    """The model is working on the response."""

    type: Literal["response.in_progress"] = "response.in_progress"
    response: Response


class ResponseCompleted(SequencedEvent):
    """The response is complete."""

    type: Literal["response.completed"] = "response.completed"
    response: Response


class ResponseFailed(SequencedEvent):
    """The response failed; it holds the output so far."""

    type: Literal["response.failed"] = "response.failed"
    response: Response


class ResponseIncomplete(SequencedEvent):
    """The response stopped early; it holds the output so far."""

    type: Literal["response.incomplete"] = "response.incomplete"
    response: Response


class OutputItemAdded(SequencedEvent):
    """An item is added."""

    type: Literal["response.output_item.added"] = "response.output_item.added"
    output_index: int
    item: Item


class OutputItemDone(SequencedEvent):
    """An item will not change any more."""

    type: Literal["response.output_item.done"] = "response.output_item.done"
    output_index: int
    item: Item


class ItemEvent(SequencedEvent):
    """An event inside an item."""

    item_id: str
    output_index: int


class ContentEvent(ItemEvent):
    """An event inside a content part."""

    content_index: int


class SummaryEvent(ItemEvent):
    """An event inside a part of a reasoning summary."""

    summary_index: int


class ContentPartAdded(ContentEvent):
    """A content part is added."""

    type: Literal["response.content_part.added"] = "response.content_part.added"
    part: Content


class ContentPartDone(ContentEvent):
    """A content part is complete."""

    type: Literal["response.content_part.done"] = "response.content_part.done"
    part: Content


class OutputTextDelta(ContentEvent):
    """A piece of text."""

    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str
    # Optional fields are omitted, never null: the OpenAPI file does not allow null here.
    logprobs: list[LogProb] | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


class OutputTextDone(ContentEvent):
    """The whole text."""

    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str
    logprobs: list[LogProb] | UnsetType = UNSET


class OutputTextAnnotationAdded(ContentEvent):
    """An annotation of the text."""

    type: Literal["response.output_text.annotation.added"] = "response.output_text.annotation.added"
    annotation_index: int
    annotation: TextAnnotation


class RefusalDelta(ContentEvent):
    """A piece of a refusal."""

    type: Literal["response.refusal.delta"] = "response.refusal.delta"
    delta: str


class RefusalDone(ContentEvent):
    """The whole refusal."""

    type: Literal["response.refusal.done"] = "response.refusal.done"
    refusal: str


class ReasoningDelta(ContentEvent):
    """A piece of raw reasoning."""

    type: Literal["response.reasoning.delta"] = "response.reasoning.delta"
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningDone(ContentEvent):
    """The whole text of a raw reasoning part."""

    type: Literal["response.reasoning.done"] = "response.reasoning.done"
    text: str


class ReasoningSummaryPartAdded(SummaryEvent):
    """A part of the summary is added."""

    type: Literal["response.reasoning_summary_part.added"] = "response.reasoning_summary_part.added"
    part: Content


class ReasoningSummaryPartDone(SummaryEvent):
    """A part of the summary is complete."""

    type: Literal["response.reasoning_summary_part.done"] = "response.reasoning_summary_part.done"
    part: Content


class ReasoningSummaryTextDelta(SummaryEvent):
    """A piece of the summary."""

    type: Literal["response.reasoning_summary_text.delta"] = "response.reasoning_summary_text.delta"
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningSummaryTextDone(SummaryEvent):
    """The whole text of a summary part."""

    type: Literal["response.reasoning_summary_text.done"] = "response.reasoning_summary_text.done"
    text: str


class FunctionCallArgumentsDelta(ItemEvent):
    """A piece of a call's arguments."""

    type: Literal["response.function_call_arguments.delta"] = "response.function_call_arguments.delta"
    delta: str
    obfuscation: str | UnsetType = UNSET


class FunctionCallArgumentsDone(ItemEvent):
    """The whole arguments of a call."""

    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    arguments: str


class ErrorEvent(SequencedEvent):
    """An error; `response.failed` follows."""

    type: Literal["error"] = "error"
    error: ErrorPayload


# No sequence number: it is about a message for which there is no stream.
class WebSocketError(ProtocolStruct):
    """The answer to a WebSocket message that caused no response."""

    type: Literal["error"] = "error"
    status: int
    error: ErrorPayload
    stream_id: str | UnsetType = UNSET


class ExtensionEvent(ExtensionStruct):
    """An event that is not in the specification, `slug:name`; `extra` holds its fields."""

    sequence_number: int


LifecycleEvent = (
    ResponseCreated | ResponseQueued | ResponseInProgress | ResponseCompleted | ResponseFailed | ResponseIncomplete
)
DeltaEvent = OutputTextDelta | RefusalDelta | ReasoningDelta | ReasoningSummaryTextDelta | FunctionCallArgumentsDelta
TextDoneEvent = OutputTextDone | RefusalDone | ReasoningDone | ReasoningSummaryTextDone | FunctionCallArgumentsDone
PartAddedEvent = ContentPartAdded | ReasoningSummaryPartAdded
PartDoneEvent = ContentPartDone | ReasoningSummaryPartDone
PartEvent = PartAddedEvent | PartDoneEvent
Event = (
    LifecycleEvent
    | DeltaEvent
    | TextDoneEvent
    | OutputItemAdded
    | OutputItemDone
    | PartEvent
    | OutputTextAnnotationAdded
    | ErrorEvent
    | ExtensionEvent
)

TERMINAL_EVENTS = (ResponseCompleted, ResponseFailed, ResponseIncomplete)
TERMINAL_EVENT_BY_STATUS = {
    "completed": ResponseCompleted,
    "failed": ResponseFailed,
    "incomplete": ResponseIncomplete,
    # The specification has no event for a cancelled response.
    "cancelled": ResponseIncomplete,
}


def decode_event(raw: object) -> Event:
    """Decode an event from JSON builtins; raise InvalidValueError if it is none."""
    return cast("Event", decode_as(Event, raw))


def part_of(event: ItemEvent) -> tuple[str, int]:
    """Return the part that an event is about: the field that holds its index, and the index."""
    if isinstance(event, ContentEvent):
        return "content_index", event.content_index
    return ("summary_index", event.summary_index) if isinstance(event, SummaryEvent) else ("", 0)


EventFactory = Callable[..., Event]


@dataclass(frozen=True, slots=True)
class TextKind:
    """One kind of streamed text: the item and part it belongs to, and its events."""

    item_type: str
    content_type: str
    """The type of its content part; empty for arguments, which are a field of the item."""
    delta_event: EventFactory
    text_done_event: EventFactory
    text_field: str = "text"
    """The field of the part, and of the done event, that holds the whole text."""
    index_field: str = "content_index"
    """The event field with the part's index; empty for arguments."""
    part_added_event: EventFactory | None = ContentPartAdded
    part_done_event: EventFactory | None = ContentPartDone
    # The specification gives every delta but a refusal's an `obfuscation` field.
    obfuscatable: bool = True

    def empty_part(self) -> Content:
        """Return the part as it is when it is added."""
        return PART_CLASSES[self.content_type](**{self.text_field: ""})


PART_CLASSES: dict[str, Callable[..., Content]] = {
    name: kind for kind in get_args(Content) for name in type_names(kind)
}
OUTPUT_TEXT = TextKind("message", "output_text", OutputTextDelta, OutputTextDone)
REFUSAL = TextKind("message", "refusal", RefusalDelta, RefusalDone, text_field="refusal", obfuscatable=False)
REASONING_TEXT = TextKind("reasoning", "reasoning_text", ReasoningDelta, ReasoningDone)
SUMMARY_TEXT = TextKind(
    "reasoning",
    "summary_text",
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    index_field="summary_index",
    part_added_event=ReasoningSummaryPartAdded,
    part_done_event=ReasoningSummaryPartDone,
)
CALL_ARGUMENTS = TextKind(
    "function_call",
    "",
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    text_field="arguments",
    index_field="",
    part_added_event=None,
    part_done_event=None,
)

# Everything below is derived: the fold and the checker build their dispatch tables from it.
_ALL = (OUTPUT_TEXT, REFUSAL, REASONING_TEXT, SUMMARY_TEXT, CALL_ARGUMENTS)

TEXT_KINDS = {kind.content_type: kind for kind in _ALL if kind.content_type}
"""The kind of text in each type of content part."""

DELTA_EVENTS: dict[object, TextKind] = {kind.delta_event: kind for kind in _ALL}
TEXT_DONE_EVENTS: dict[object, TextKind] = {kind.text_done_event: kind for kind in _ALL}

# Annotations belong to output text only.
TEXT_EVENTS = DELTA_EVENTS | TEXT_DONE_EVENTS | {OutputTextAnnotationAdded: OUTPUT_TEXT}
"""The kind of text that each event inside a text belongs to."""
