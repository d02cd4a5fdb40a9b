"""Newline-delimited JSON, both ways: one JSON text per line."""

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


class LineSplitter:
    """One stream's lines; `rest` is the unfinished last one, never longer than the limit."""

    def __init__(self, limit: int, error: type[ValueError]) -> None:
        self.remainder = bytearray()
        self._limit = limit
        self._error = error

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their newlines."""
        rest = self.remainder
        bound = len(rest) + len(chunk)
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and rest:
            rest += lines[0]
            lines[0] = bytes(rest)
            rest.clear()
        rest += tail
        if bound > self._limit:
            self._check_lengths(lines)
        return lines

    def close(self) -> list[bytes]:
        """Return the last line if its newline never came."""
        lines = [bytes(self.remainder)] if self.remainder else []
        self.remainder.clear()
        return lines

    def _check_lengths(self, lines: list[bytes]) -> None:
        longest = max(map(len, lines), default=0)
        if max(longest, len(self.remainder)) > self._limit:
            raise self._error(
                f"A line has more than {self._limit} bytes. Raise the limit if it should pass."
            )
