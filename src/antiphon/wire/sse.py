"""Server-Sent Events, as the WHATWG HTML standard defines them; and newline-delimited JSON, decoded."""

from functools import lru_cache

import msgspec

MAX_EVENT = 1024 * 1024
DONE = b"[DONE]"
DONE_FRAME = b"data: [DONE]\n\n"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Integers: `in` finds them eight times faster than bytes of length one.
_NUL, _LF, _CR = b"\0\n\r"
_MAX_PREFIXES = 100  # how many prefixes a decoder caches, and how long each may be


class StreamError(ValueError):
    """A line or an event that is too large, or an event that cannot be encoded."""


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event; `id` is the last id in the stream so far."""

    event: str
    data: bytes
    id: str | None = None


class LineSplitter:
    """Splits a byte stream into lines; `remainder` is the unfinished last one."""

    def __init__(self, max_line: int = MAX_EVENT) -> None:
        self.remainder = bytearray()
        self._max_line = max_line

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
        if bound > self._max_line and max(map(len, [*lines, remainder])) > self._max_line:
            raise StreamError(f"A line has more than {self._max_line} bytes. Raise the limit if it should pass.")
        return lines

    def close(self) -> list[bytes]:
        """Return the last line if its newline never came."""
        lines = [bytes(self.remainder)] if self.remainder else []
        self.remainder.clear()
        return lines


class NdjsonDecoder(LineSplitter):
    """Decodes newline-delimited JSON to its texts, still encoded; unusable after an error."""

    def feed(self, chunk: bytes) -> list[bytes]:
        return _strip_lines(super().feed(chunk))

    def close(self) -> list[bytes]:
        return _strip_lines(super().close())


def _strip_lines(lines: list[bytes]) -> list[bytes]:
    # A carriage return is white space in JSON, so CRLF needs no case of its own.
    return [text for line in lines if (text := line.strip(b" \t\r"))]


class Decoder:
    """Decodes one stream of events; unusable after an error."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._lines = LineSplitter(max_event)
        self._byte_order_mark = _BYTE_ORDER_MARK
        self._after_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self.is_mid_event = True
        """Whether the next bytes may continue an event, or begin with a byte order mark."""
        # The text before the only `data: ` of an event, and the event type it stands for.
        self._prefixes = {b"": "message"}

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that a chunk completes."""
        if self.is_mid_event or _CR in chunk or len(chunk) > self._max_event:
            return self._feed_lines(chunk)
        # The chunk begins with an event, and most events are one line of data.
        if chunk.startswith(b"data: ") and chunk.find(b"\n\n") == chunk.find(b"\n") == len(chunk) - 2:
            return [SseEvent("message", chunk[6:-2], self._id)]
        events: list[SseEvent] = []
        # Events with a name have a prefix that was learned from the first of its kind.
        blocks = chunk.split(b"\n\n")
        rest = blocks.pop()
        for block in blocks:
            head, _, data = block.partition(b"data: ")
            name = self._prefixes.get(head)
            if name and data and _LF not in data:
                events.append(SseEvent(name, data, self._id))
            else:
                events += self._read_lines([*block.split(b"\n"), b""])
        if rest:
            events += self._read_lines(self._lines.feed(rest))
            self._update_is_mid_event()
        return events

    def _feed_lines(self, chunk: bytes) -> list[SseEvent]:
        """Read line by line; if possible only to the end of an event, after which events are found faster."""
        end = 0 if _CR in chunk or len(chunk) > self._max_event else chunk.find(b"\n\n") + 2
        head, rest = (chunk[:end], chunk[end:]) if end > 1 else (chunk, b"")
        events = self._read_lines(self._lines.feed(self._normalize_newlines(head)))
        self._update_is_mid_event()
        return events + self.feed(rest) if rest else events

    def _update_is_mid_event(self) -> None:
        begun = self._data or self._event or self._lines.remainder
        self.is_mid_event = bool(begun or self._byte_order_mark or self._after_cr)

    def close(self) -> list[SseEvent]:
        """Return the last event if its blank line never came.

        The standard would discard it, but some servers omit that line. An incomplete event is
        returned, too: its JSON does not parse, so the reader reports it.
        """
        return self._read_lines([*self._lines.close(), b""])

    def _normalize_newlines(self, chunk: bytes) -> bytes:
        """Turn CRLF and CR into LF, also where a chunk ends between CR and LF."""
        if not chunk or not (self._after_cr or _CR in chunk):
            return chunk
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read_lines(self, lines: list[bytes]) -> list[SseEvent]:
        """Read lines by the steps of the standard."""
        events: list[SseEvent] = []
        if lines and self._byte_order_mark:
            lines[0] = lines[0].removeprefix(self._byte_order_mark)
            self._byte_order_mark = b""
        for line in lines:
            if line:
                self._read_field(line)
                continue
            # "If the data buffer is an empty string [...] return": no data line, no event.
            if self._data:
                events.append(SseEvent(self._event or "message", b"\n".join(self._data), self._id))
                self._data.clear()
                self._size = 0
            self._event = ""
        return events

    def _read_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                # Lines are limited by LineSplitter; this limits an event of many lines.
                self._size += len(line)
                if self._size > self._max_event:
                    raise StreamError(
                        f"An event has more than {self._max_event} bytes. Raise the limit if it should pass."
                    )
                self._data.append(value)
            case b"event":
                self._event = value.decode(errors="replace")
                # Bounded, because a hostile server could send a new name with every event.
                if len(line) <= _MAX_PREFIXES and len(self._prefixes) < _MAX_PREFIXES:
                    self._prefixes[line + b"\n"] = self._event
            case b"id" if _NUL not in value:
                self._id = value.decode(errors="replace")
            case _:
                pass  # a comment, whose name is empty; `retry`; "Otherwise the field is ignored."


def encode(event_type: str, data: bytes) -> bytes:
    """Encode one event."""
    if _LF in data or _CR in data:
        data = _prefix_lines(data, b"data: ")
    return event_prefix(event_type) + data + b"\n\n"


def encode_comment(text: str = "") -> bytes:
    """Encode a comment, which clients ignore and which keeps an idle connection open."""
    return b": " + _prefix_lines(text.encode(), b": ") + b"\n\n"


@lru_cache(maxsize=1024)
def event_prefix(event_type: str) -> bytes:
    """Return what precedes an event's data, for data that is known to be one line."""
    if "\n" in event_type or "\r" in event_type:
        raise StreamError(f"The event type {event_type!r} holds a line break. Remove it.")
    return b"event: " + event_type.encode() + b"\ndata: "


def _prefix_lines(text: bytes, prefix: bytes) -> bytes:
    lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return (b"\n" + prefix).join(lines)
