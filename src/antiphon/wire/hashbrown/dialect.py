"""One more encoding of the same events: Hashbrown's frames.

A frame has the type of its event and its fields, in camel case; what the fields hold is written as
always. There are frames for 22 of the events; nothing is sent for the others. What is different
from a stream of events:

- `response.created` is told with the first thing that follows it, and `response.in_progress` not;
- a response that fails is one `error`, and nothing of its end;
- one that a filter stopped is `response.failed`;
- a call of what the client did not offer is its maker's own affair. It is told last, and only if
  nothing in the response answers it, because the client runs every call that it is told.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, get_args

from msgspec import UNSET, Raw
from msgspec.structs import fields, replace

from antiphon.protocol.errors import ErrorCode, ErrorPayload, ErrorType
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ErrorEvent,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    ItemEvent,
    LifecycleEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
)
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
)
from antiphon.protocol.response import Response, ResponseError, ResponseWarning
from antiphon.protocol.struct import ProtocolStruct, encode
from antiphon.wire.hashbrown.frames import add_length
from antiphon.wire.openresponses import Dialect, EncodedEvent, failure_payload

FRAMED_EVENTS: tuple[type[Event], ...] = (
    *get_args(LifecycleEvent),
    OutputItemAdded,
    OutputItemDone,
    ContentPartAdded,
    ContentPartDone,
    OutputTextDelta,
    OutputTextDone,
    OutputTextAnnotationAdded,
    RefusalDelta,
    RefusalDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    ErrorEvent,
)
"""The events that have a frame."""

CONTENT_FILTER_ERROR = ResponseError(
    code="content_filter",
    message="A content filter stopped the answer.",
    type="content_filter",
)
TRANSPORT_CODES = frozenset(
    {"upstream_cut", "upstream_invalid", "upstream_protocol", "upstream_unreachable", "timeout"}
)
"""Our codes for what a provider has not said itself."""

OUR_TYPES = frozenset(get_args(ErrorType)) - {"server_error"}
OUR_CODES = TRANSPORT_CODES | {
    *get_args(ErrorCode),
    "invalid_structured_output",
    "missing_credentials",
    "model_not_found",
}

ITEM_EVENTS = (ItemEvent, OutputItemAdded, OutputItemDone)


def to_camel_case(name: str) -> str:
    """Return a field's name as a frame has it.

    >>> camel("content_index")
    'contentIndex'
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


FRAME_FIELDS: Mapping[type[Event], Sequence[tuple[str, str]]] = {
    kind: [(info.name, to_camel_case(info.name)) for info in fields(kind) if info.name != "extra"]
    for kind in FRAMED_EVENTS
}
"""Of each event with a frame, the fields and what the frame calls them."""


def frame_json(event: Event) -> bytes:
    """Write one event as the JSON of its frame, which it must have."""
    told: dict[str, object] = {}
    for attribute, name in FRAME_FIELDS[type(event)]:
        value: object = getattr(event, attribute)
        if value is not UNSET:
            told[name] = value if isinstance(value, str | int) else Raw(encode(value))
    return encode(told)


def use_provider_error_type(payload: ErrorPayload) -> ErrorPayload:
    """Return a provider's error with its own type; if it has one word for it, that is the type.

    Bedrock and Google have, and elsewhere it is a code beside a type of ours.
    """
    code = payload.code
    if not code or code in OUR_CODES or payload.type not in OUR_TYPES:
        return payload
    return replace(payload, type=code, code=None)


