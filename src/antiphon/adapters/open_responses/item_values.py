"""Items as other servers of the protocol write them, read with patience.

Inside the house every type that is not the specification's has a slug. What only OpenAI knows has
OpenAI's; what else comes without one gets `responses:`, and goes back without it.
"""

import re
from collections.abc import Sequence
from typing import cast, get_args

from msgspec import UNSET

from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    as_string,
    omit,
)
from antiphon.adapters.logprobs import TokenLogprob, convert_logprobs
from antiphon.protocol.content import (
    Content,
    ExtensionAnnotation,
    LogProb,
    OutputText,
    RefusalContent,
    SummaryText,
    TextAnnotation,
    content_text,
)
from antiphon.protocol.content import ReasoningText as RawText
from antiphon.protocol.foreign.openai_types import add_item_slugs
from antiphon.protocol.items import (
    ExtensionItem,
    Item,
    Message,
    Phase,
    Reasoning,
)
from antiphon.protocol.struct import (
    InvalidValueError,
    decode_as,
    is_extension_type,
    type_names,
)
from antiphon.protocol.surrogates import repair_value
from antiphon.wire import json

SLUG = "responses:"
OWN_SLUGS = ("openai:", SLUG)
"""The slugs that are written here, and taken off again on the way out."""

UNSEALED_REASONING = '{"raw":true}'
"""What is sealed with raw thinking that its server did not seal, so that we know it again."""


def types_in(union: object) -> frozenset[str]:
    """Return the types that the members of a union have."""
    return frozenset(name for kind in get_args(union) for name in type_names(kind))


ITEM_TYPES = types_in(Item)
CONTENT_TYPES = types_in(Content)


def strip_slug(type: str) -> str:
    """Take off the slug that we wrote."""
    return next((type.removeprefix(slug) for slug in OWN_SLUGS if type.startswith(slug)), type)


def add_slug(type: str, known: frozenset[str]) -> str:
    """Give a type a slug, unless it is the specification's or has one."""
    if type in known or is_extension_type(type):
        return type
    return SLUG + (re.sub(r"\W", "_", type, flags=re.ASCII) or "unknown")


def parse_object(data: bytes) -> JsonObject:
    """Read an object in which every string can be written."""
    value = json.decode_lenient(data)
    return as_object(repair_value(value) if b"\\ud" in data or b"\\uD" in data else value)


# --- what items hold ------------------------------------------------------------------------------


def read_logprobs(value: object) -> list[LogProb] | None:
    """Read log probabilities, of which OpenAI's deltas hold only a part."""
    return convert_logprobs(_tokens(value))


def _tokens(value: object) -> list[TokenLogprob]:
    read: list[TokenLogprob] = []
    for raw in map(as_object, as_array(value)):
        token, logprob = raw.get("token"), raw.get("logprob")
        if isinstance(token, str) and isinstance(logprob, int | float):
            spelled = [byte for byte in as_array(raw.get("bytes")) if isinstance(byte, int)]
            others = _tokens(raw.get("top_logprobs"))
            read.append(TokenLogprob(token, logprob, spelled or None, others))
    return read


def read_annotation(value: object) -> TextAnnotation | None:
    """Read an annotation; one that is not as it should be keeps its fields under another name."""
    raw = as_object(value)
    type = as_string(raw.get("type"))
    if not type:
        return None
    held = add_item_slugs({"type": "message", "content": [{"annotations": [raw]}]})
    (part,) = as_array(as_object(held).get("content"))
    (known,) = as_array(as_object(part).get("annotations"))
    named = as_object(known)
    named = named | {"type": add_slug(as_string(named["type"]), frozenset({"url_citation"}))}
    try:
        return cast("TextAnnotation", decode_as(TextAnnotation, named))
    except InvalidValueError:
        extra = omit(raw, ["type"]) or UNSET
        return ExtensionAnnotation(type=add_slug(type, frozenset()), extra=extra)


def read_content(value: object) -> Content | None:
    """Read a piece of a message: words, or a refusal."""
    raw = as_object(value)
    if "refusal" in raw:
        return RefusalContent(refusal=as_string(raw["refusal"]))
    if "text" not in raw:
        return None
    notes = [note for n in as_array(raw.get("annotations")) if (note := read_annotation(n))]
    logprobs = read_logprobs(raw.get("logprobs")) or UNSET
    return OutputText(text=as_string(raw["text"]), annotations=notes, logprobs=logprobs)


def message_content(message: JsonObject) -> Sequence[object]:
    """Return the pieces of a message; some servers write one that has only words as a string."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return [{"type": "output_text", "text": content}]
    return as_array(content)


def unsupported_content(message: JsonObject) -> list[str]:
    """Return the types of the pieces of a message that are neither words nor a refusal."""
    pieces = [as_object(piece) for piece in message_content(message)]
    return [
        as_string(piece.get("type")) for piece in pieces if not {"text", "refusal"} & piece.keys()
    ]


def read_texts(value: object) -> list[str]:
    """Return the words of a reasoning item's content or summary."""
    pieces = [as_object(piece).get("text") for piece in as_array(value)]
    return [piece for piece in pieces if isinstance(piece, str)]


# --- items ----------------------------------------------------------------------------------------


def read_phase(raw: JsonObject) -> Phase | None:
    """Read the phase of a message."""
    match raw.get("phase"):
        case "commentary":
            return "commentary"
        case "final_answer":
            return "final_answer"
        case _:
            return None


def read_message(raw: JsonObject) -> Message:
    """Read a message of the model's."""
    return Message(
        role="assistant",
        status="incomplete" if raw.get("status") == "incomplete" else "completed",
        content=[piece for c in message_content(raw) if (piece := read_content(c))],
        phase=read_phase(raw) or UNSET,
    )


def read_reasoning(raw: JsonObject) -> Reasoning:
    """Read a reasoning item."""
    content = [RawText(text=text) for text in read_texts(raw.get("content"))]
    return Reasoning(
        summary=[SummaryText(text=text) for text in read_texts(raw.get("summary"))],
        content=cast("list[Content]", content) or UNSET,
        encrypted_content=encrypted_content_of(raw, raw=any(map(content_text, content))) or UNSET,
    )


def encrypted_content_of(item: JsonObject, *, raw: bool) -> str:
    """Return what a reasoning item has to be sent back with: its seal, or our mark."""
    return as_string(item.get("encrypted_content")) or (UNSEALED_REASONING if raw else "")


def read_other_item(raw: JsonObject) -> Item:
    """Read an item that is neither a message nor reasoning nor a call."""
    named = as_object(add_item_slugs(raw))
    type = add_slug(as_string(named.get("type")), ITEM_TYPES)
    try:
        return cast("Item", decode_as(Item, named | {"type": type}))
    except InvalidValueError:
        extra = omit(raw, ["type", "id", "status"]) or UNSET
        status = as_string(raw.get("status")) or UNSET
        return ExtensionItem(type=add_slug(type, frozenset()), status=status, extra=extra)
