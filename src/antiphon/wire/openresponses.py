"""One protocol, two ways to write it: the specification's, and OpenAI's.

Inside the house everything has the specification's names, and whatever only OpenAI knows carries
the slug `openai:`. Input in either dialect is understood at either door; output is written in the
door's own. The differences, all of them here:

- reasoning events: `response.reasoning.*`, OpenAI `response.reasoning_text.*`;
- `text.format.schema` is echoed as null, by OpenAI as the schema;
- a broken stream ends with `error` and `response.failed`, with OpenAI `response.failed` alone, as
  on every WebSocket;
- foreign tools, items, content and annotations carry the slug, with OpenAI not;
- error types have other names, an unknown model is a 404, with OpenAI a 400 with a `detail`;
- OpenAI's text events always have `logprobs`, its responses always a `user`, its usage always
  `cache_write_tokens`.
"""

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ErrorEvent,
    Event,
    LifecycleEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    WebSocketError,
)
from antiphon.protocol.foreign.openai_types import (
    OPENAI_ANNOTATIONS,
    OPENAI_CONTENT,
    OPENAI_ITEMS,
    OPENAI_TOOLS,
    SLUG,
    add_slugs,
)
from antiphon.protocol.items import Item, Reasoning
from antiphon.protocol.request import (
    INCLUDE_ENCRYPTED_REASONING,
    CompactRequest,
    JsonSchemaFormat,
    Request,
    WebSocketCreate,
)
from antiphon.protocol.response import CompactResource, Response, ResponseUsage
from antiphon.protocol.struct import (
    ProtocolStruct,
    decode,
    encode,
    to_builtins,
)
from antiphon.wire import sse

KNOWN_INCLUDES = frozenset(
    """code_interpreter_call.outputs computer_call_output.output.image_url
    file_search_call.results message.input_image.image_url message.output_text.logprobs
    reasoning.encrypted_content web_search_call.action.sources web_search_call.results""".split()
)
"""What OpenAI's dialect knows beyond the specification."""

SLUG_PATTERN = re.compile(
    rf"\b{SLUG}(?=({'|'.join(OPENAI_ITEMS | OPENAI_TOOLS | OPENAI_CONTENT | OPENAI_ANNOTATIONS)})\b)"  # noqa: E501
)
"""The slug before such a name; a provider may be called `openai` too, and begin its errors so."""

ERROR_TYPES = {
    "invalid_request": "invalid_request_error",
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
    "model_error": "server_error",
    "permission_denied": "permission_error",
}
EFFORT_FALLBACKS = {"minimal": "low", "max": "xhigh"}
"""The specification's nearest word for an effort that only OpenAI has."""

R = TypeVar("R", bound=Request)

# --- reading, the same at both doors ---------------------------------------------------------


def decode_request(raw: object) -> Request:
    """Read a request in either dialect; raises ShapeError, or RequestError naming the param."""
    return _check_include(decode(Request, add_slugs(raw)))


def decode_create(raw: object) -> WebSocketCreate:
    """Read the request in a WebSocket message; raises what `read_request` raises."""
    return _check_include(decode(WebSocketCreate, add_slugs(raw)))


def _check_include(request: R) -> R:
    for index, name in enumerate(request.include):
        if name not in KNOWN_INCLUDES:
            known = ", ".join(f"'{value}'" for value in sorted(KNOWN_INCLUDES))
            message = f"Unknown value '{name}' in include. Use one of {known}."
            raise RequestError(message, param=f"include[{index}]", code="invalid_value")
    return request


def decode_compact(raw: object) -> CompactRequest:
    """Read a request to make a conversation small, in either dialect; raises ShapeError."""
    return decode(CompactRequest, add_slugs(raw))


# --- writing, door by door -------------------------------------------------------------------

PLACEHOLDER = 2**60
"""Marks the places in a form; no stream has so many events."""

EncodedEvent = tuple[str, bytes]
"""An event's type, and its JSON."""