def error_frame_json(
    payload: ErrorPayload,
    *,
    number: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Write an error as the JSON of its frame; what its provider did not say is left out."""
    local = payload.type == "model_error" and payload.code in TRANSPORT_CODES
    given = {"code": payload.code, "param": payload.param, "headers": headers}
    error = {"type": "stream_error" if local else payload.type, "message": payload.message}
    told: dict[str, object] = {
        "type": "error",
        "error": error | {name: value for name, value in given.items() if value},
    }
    return encode(told if number is None else told | {"sequenceNumber": number})


class HashbrownDialect(Dialect):
    """How Hashbrown is answered; one for each answer, because a frame depends on those before."""

    name = "hashbrown"

    def __init__(self) -> None:
        super().__init__()
        self.offered_functions: frozenset[str] = frozenset()
        """The functions that the client can call."""
        self.warnings: Sequence[ResponseWarning] = ()
        """What the client said and is not used."""
        self.failure_payload: Callable[[Response], ErrorPayload] = failure_payload
        """Tells what broke; whoever has the error itself knows more of it than the response."""
        self._held_created = b""
        self._held_calls: dict[int, tuple[str, list[bytes]]] = {}
        """Frames of calls that the client did not offer, by index; with each call's id."""
        self._hidden_indexes: set[int] = set()
        self._items_begun = 0
        """How many items other than the message have begun."""
        self._items_before_text: int | None = None
        """How many of them had when the first words came."""

    # --- event by event ---

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        """Write one event as the frame it has, or none."""
        if type(event) in self.ENCODERS:
            return super().encode_event(event)
        return [(event.type, frame_json(event))] if type(event) in FRAME_FIELDS else []

    def text_fast_path(self, delta: Event) -> None:
        """Frames have no form: each begins with its length."""
        del delta

    def encode(self, value: ProtocolStruct) -> bytes:
        """Write a value; an event as its frame."""
        return frame_json(value) if isinstance(value, FRAMED_EVENTS) else encode(value)

    def visible_response(self, response: Response) -> Response:
        """Return a response as the client may see it."""
        response = super().visible_response(response)
        if not self.warnings:
            return response
        return replace(response, warnings=[*self.warnings, *(response.warnings or ())])

    # --- as a stream ---

    def encode_frames(self, event: Event) -> bytes:
        """Write what an event adds to the stream, perhaps nothing; the hot path of every stream."""
        if type(event) is OutputTextDelta and self._items_before_text is not None:
            return add_length(
                frame_json(event)
            )  # words after the first, which are nearly everything
        told = self._encode_frames(event)
        if told and self._held_created:
            told.insert(0, self._held_created)
            self._held_created = b""
        return b"".join(map(add_length, told))

    def order_items(self, response: Response) -> list[Item]:
        """Return a response's items with the message where its first words came."""
        message, others = response.output[:1], response.output[1:]
        first = 0 if self._items_before_text is None else self._items_before_text
        return [*others[:first], *message, *others[first:]]

    def _encode_frames(self, event: Event) -> list[bytes]:
        match event:
            case ResponseCreated():
                self._held_created = self._encode_event(event)[0]
                return []
            case ResponseInProgress():
                return []
            case ResponseFailed():
                self._held_created = b""
                payload = self.failure_payload(event.response)
                return [error_frame_json(payload, number=event.sequence_number)]
            case ResponseCompleted() | ResponseIncomplete():
                unanswered = [data for _, frames in self._held_calls.values() for data in frames]
                return [*unanswered, *self._encode_event(_fail_if_filtered(event))]
            case OutputItemAdded():
                self._track_item(event.output_index, event.item)
            case OutputTextDelta() | RefusalDelta() if (
                event.delta and self._items_before_text is None
            ):
                self._items_before_text = self._items_begun
            case _:
                pass
        return self._encode_unless_held(event)

    def _encode_event(self, event: Event) -> list[bytes]:
        return [data for _, data in self.encode_event(event)]

    def _encode_unless_held(self, event: Event) -> list[bytes]:
        """Write an event, unless it is of a call that is held back or hidden."""
        index = event.output_index if isinstance(event, ITEM_EVENTS) else -1
        if index in self._hidden_indexes:
            return []
        told = self._encode_event(event)
        if index in self._held_calls:
            self._held_calls[index][1].extend(told)
            return []
        return told

    def _track_item(self, index: int, item: Item) -> None:
        if not isinstance(item, Message):
            self._items_begun += 1
        if isinstance(item, FunctionCall) and item.name not in self.offered_functions:
            self._held_calls[index] = (item.call_id, [])
        elif isinstance(item, FunctionCallOutput):
            answered = [own for own, (id, _) in self._held_calls.items() if id == item.call_id]
            for own in answered:
                del self._held_calls[own]
            self._hidden_indexes |= {index, *answered}

    ENCODERS: ClassVar[dict[type, Callable[..., list[EncodedEvent]]]] = Dialect.ENCODERS | {
        ResponseFailed: Dialect.ENCODERS[ResponseCompleted]
    }


def _fail_if_filtered(event: ResponseCompleted | ResponseIncomplete) -> LifecycleEvent:
    """Return the end of a response as Hashbrown has it: what a filter stopped has failed."""
    response = event.response
    details = response.incomplete_details
    if details is None or details.reason != CONTENT_FILTER_ERROR.code:
        return event
    failed = replace(response, status="failed", error=CONTENT_FILTER_ERROR, incomplete_details=None)
    return ResponseFailed(sequence_number=event.sequence_number, response=failed)
