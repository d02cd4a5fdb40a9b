"""Hashbrown's frames, both ways, and the dialect that writes events as frames.

A frame is a length of four bytes, big-endian, and as many bytes of JSON: an object with a `type`.
There is nothing else in a stream. A frame has the type and the fields of its event, the fields in
camel case; nested objects keep their names. 22 of the events have a frame; the others are not sent.
Differences to the event stream:

- `response.created` is sent together with the next frame; `response.queued` and
  `response.in_progress` only if the provider sends them;
- a response that fails is one `error` frame, without `response.failed`;
- a response that a content filter stopped is `response.failed`;
- calls of functions that the client did not offer are the agent's own: they are sent last, and only
  if the response holds no output for them, because the client runs every call that it receives;
- a call that was cut off has no `response.function_call_arguments.done`, because the client would run it.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, cast, get_args

from msgspec import UNSET, Raw
from msgspec.structs import fields, replace

from antiphon.protocol import events
from antiphon.protocol.errors import ErrorCode, ErrorPayload, ErrorType
from antiphon.protocol.events import Event, LifecycleEvent, OutputTextDelta
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message
from antiphon.protocol.response import Response, ResponseError, ResponseWarning
from antiphon.protocol.struct import ProtocolStruct, as_object, encode
from antiphon.wire import json
from antiphon.wire.openresponses import Dialect, EncodedEvent, failure_payload

MAX_FRAME = 16 * 1024 * 1024

Frame = dict[str, object]

_LENGTH = struct.Struct(">I")


class FrameError(ValueError):
    """Bytes that are not frames, or a frame that is too large."""


class Decoder:
    """Decodes one stream of frames; unusable after an error."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that a chunk completes."""
        rest = self._rest
        rest += chunk
        frames: list[Frame] = []
        start = 0
        while (body := start + _LENGTH.size) <= len(rest):
            (length,) = _LENGTH.unpack_from(rest, start)
            # Checked before the frame arrives, so that it is never buffered.
            if length > self._max_frame:
                raise FrameError(
                    f"A frame has {length} bytes, more than {self._max_frame}. Raise the limit if it should pass."
                )
            if body + length > len(rest):
                break
            start = body + length
            try:
                frame = json.decode_foreign(bytes(rest[body:start]))
            except json.JSONError as error:
                raise FrameError(f"A frame is not valid JSON: {str(error).removeprefix('Invalid JSON: ')}") from None
            if not isinstance(as_object(frame).get("type"), str):
                raise FrameError("A frame is not an object with a 'type'.")
            frames.append(cast("Frame", frame))
        del rest[:start]
        return frames

    def close(self) -> None:
        """Raise FrameError if the stream has ended inside a frame."""
        if self._rest:
            raise FrameError(f"The stream ended with {len(self._rest)} bytes of a frame.")


def encode_frame(value: object) -> bytes:
    """Return a value as one frame."""
    return add_length(encode(value))


def add_length(data: bytes) -> bytes:
    """Return encoded JSON as one frame."""
    return _LENGTH.pack(len(data)) + data


HEARTBEAT = "antiphon:heartbeat"
"""The type of a frame that says only that the connection is alive; Hashbrown's clients ignore it."""

FRAMED_EVENTS: tuple[type[Event], ...] = (
    *get_args(LifecycleEvent),
    *get_args(events.DeltaEvent),
    *get_args(events.TextDoneEvent),
    events.OutputItemAdded,
    events.OutputItemDone,
    events.ContentPartAdded,
    events.ContentPartDone,
    events.OutputTextAnnotationAdded,
    events.ErrorEvent,
)
"""The events that have a frame."""

CONTENT_FILTER_ERROR = ResponseError(
    code="content_filter", message="A content filter stopped the answer.", type="content_filter"
)
TRANSPORT_CODES = frozenset("upstream_cut upstream_invalid upstream_protocol upstream_unreachable timeout".split())
"""Our error codes for failures of the connection, which the provider did not report."""

