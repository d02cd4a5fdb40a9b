"""OpenAI's dialect, for clients built on its SDKs. It differs from the specification's:

- reasoning events are `response.reasoning_text.*` instead of `response.reasoning.*`;
- `text.format.schema` is echoed as it is, not as null;
- a failed stream ends with `response.failed` alone, without an `error` event before it;
- OpenAI's own tools, items, content and annotations have no slug;
- error types have other names; an unknown model is a 400, not a 404; errors have a `detail`;
- text events always have `logprobs`, responses a `user`, and usage `cache_write_tokens`.
"""

import re
from collections.abc import Callable
from typing import ClassVar

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    ResponseCompleted,
    ResponseFailed,
)
from antiphon.protocol.foreign.lenient import OPENAI_ANNOTATIONS, OPENAI_CONTENT, OPENAI_ITEMS, OPENAI_TOOLS, SLUG
from antiphon.protocol.response import CompactResource, Response, ResponseUsage
from antiphon.protocol.struct import ProtocolStruct, encode, to_builtins
from antiphon.wire import sse
from antiphon.wire.openresponses import Dialect, EncodedEvent

# Only before a known name: a provider may be called `openai`, too, and begin its errors with it.
_NAMES = "|".join(sorted(OPENAI_ITEMS | OPENAI_TOOLS | OPENAI_CONTENT | OPENAI_ANNOTATIONS))
SLUG_PATTERN = re.compile(rf"\b{SLUG}(?=({_NAMES})\b)")

ERROR_TYPES = {
    "invalid_request": "invalid_request_error",
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
    "model_error": "server_error",
    "permission_denied": "permission_error",
}
"""The specification's error types, and OpenAI's."""


class OpenAIDialect(Dialect):
    """Encodes events, responses and errors as OpenAI does."""

    name = "openai"

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
        return encode(to_builtins(value, _remove_slug)) if b'"openai:' in data else data

    def _rename_error(self, payload: ErrorPayload) -> ErrorPayload:
        type = ERROR_TYPES.get(payload.type, payload.type)
        return replace(payload, type=type, message=SLUG_PATTERN.sub("", payload.message))

    def _adapt_echo(self, response: Response) -> Response:
        if response.user is UNSET:
            response = replace(response, user=None)
        if response.usage is None:
            return response
        return replace(response, usage=_with_cache_write_tokens(response.usage))

    def _encode_text(self, event: OutputTextDelta | OutputTextDone) -> list[EncodedEvent]:
        data = encode(event)
        has_logprobs = event.logprobs is not UNSET
        return [(event.type, data if has_logprobs else data[:-1] + b',"logprobs":[]}')]

    def _encode_part(self, event: ContentPartAdded | ContentPartDone | OutputTextAnnotationAdded) -> list[EncodedEvent]:
        return [(event.type, self.encode(event))]

    def _encode_reasoning(self, event: ReasoningDelta | ReasoningDone) -> list[EncodedEvent]:
        name = event.type.replace("reasoning", "reasoning_text")
        # The type comes first in the JSON, so a text that contains it is left alone.
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


def _with_cache_write_tokens(usage: ResponseUsage) -> ResponseUsage:
    details = usage.input_tokens_details
    extra = {"cache_write_tokens": 0} | (details.extra or {})
    return replace(usage, input_tokens_details=replace(details, extra=extra))


def _remove_slug(type: str) -> str:
    return type.removeprefix(SLUG)
