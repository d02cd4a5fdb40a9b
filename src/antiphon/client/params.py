"""The fields of a request, typed for the editor; and how they are written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict, cast
from urllib.parse import quote

from msgspec import Struct, field

from antiphon.protocol.errors import RequestError
from antiphon.protocol.foreign.openai_types import SLUG
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
"""A JSON object, as the protocol writes it."""

Input = str | Sequence[Item | JsonObject]
"""What a model reads: a text, or items; ours, or as JSON, also mixed."""


class ReasoningParams(TypedDict, total=False):
    """How hard to think, and how much of it to tell."""

    effort: ReasoningEffort | None
    summary: ReasoningSummary | None


class CommonParams(TypedDict, total=False):
    """What every request may say."""

    model: str
    input: Input
    previous_response_id: str | None
    instructions: str | None
    prompt_cache_key: str | None
    extra_body: JsonObject
    """Further fields of the request, which only this server knows."""
    extra_headers: Mapping[str, str]
    """Further HTTP headers, for this request alone."""


class CompactParams(CommonParams, total=False):
    """The fields of a request to make a conversation small."""


class ResponseParams(CommonParams, total=False):
    """The fields of a request for a response."""

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
    """Write the fields of a request as JSON; raises RequestError for a name that is none."""
    names = cast("dict[str, object]", known.__annotations__)
    for name in params:
        if name == "stream":
            message = "Whether it streams is said by the method: use stream() or create()."
            raise RequestError(message, param=name, code="unsupported_parameter")
        if name not in names:
            message = f"A request has no field '{name}'. Put what only this server knows into "
            raise RequestError(f"{message}extra_body.", param=name, code="unknown_parameter")
    body = {name: to_json_value(params[name]) for name in params if name not in EXTRA_PARAMS}
    return body | cast("dict[str, object]", to_json_value(params.get("extra_body") or {}))


def encode_body(body: object) -> bytes:
    """Write a body as bytes; raises RequestError for what is no JSON."""
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise RequestError(str(error), code="invalid_json") from None


def build_headers(params: Mapping[str, object]) -> dict[str, str]:
    """Return the headers that belong to one request."""
    given = cast("Mapping[str, str]", params.get("extra_headers") or {})
    return {name.lower(): value for name, value in given.items()}


def to_json_value(value: object) -> object:
    """Write a value as JSON; OpenAI's own types go without our slug, as every server knows them."""
    if isinstance(value, ProtocolStruct):
        return to_builtins(value, _remove_slug)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {name: to_json_value(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(entry) for entry in cast("Sequence[object]", value)]
    return value


def _remove_slug(type: str) -> str:
    return type.removeprefix(SLUG)


DOT_SEGMENTS = frozenset({".", ".."})
"""Steps of a path that lead elsewhere, also when they are quoted."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """One request, as it is meant: `path` is below the server's address."""

    path: str
    method: str = "POST"
    body: object = None
    query: Iterable[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def build_path(*segments: str) -> str:
    """Write a path; ids may hold anything, but lead nowhere else."""
    if not all(segments):
        raise RequestError("An id is empty. Give the id of what you mean.", param="id")
    if DOT_SEGMENTS & {*segments}:
        raise RequestError("'.' and '..' are no ids: they would name something else.", param="id")
    return "/".join(quote(step, safe="") for step in segments)
