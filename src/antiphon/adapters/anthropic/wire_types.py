"""What Claude's answers look like: events, blocks and counts, as far as we read them.

Dialect notes: more types of events, blocks and deltas may come at any time, so one struct stands
for all of a kind, and what does not fit it is only wrong if its type is one that we know.
"""

from typing import Any

from msgspec import Struct

from antiphon.adapters.base import JsonReader
from antiphon.protocol.content import ExtensionAnnotation, TextAnnotation, UrlCitation
from antiphon.protocol.json_schema import is_object
from antiphon.protocol.struct import is_extension_type
from antiphon.wire import json

SLUG = "anthropic:"
RawBlock = dict[str, Any]


class SealedThinking(Struct, omit_defaults=True):
    """What has to come back with a thought: its signature and words, or all of it unreadable."""

    signature: str = ""
    thinking: str = ""
    redacted: str = ""


class OutputTokensDetails(Struct, gc=False):
    """What the output was spent on."""

    thinking_tokens: int | None = None


class Usage(Struct, gc=False):
    """Tokens, as far as they are known."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputTokensDetails | None = None


class ContentBlock(Struct, gc=False):
    """A block, of any type that we read."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: object = None
    content: object = None
    citations: object = None
    tool_use_id: str | None = None


class OpenBlock:
    """A block while it grows."""

    __slots__ = ("block", "key", "notes", "part", "pieces", "raw", "size")

    def __init__(self, block: ContentBlock, key: int) -> None:
        self.block = block
        self.key = key
        self.part = 0
        self.pieces: list[str] = []
        self.size = 0
        self.notes: list[object] = []
        self.raw: RawBlock = {}


class StopDetails(Struct, gc=False):
    """Why the model would not go on."""

    explanation: str | None = None


class Delta(Struct, gc=False):
    """More of a block, or of the message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: object = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class ErrorBody(Struct, gc=False):
    """An error."""

    type: str | None = None
    message: str | None = None


class MessageBody(Struct, gc=False):
    """A whole message, or the beginning of one."""

    type: str | None = None
    content: list[ContentBlock] | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: Usage | None = None
    error: ErrorBody | None = None


class StreamEvent(Struct, gc=False):
    """One event of a stream, of any type that we read."""

    type: str = ""
    index: int = 0
    delta: Delta | None = None
    content_block: ContentBlock | None = None
    message: MessageBody | None = None
    usage: Usage | None = None
    error: ErrorBody | None = None


KNOWN_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"})
KNOWN_DELTAS = frozenset(
    {"text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"}
)
KNOWN_EVENTS = frozenset(
    """message_start content_block_start content_block_delta content_block_stop message_delta
    message_stop error""".split()
)
IGNORED_EVENT = StreamEvent()

_decode_event = JsonReader(StreamEvent)
read_message = JsonReader(MessageBody)


def read_event(data: bytes) -> StreamEvent:
    """Read an event; one of a type that we do not know may have any shape."""
    try:
        return _decode_event(data)
    except ValueError:
        if _has_unknown_type(json.decode_lenient(data)):
            return IGNORED_EVENT
        raise


def _has_unknown_type(event: object) -> bool:
    """Tell whether an event is of a type that we do not know, or holds something that is."""
    if not is_object(event):
        return False
    block, delta = event.get("content_block"), event.get("delta")
    return (
        _is_unknown(event, KNOWN_EVENTS)
        or (is_object(block) and _is_unknown(block, KNOWN_BLOCKS))
        or (is_object(delta) and _is_unknown(delta, KNOWN_DELTAS))
    )


def _is_unknown(value: RawBlock, known: frozenset[str]) -> bool:
    type = value.get("type")
    return not isinstance(type, str) or type not in known


def read_raw_block(data: bytes, *path: str | int) -> RawBlock:
    """Return a block with all its fields."""
    value: Any = json.decode_lenient(data)
    for step in path:
        value = value[step]
    return value if is_object(value) else {}


def decode_citation(citation: object, size: int) -> TextAnnotation | None:
    """Tell a citation, which is about a whole block of text."""
    if not is_object(citation):
        return None
    url, type = citation.get("url"), f"{SLUG}{citation.get('type')}"
    if isinstance(url, str):
        title = citation.get("title")
        title = title if isinstance(title, str) else ""
        return UrlCitation(url=url, start_index=0, end_index=size, title=title)
    if not is_extension_type(type):
        return None
    return ExtensionAnnotation(type=type, extra={k: citation[k] for k in citation if k != "type"})
