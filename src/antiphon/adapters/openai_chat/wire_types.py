"""The shapes of a chat answer, as far as they matter to us.

Everything may be missing, and most of it null: servers differ. What is not named here is ignored.
"""

from msgspec import Struct

from antiphon.adapters.logprobs import TokenLogprob


class ContentPiece(Struct, gc=False):
    """A piece of content that is a list; Mistral's thinking holds pieces of its own."""

    type: str | None = None
    text: str | None = None
    thinking: "list[ContentPiece] | str | None" = None
    refusal: str | None = None


class UrlCitation(Struct, gc=False):
    """A span of the text, and the page it came from."""

    url: str = ""
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class AnnotationBody(Struct, gc=False):
    """An annotation."""

    type: str | None = None
    url_citation: UrlCitation | None = None


class Logprobs(Struct, gc=False):
    """The tokens of a delta or message."""

    content: list[TokenLogprob] | None = None


class Function(Struct, gc=False):
    """A function call, or a bit of one; some servers send arguments that are not a string."""

    name: str | None = None
    arguments: str | dict[str, object] | None = None


class Custom(Struct, gc=False):
    """A call of a custom tool, or a bit of one."""

    name: str | None = None
    input: str | None = None


class ToolCallFragment(Struct, gc=False):
    """A call, or a bit of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: object = None


class MessageDelta(Struct, gc=False):
    """A delta, or a whole message."""

    content: str | list[ContentPiece] | None = None
    reasoning_content: str | None = None
    reasoning: object = None
    reasoning_details: object = None
    refusal: str | None = None
    tool_calls: list[ToolCallFragment] | None = None
    function_call: Function | None = None
    annotations: list[AnnotationBody] | None = None
    images: object = None
    audio: object = None


class Choice(Struct, gc=False):
    """One of the answers; only the first is ours."""

    index: int | None = 0
    delta: MessageDelta | None = None
    message: MessageDelta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    error: object = None


class InputDetails(Struct, gc=False):
    """What the tokens read consist of."""

    cached_tokens: int | None = None


class OutputDetails(Struct, gc=False):
    """What the tokens written consist of."""

    reasoning_tokens: int | None = None


class Usage(Struct, gc=False):
    """Token counts; Writer spells the details of the prompt without an s."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    prompt_token_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class GroqExtras(Struct, gc=False):
    """What Groq says beside the dialect: that it broke, and in streams its counts."""

    error: object = None
    usage: Usage | None = None


class Chunk(Struct, gc=False):
    """A chunk of a stream, a whole answer, or an error in the place of either."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: object = None
    object: str | None = None
    x_groq: GroqExtras | None = None