class Dialect:
    """The specification's way of writing, to the letter."""

    name = "specification"

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._hides_encrypted_content = INCLUDE_ENCRYPTED_REASONING not in include

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        """Write one event: usually one frame, and two where a stream breaks."""
        write = self.ENCODERS.get(type(event))
        return write(self, event) if write else [(event.type, encode(event))]

    def encode_sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events; the hot path of every stream."""
        if type(event) in self.ENCODERS:
            return b"".join([sse.encode(name, data) for name, data in self.encode_event(event)])
        return b"%b%b\n\n" % (sse.event_prefix(event.type), encode(event))

    def text_fast_path(self, delta: Event) -> bytes | None:
        """Return how deltas like this one are written, with places for the number and the words.

        They are written by `form % (number, words)`, if nothing in the words has to be escaped.
        None if no one form fits them all.
        """
        form = self.encode_sse(replace(delta, sequence_number=PLACEHOLDER, delta=str(PLACEHOLDER)))
        form = form.replace(b"%", b"%%")
        return form.replace(b'"%d"' % PLACEHOLDER, b'"%b"').replace(b"%d" % PLACEHOLDER, b"%d")

    def encode_message(self, event: Event) -> bytes:
        """Write one event as a WebSocket message, of which each turn has one that ends it."""
        broken = isinstance(event, ResponseFailed)
        ((_, data),) = self._encode_lifecycle(event) if broken else self.encode_event(event)
        return data

    def encode_websocket_error(self, error: WebSocketError) -> bytes:
        """Write the answer to a WebSocket message that came to nothing."""
        return encode(replace(error, error=self._rename_error(error.error)))

    def encode_after(self, event: Event, after: int) -> bytes:
        """Write the frames of an event that come after a number, as Server-Sent Events."""
        frames = enumerate(self.encode_event(event), event.sequence_number)
        return b"".join(sse.encode(*frame) for number, frame in frames if number > after)

    def encode_response(self, response: Response) -> bytes:
        """Write a response."""
        return self.encode(self.visible_response(response))

    def encode_compaction(self, resource: CompactResource) -> bytes:
        """Write a conversation that was made small."""
        return self.encode(resource)

    def encode_error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        """Write the body of an HTTP error."""
        del detail
        return encode({"error": to_builtins(payload)})

    def error_status(self, error: RequestError) -> int:
        """Return the HTTP status of a caller's error."""
        return error.status

    def param_name(self, name: str) -> str:
        """Return what this door's clients call one of our params."""
        return name

    def encode(self, value: ProtocolStruct) -> bytes:
        """Write a value in this dialect's types."""
        return encode(value)

    def visible_response(self, response: Response) -> Response:
        """Return a response as this door's clients may see it."""
        changes: dict[str, object] = {}
        if self._hides_encrypted_content and any(
            _has_encrypted_content(item) for item in response.output
        ):
            changes["output"] = [_without_encrypted_content(item) for item in response.output]
        return (
            replace(self._adapt_echo(response), **changes)
            if changes
            else self._adapt_echo(response)
        )

    def _rename_error(self, payload: ErrorPayload) -> ErrorPayload:
        return payload

    def _adapt_echo(self, response: Response) -> Response:
        format, reasoning = response.text.format, response.reasoning
        if isinstance(format, JsonSchemaFormat) and format.schema is not None:
            text = replace(response.text, format=replace(format, schema=None))
            response = replace(response, text=text)
        if reasoning and reasoning.effort in EFFORT_FALLBACKS:
            effort = EFFORT_FALLBACKS[reasoning.effort]
            response = replace(response, reasoning=replace(reasoning, effort=effort))
        return response

    def _encode_failed(self, event: ResponseFailed) -> list[EncodedEvent]:
        # "Error while streaming: an error event … will be followed by a response.failed event."
        payload = failure_payload(event.response)
        error = ErrorEvent(sequence_number=event.sequence_number, error=payload)
        shown = self.visible_response(event.response)
        failed = replace(event, sequence_number=event.sequence_number + 1, response=shown)
        return [(error.type, encode(error)), (failed.type, self.encode(failed))]

    def _encode_lifecycle(self, event: LifecycleEvent) -> list[EncodedEvent]:
        return [
            (
                event.type,
                self.encode(replace(event, response=self.visible_response(event.response))),
            )
        ]

    def _encode_item(self, event: OutputItemAdded | OutputItemDone) -> list[EncodedEvent]:
        if self._hides_encrypted_content and _has_encrypted_content(event.item):
            event = replace(event, item=_without_encrypted_content(event.item))
        return [(event.type, self.encode(event))]

    ENCODERS: ClassVar[dict[type, Callable[..., list[EncodedEvent]]]] = {
        ResponseCreated: _encode_lifecycle,
        ResponseQueued: _encode_lifecycle,
        ResponseInProgress: _encode_lifecycle,
        ResponseCompleted: _encode_lifecycle,
        ResponseIncomplete: _encode_lifecycle,
        ResponseFailed: _encode_failed,
        OutputItemAdded: _encode_item,
        OutputItemDone: _encode_item,
    }


