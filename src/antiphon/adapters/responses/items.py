"""Items as other servers of the protocol write them, read with patience.

Inside the house every type that is not the specification's has a slug. What only OpenAI knows has
OpenAI's; what else comes without one gets `responses:`, and goes back without it.
"""

import re
from collections.abc import Sequence
from typing import cast, get_args

from msgspec import UNSET

from antiphon.adapters.fields import Fields, fields_of, list_of, string, without
from antiphon.adapters.logprobs import Token, weighed
from antiphon.core.content import (
    Annotation,
    Content,
    ExtensionAnnotation,
    LogProb,
    OutputText,
    Refusal,
    SummaryText,
    text_of,
)
from antiphon.core.content import ReasoningText as RawText
from antiphon.core.items import ExtensionItem, Item, Message, Phase, Reasoning
from antiphon.core.surrogates import mended
from antiphon.core.value import ShapeError, is_extension_type, read, type_names
from antiphon.wire import json
from antiphon.wire.dialects import canonical_item

SLUG = "responses:"
OURS = ("openai:", SLUG)
"""The slugs that are written here, and taken off again on the way out."""

RAW_MARK = '{"raw":true}'
"""What is sealed with raw thinking that its server did not seal, so that we know it again."""


def types_in(union: object) -> frozenset[str]:
    """Return the types that the members of a union have."""
    return frozenset(name for kind in get_args(union) for name in type_names(kind))


ITEM_TYPES = types_in(Item)
CONTENT_TYPES = types_in(Content)


def bare(type: str) -> str:
    """Take off the slug that we wrote."""
    return next((type.removeprefix(slug) for slug in OURS if type.startswith(slug)), type)


def slugged(type: str, known: frozenset[str]) -> str:
    """Give a type a slug, unless it is the specification's or has one."""
    if type in known or is_extension_type(type):
        return type
    return SLUG + (re.sub(r"\W", "_", type, flags=re.ASCII) or "unknown")


def decoded(data: bytes) -> Fields:
    """Read an object in which every string can be written."""
    value = json.decode_lenient(data)
    return fields_of(mended(value) if b"\\ud" in data or b"\\uD" in data else value)


# --- what items hold ------------------------------------------------------------------------------


def logprobs_of(value: object) -> list[LogProb] | None:
    """Read log probabilities, of which OpenAI's deltas hold only a part."""
    return weighed(_tokens(value))


def _tokens(value: object) -> list[Token]:
    read: list[Token] = []
    for raw in map(fields_of, list_of(value)):
        token, logprob = raw.get("token"), raw.get("logprob")
        if isinstance(token, str) and isinstance(logprob, int | float):
            spelled = [byte for byte in list_of(raw.get("bytes")) if isinstance(byte, int)]
            others = _tokens(raw.get("top_logprobs"))
            read.append(Token(token, logprob, spelled or None, others))
    return read


def annotation_of(value: object) -> Annotation | None:
    """Read an annotation; one that is not as it should be keeps its fields under another name."""
    raw = fields_of(value)
    type = string(raw.get("type"))
    if not type:
        return None
    held = canonical_item({"type": "message", "content": [{"annotations": [raw]}]})
    (part,) = list_of(fields_of(held).get("content"))
    (known,) = list_of(fields_of(part).get("annotations"))
    named = fields_of(known)
    named = named | {"type": slugged(string(named["type"]), frozenset({"url_citation"}))}
    try:
        return cast("Annotation", read(Annotation, named))
    except ShapeError:
        extra = without(raw, ["type"]) or UNSET
        return ExtensionAnnotation(type=slugged(type, frozenset()), extra=extra)


def content_of(value: object) -> Content | None:
    """Read a piece of a message: words, or a refusal."""
    raw = fields_of(value)
    if "refusal" in raw:
        return Refusal(refusal=string(raw["refusal"]))
    if "text" not in raw:
        return None
    notes = [note for n in list_of(raw.get("annotations")) if (note := annotation_of(n))]
    logprobs = logprobs_of(raw.get("logprobs")) or UNSET
    return OutputText(text=string(raw["text"]), annotations=notes, logprobs=logprobs)


def pieces_of(message: Fields) -> Sequence[object]:
    """Return the pieces of a message; some servers write one that has only words as a string."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return [{"type": "output_text", "text": content}]
    return list_of(content)


def wordless(message: Fields) -> list[str]:
    """Return the types of the pieces of a message that are neither words nor a refusal."""
    pieces = [fields_of(piece) for piece in pieces_of(message)]
    return [string(piece.get("type")) for piece in pieces if not {"text", "refusal"} & piece.keys()]


def texts_of(value: object) -> list[str]:
    """Return the words of a reasoning item's content or summary."""
    pieces = [fields_of(piece).get("text") for piece in list_of(value)]
    return [piece for piece in pieces if isinstance(piece, str)]


# --- items ----------------------------------------------------------------------------------------


def phase_of(raw: Fields) -> Phase | None:
    """Read the phase of a message."""
    match raw.get("phase"):
        case "commentary":
            return "commentary"
        case "final_answer":
            return "final_answer"
        case _:
            return None


def message_of(raw: Fields) -> Message:
    """Read a message of the model's."""
    return Message(
        role="assistant",
        status="incomplete" if raw.get("status") == "incomplete" else "completed",
        content=[piece for c in pieces_of(raw) if (piece := content_of(c))],
        phase=phase_of(raw) or UNSET,
    )


def reasoning_of(raw: Fields) -> Reasoning:
    """Read a reasoning item."""
    content = [RawText(text=text) for text in texts_of(raw.get("content"))]
    return Reasoning(
        summary=[SummaryText(text=text) for text in texts_of(raw.get("summary"))],
        content=cast("list[Content]", content) or UNSET,
        encrypted_content=seal_of(raw, raw=any(map(text_of, content))) or UNSET,
    )


def seal_of(item: Fields, *, raw: bool) -> str:
    """Return what a reasoning item has to be sent back with: its seal, or our mark."""
    return string(item.get("encrypted_content")) or (RAW_MARK if raw else "")


def other_of(raw: Fields) -> Item:
    """Read an item that is neither a message nor reasoning nor a call."""
    named = fields_of(canonical_item(raw))
    type = slugged(string(named.get("type")), ITEM_TYPES)
    try:
        return cast("Item", read(Item, named | {"type": type}))
    except ShapeError:
        extra = without(raw, ["type", "id", "status"]) or UNSET
        status = string(raw.get("status")) or UNSET
        return ExtensionItem(type=slugged(type, frozenset()), status=status, extra=extra)
