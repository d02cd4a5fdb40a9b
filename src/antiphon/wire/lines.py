"""A byte stream cut into lines, however it was chunked; the buffer under sse and ndjson."""


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
