"""One item of another server, as far as it has been told; and the texts an item can have."""

from typing import Literal

from msgspec import Struct, field

from antiphon.adapters.json_access import (
    JsonObject,
    as_string,
    is_json,
    to_json_text,
)
from antiphon.protocol.items import Phase
from antiphon.protocol.surrogates import repair_surrogates

Kind = Literal["message", "reasoning", "call", "other"]
TextKind = Literal["text", "refusal", "raw", "summary", "arguments"]

KIND_BY_TYPE: dict[str, Kind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
}
ITEM_KINDS: dict[TextKind, Kind] = {
    "text": "message",
    "refusal": "message",
    "raw": "reasoning",
    "summary": "reasoning",
    "arguments": "call",
}
TEXT_KINDS: dict[str, TextKind] = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "summary_text": "summary",
}
"""The face that each type of content part has."""

INDEX_FIELDS: dict[TextKind, str] = {"summary": "summary_index"}
TEXT_FIELDS: dict[TextKind, str] = {"refusal": "refusal", "arguments": "arguments"}
"""Where an event or a part has its whole text, if not in `text`."""


class TrackedItem(Struct):
    """An item of theirs, as far as it has been told."""

    kind: Kind
    type: str
    key: int
    index: int | None = None
    texts: dict[tuple[TextKind, int], list[str]] = field(
        default_factory=dict[tuple[TextKind, int], list[str]]
    )
    annotations: dict[int, int] = field(default_factory=dict[int, int])
    announced: bool = False
    named: bool = False
    done: bool = False
    phase: Phase | None = None

    def is_elsewhere(self, place: int | None) -> bool:
        """Tell whether a place is another than the item's, as far as both are known."""
        return None not in (place, self.index) and place != self.index

    def append(self, face: TextKind, part: int, text: str) -> None:
        """Take a delta for told."""
        pieces = self.texts.get((face, part))
        if pieces is None:
            self.texts[face, part] = [text]
        else:
            pieces.append(text)

    def remainder(self, face: TextKind, part: int, text: str) -> str:
        """Return what is new in a whole text, and take it for told."""
        told = "".join(self.texts.get((face, part), ()))
        told = told if text.startswith(told) else repair_surrogates(told)
        new = text[len(told) :] if text.startswith(told) else ""
        if new:
            self.append(face, part, new)
        return new

    def has_whole_arguments(self) -> bool:
        """Tell whether the arguments of a call are whole, or none."""
        text = "".join(self.texts.get(("arguments", 0), ()))
        return not text or is_json(text)


def kind_of(item: JsonObject) -> Kind:
    """Return what an item is to us."""
    return KIND_BY_TYPE.get(as_string(item.get("type")), "other")


def read_index(index: object) -> int | None:
    """Return the place that an index names, if it is one."""
    return index if isinstance(index, int) else None


def matches(tracked: TrackedItem, item: JsonObject) -> bool:
    """Tell whether an item may be one that was heard, under another id."""
    kind = kind_of(item)
    return tracked.kind == kind and (kind != "other" or tracked.type == item.get("type"))


def may_be_truncated(item: JsonObject) -> bool:
    """Tell whether an item that ends an incomplete response can be what was cut off."""
    kind = kind_of(item)
    return kind == "message" or (
        kind == "call" and not is_json(to_json_text(item.get("arguments", "")))
    )
