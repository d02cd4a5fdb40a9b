"""The fields of a request, typed for the editor; and how they are written."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, cast

from antiphon.core.errors import RequestError
from antiphon.core.items import Item
from antiphon.core.request import (
    ConversationParam,
    Effort,
    ReasoningConfig,
    ServiceTier,
    StreamOptions,
    Summary,
    TextConfig,
    Truncation,
)
from antiphon.core.tools import Tool, ToolChoice
from antiphon.core.value import Value, plain
from antiphon.wire import json
from antiphon.wire.dialects import SLUG

Json = Mapping[str, object]
"""A JSON object, as the protocol writes it."""

Input = str | Sequence[Item | Json]
"""What a model reads: a text, or items; ours, or as JSON, also mixed."""


class ReasoningFields(TypedDict, total=False):
    """How hard to think, and how much of it to tell."""

    effort: Effort | None
    summary: Summary | None


class Shared(TypedDict, total=False):
    """What every request may say."""

    model: str
    input: Input
    previous_response_id: str | None
    instructions: str | None
    prompt_cache_key: str | None
    extra_body: Json
    """Further fields of the request, which only this server knows."""
    extra_headers: Mapping[str, str]
    """Further HTTP headers, for this request alone."""


class CompactFields(Shared, total=False):
    """The fields of a request to make a conversation small."""


class Fields(Shared, total=False):
    """The fields of a request for a response."""

    include: Sequence[str]
    tools: Sequence[Tool | Json]
    tool_choice: ToolChoice | Json
    metadata: Mapping[str, str]
    text: TextConfig | Json
    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    parallel_tool_calls: bool
    stream_options: StreamOptions | Json
    background: bool
    max_output_tokens: int | None
    max_tool_calls: int | None
    reasoning: ReasoningConfig | ReasoningFields | None
    safety_identifier: str | None
    truncation: Truncation
    store: bool
    service_tier: ServiceTier
    top_logprobs: int | None
    user: str | None
    conversation: str | ConversationParam | Json | None
    stop: str | Sequence[str] | None
    seed: int | None


ASIDE = frozenset({"extra_body", "extra_headers"})
Order = Literal["asc", "desc"]


def body_of(fields: Mapping[str, object], known: type = Fields) -> dict[str, object]:
    """Write the fields of a request as JSON; raises RequestError for a name that is none."""
    names = cast("dict[str, object]", known.__annotations__)
    for name in fields:
        if name == "stream":
            message = "Whether it streams is said by the method: use stream() or create()."
            raise RequestError(message, param=name, code="unsupported_parameter")
        if name not in names:
            message = f"A request has no field '{name}'. Put what only this server knows into "
            raise RequestError(f"{message}extra_body.", param=name, code="unknown_parameter")
    body = {name: written(fields[name]) for name in fields if name not in ASIDE}
    return body | cast("dict[str, object]", written(fields.get("extra_body") or {}))


def encoded(body: object) -> bytes:
    """Write a body as bytes; raises RequestError for what is no JSON."""
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise RequestError(str(error), code="invalid_json") from None


def headers_of(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the headers that belong to one request."""
    given = cast("Mapping[str, str]", fields.get("extra_headers") or {})
    return {name.lower(): value for name, value in given.items()}


def written(value: object) -> object:
    """Write a value as JSON; OpenAI's own types go without our slug, as every server knows them."""
    if isinstance(value, Value):
        return plain(value, _unslugged)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {name: written(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [written(entry) for entry in cast("Sequence[object]", value)]
    return value


def _unslugged(type: str) -> str:
    return type.removeprefix(SLUG)
