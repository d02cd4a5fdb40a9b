"""Surrogate pairs that a provider has split across two deltas.

Some providers cut a JSON stream between the two surrogates of an emoji. A trailing high surrogate
is held back until the next delta; one without its other half becomes U+FFFD, because it cannot be
encoded as UTF-8. Text that is not streamed is repaired at once.
"""

from typing import TypeVar, cast

import msgspec

T = TypeVar("T")


class SurrogateJoiner:
    """Joins the surrogate pairs of one streamed text."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, text: str) -> str:
        """Return the text without a trailing half pair, which is held back."""
        # The other half of a held surrogate may be the first character of this text.
        text, self.pending = self.pending + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.pending = text[:-1], text[-1]
        return repair_surrogates(text)

    def close(self) -> str:
        """Return what is still held back, as U+FFFD."""
        held, self.pending = self.pending, ""
        return repair_surrogates(held)


def repair_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins two surrogates that follow each other; `replace` handles the lone ones.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def repair_value(value: T) -> T:
    """Return a value whose strings can all be encoded: the same one, if they can already.

    Raises what the encoder raises for a value that cannot be encoded for another reason.
    """
    # Nearly every value is valid, and encoding it once is cheaper than walking it in Python.
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        value = cast("T", _repair_member(value))
        msgspec.json.encode(value)
    return value


def _repair_member(value: object) -> object:
    match value:
        case str():
            return repair_surrogates(value)
        case list() | tuple():
            return [_repair_member(entry) for entry in cast("list[object]", value)]
        case dict():
            fields = cast("dict[object, object]", value)
            return {_repair_member(name): _repair_member(member) for name, member in fields.items()}
        case msgspec.Struct():
            members = {name: getattr(value, name) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **{name: _repair_member(member) for name, member in members.items()})
        case _:
            return value
