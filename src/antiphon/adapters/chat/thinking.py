"""What thinking has to go back with, to the server that it came from.

Dialect notes: thinking goes back in the field in which it came. OpenRouter tells it once more in
`reasoning_details`, with what signs it; they are the message's, and in a stream one of them comes
in bits. Gemini signs calls in their `extra_content`, and refuses a conversation in which such a
signature is missing.
"""

from typing import Literal

from msgspec import Struct

from antiphon.adapters.fields import Fields, fields_of, given, json_text, list_of, string
from antiphon.core.parts import Key, Reasoning
from antiphon.core.surrogates import mended

WORDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The details that come in bits, and where each has its words."""


class Seal(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a reasoning item of a chat holds beside its words."""

    field: str
    """Where the words came, if there are any. It is always written, and first: so others know that
    this is ours."""
    details: list[Fields] = []
    """The details of the thinking, as OpenRouter has them."""
    extra: Fields = {}
    """The `extra_content` of a call."""
    call: str = ""
    """The id of that call; where it came without one, it is the next."""


def sealed(seal: Seal, key: Key = 0) -> Reasoning:
    """Tell a seal, in which an emoji may have come in halves."""
    return Reasoning(key=key, encrypted_content=json_text(mended(seal)))


class Detail:
    """One detail of the thinking, put together as its bits come."""

    __slots__ = ("_fields", "_words")

    def __init__(self, bit: Fields) -> None:
        self._fields = bit
        self._words: bytearray | None = None
        """What it says in all its bits, if there are several."""

    def goes_on(self, bit: Fields) -> bool:
        """Tell whether a bit belongs to this detail; a signature comes last."""
        same = all(self._fields.get(name) == bit.get(name) for name in ("type", "index"))
        counted = isinstance(bit.get("index"), int) and string(bit.get("type")) in WORDS
        return same and counted and not self._fields.get("signature")

    def add(self, bit: Fields) -> None:
        """Add a bit."""
        if self._words is None:
            self._words = bytearray(self._said(self._fields))
        self._words += self._said(bit)
        self._fields = given(self._fields | given(bit))

    def whole(self) -> Fields:
        """Return the detail: one that came in one bit, as it came."""
        if self._words is None:
            return self._fields
        return self._fields | {self._place: self._words.decode(errors="surrogatepass")}

    @property
    def _place(self) -> str:
        return WORDS[string(self._fields["type"])]

    def _said(self, bit: Fields) -> bytes:
        return string(bit.get(self._place)).encode(errors="surrogatepass")


class Thinking:
    """The thinking of one answer, while it is heard."""

    __slots__ = ("details", "field", "last")

    def __init__(self) -> None:
        self.last: Literal["", "thinking", "words"] = ""
        """What was said last."""
        self.field = ""
        """Where the last of it came."""
        self.details: list[Detail] = []
        """The details that have not been told."""

    def think(self, text: str, field: str) -> Reasoning:
        """Tell thinking, and with the first of it where it belongs."""
        begun = self.last == "thinking"
        self.last, self.field = "thinking", field
        seal = None if begun else json_text(Seal(field=field))
        return Reasoning(text, encrypted_content=seal)

    def detail(self, details: object) -> None:
        """Hear details, or bits of them."""
        for bit in filter(None, map(fields_of, list_of(details))):
            if self.details and self.details[-1].goes_on(bit):
                self.details[-1].add(bit)
            else:
                self.details.append(Detail(bit))

    @property
    def is_due(self) -> bool:
        """Whether details are told before words: those that come amid them wait for what is next,
        lest one message become two."""
        return bool(self.details) and self.last != "words"

    def rest(self) -> list[Reasoning]:
        """Tell the details that were heard, since something else begins."""
        if not self.details:
            return []
        seal = Seal(field=self.field, details=[detail.whole() for detail in self.details])
        self.details = []
        return [sealed(seal)]
