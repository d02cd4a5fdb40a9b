"""The items of a conversation and their content parts: messages, calls, outputs, reasoning, extensions.

One class per type serves as input and as output. An output item always has an `id`; a message or
call always has a `status`. As input both may be missing.
"""

from typing import Annotated, Literal, cast

from msgspec import UNSET, Meta, UnsetType, field

from antiphon.protocol.struct import (
    ExtensionStruct,
    InvalidValueError,
    ProtocolStruct,
    as_object,
    as_string,
    encode,
    is_extension_type,
    join_path,
)

# The limits of the OpenAPI file, in characters.
# The file limits input only; they apply to output here too, because clients send it back.
MAX_TEXT_LENGTH = 10_485_760
MAX_IMAGE_LENGTH = 20_971_520
MAX_FILE_LENGTH = 33_554_432

LongText = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]


class InputText(ProtocolStruct):
    """Text given to the model."""

    type: Literal["input_text"] = "input_text"
    text: LongText


class InputImage(ProtocolStruct):
    """An image given to the model, by URL or as a data URL."""

    type: Literal["input_image"] = "input_image"
    image_url: Annotated[str, Meta(max_length=MAX_IMAGE_LENGTH)] | None = None
    # The specification has the first three; `original` is OpenAI's.
    detail: Literal["low", "high", "auto", "original"] = "auto"


class InputFile(ProtocolStruct):
    """A file given to the model, by URL or as data."""

    type: Literal["input_file"] = "input_file"
    filename: str | UnsetType = UNSET
    file_data: Annotated[str, Meta(max_length=MAX_FILE_LENGTH)] | UnsetType = UNSET
    file_url: str | UnsetType = UNSET


class InputVideo(ProtocolStruct):
    """A video given to the model."""

    type: Literal["input_video"] = "input_video"
    video_url: str


class UrlCitation(ProtocolStruct):
    """A span of the text and the web page it cites."""

    type: Literal["url_citation"] = "url_citation"
    url: str
    # Not negative: Python would count such an index from the end of the text.
    start_index: Annotated[int, Meta(ge=0)]
    end_index: Annotated[int, Meta(ge=0)]
    title: str


class ExtensionAnnotation(ExtensionStruct):
    """An annotation of a type that is not in the specification."""


TextAnnotation = UrlCitation | ExtensionAnnotation


class TopLogProb(ProtocolStruct):
    """One of the most likely tokens."""

    token: str
    logprob: float
    bytes: list[int]


class LogProb(TopLogProb):
    """The token the model chose, its log probability, and the most likely ones."""

    top_logprobs: list[TopLogProb]


class OutputText(ProtocolStruct):
    """Text the model wrote."""

    type: Literal["output_text"] = "output_text"
    text: LongText
    annotations: list[TextAnnotation] = field(default_factory=list[TextAnnotation])
    logprobs: list[LogProb] | UnsetType = UNSET


class RefusalContent(ProtocolStruct):
    """The text of a refusal."""

    type: Literal["refusal"] = "refusal"
    refusal: LongText


class TextContent(ProtocolStruct):
    """Text that is neither input nor output."""

    type: Literal["text"] = "text"
    text: LongText


class SummaryText(ProtocolStruct):
    """A part of a reasoning summary, which is safe to show."""

    type: Literal["summary_text"] = "summary_text"
    text: LongText


class ReasoningText(ProtocolStruct):
    """Raw reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: LongText


# Any union of parts accepts these, so a part that only one provider knows survives a round trip.
class ExtensionContent(ExtensionStruct):
    """A part of a type that is not in the specification, `slug:name`; `extra` holds its fields."""


Content = (
    InputText
    | InputImage
    | InputFile
    | InputVideo
    | OutputText
    | RefusalContent
    | TextContent
    | SummaryText
    | ReasoningText
    | ExtensionContent
)


def content_text(part: Content) -> str:
    """Return the text of a part, or the empty string if it has none."""
    return part.refusal if isinstance(part, RefusalContent) else getattr(part, "text", "")


Role = Literal["user", "assistant", "system", "developer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]

MAX_CALL_ID_LENGTH = 64
CallId = Annotated[str, Meta(min_length=1, max_length=MAX_CALL_ID_LENGTH)]
FunctionName = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]

# The specification allows `output_text` and `refusal` for an assistant; the other two are accepted
# because they can only mean text.
_ASSISTANT_CONTENT_TYPES = frozenset({"output_text", "refusal", "text", "input_text"})
_PROMPT_CONTENT_TYPES = frozenset({"input_text", "input_image", "input_file", "input_video", "text"})


class Message(ProtocolStruct):
    """A message of any role."""

    type: Literal["message"] = "message"
    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    role: Role
    content: list[Content]
    phase: Phase | UnsetType = UNSET

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Turn string content into one part, and reject parts that the role cannot have."""
        assistant = raw.get("role") == "assistant"
        content = raw.get("content")
        if isinstance(content, str):
            part = {"type": "output_text" if assistant else "input_text", "text": content}
            return raw | {"content": [part]}
        if isinstance(content, list):
            allowed = _ASSISTANT_CONTENT_TYPES if assistant else _PROMPT_CONTENT_TYPES
            for index, part in enumerate(cast("list[object]", content)):
                name = as_string(as_object(part).get("type"))
                if name and name not in allowed and not is_extension_type(name):
                    known = ", ".join(f"'{value}'" for value in sorted(allowed))
                    raise InvalidValueError(
                        join_path(path, f"content[{index}].type"),
                        f"a message of role '{raw.get('role')}' cannot hold '{name[:80]}'; use {known}",
                    )
        return raw

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return "".join(map(content_text, self.content))


