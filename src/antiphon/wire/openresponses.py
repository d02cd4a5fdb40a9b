"""Requests decoded; events, responses and errors encoded as the specification or as OpenAI does.

Inside Antiphon everything has the specification's names, and types that only OpenAI has carry the
slug `openai:`. Requests in either dialect are accepted on either door; each door writes its own.
OpenAI's dialect, for clients built on its SDKs, differs from the specification's:

- reasoning events are `response.reasoning_text.*` instead of `response.reasoning.*`;
- `text.format.schema` is echoed as it is, not as null;
- a failed stream ends with `response.failed` alone, without an `error` event before it;
- OpenAI's own tools, items, content and annotations have no slug;
- error types have other names; an unknown model is a 400, not a 404; errors have a `detail`;
- text events always have `logprobs`, responses a `user`, and usage `cache_write_tokens`.
"""

import re
from collections.abc import Callable
from typing import ClassVar, TypeVar, get_args

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol import events
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import Event, LifecycleEvent, OutputTextDelta
from antiphon.protocol.foreign import lenient
from antiphon.protocol.foreign.lenient import SLUG, add_slugs
from antiphon.protocol.items import Item, Reasoning
from antiphon.protocol.request import (
    INCLUDE_ENCRYPTED_REASONING,
    CompactRequest,
    JsonSchemaFormat,
    Request,
    WebSocketCreate,
)
from antiphon.protocol.response import CompactResource, Response, ResponseUsage
from antiphon.protocol.struct import ProtocolStruct, decode, encode, to_builtins
from antiphon.wire import sse

KNOWN_INCLUDES = frozenset(
    """code_interpreter_call.outputs computer_call_output.output.image_url
    file_search_call.results message.input_image.image_url message.output_text.logprobs
    reasoning.encrypted_content web_search_call.action.sources web_search_call.results""".split()
)

EFFORT_FALLBACKS = {"minimal": "low", "max": "xhigh"}
"""The specification's nearest value for an effort that only OpenAI has."""

OPENAI_ERROR_TYPES = {
    "invalid_request": "invalid_request_error",
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
    "model_error": "server_error",
    "permission_denied": "permission_error",
}
"""The specification's error types, and OpenAI's."""

# Only before a known name: a provider may be called `openai`, too, and begin its errors with it.
_OPENAI_TYPES = lenient.OPENAI_ITEMS | lenient.OPENAI_TOOLS | lenient.OPENAI_CONTENT | lenient.OPENAI_ANNOTATIONS
_NAMES = "|".join(sorted(_OPENAI_TYPES))
SLUG_PATTERN = re.compile(rf"\b{SLUG}(?=({_NAMES})\b)")

PLACEHOLDER = 2**60
"""Marks the variable places of a template; no sequence number is as high."""

EncodedEvent = tuple[str, bytes]
"""An event's type, and its JSON."""

R = TypeVar("R", bound=Request)


def decode_request(raw: object) -> Request:
    """Decode a request in either dialect; raises InvalidValueError or RequestError."""
    return _check_include(decode(Request, add_slugs(raw)))


def decode_create(raw: object) -> WebSocketCreate:
    """Decode the request in a WebSocket message; raises what `decode_request` raises."""
    return _check_include(decode(WebSocketCreate, add_slugs(raw)))


def decode_compact(raw: object) -> CompactRequest:
    """Decode a compaction request in either dialect; raises InvalidValueError."""
    return decode(CompactRequest, add_slugs(raw))


def _check_include(request: R) -> R:
    # The specification makes `include` an enum, so an unknown value is an error, not a warning.
    for index, name in enumerate(request.include):
        if name not in KNOWN_INCLUDES:
            known = ", ".join(f"'{value}'" for value in sorted(KNOWN_INCLUDES))
            message = f"Unknown value '{name}' in include. Use one of {known}."
            raise RequestError(message, param=f"include[{index}]", code="invalid_value")
    return request


