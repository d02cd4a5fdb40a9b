"""Reasoning in chat answers, and what must be sent back with it to the same server.

Dialect notes: reasoning is sent back in the field it came in. OpenRouter repeats it in the
message's `reasoning_details`, with signatures; a stream splits one detail over several chunks.
Gemini signs calls in their `extra_content` and rejects a conversation without these signatures.
"""

from typing import Literal

from msgspec import Struct

from antiphon.adapters.json_access import to_json_text
from antiphon.protocol.parts import Key, Reasoning
from antiphon.protocol.struct import JsonObject, as_array, as_object, as_string, drop_none
from antiphon.protocol.surrogates import repair_value

DETAIL_TEXT_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The types of details that are split over chunks, and the field with their text."""


class ChatSeal(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of a reasoning item's `encrypted_content`: what is sent back with its text."""

    field: str
    """The field that the text came in; empty if there is no text. It is always encoded, and first:
    the Responses adapter recognises a seal of this dialect by it."""
    details: list[JsonObject] = []
    """OpenRouter's `reasoning_details`."""
    extra: JsonObject = {}
    """The `extra_content` of a call."""
    call: str = ""
    """The id of that call. If it is empty, the extras belong to the next call."""


def seal_part(seal: ChatSeal, key: Key = 0) -> Reasoning:
    """Return the reasoning part for a seal, whose strings may contain split surrogate pairs."""
    return Reasoning(key=key, encrypted_content=to_json_text(repair_value(seal)))


class ReasoningDetail:
    """One reasoning detail, assembled from the fragments of a stream."""

    __slots__ = ("_fields", "_text")

    def __init__(self, fragment: JsonObject) -> None:
        self._fields = fragment
        self._text: bytearray | None = None
        """The text of all fragments, if there are several."""

    def is_continued_by(self, fragment: JsonObject) -> bool:
        """Return whether a fragment continues this detail. A signature ends a detail."""
        same = all(self._fields.get(name) == fragment.get(name) for name in ("type", "index"))
        counted = isinstance(fragment.get("index"), int) and as_string(fragment.get("type")) in DETAIL_TEXT_FIELDS
        return same and counted and not self._fields.get("signature")

    def add(self, fragment: JsonObject) -> None:
        """Add a fragment."""
        # Appending to a bytearray is linear; adding strings for every fragment would be quadratic.
        if self._text is None:
            self._text = bytearray(self._encode_text(self._fields))
        self._text += self._encode_text(fragment)
        self._fields = drop_none(self._fields | drop_none(fragment))

    def build(self) -> JsonObject:
        """Return the detail; one that came in a single fragment is unchanged."""
        if self._text is None:
            return self._fields
        return self._fields | {self._text_field: self._text.decode(errors="surrogatepass")}

    @property
    def _text_field(self) -> str:
        return DETAIL_TEXT_FIELDS[as_string(self._fields["type"])]

    def _encode_text(self, fragment: JsonObject) -> bytes:
        # A fragment may end in half of a surrogate pair; the next one begins with the other half.
        return as_string(fragment.get(self._text_field)).encode(errors="surrogatepass")


class ReasoningState:
    """The reasoning of one answer while it is decoded."""

    __slots__ = ("details", "field", "last")

    def __init__(self) -> None:
        self.last: Literal["", "reasoning", "text"] = ""
        """What was decoded last."""
        self.field = ""
        """The field of the last reasoning text."""
        self.details: list[ReasoningDetail] = []
        """The details that were not emitted yet."""

    def add_text(self, text: str, field: str) -> Reasoning:
        """Return the part for reasoning text. The first one carries the field in its seal."""
        # One item has one seal, so only its first part carries it.
        begun = self.last == "reasoning"
        self.last, self.field = "reasoning", field
        seal = None if begun else to_json_text(ChatSeal(field=field))
        return Reasoning(text, encrypted_content=seal)

    def add_details(self, details: object) -> None:
        """Add details or fragments of them."""
        for fragment in filter(None, map(as_object, as_array(details))):
            if self.details and self.details[-1].is_continued_by(fragment):
                self.details[-1].add(fragment)
            else:
                self.details.append(ReasoningDetail(fragment))

    @property
    def has_details_due(self) -> bool:
        """Whether details must be emitted before the next text. Details in the middle of a text
        wait for its end, because an item between two texts would split the message."""
        return bool(self.details) and self.last != "text"

    def flush(self) -> list[Reasoning]:
        """Return the details received so far, because something else begins."""
        if not self.details:
            return []
        seal = ChatSeal(field=self.field, details=[detail.build() for detail in self.details])
        self.details = []
        return [seal_part(seal)]
