"""The types of Converse's responses, as far as they are read, and the sealed thinking."""

from msgspec import Struct

from antiphon.adapters.base import JsonReader


class ToolUse(Struct, rename="camel", gc=False):
    """A tool call: its start in a stream, or all of it."""

    tool_use_id: str = ""
    name: str = ""
    input: object = None
    type: str | None = None


class ReasoningContent(Struct, rename="camel", gc=False):
    """Reasoning, or an increment of it. In a complete response its text and signature are in the last field."""

    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None
    reasoning_text: "ReasoningContent | None" = None


class Citation(Struct, rename="camel", gc=False):
    """A source of a block's text."""

    title: str | None = None
    source: str | None = None
    location: dict[str, object] | None = None


class MessageBody(Struct, gc=False):
    """The message of a complete response, or text with its citations."""

    content: list["ContentBlock"] | None = None
    citations: list[Citation] | None = None


class ContentBlock(Struct, rename="camel", gc=False):
    """A content block of any type, or an increment of one."""

    text: str | None = None
    tool_use: ToolUse | None = None
    reasoning_content: ReasoningContent | None = None
    citation: Citation | None = None
    citations_content: MessageBody | None = None
    image: object = None


class Usage(Struct, rename="camel", gc=False):
    """Token counts. `input_tokens` does not include what the cache read or wrote."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class ConverseOutput(Struct, gc=False):
    """The output of a complete response."""

    message: MessageBody | None = None


class ConverseEvent(Struct, rename="camel", gc=False):
    """A stream event of any type but `messageStart`, or a complete response, which has the output."""

    output: ConverseOutput | None = None
    content_block_index: int = 0
    start: ContentBlock | None = None
    delta: ContentBlock | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


read_event = JsonReader(ConverseEvent)


class SealedThinking(Struct, omit_defaults=True):
    """The `encrypted_content` of a reasoning item: text and signature, or redacted reasoning."""

    text: str = ""
    signature: str = ""
    redacted: str = ""
