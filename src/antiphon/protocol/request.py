"""The body of `POST /responses`, of `POST /responses/compact`, and of a WebSocket message.

`None` means that the client did not set the field; the value that then applies is set in
`response`, where the request is echoed.
"""

from typing import Annotated, Literal, cast

from msgspec import UNSET, Meta, UnsetType, field

from antiphon.protocol.items import MAX_TEXT_LENGTH, Item, LongText, user_message
from antiphon.protocol.struct import InvalidValueError, ProtocolStruct, as_array, join_path
from antiphon.protocol.tools import Tool, ToolChoice, check_custom_item

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ReasoningSummary = Literal["concise", "detailed", "auto"]
Verbosity = Literal["low", "medium", "high"]
Truncation = Literal["auto", "disabled"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
Identifier = Annotated[str, Meta(max_length=64)]
MAX_ITEMS_PER_REQUEST = 20
"""The most items in one request to a conversation; the limit of OpenAI's API."""

Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]

# Decoding is synchronous, so a longer list would block other requests. Longer conversations
# continue with `previous_response_id`.
InputItems = Annotated[list[Item], Meta(max_length=5000)]

# The values of `include` that decide what a provider is asked for.
INCLUDE_ENCRYPTED_REASONING = "reasoning.encrypted_content"
INCLUDE_LOGPROBS = "message.output_text.logprobs"


class TextFormat(ProtocolStruct):
    """Free text."""

    type: Literal["text"] = "text"


class JsonObjectFormat(ProtocolStruct):
    """Any JSON object."""

    type: Literal["json_object"] = "json_object"


class JsonSchemaFormat(ProtocolStruct):
    """JSON that satisfies a schema."""

    type: Literal["json_schema"] = "json_schema"
    name: str = "response"
    description: str | None = None
    schema: dict[str, object] | None = None
    strict: bool = False


OutputFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class TextConfig(ProtocolStruct):
    """The format and verbosity of the text."""

    format: OutputFormat = field(default_factory=TextFormat)
    verbosity: Verbosity | UnsetType = UNSET

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept a format without a type, which the OpenAPI schema allows."""
        format = raw.get("format")
        if isinstance(format, dict) and "type" not in format:
            kind = "json_schema" if "schema" in format else "text"
            return raw | {"format": cast("dict[str, object]", format) | {"type": kind}}
        return raw


class ReasoningConfig(ProtocolStruct):
    """The reasoning effort, and whether to summarise the reasoning."""

    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None


class StreamOptions(ProtocolStruct):
    """Options of a streamed response."""

    include_obfuscation: bool = False


class ConversationParam(ProtocolStruct):
    """The conversation that a response belongs to."""

    id: str


StopSequences = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)]


class Request(ProtocolStruct):
    """A request for one response. `stop` and `seed` come from chat, not the specification."""

    model: str | None = None
    input: InputItems = field(default_factory=list[Item])
    previous_response_id: Annotated[str, Meta(min_length=1)] | None = None
    include: list[str] = field(default_factory=list[str])
    tools: Annotated[list[Tool], Meta(max_length=512)] = field(default_factory=list[Tool])
    tool_choice: ToolChoice = "auto"
    metadata: Metadata = field(default_factory=dict[str, str])
    text: TextConfig = field(default_factory=TextConfig)
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool = True
    stream: bool = False
    stream_options: StreamOptions = field(default_factory=StreamOptions)
    background: bool = False
    # 2**53: larger integers are not exact in the JSON of JavaScript clients.
    max_output_tokens: Annotated[int, Meta(ge=16, le=2**53)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    reasoning: ReasoningConfig | None = None
    safety_identifier: Identifier | None = None
    prompt_cache_key: Identifier | None = None
    truncation: Truncation = "disabled"
    instructions: LongText | None = None
    store: bool = True
    service_tier: ServiceTier = "default"
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    user: str | None = None
    conversation: ConversationParam | None = None
    stop: StopSequences | None = None
    seed: int | None = None

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Turn string input into items, and add the type of items that omit it."""
        # OpenAI accepts the id alone.
        if isinstance(raw.get("conversation"), str):
            raw = raw | {"conversation": {"id": raw["conversation"]}}
        # Chat clients send one stop sequence as a string.
        if isinstance(raw.get("stop"), str):
            raw = raw | {"stop": [raw["stop"]]}
        raw = raw | {"input": normalize_input(raw.get("input"), join_path(path, "input"))}
        if isinstance(raw.get("include"), list):
            trimmed = [entry.strip() if isinstance(entry, str) else entry for entry in as_array(raw["include"])]
            raw["include"] = [entry for entry in trimmed if entry != ""]
        return raw

    @classmethod
    def from_message(cls, model: str, text: str, **options: object) -> "Request":
        """Return a request with one user message."""
        return cls(model=model, input=[user_message(text)], **options)  # pyright: ignore[reportArgumentType]


class CompactRequest(ProtocolStruct):
    """A request to compact a conversation."""

    model: str | None = None
    input: InputItems = field(default_factory=list[Item])
    previous_response_id: Annotated[str, Meta(min_length=1)] | None = None
    instructions: LongText | None = None
    prompt_cache_key: Identifier | None = None

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Turn string input into items."""
        return raw | {"input": normalize_input(raw.get("input"), join_path(path, "input"))}


class WebSocketCreate(Request):
    """The WebSocket message that creates a response."""

    type: Literal["response.create"] = "response.create"
    generate: bool = True
    stream_id: str | UnsetType = UNSET


def normalize_input(raw: object, path: str) -> object:
    """Convert the spellings that clients use for `input` to a list of typed items.

    Custom tool items are checked here because their extension type has no fields of its own.
    """
    if isinstance(raw, str):
        if len(raw) > MAX_TEXT_LENGTH:
            raise InvalidValueError(path, f"expected at most {MAX_TEXT_LENGTH} characters")
        return [user_message(raw)]
    if isinstance(raw, list):
        items = enumerate(cast("list[object]", raw))
        return [_normalize_item(item, f"{path}[{index}]") for index, item in items]
    return raw


def _normalize_item(item: object, path: str) -> object:
    if not isinstance(item, dict):
        return item
    fields = cast("dict[str, object]", item)
    if fields.get("type") is not None:
        check_custom_item(fields, path)
        return fields
    if "role" in fields:
        return fields | {"type": "message"}
    return fields | {"type": "item_reference"} if fields.keys() <= {"id", "type"} else fields
