"""The parameters of a request, typed for editors, and their encoding as body, headers and path."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict, cast
from urllib.parse import quote

from msgspec import Struct, field

from antiphon.protocol.errors import RequestError, suggest_closest
from antiphon.protocol.foreign.lenient import SLUG
from antiphon.protocol.items import Item
from antiphon.protocol.request import (
    ConversationParam,
    ReasoningConfig,
    ReasoningEffort,
    ReasoningSummary,
    ServiceTier,
    StreamOptions,
    TextConfig,
    Truncation,
)
from antiphon.protocol.struct import ProtocolStruct, to_builtins
from antiphon.protocol.tools import Tool, ToolChoice
from antiphon.wire import json

JsonObject = Mapping[str, object]
"""A JSON object in the protocol's spelling."""

Input = str | Sequence[Item | JsonObject]
"""Input of a model: a text, or a list of items, as structs or as JSON."""


# Parameters are TypedDicts and not keyword arguments with defaults: editors complete them, and a
# parameter that the caller leaves out is not sent at all.
class ReasoningParams(TypedDict, total=False):
    """Reasoning effort, and the level of detail of the summary."""

    effort: ReasoningEffort | None
    summary: ReasoningSummary | None


class CommonParams(TypedDict, total=False):
    """Parameters of every request."""

    model: str
    input: Input
    previous_response_id: str | None
    instructions: str | None
    prompt_cache_key: str | None
    extra_body: JsonObject
    """Further fields of the body, for parameters that only this server knows."""
    extra_headers: Mapping[str, str]
    """Further HTTP headers of this request."""


class CompactParams(CommonParams, total=False):
    """Parameters of a request to compact a conversation."""


class ResponseParams(CommonParams, total=False):
    """Parameters of a request for a response."""

    include: Sequence[str]
    tools: Sequence[Tool | JsonObject]
    tool_choice: ToolChoice | JsonObject
    metadata: Mapping[str, str]
    text: TextConfig | JsonObject
    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    parallel_tool_calls: bool
    stream_options: StreamOptions | JsonObject
    background: bool
    max_output_tokens: int | None
    max_tool_calls: int | None
    reasoning: ReasoningConfig | ReasoningParams | None
    safety_identifier: str | None
    truncation: Truncation
    store: bool
    service_tier: ServiceTier
    top_logprobs: int | None
    user: str | None
    conversation: str | ConversationParam | JsonObject | None
    stop: str | Sequence[str] | None
    seed: int | None


EXTRA_PARAMS = frozenset({"extra_body", "extra_headers"})
Order = Literal["asc", "desc"]


def build_body(params: Mapping[str, object], known: type = ResponseParams) -> dict[str, object]:
    """Build the body of a request; raises RequestError for an unknown parameter."""
    names = cast("dict[str, object]", known.__annotations__)
    # Servers ignore unknown fields, so a misspelt parameter has to be found here.
    for name in params:
        if name == "stream":
            message = "'stream' cannot be set: call stream() to stream, or create() not to."
            raise RequestError(message, param=name, code="unsupported_parameter")
        if name not in names:
            advice = "Pass fields that only this server has in extra_body."
            message = f"Unknown parameter '{name}'.{suggest_closest(name, names)} {advice}"
            raise RequestError(message, param=name, code="unknown_parameter")
    body = {name: to_json_value(params[name]) for name in params if name not in EXTRA_PARAMS}
    # Last, so that extra_body can override a parameter.
    return body | cast("dict[str, object]", to_json_value(params.get("extra_body") or {}))


def encode_body(body: object) -> bytes:
    """Encode a body as JSON; raises RequestError if it has values that JSON has not."""
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise RequestError(str(error), code="invalid_json") from None


def to_json_value(value: object) -> object:
    """Convert structs, at any depth, to JSON builtins."""
    if isinstance(value, ProtocolStruct):
        # Servers know OpenAI's own types by OpenAI's names, without the slug of the protocol.
        return to_builtins(value, lambda name: name.removeprefix(SLUG))
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {name: to_json_value(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(entry) for entry in cast("Sequence[object]", value)]
    return value


SSE_HEADERS = {"accept": "text/event-stream"}

DOT_SEGMENTS = frozenset({".", ".."})
"""Path segments that a server resolves to another path, also when percent-encoded (RFC 3986)."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """One request to the server; `path` is relative to its base URL."""

    path: str
    method: str = "POST"
    body: object = None
    query: Iterable[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def build_api_request(
    path: str, params: Mapping[str, object], known: type = ResponseParams, *, stream: bool = False
) -> ApiRequest:
    """Build a POST request from its parameters; raises RequestError for an unknown one."""
    body = build_body(params, known)
    given = cast("Mapping[str, str]", params.get("extra_headers") or {})
    headers = {name.lower(): value for name, value in given.items()}
    if stream:
        body, headers = body | {"stream": True}, SSE_HEADERS | headers
    return ApiRequest(path=path, body=body, headers=headers)


def build_path(*segments: str) -> str:
    """Join percent-encoded segments; raises RequestError if an id would lead to another path."""
    if not all(segments):
        raise RequestError("The id is empty.", param="id")
    if DOT_SEGMENTS & {*segments}:
        raise RequestError("'.' and '..' cannot be used as an id.", param="id")
    return "/".join(quote(segment, safe="") for segment in segments)
