"""The content parts of messages, reasoning items and tool outputs.

The specification defines some parts differently as input and as output; one class serves both, and
a field that is optional in either is optional here.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from antiphon.protocol.struct import ProtocolStruct

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


class ExtensionAnnotation(ProtocolStruct):
    """An annotation of a type that is not in the specification."""

    accepts_unknown_types: ClassVar[bool] = True
    type: str


TextAnnotation = UrlCitation | ExtensionAnnotation


class TopLogProb(ProtocolStruct):
    """One of the most likely tokens."""

    token: str
    logprob: float
    bytes: list[int]


class LogProb(ProtocolStruct):
    """The token the model chose, its log probability, and the most likely ones."""

    token: str
    logprob: float
    bytes: list[int]
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
class ExtensionContent(ProtocolStruct):
    """A part of a type that is not in the specification, `slug:name`; `extra` holds its fields."""

    accepts_unknown_types: ClassVar[bool] = True
    type: str


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
    match part:
        case RefusalContent():
            return part.refusal
        case InputText() | OutputText() | TextContent() | SummaryText() | ReasoningText():
            return part.text
        case _:
            return ""
