"""Newline-delimited JSON, decoded; and the line splitter that `sse` uses, too."""

MAX_LINE = 1024 * 1024


class NDJSONError(ValueError):
    """A line that is too long."""


class LineSplitter:
    """Splits a byte stream into lines; `remainder` is the unfinished last one."""

    def __init__(self, limit: int, error: type[ValueError]) -> None:
        self.remainder = bytearray()
        self._limit = limit
        self._error = error

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without their newlines."""
        remainder = self.remainder
        # No line is longer than this, so the lengths need a look only above the limit.
        bound = len(remainder) + len(chunk)
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and remainder:
            remainder += lines[0]
            lines[0] = bytes(remainder)
            remainder.clear()
        remainder += tail
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
            raise self._error(f"A line has more than {self._limit} bytes. Raise the limit if it should pass.")


class Decoder:
    """Decodes one stream of lines; unusable after an error."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._lines = LineSplitter(max_line, NDJSONError)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the JSON texts that a chunk completes, still encoded."""
        return _non_blank(self._lines.feed(chunk))

    def close(self) -> list[bytes]:
        """Return the last text if its newline never came."""
        return _non_blank(self._lines.close())


def _non_blank(lines: list[bytes]) -> list[bytes]:
    # A carriage return is white space in JSON, so CRLF needs no case of its own.
    return [text for line in lines if (text := line.strip(b" \t\r"))]