OUR_TYPES = frozenset(get_args(ErrorType)) - {"server_error"}
OUR_CODES = TRANSPORT_CODES | {
    *get_args(ErrorCode),
    "invalid_structured_output",
    "missing_credentials",
    "model_not_found",
}


def to_camel_case(name: str) -> str:
    """Return a field's name in camel case: `contentIndex` for `content_index`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


FRAME_FIELDS: Mapping[type[Event], Sequence[tuple[str, str]]] = {
    kind: [(info.name, to_camel_case(info.name)) for info in fields(kind) if info.name != "extra"]
    for kind in FRAMED_EVENTS
}
"""The fields of each event with a frame, and their names in the frame."""


def frame_json(event: Event) -> bytes:
    """Return the JSON of an event's frame; the event must be one of FRAMED_EVENTS."""
    frame: Frame = {}
    for attribute, name in FRAME_FIELDS[type(event)]:
        value: object = getattr(event, attribute)
        if value is not UNSET:
            # Nested objects keep their own names, so they are encoded as usual.
            frame[name] = value if isinstance(value, str | int) else Raw(encode(value))
    return encode(frame)


def use_provider_error_type(payload: ErrorPayload) -> ErrorPayload:
    """Return a provider's error with the provider's own error type, if it has a single name for it.

    Bedrock and Google have one, as flat errors have, which is our `code`; other providers have both a type and a code.
    """
    code = payload.code
    if not code or code in OUR_CODES or payload.type not in OUR_TYPES:
        return payload
    return replace(payload, type=code)


