"""The body of a chat request, as OpenAI documents it and as clients send it.

These types check shapes only; `request.py` gives them a meaning. Other fields go to `extra`.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from antiphon.protocol.items import MAX_IMAGE_LENGTH, CallId, FunctionName, LongText, RefusalContent, TextContent
from antiphon.protocol.request import (
    Identifier,
    JsonObjectFormat,
    Metadata,
    ReasoningEffort,
    ServiceTier,
    StopSequences,
    TextFormat,
    Verbosity,
)
from antiphon.protocol.struct import ExtensionStruct, ProtocolStruct, as_array, as_object
from antiphon.protocol.tools import ToolChoiceMode

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
MAX_MESSAGES = 5000
"""The most messages that can be decoded without delaying other requests."""


class ImageUrl(ProtocolStruct):
    """The URL of an image, or the image as a data URL."""

    url: Annotated[str, Meta(max_length=MAX_IMAGE_LENGTH)]
    detail: Literal["auto", "low", "high", "original"] = "auto"


class ImagePart(ProtocolStruct):
    """An image."""

    type: Literal["image_url"] = "image_url"
    image_url: ImageUrl

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept a plain URL, as some clients send it."""
        url = raw.get("image_url")
        return raw | {"image_url": {"url": url}} if isinstance(url, str) else raw


class AudioPart(ProtocolStruct):
    """Audio: data and format."""

    type: Literal["input_audio"] = "input_audio"
    input_audio: dict[str, str]


class FilePart(ProtocolStruct):
    """A file: `file_data` with a `filename`, or a `file_id`."""

    type: Literal["file"] = "file"
    file: dict[str, str | None]


class VideoUrl(ProtocolStruct):
    """The URL of a video."""

    url: str


class VideoPart(ProtocolStruct):
    """A video; not in OpenAI's API, but supported by many servers."""

    type: Literal["video_url"] = "video_url"
    video_url: VideoUrl


Part = TextContent | RefusalContent | ImagePart | AudioPart | FilePart | VideoPart


class CalledFunction(ProtocolStruct):
    """A function's name and arguments."""

    name: Annotated[str, Meta(min_length=1)]
    arguments: str = ""


class FunctionCall(ProtocolStruct):
    """A function call."""

    type: Literal["function"] = "function"
    id: CallId
    function: CalledFunction


class CalledTool(ProtocolStruct):
    """A custom tool's name and input."""

    name: str
    input: str


class CustomCall(ProtocolStruct):
    """A call of a custom tool."""

    type: Literal["custom"] = "custom"
    id: CallId
    custom: CalledTool


class Message(ProtocolStruct):
    """A message of any role; `ChatTranscript` checks what the role requires."""

    role: Role
    content: LongText | list[Part] | None = None
    name: str | None = None
    refusal: LongText | None = None
    reasoning_content: LongText | None = None
    tool_calls: list[FunctionCall | CustomCall] = field(default_factory=list[FunctionCall | CustomCall])
    tool_call_id: CallId | None = None
    function_call: CalledFunction | None = None
    audio: dict[str, object] | None = None

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept calls without a type, which many servers send."""
        calls = [_add_call_type(call) for call in as_array(raw.get("tool_calls"))]
        return raw | {"tool_calls": calls} if calls else raw


def _add_call_type(call: object) -> object:
    fields = as_object(call)
    return fields | {"type": fields.get("type") or "function"} if "function" in fields else call


class Function(ProtocolStruct):
    """A function that the client runs."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class FunctionTool(ProtocolStruct):
    """A function tool."""

    type: Literal["function"] = "function"
    function: Function


class Grammar(ProtocolStruct):
    """The grammar of a custom tool's input."""

    definition: str
    syntax: str


class CustomFormat(ProtocolStruct):
    """The input format of a custom tool."""

    type: Literal["text", "grammar"] = "text"
    grammar: Grammar | None = None


class Custom(ProtocolStruct):
    """A tool with free text as input."""

    name: str
    description: str | None = None
    format: CustomFormat | None = None


class CustomTool(ProtocolStruct):
    """A custom tool."""

    type: Literal["custom"] = "custom"
    custom: Custom


class OtherTool(ExtensionStruct):
    """A tool of another type, `slug:name`."""


class ToolName(ProtocolStruct):
    """The name of a tool."""

    name: str


class FunctionChoice(ProtocolStruct):
    """The choice of one function."""

    type: Literal["function"] = "function"
    function: ToolName


class CustomChoice(ProtocolStruct):
    """The choice of one custom tool."""

    type: Literal["custom"] = "custom"
    custom: ToolName


Choice = FunctionChoice | CustomChoice


class Allowed(ProtocolStruct):
    """A subset of the tools, and whether one must be called."""

    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[Choice], Meta(min_length=1, max_length=128)]


class AllowedChoice(ProtocolStruct):
    """The choice of a subset of the tools."""

    type: Literal["allowed_tools"] = "allowed_tools"
    allowed_tools: Allowed


class Schema(ProtocolStruct):
    """A JSON Schema for the output."""

    name: str = "response"
    description: str | None = None
    schema: dict[str, object] | None = None
    strict: bool = False


class SchemaFormat(ProtocolStruct):
    """Output that matches a JSON Schema."""

    type: Literal["json_schema"] = "json_schema"
    json_schema: Schema


class StreamOptions(ProtocolStruct):
    """Options for streaming."""

    include_usage: bool = False
    include_obfuscation: bool = False


class Body(ProtocolStruct):
    """A chat request."""

    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[FunctionTool | CustomTool | OtherTool], Meta(max_length=512)] = field(
        default_factory=list[FunctionTool | CustomTool | OtherTool]
    )
    tool_choice: ToolChoiceMode | FunctionChoice | CustomChoice | AllowedChoice = "auto"
    parallel_tool_calls: bool = True
    response_format: TextFormat | JsonObjectFormat | SchemaFormat | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    stop: StopSequences | None = None
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    reasoning_effort: ReasoningEffort | None = None
    verbosity: Verbosity | None = None
    service_tier: ServiceTier = "default"
    prompt_cache_key: Identifier | None = None
    safety_identifier: Identifier | None = None
    user: str | None = None
    metadata: Metadata = field(default_factory=dict[str, str])
    # False by default, unlike in the Responses API: chat clients do not expect storage.
    store: bool = False
    stream: bool = False
    stream_options: StreamOptions = field(default_factory=StreamOptions)
    n: int = 1
    modalities: list[str] = field(default_factory=list[str])
    # Replaced in 2023; accepted here so that the error can name the replacement.
    functions: object = None
    function_call: object = None

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept a single stop sequence as a string."""
        return raw | {"stop": [raw["stop"]]} if isinstance(raw.get("stop"), str) else raw
