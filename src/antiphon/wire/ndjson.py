"""Newline-delimited JSON, both ways: one JSON text per line."""

from antiphon.wire.lines import LineSplitter

MAX_LINE = 1024 * 1024


class NDJSONError(ValueError):
    """A line that is longer than we are willing to hold."""


class Decoder:
    """Hears one stream of lines; after an error it is of no further use."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._lines = LineSplitter(max_line, NDJSONError)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the JSON texts that this chunk completes, still undecoded."""
        return _non_blank(self._lines.feed(chunk))

    def close(self) -> list[bytes]:
        """Return the last text if its newline never came."""
        return _non_blank(self._lines.close())


def encode(data: bytes) -> bytes:
    """Write one JSON text as one line; a line break inside it can only be white space."""
    return b" ".join(data.splitlines()) + b"\n"


def _non_blank(lines: list[bytes]) -> list[bytes]:
    # A carriage return is white space to JSON, so CRLF needs no thought of its own.
    return [text for line in lines if (text := line.strip(b" \t\r"))]