class Dialect:
    """Encodes events, responses and errors as the specification says."""

    name = "specification"
    has_openai_errors: ClassVar[bool] = False
    """Whether error types have OpenAI's names, and messages no slugs."""

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._hides_encrypted_content = INCLUDE_ENCRYPTED_REASONING not in include

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        """Encode one event: usually one, and two where a stream fails."""
        write = self.ENCODERS.get(type(event))
        return write(self, event) if write else [(event.type, encode(event))]

    def encode_sse(self, event: Event) -> bytes:
        """Encode one event as Server-Sent Events; the hot path of every stream."""
        if type(event) in self.ENCODERS:
            return b"".join([sse.encode(name, data) for name, data in self.encode_event(event)])
        return b"%b%b\n\n" % (sse.event_prefix(event.type), encode(event))

    def text_fast_path(self, delta: Event) -> bytes | None:
        """Return a template for deltas like this one: `template % (sequence_number, text)`.

        It may be used for text without characters that JSON escapes. None if there is no template.
        """
        template = self.encode_sse(replace(delta, sequence_number=PLACEHOLDER, delta=str(PLACEHOLDER)))
        # Percent signs of the item id and other fixed parts must survive the formatting.
        template = template.replace(b"%", b"%%")
        return template.replace(b'"%d"' % PLACEHOLDER, b'"%b"').replace(b"%d" % PLACEHOLDER, b"%d")

    def encode_message(self, event: Event) -> bytes:
        """Encode one event as a WebSocket message."""
        # A turn on a WebSocket has exactly one terminal message, so no `error` before this one.
        is_failed = isinstance(event, events.ResponseFailed)
        ((_, data),) = self._encode_lifecycle(event) if is_failed else self.encode_event(event)
        return data

    def encode_websocket_error(self, error: events.WebSocketError) -> bytes:
        """Encode the answer to a WebSocket message that has failed."""
        return encode(replace(error, error=self._rename_error(error.error)))

    def encode_after(self, event: Event, after: int) -> bytes:
        """Encode the parts of an event with sequence numbers above `after`, as SSE."""
        encoded = enumerate(self.encode_event(event), event.sequence_number)
        return b"".join(sse.encode(*one) for number, one in encoded if number > after)

    def encode_response(self, response: Response) -> bytes:
        return self.encode(self.visible_response(response))

    def encode_compaction(self, resource: CompactResource) -> bytes:
        """Encode a compacted conversation."""
        return self.encode(resource)

    def encode_error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        """Encode the body of an HTTP error."""
        del detail
        return encode({"error": to_builtins(self._rename_error(payload))})

    def error_status(self, error: RequestError) -> int:
        """Return the HTTP status of a caller's error."""
        return error.status

    def param_name(self, name: str) -> str:
        """Return the client's name for one of our parameters."""
        return name

    def encode(self, value: ProtocolStruct) -> bytes:
        """Encode a value with the dialect's type names."""
        return encode(value)

    def visible_response(self, response: Response) -> Response:
        """Return a response as the client may see it."""
        response = self._adapt_echo(response)
        output = [self._visible_item(item) for item in response.output]
        return response if output == response.output else replace(response, output=output)

    def _visible_item(self, item: Item) -> Item:
        # Encrypted reasoning is sent only to clients that ask for it in `include`.
        is_encrypted = isinstance(item, Reasoning) and item.encrypted_content is not UNSET
        return replace(item, encrypted_content=UNSET) if is_encrypted and self._hides_encrypted_content else item

    def _rename_error(self, payload: ErrorPayload) -> ErrorPayload:
        if not self.has_openai_errors:
            return payload
        type = OPENAI_ERROR_TYPES.get(payload.type, payload.type)
        return replace(payload, type=type, message=SLUG_PATTERN.sub("", payload.message))

    def _adapt_echo(self, response: Response) -> Response:
        """Change the echoed request fields to the values that the dialect allows."""
        format, reasoning = response.text.format, response.reasoning
        # The specification's response schema requires `schema` to be null.
        if isinstance(format, JsonSchemaFormat) and format.schema is not None:
            text = replace(response.text, format=replace(format, schema=None))
            response = replace(response, text=text)
        if reasoning and reasoning.effort in EFFORT_FALLBACKS:
            effort = EFFORT_FALLBACKS[reasoning.effort]
            response = replace(response, reasoning=replace(reasoning, effort=effort))
        return response

    def _encode_failed(self, event: events.ResponseFailed) -> list[EncodedEvent]:
        # "Error while streaming: an error event … will be followed by a response.failed event."
        error = events.ErrorEvent(sequence_number=event.sequence_number, error=failure_payload(event.response))
        failed = replace(event, sequence_number=event.sequence_number + 1)
        return [(error.type, encode(error)), *self._encode_lifecycle(failed)]

    def _encode_lifecycle(self, event: LifecycleEvent) -> list[EncodedEvent]:
        visible = replace(event, response=self.visible_response(event.response))
        return [(event.type, self.encode(visible))]

    def _encode_item(self, event: events.OutputItemAdded | events.OutputItemDone) -> list[EncodedEvent]:
        item = self._visible_item(event.item)
        return [(event.type, self.encode(event if item is event.item else replace(event, item=item)))]

    ENCODERS: ClassVar[dict[type, Callable[..., list[EncodedEvent]]]] = {
        **dict.fromkeys(get_args(LifecycleEvent), _encode_lifecycle),
        events.ResponseFailed: _encode_failed,
        events.OutputItemAdded: _encode_item,
        events.OutputItemDone: _encode_item,
    }
    """Events that are not encoded as they are."""


