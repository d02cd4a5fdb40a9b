"""The shapes of what Bedrock answers, as far as we read them; what else there is, is ignored."""

from msgspec import Struct

from antiphon.adapters.base import JsonReader


class ToolUse(Struct, rename="camel", gc=False):
    """A call: its head in a stream, all of it in a whole answer."""

    tool_use_id: str = ""
    name: str = ""
    input: object = None
    type: str | None = None


class ReasoningText(Struct, gc=False):
    """A thought, and what proves it."""

    text: str | None = None
    signature: str | None = None


class ReasoningContent(Struct, rename="camel", gc=False):
    """Thinking: more of it in a stream, a whole thought otherwise."""

    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None
    reasoning_text: ReasoningText | None = None


class Citation(Struct, rename="camel", gc=False):
    """Where the words of a block come from."""

    title: str | None = None
    source: str | None = None
    source_content: object = None
    location: dict[str, object] | None = None


class CitationsContent(Struct, gc=False):
    """Words with their citations."""

    content: list["ContentBlock"] | None = None
    citations: list[Citation] | None = None


class ContentBlock(Struct, rename="camel", gc=False):
    """A piece of the answer, or more of one. What we do not know is not here."""

    text: str | None = None
    tool_use: ToolUse | None = None
    reasoning_content: ReasoningContent | None = None
    citation: Citation | None = None
    citations_content: CitationsContent | None = None
    image: object = None


class Usage(Struct, rename="camel", gc=False):
    """What was read and written. `input_tokens` is without what the cache read or wrote."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class StreamEvent(Struct, rename="camel", gc=False):
    """Any event but `messageStart`."""

    content_block_index: int = 0
    start: ContentBlock | None = None
    delta: ContentBlock | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


class MessageBody(Struct, gc=False):
    """The message of a whole answer."""

    content: list[ContentBlock] | None = None


class ConverseOutput(Struct, gc=False):
    """What holds that message."""

    message: MessageBody | None = None


class ConverseResponse(Struct, rename="camel", gc=False):
    """A whole answer."""

    output: ConverseOutput
    stop_reason: str | None = None
    usage: Usage | None = None


read_event = JsonReader(StreamEvent)
read_response = JsonReader(ConverseResponse)


class SealedThinking(Struct, omit_defaults=True):
    """A thought as it must go back."""

    text: str = ""
    signature: str = ""
    redacted: str = ""
