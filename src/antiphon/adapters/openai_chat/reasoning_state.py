"""What thinking has to go back with, to the server that it came from.

Dialect notes: thinking goes back in the field in which it came. OpenRouter tells it once more in
`reasoning_details`, with what signs it; they are the message's, and in a stream one of them comes
in bits. Gemini signs calls in their `extra_content`, and refuses a conversation in which such a
signature is missing.
"""

from typing import Literal

from msgspec import Struct

from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    as_string,
    drop_none,
    to_json_text,
)
from antiphon.protocol.parts import Key, Reasoning
from antiphon.protocol.surrogates import repair_value

DETAIL_TEXT_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The details that come in bits, and where each has its words."""


class ChatSeal(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a reasoning item of a chat holds beside its words."""

    field: str
    """Where the words came, if there are any. It is always written, and first: so others know that
    this is ours."""
    details: list[JsonObject] = []
    """The details of the thinking, as OpenRouter has them."""
    extra: JsonObject = {}
    """The `extra_content` of a call."""
    call: str = ""
    """The id of that call; where it came without one, it is the next."""


def seal_part(seal: ChatSeal, key: Key = 0) -> Reasoning:
    """Tell a seal, in which an emoji may have come in halves."""
    return Reasoning(key=key, encrypted_content=to_json_text(repair_value(seal)))


class ReasoningDetail:
    """One detail of the thinking, put together as its bits come."""

    __slots__ = ("_fields", "_words")

    def __init__(self, bit: JsonObject) -> None:
        self._fields = bit
        self._words: bytearray | None = None
        """What it says in all its bits, if there are several."""

    def is_continued_by(self, bit: JsonObject) -> bool:
        """Tell whether a bit belongs to this detail; a signature comes last."""
        same = all(self._fields.get(name) == bit.get(name) for name in ("type", "index"))
        counted = (
            isinstance(bit.get("index"), int) and as_string(bit.get("type")) in DETAIL_TEXT_FIELDS
        )
        return same and counted and not self._fields.get("signature")

    def add(self, bit: JsonObject) -> None:
        """Add a bit."""
        if self._words is None:
            self._words = bytearray(self._encode_text(self._fields))
        self._words += self._encode_text(bit)
        self._fields = drop_none(self._fields | drop_none(bit))

    def build(self) -> JsonObject:
        """Return the detail: one that came in one bit, as it came."""
        if self._words is None:
            return self._fields
        return self._fields | {self._text_field: self._words.decode(errors="surrogatepass")}

    @property
    def _text_field(self) -> str:
        return DETAIL_TEXT_FIELDS[as_string(self._fields["type"])]

    def _encode_text(self, bit: JsonObject) -> bytes:
        return as_string(bit.get(self._text_field)).encode(errors="surrogatepass")


class ReasoningState:
    """The thinking of one answer, while it is heard."""

    __slots__ = ("details", "field", "last")

    def __init__(self) -> None:
        self.last: Literal["", "thinking", "words"] = ""
        """What was said last."""
        self.field = ""
        """Where the last of it came."""
        self.details: list[ReasoningDetail] = []
        """The details that have not been told."""

    def add_text(self, text: str, field: str) -> Reasoning:
        """Tell thinking, and with the first of it where it belongs."""
        begun = self.last == "thinking"
        self.last, self.field = "thinking", field
        seal = None if begun else to_json_text(ChatSeal(field=field))
        return Reasoning(text, encrypted_content=seal)

    def add_details(self, details: object) -> None:
        """Hear details, or bits of them."""
        for bit in filter(None, map(as_object, as_array(details))):
            if self.details and self.details[-1].is_continued_by(bit):
                self.details[-1].add(bit)
            else:
                self.details.append(ReasoningDetail(bit))

    @property
    def has_details_due(self) -> bool:
        """Whether details are told before words: those that come amid them wait for what is next,
        lest one message become two."""
        return bool(self.details) and self.last != "words"

    def flush(self) -> list[Reasoning]:
        """Tell the details that were heard, since something else begins."""
        if not self.details:
            return []
        seal = ChatSeal(field=self.field, details=[detail.build() for detail in self.details])
        self.details = []
        return [seal_part(seal)]
