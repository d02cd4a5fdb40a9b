"""What messages, reasoning and tool outputs are made of: the content parts.

The specification writes some parts differently as input and as output; one class serves both, and
what is optional in either is optional here.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from antiphon.core.value import Value

TEXT_LIMIT = 10_485_760
IMAGE_LIMIT = 20_971_520
FILE_LIMIT = 33_554_432

LongText = Annotated[str, Meta(max_length=TEXT_LIMIT)]


class InputText(Value):
    """Text given to the model."""

    type: Literal["input_text"] = "input_text"
    text: LongText


class InputImage(Value):
    """An image given to the model, by URL or as a data URL."""

    type: Literal["input_image"] = "input_image"
    image_url: Annotated[str, Meta(max_length=IMAGE_LIMIT)] | None = None
    detail: Literal["low", "high", "auto", "original"] = "auto"


class InputFile(Value):
    """A file given to the model, by URL or as data."""

    type: Literal["input_file"] = "input_file"
    filename: str | UnsetType = UNSET
    file_data: Annotated[str, Meta(max_length=FILE_LIMIT)] | UnsetType = UNSET
    file_url: str | UnsetType = UNSET


class InputVideo(Value):
    """A video given to the model."""

    type: Literal["input_video"] = "input_video"
    video_url: str


class UrlCitation(Value):
    """A span of the text, and the page it came from."""

    type: Literal["url_citation"] = "url_citation"
    url: str
    start_index: Annotated[int, Meta(ge=0)]
    end_index: Annotated[int, Meta(ge=0)]
    title: str


class ExtensionAnnotation(Value):
    """An annotation of a type that is not in the specification."""

    fallback: ClassVar[bool] = True
    type: str


Annotation = UrlCitation | ExtensionAnnotation


class TopLogProb(Value):
    """One of the tokens the model weighed."""

    token: str
    logprob: float
    bytes: list[int]


class LogProb(Value):
    """The token the model chose, its logarithmic probability, and what it weighed."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogProb]


class OutputText(Value):
    """Text the model wrote."""

    type: Literal["output_text"] = "output_text"
    text: LongText
    annotations: list[Annotation] = field(default_factory=list[Annotation])
    logprobs: list[LogProb] | UnsetType = UNSET


class Refusal(Value):
    """The model's words for why it will not answer."""

    type: Literal["refusal"] = "refusal"
    refusal: LongText


class TextContent(Value):
    """Text of neither direction."""

    type: Literal["text"] = "text"
    text: LongText


class SummaryText(Value):
    """A piece of a reasoning summary, safe to show."""

    type: Literal["summary_text"] = "summary_text"
    text: LongText


class ReasoningText(Value):
    """Raw reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: LongText


class ExtensionContent(Value):
    """A part of a type that is not in the specification, `slug:name`; `extra` holds its fields."""

    fallback: ClassVar[bool] = True
    type: str


Content = (
    InputText
    | InputImage
    | InputFile
    | InputVideo
    | OutputText
    | Refusal
    | TextContent
    | SummaryText
    | ReasoningText
    | ExtensionContent
)


def text_of(part: Content) -> str:
    """Return a part's words, or nothing for a part that has none."""
    match part:
        case Refusal():
            return part.refusal
        case InputText() | OutputText() | TextContent() | SummaryText() | ReasoningText():
            return part.text
        case _:
            return ""
