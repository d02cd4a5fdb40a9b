"""The types of Anthropic's responses, as far as they are read, and the sealed thinking.

New types of events, blocks and deltas may appear at any time. So one struct holds all events, one
all blocks and one all deltas, and an event that does not fit is an error only if its type is known.
"""

from typing import Any

from msgspec import Struct

from antiphon.adapters.base import JsonReader
from antiphon.protocol.json_schema import is_object
from antiphon.wire import json

SLUG = "anthropic:"
RawBlock = dict[str, Any]


class SealedThinking(Struct, omit_defaults=True):
    """The `encrypted_content` of a reasoning item: thinking and signature, or redacted thinking.

    JSON text, not encrypted by us: Anthropic verifies the signature.
    """

    signature: str = ""
    thinking: str = ""
    redacted: str = ""


# The types of responses have gc=False: they are short-lived and form no cycles.
class OutputTokensDetails(Struct, gc=False):
    """Parts of the output tokens."""

    thinking_tokens: int | None = None


class Usage(Struct, gc=False):
    """Token counts. `input_tokens` does not include the cached ones."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputTokensDetails | None = None


class ContentBlock(Struct, gc=False):
    """A content block of any type."""

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


class Delta(Struct, gc=False):
    """An increment of a block or of the message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: object = None
    stop_reason: str | None = None
    stop_details: object = None


class MessageBody(Struct, gc=False):
    """A complete message, or the start of a streamed one."""

    type: str | None = None
    content: list[ContentBlock] | None = None
    stop_reason: str | None = None
    stop_details: object = None
    usage: Usage | None = None
    error: Any = None


class StreamEvent(Struct, gc=False):
    """A stream event of any type."""

    type: str = ""
    index: int = 0
    delta: Delta | None = None
    content_block: ContentBlock | None = None
    message: MessageBody | None = None
    usage: Usage | None = None
    error: Any = None


# A tuple, not a set: a malformed type may be a list or an object, which cannot be hashed.
KNOWN_TYPES = tuple(
    """message_start content_block_start content_block_delta content_block_stop message_delta
    message_stop error text thinking redacted_thinking tool_use server_tool_use text_delta
    thinking_delta signature_delta input_json_delta citations_delta""".split()
)
IGNORED_EVENT = StreamEvent()

_decode_event = JsonReader(StreamEvent)
read_message = JsonReader(MessageBody)


def read_event(data: bytes) -> StreamEvent:
    """Read a stream event.

    If it, its block or its delta has an unknown type, it is ignored (`IGNORED_EVENT`). Any other event that does not
    fit raises ValueError.
    """
    try:
        return _decode_event(data)
    except ValueError:
        event = json.decode_lenient(data)
        if not is_object(event):
            raise
        objects = filter(is_object, (event, event.get("content_block"), event.get("delta")))
        if all(value.get("type") in KNOWN_TYPES for value in objects):
            raise
        return IGNORED_EVENT


def read_raw_block(data: bytes, *path: str | int) -> RawBlock:
    """Return the block at a path of a JSON text, with all its fields."""
    value: Any = json.decode_lenient(data)
    for step in path:
        value = value[step]
    return value if is_object(value) else {}
