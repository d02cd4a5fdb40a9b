"""The response resource, its usage, error and warnings."""

from operator import attrgetter
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field
from msgspec.structs import fields

from antiphon.protocol.items import Item, Message, OutputText
from antiphon.protocol.request import ConversationParam, Metadata, ReasoningConfig, Request, TextConfig, Truncation
from antiphon.protocol.struct import ProtocolStruct
from antiphon.protocol.tools import Tool, ToolChoice

ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]


class InputTokensDetails(ProtocolStruct):
    """How many of the input tokens came from the provider's cache."""

    cached_tokens: int = 0


class OutputTokensDetails(ProtocolStruct):
    """How many of the output tokens were reasoning."""

    reasoning_tokens: int = 0


class ResponseUsage(ProtocolStruct):
    """The tokens that a response used."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)

    @classmethod
    def of(cls, input: int, output: int, *, cached: int = 0, reasoning: int = 0) -> "ResponseUsage":
        """Return a usage whose total is the sum of input and output."""
        return cls(
            input_tokens=input,
            output_tokens=output,
            total_tokens=input + output,
            input_tokens_details=InputTokensDetails(cached_tokens=cached),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning),
        )


class IncompleteDetails(ProtocolStruct):
    """Why a response stopped early."""

    reason: str


class ResponseError(ProtocolStruct):
    """Why a response failed."""

    code: str
    message: str
    type: str | UnsetType = UNSET


class ResponseWarning(ProtocolStruct):
    """Something that the provider does not support, or that differs from what was requested."""

    code: str
    message: str
    param: str | UnsetType = UNSET


class Response(ProtocolStruct):
    """A response, in progress or ended. `antiphon:warnings` is our extension field."""

    id: str
    object: Literal["response"] = "response"
    # Unix time in seconds.
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus = "in_progress"
    incomplete_details: IncompleteDetails | None = None
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    output: list[Item] = field(default_factory=list[Item])
    error: ResponseError | None = None
    tools: list[Tool] = field(default_factory=list[Tool])
    tool_choice: ToolChoice = "auto"
    truncation: Truncation = "disabled"
    parallel_tool_calls: bool = True
    text: TextConfig = field(default_factory=TextConfig)
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: ReasoningConfig | None = None
    usage: ResponseUsage | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = True
    background: bool = False
    # Any string, as in the specification: it is the tier that was used, not the one requested.
    service_tier: str = "default"
    metadata: Metadata = field(default_factory=dict[str, str])
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Not in the specification: omitted unless the client used it.
    user: str | UnsetType | None = UNSET
    conversation: ConversationParam | UnsetType = UNSET
    warnings: list[ResponseWarning] | UnsetType = field(default=UNSET, name="antiphon:warnings")

    @classmethod
    def new(cls, request: Request, *, id: str, created_at: int) -> "Response":
        """Return the initial response of a request, with the request's fields echoed."""
        # Where the client set nothing, the response's own default applies: the specification requires
        # a number for `top_p` and its like.
        given: dict[str, Any] = dict(zip(ECHOED_FIELDS, get_echoed(request), strict=True))
        for name in DEFAULTED_FIELDS:
            if given[name] is None:
                del given[name]
        # A background response is announced as queued; the worker then marks it in progress.
        status = "queued" if request.background else "in_progress"
        given.setdefault("model", "")
        return cls(**given, id=id, created_at=created_at, status=status)

    @property
    def output_text(self) -> str:
        """The text of all messages, joined."""
        return "".join(
            part.text
            for item in self.output
            if isinstance(item, Message)
            for part in item.content
            if isinstance(part, OutputText)
        )


ECHOED_FIELDS = [name for name in Request.__struct_fields__ if name in Response.__struct_fields__ and name != "extra"]
"""The fields of a request that its response has too."""
get_echoed = attrgetter(*ECHOED_FIELDS)

NULLABLE_FIELDS = {info.name for info in fields(Request) if info.default is None}
DEFAULTED_FIELDS = NULLABLE_FIELDS & {info.name for info in fields(Response) if info.default is not None}
"""The fields that may be null in a request, but not in its response."""


class CompactResource(ProtocolStruct):
    """A compacted conversation."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    output: list[Item]
    created_at: int
    usage: ResponseUsage
    warnings: list[ResponseWarning] | UnsetType = field(default=UNSET, name="antiphon:warnings")


class InputTokens(ProtocolStruct):
    """The number of input tokens that a request would use."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
    warnings: list[ResponseWarning] | UnsetType = field(default=UNSET, name="antiphon:warnings")
