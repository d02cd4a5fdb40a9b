"""Halves of characters, held until they are whole.

Some providers cut a stream of JSON between the two surrogates of an emoji. A trailing high
surrogate is kept for the next delta; one that never finds its other half becomes U+FFFD.
"""


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
