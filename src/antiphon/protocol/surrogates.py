"""Halves of characters, held until they are whole.

Some providers cut a stream of JSON between the two surrogates of an emoji. A trailing high
surrogate is kept for the next delta; one that never finds its other half becomes U+FFFD. What
comes in one piece has nothing to wait for, and is mended at once.
"""

from typing import TypeVar, cast

import msgspec

T = TypeVar("T")


class SurrogateJoiner:
    """Mends one stream of text."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, text: str) -> str:
        """Return the text that is whole so far."""
        text, self.pending = self.pending + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.pending = text[:-1], text[-1]
        return repair_surrogates(text)

    def close(self) -> str:
        """Return what is still held, made legal."""
        held, self.pending = self.pending, ""
        return repair_surrogates(held)


def repair_surrogates(text: str) -> str:
    """Join surrogate pairs and replace what is left of them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def repair_value(value: T) -> T:
    """Return a value whose every string can be written: the same one, unless it holds halves.

    Raises what writing raises: what cannot be mended must not be said either.
    """
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
            return msgspec.structs.replace(
                value, **{name: _repair_member(member) for name, member in members.items()}
            )
        case _:
            return value
