"""What a stream repeats with every chunk; only the words between are new.

Nearly every chunk of a chat is the one before it with other words. Once one has been read in full,
those that are like it, byte for byte but for the words, need not be: what stands in the words'
place and could not be anything but words, is words. Everything else is read as always.
"""

from collections.abc import Callable

MAX_CHUNK_BYTES = 4096
"""How long a chunk may be that is learnt."""

MAX_ATTEMPTS = 3
"""How often a stream is learnt whose chunks turn out not to be alike."""

PROBE_TEXT = "Is this the place?"


class ChatTextFastPath:
    """What stands before and after the words in a stream's events."""

    __slots__ = ("_after", "_before", "_between", "_end", "_start", "trials")

    def __init__(self) -> None:
        self.trials = MAX_ATTEMPTS
        """How often it may still be learnt."""
        self._before = self._after = b""
        self._between = "\n"
        self._start = self._end = 0

    @property
    def is_learned(self) -> bool:
        """Whether something was learnt."""
        return bool(self._before)

    def learn(self, data: bytes, text: str, read: Callable[[bytes], object]) -> None:
        """Learn from the JSON of a chunk with these words, as `read` finds them in any."""
        self.trials -= 1
        before, found, after = data.partition(b'"%b"' % text.encode(errors="replace"))
        if not found or len(data) > MAX_CHUNK_BYTES:
            return
        try:
            is_place = read(b'%b"%b"%b' % (before, PROBE_TEXT.encode(), after)) == PROBE_TEXT
            before, after = b'data: %b"' % before, b'"%b\n\n' % after
            between = (after + before).decode()
        except ValueError:  # a comma, say, stands between any two strings
            return
        if is_place:
            self._before, self._after, self._between = before, after, between
            self._start, self._end = len(before), -len(after)

    def extract_texts(self, data: bytes) -> list[str] | None:
        """Return the words of whole events that are all alike, or nothing if one of them is not."""
        if not (data.startswith(self._before) and data.endswith(self._after)):
            return None
        try:
            said = data[self._start : self._end].decode()
        except UnicodeDecodeError:
            return None
        if is_plain_text(said):
            return [said]
        each = said.split(self._between)
        return each if all(map(is_plain_text, each)) else None


def is_plain_text(text: str) -> bool:
    """Tell whether something is words, as JSON writes them and without anything to unescape."""
    return '"' not in text and "\\" not in text and text != "" and text.isprintable()