class OpenAIDialect(Dialect):
    """OpenAI's way of writing, for clients built on its SDK."""

    name = "openai"

    def encode_sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events."""
        if isinstance(event, OutputTextDelta) and event.logprobs is UNSET:
            return sse.event_prefix(event.type) + encode(event)[:-1] + b',"logprobs":[]}\n\n'
        return super().encode_sse(event)

    def encode_compaction(self, resource: CompactResource) -> bytes:
        """Write a conversation that was made small."""
        return self.encode(replace(resource, usage=_with_cache_write_tokens(resource.usage)))

    def encode_error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        """Write the body of an HTTP error, with the `detail` that S2's clients read."""
        named = self._rename_error(payload)
        return encode({"error": to_builtins(named), "detail": detail or named.message})

    def error_status(self, error: RequestError) -> int:
        """Return the HTTP status of a caller's error; here naming no model is a bad request."""
        payload = error.payload
        unknown = payload.code == "model_not_found" and payload.param == "model"
        return 400 if unknown else error.status

    def encode(self, value: ProtocolStruct) -> bytes:
        """Write a value, with OpenAI's own types as OpenAI writes them."""
        data = encode(value)
        return encode(to_builtins(value, _remove_slug)) if b'"openai:' in data else data

    def _rename_error(self, payload: ErrorPayload) -> ErrorPayload:
        name = ERROR_TYPES.get(payload.type, payload.type)
        return replace(payload, type=name, message=SLUG_PATTERN.sub("", payload.message))

    def _adapt_echo(self, response: Response) -> Response:
        if response.user is UNSET:
            response = replace(response, user=None)
        return (
            replace(response, usage=_with_cache_write_tokens(response.usage))
            if response.usage
            else response
        )

    def _encode_text(self, event: OutputTextDelta | OutputTextDone) -> list[EncodedEvent]:
        data = encode(event)
        has_logprobs = event.logprobs is not UNSET
        return [(event.type, data if has_logprobs else data[:-1] + b',"logprobs":[]}')]

    def _encode_part(
        self, event: ContentPartAdded | ContentPartDone | OutputTextAnnotationAdded
    ) -> list[EncodedEvent]:
        return [(event.type, self.encode(event))]

    def _encode_reasoning(self, event: ReasoningDelta | ReasoningDone) -> list[EncodedEvent]:
        name = event.type.replace("reasoning", "reasoning_text")
        return [(name, encode(event).replace(event.type.encode(), name.encode(), 1))]

    ENCODERS: ClassVar[dict[type, Callable[..., list[EncodedEvent]]]] = Dialect.ENCODERS | {
        ResponseFailed: Dialect.ENCODERS[ResponseCompleted],
        ContentPartAdded: _encode_part,
        ContentPartDone: _encode_part,
        OutputTextAnnotationAdded: _encode_part,
        OutputTextDelta: _encode_text,
        OutputTextDone: _encode_text,
        ReasoningDelta: _encode_reasoning,
        ReasoningDone: _encode_reasoning,
    }


def failure_payload(response: Response) -> ErrorPayload:
    """Return a failed response's error as the protocol writes errors elsewhere."""
    error = response.error
    if error is None:
        return ErrorPayload(
            message="The response failed.", type="server_error", code="server_error"
        )
    kind = "server_error" if error.type is UNSET else error.type
    return ErrorPayload(message=error.message, type=kind, code=error.code)


def _with_cache_write_tokens(usage: ResponseUsage) -> ResponseUsage:
    details = usage.input_tokens_details
    extra = {"cache_write_tokens": 0} | (details.extra or {})
    return replace(usage, input_tokens_details=replace(details, extra=extra))


def _remove_slug(type: str) -> str:
    return type.removeprefix(SLUG)


def _has_encrypted_content(item: Item) -> bool:
    return isinstance(item, Reasoning) and item.encrypted_content is not UNSET


def _without_encrypted_content(item: Item) -> Item:
    return replace(item, encrypted_content=UNSET) if isinstance(item, Reasoning) else item


DIALECTS: Mapping[str, type[Dialect]] = {"specification": Dialect, "openai": OpenAIDialect}