class FunctionCall(ProtocolStruct):
    """A request of the model to call a function; `arguments` is JSON in a string."""

    type: Literal["function_call"] = "function_call"
    id: str | UnsetType = UNSET
    call_id: CallId
    name: Annotated[str, Meta(min_length=1)]  # not FunctionName: a model may invent a name
    arguments: str
    status: ItemStatus | UnsetType = UNSET

    @classmethod
    def of(cls, name: str, arguments: object, *, call_id: str, id: str | UnsetType = UNSET) -> "FunctionCall":
        """Return a call in progress; arguments may be any JSON value."""
        text = arguments if isinstance(arguments, str) else encode(arguments).decode()
        return cls(id=id, call_id=call_id, name=name, arguments=text, status="in_progress")


class FunctionCallOutput(ProtocolStruct):
    """The output of a called function."""

    type: Literal["function_call_output"] = "function_call_output"
    id: str | UnsetType = UNSET
    call_id: CallId
    output: LongText | list[Content]
    status: ItemStatus | UnsetType = UNSET

    @property
    def text(self) -> str:
        """The text of the output, joined."""
        return self.output if isinstance(self.output, str) else "".join(map(content_text, self.output))


class Reasoning(ProtocolStruct):
    """The model's reasoning: raw, summarised, encrypted, or any mixture."""

    type: Literal["reasoning"] = "reasoning"
    id: str | UnsetType = UNSET
    summary: list[Content] = field(default_factory=list[Content])
    content: list[Content] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    status: ItemStatus | UnsetType = UNSET


class Compaction(ProtocolStruct):
    """A compacted conversation, which only the server that sealed it can read."""

    type: Literal["compaction"] = "compaction"
    id: str | UnsetType = UNSET
    encrypted_content: LongText
    created_by: str | UnsetType = UNSET


class ItemReference(ProtocolStruct):
    """A reference to an item that the server has stored."""

    type: Literal["item_reference"] = "item_reference"
    id: str


class ExtensionItem(ExtensionStruct):
    """An item of a type that is not in the specification, `slug:name`; `extra` holds its fields."""

    id: str | UnsetType = UNSET
    # Any string, because a hosted tool has its own statuses, such as `searching`.
    status: str | UnsetType = UNSET

    @classmethod
    def of(cls, slug: str, name: str, *, id: str, **data: object) -> "ExtensionItem":
        """Return an extension item in progress, of the type `slug:name`."""
        type = f"{slug}:{name}"
        if not is_extension_type(type):
            raise InvalidValueError("type", f"'{type}' is not of the form slug:name")
        return cls(type=type, id=id, status="in_progress", extra=data or UNSET)


CUSTOM_TOOL_CALL = "openai:custom_tool_call"
CUSTOM_TOOL_CALL_OUTPUT = "openai:custom_tool_call_output"
"""A call of a tool whose input is plain text, and its output; matched by call_id as functions'."""

Item = Message | FunctionCall | FunctionCallOutput | Reasoning | Compaction | ItemReference | ExtensionItem


def user_message(text: str) -> Message:
    """Return the message that a plain string of input means."""
    return Message(role="user", content=[InputText(text=text)])


# Functions and custom tools may use the same call_id in one conversation, hence the type.
CallKey = tuple[str, str]
"""What a call and its output share: the type of the call, and the call_id."""


def call_key(item: Item) -> CallKey | None:
    """Return the key of a call; None if the item is no call."""
    return _call_key(item, FunctionCall, CUSTOM_TOOL_CALL)


def output_key(item: Item) -> CallKey | None:
    """Return the key of the call that an output answers; None if the item is no output."""
    return _call_key(item, FunctionCallOutput, CUSTOM_TOOL_CALL_OUTPUT)


def _call_key(item: Item, function: type[FunctionCall | FunctionCallOutput], custom_type: str) -> CallKey | None:
    if isinstance(item, function):
        return ("function_call", item.call_id)
    if isinstance(item, ExtensionItem) and item.type == custom_type:
        return ("custom_tool_call", str(item.get("call_id", "")))
    return None