class OpenAIDialect(Dialect):
    """Encodes events, responses and errors as OpenAI does."""

    name = "openai"
    has_openai_errors = True

    def encode_sse(self, event: Event) -> bytes:
        if isinstance(event, OutputTextDelta) and event.logprobs is UNSET:
            return sse.event_prefix(event.type) + encode(event)[:-1] + b',"logprobs":[]}\n\n'
        return super().encode_sse(event)

    def encode_compaction(self, resource: CompactResource) -> bytes:
        return self.encode(replace(resource, usage=_with_cache_write_tokens(resource.usage)))

    def encode_error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        # FastAPI clients, such as those of Xaibo's server, read `detail`.
        renamed = self._rename_error(payload)
        return encode({"error": to_builtins(renamed), "detail": detail or renamed.message})

    def error_status(self, error: RequestError) -> int:
        payload = error.payload
        is_unknown_model = payload.code == "model_not_found" and payload.param == "model"
        return 400 if is_unknown_model else error.status

    def encode(self, value: ProtocolStruct) -> bytes:
        # Nearly no value has such a type, and the search is much cheaper than a second encoding.
        data = encode(value)
        if b'"openai:' not in data:
            return data
        return encode(to_builtins(value, lambda name: name.removeprefix(SLUG)))

    def _adapt_echo(self, response: Response) -> Response:
        if response.user is UNSET:
            response = replace(response, user=None)
        if response.usage is None:
            return response
        return replace(response, usage=_with_cache_write_tokens(response.usage))

    def _encode_text(self, event: OutputTextDelta | events.OutputTextDone) -> list[EncodedEvent]:
        data = encode(event)
        return [(event.type, data[:-1] + b',"logprobs":[]}' if event.logprobs is UNSET else data)]

    def _encode_part(
        self, event: events.ContentPartAdded | events.ContentPartDone | events.OutputTextAnnotationAdded
    ) -> list[EncodedEvent]:
        return [(event.type, self.encode(event))]

    def _encode_reasoning(self, event: events.ReasoningDelta | events.ReasoningDone) -> list[EncodedEvent]:
        name = event.type.replace("reasoning", "reasoning_text")
        # The type comes first in the JSON, so a text that contains it is left alone.
        return [(name, encode(event).replace(event.type.encode(), name.encode(), 1))]

    ENCODERS: ClassVar[dict[type, Callable[..., list[EncodedEvent]]]] = Dialect.ENCODERS | {
        events.ResponseFailed: Dialect.ENCODERS[events.ResponseCompleted],
        events.ContentPartAdded: _encode_part,
        events.ContentPartDone: _encode_part,
        events.OutputTextAnnotationAdded: _encode_part,
        OutputTextDelta: _encode_text,
        events.OutputTextDone: _encode_text,
        events.ReasoningDelta: _encode_reasoning,
        events.ReasoningDone: _encode_reasoning,
    }


def failure_payload(response: Response) -> ErrorPayload:
    """Return the error of a failed response in the shape of HTTP errors."""
    error = response.error
    if error is None:
        return ErrorPayload(message="The response failed.", type="server_error", code="server_error")
    kind = "server_error" if error.type is UNSET else error.type
    return ErrorPayload(message=error.message, type=kind, code=error.code)


def _with_cache_write_tokens(usage: ResponseUsage) -> ResponseUsage:
    details = usage.input_tokens_details
    extra = {"cache_write_tokens": 0} | (details.extra or {})
    return replace(usage, input_tokens_details=replace(details, extra=extra))
