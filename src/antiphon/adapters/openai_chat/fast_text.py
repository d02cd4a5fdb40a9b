"""The text fast path: chunks that differ from an earlier one only in their text.

Nearly every chunk of a stream is the previous one with another text. After one chunk has been decoded as JSON, later
ones need not be: if the bytes before and after the text are the same, and what is between them could only be a JSON
string without escapes, it is the text. All other bytes are decoded as usual.
"""

from collections.abc import Callable

MAX_CHUNK_BYTES = 4096
"""Longer chunks are not learned."""

MAX_ATTEMPTS = 3
"""How often a stream may be learned anew if its chunks turn out to differ."""

PROBE_TEXT = "Is this the place?"


class ChatTextFastPath:
    """The bytes before and after the text in the events of one stream."""

    __slots__ = ("_end", "_prefix", "_separator", "_start", "_suffix", "attempts_left")

    def __init__(self) -> None:
        self.attempts_left = MAX_ATTEMPTS
        self._prefix = self._suffix = b""
        self._separator = "\n"
        self._start = self._end = 0

    @property
    def is_learned(self) -> bool:
        """Whether a chunk was learned."""
        return bool(self._prefix)

    def learn(self, data: bytes, text: str, read: Callable[[bytes], object]) -> None:
        """Learn from the JSON of a chunk with this text; `read` returns the text of any chunk."""
        self.attempts_left -= 1
        before, found, after = data.partition(b'"%b"' % text.encode(errors="replace"))
        if not found or len(data) > MAX_CHUNK_BYTES:
            return
        try:
            # The text may also occur elsewhere in the chunk. A probe in its place shows whether
            # this occurrence is the one that is read.
            is_place = read(b'%b"%b"%b' % (before, PROBE_TEXT.encode(), after)) == PROBE_TEXT
            prefix, suffix = b'data: %b"' % before, b'"%b\n\n' % after
            separator = (suffix + prefix).decode()
        except ValueError:  # for example if the text is a comma, found between two strings
            return
        if is_place:
            self._prefix, self._suffix, self._separator = prefix, suffix, separator
            self._start, self._end = len(prefix), -len(suffix)

    def extract_texts(self, data: bytes) -> list[str] | None:
        """Return the texts of whole events that are all alike; None if any event differs."""
        if not (data.startswith(self._prefix) and data.endswith(self._suffix)):
            return None
        try:
            middle = data[self._start : self._end].decode()
        except UnicodeDecodeError:
            return None
        if is_plain_text(middle):
            return [middle]
        texts = middle.split(self._separator)
        return texts if all(map(is_plain_text, texts)) else None


def is_plain_text(text: str) -> bool:
    """Return whether a text is the content of a JSON string without escapes."""
    return '"' not in text and "\\" not in text and text != "" and text.isprintable()
