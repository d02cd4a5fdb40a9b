"""Halves of characters, held until they are whole.

Some providers cut a stream of JSON between the two surrogates of an emoji. A trailing high
surrogate is kept for the next delta; one that never finds its other half becomes U+FFFD. What
comes in one piece has nothing to wait for, and is mended at once.
"""

from typing import TypeVar, cast

import msgspec

T = TypeVar("T")


class Joiner:
    """Mends one stream of text."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = ""

    def feed(self, text: str) -> str:
        """Return the text that is whole so far."""
        text, self.held = self.held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.held = text[:-1], text[-1]
        return mend(text)

    def close(self) -> str:
        """Return what is still held, made legal."""
        held, self.held = self.held, ""
        return mend(held)


def mend(text: str) -> str:
    """Join surrogate pairs and replace what is left of them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def mended(value: T) -> T:
    """Return a value whose every string can be written: the same one, unless it holds halves.

    Raises what writing raises: what cannot be mended must not be said either.
    """
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        value = cast("T", _mended(value))
        msgspec.json.encode(value)
    return value


def _mended(value: object) -> object:
    match value:
        case str():
            return mend(value)
        case list() | tuple():
            return [_mended(entry) for entry in cast("list[object]", value)]
        case dict():
            fields = cast("dict[object, object]", value)
            return {_mended(name): _mended(member) for name, member in fields.items()}
        case msgspec.Struct():
            members = {name: getattr(value, name) for name in value.__struct_fields__}
            return msgspec.structs.replace(
                value, **{name: _mended(member) for name, member in members.items()}
            )
        case _:
            return value
