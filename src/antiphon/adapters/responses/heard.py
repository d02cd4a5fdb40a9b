"""One item of another server, as far as it has been told; and the texts an item can have."""

from typing import Literal

from msgspec import Struct, field

from antiphon.adapters.fields import Fields, is_json, json_text, string
from antiphon.core.items import Phase
from antiphon.core.surrogates import mend

Kind = Literal["message", "reasoning", "call", "other"]
Face = Literal["text", "refusal", "raw", "summary", "arguments"]

KINDS: dict[str, Kind] = {"message": "message", "reasoning": "reasoning", "function_call": "call"}
OWNERS: dict[Face, Kind] = {
    "text": "message",
    "refusal": "message",
    "raw": "reasoning",
    "summary": "reasoning",
    "arguments": "call",
}
FACES: dict[str, Face] = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "summary_text": "summary",
}
"""The face that each type of content part has."""

INDEXES: dict[Face, str] = {"summary": "summary_index"}
WORDS: dict[Face, str] = {"refusal": "refusal", "arguments": "arguments"}
"""Where an event or a part has its whole text, if not in `text`."""


class Heard(Struct):
    """An item of theirs, as far as it has been told."""

    kind: Kind
    type: str
    key: int
    place: int | None = None
    said: dict[tuple[Face, int], list[str]] = field(
        default_factory=dict[tuple[Face, int], list[str]]
    )
    notes: dict[int, int] = field(default_factory=dict[int, int])
    announced: bool = False
    named: bool = False
    done: bool = False
    phase: Phase | None = None

    def is_elsewhere(self, place: int | None) -> bool:
        """Tell whether a place is another than the item's, as far as both are known."""
        return None not in (place, self.place) and place != self.place

    def grow(self, face: Face, part: int, text: str) -> None:
        """Take a delta for told."""
        pieces = self.said.get((face, part))
        if pieces is None:
            self.said[face, part] = [text]
        else:
            pieces.append(text)

    def rest(self, face: Face, part: int, text: str) -> str:
        """Return what is new in a whole text, and take it for told."""
        told = "".join(self.said.get((face, part), ()))
        told = told if text.startswith(told) else mend(told)
        new = text[len(told) :] if text.startswith(told) else ""
        if new:
            self.grow(face, part, new)
        return new

    def is_callable(self) -> bool:
        """Tell whether the arguments of a call are whole, or none."""
        text = "".join(self.said.get(("arguments", 0), ()))
        return not text or is_json(text)


def kind_of(item: Fields) -> Kind:
    """Return what an item is to us."""
    return KINDS.get(string(item.get("type")), "other")


def place_of(index: object) -> int | None:
    """Return the place that an index names, if it is one."""
    return index if isinstance(index, int) else None


def is_like(heard: Heard, item: Fields) -> bool:
    """Tell whether an item may be one that was heard, under another id."""
    kind = kind_of(item)
    return heard.kind == kind and (kind != "other" or heard.type == item.get("type"))


def may_be_cut(item: Fields) -> bool:
    """Tell whether an item that ends an incomplete response can be what was cut off."""
    kind = kind_of(item)
    return kind == "message" or (
        kind == "call" and not is_json(json_text(item.get("arguments", "")))
    )