def error_frame_json(
    payload: ErrorPayload, *, number: int | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return the JSON of an `error` frame; fields that the provider did not send are left out."""
    is_local = payload.type == "model_error" and payload.code in TRANSPORT_CODES
    optional = {"code": payload.code, "param": payload.param, "headers": headers}
    error: dict[str, object] = {"type": "stream_error" if is_local else payload.type, "message": payload.message}
    error |= {name: value for name, value in optional.items() if value}
    frame: Frame = {"type": "error", "error": error}
    return encode(frame if number is None else frame | {"sequenceNumber": number})


class HashbrownDialect(Dialect):
    """Writes one response as frames. Frames depend on earlier ones: create one per response."""

    name = "hashbrown"

    def __init__(self) -> None:
        super().__init__()
        self.client_functions: frozenset[str] = frozenset()
        """The functions that the client can run."""
        self.warnings: Sequence[ResponseWarning] = ()
        """Warnings about fields of the request that are not used."""
        self.failure_payload: Callable[[Response], ErrorPayload] = failure_payload
        """Returns the error of a failed response; the endpoint has more detail than that."""
        self._held_created = b""
        self._held_calls: dict[int, tuple[str, list[bytes]]] = {}
        """The calls of functions that the client did not offer, by index: call id and frames."""
        self._hidden_indexes: set[int] = set()
        self._held_arguments = b""
        """The frame of a call's whole arguments, until the call is done and known to be complete."""
        self._items_begun = 0
        """How many items other than the message have begun."""
        self._items_before_text: int | None = None
        """How many of them had begun before the first text."""

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        """Return the frame of an event, or nothing."""
        if type(event) in self.ENCODERS:
            return super().encode_event(event)
        return [(event.type, frame_json(event))] if type(event) in FRAME_FIELDS else []

    def text_fast_path(self, delta: Event) -> None:
        """There is no template: each frame begins with its length."""
        del delta

    def encode(self, value: ProtocolStruct) -> bytes:
        """Encode a value; an event as its frame."""
        return frame_json(value) if isinstance(value, FRAMED_EVENTS) else encode(value)

    def visible_response(self, response: Response) -> Response:
        """Return a response as the client may see it, with the request's warnings."""
        response = super().visible_response(response)
        if not self.warnings:
            return response
        return replace(response, warnings=[*self.warnings, *(response.warnings or ())])

    def encode_frames(self, event: Event) -> bytes:
        """Return the bytes that an event adds to the stream, perhaps none."""
        # The hot path: text after the first piece needs none of the bookkeeping below.
        if type(event) is OutputTextDelta and self._items_before_text is not None:
            return add_length(frame_json(event))
        frames = self._encode_frames(event)
        if frames and self._held_created:
            frames.insert(0, self._held_created)
            self._held_created = b""
        return b"".join(map(add_length, frames))

    def order_items(self, response: Response) -> list[Item]:
        """Return a response's items with the message at the place of its first text."""
        message, others = response.output[:1], response.output[1:]
        first = self._items_before_text or 0
        return [*others[:first], *message, *others[first:]]

    def _encode_frames(self, event: Event) -> list[bytes]:
        match event:
            # Held until there is content: if the provider fails first, the stream is one `error`.
            case events.ResponseCreated():
                self._held_created = self._encode_event(event)[0]
                return []
            case events.ResponseFailed():
                self._held_created = b""
                payload = self.failure_payload(event.response)
                return [error_frame_json(payload, number=event.sequence_number)]
            case events.ResponseCompleted() | events.ResponseIncomplete():
                # Nothing has answered these calls, so the client has to run them after all.
                unanswered = [data for _, frames in self._held_calls.values() for data in frames]
                return [*unanswered, *self._encode_event(_fail_if_filtered(event))]
            case events.OutputItemAdded():
                self._track_item(event.output_index, event.item)
            case events.FunctionCallArgumentsDone():
                # The synthesizer sends the call's item right after its arguments.
                (self._held_arguments,) = self._encode_event(event)
                return []
            case OutputTextDelta() | events.RefusalDelta() if event.delta and self._items_before_text is None:
                self._items_before_text = self._items_begun
            case _:
                pass
        index = getattr(event, "output_index", -1)
        frames = [] if index in self._hidden_indexes else [*self._take_arguments(event), *self._encode_event(event)]
        if index in self._held_calls:
            self._held_calls[index][1].extend(frames)
            return []
        return frames

    def _take_arguments(self, event: Event) -> list[bytes]:
        """Return the frame of a call's arguments if the event is the end of that call, and the call is complete."""
        if not (isinstance(event, events.OutputItemDone) and isinstance(event.item, FunctionCall)):
            return []
        held, self._held_arguments = self._held_arguments, b""
        return [held] if event.item.status == "completed" else []

    def _encode_event(self, event: Event) -> list[bytes]:
        return [data for _, data in self.encode_event(event)]

    def _track_item(self, index: int, item: Item) -> None:
        if not isinstance(item, Message):
            self._items_begun += 1
        # The client would try to run a call that the agent runs itself: hold it back until the
        # end, and drop it as soon as the response holds its output.
        if isinstance(item, FunctionCall) and item.name not in self.client_functions:
            self._held_calls[index] = (item.call_id, [])
        elif isinstance(item, FunctionCallOutput):
            answered = [own for own, (id, _) in self._held_calls.items() if id == item.call_id]
            for own in answered:
                del self._held_calls[own]
            self._hidden_indexes |= {index, *answered}

    ENCODERS: ClassVar[dict[type, Callable[..., list[EncodedEvent]]]] = Dialect.ENCODERS | {
        events.ResponseFailed: Dialect.ENCODERS[events.ResponseCompleted]
    }


def _fail_if_filtered(event: events.ResponseCompleted | events.ResponseIncomplete) -> LifecycleEvent:
    """Return the last event; a response that a content filter stopped has failed."""
    response = event.response
    details = response.incomplete_details
    if details is None or details.reason != CONTENT_FILTER_ERROR.code:
        return event
    failed = replace(response, status="failed", error=CONTENT_FILTER_ERROR, incomplete_details=None)
    return events.ResponseFailed(sequence_number=event.sequence_number, response=failed)
