"""What a stream repeats with every chunk; only the words between are new.

Nearly every chunk of a chat is the one before it with other words. Once one has been read in full,
those that are like it, byte for byte but for the words, need not be: what stands in the words'
place and could not be anything but words, is words. Everything else is read as always.
"""

from collections.abc import Callable

from antiphon.core.parts import Part, Text

MAX_LENGTH = 4096
"""How long a chunk may be that is learnt."""

TRIALS = 3
"""How often a stream is learnt whose chunks turn out not to be alike."""

TRIAL = "Is this the place?"
QUOTE = b'"'
(BACKSLASH,) = b"\\"


class Refrain:
    """What stands before and after the words in a stream's events."""

    __slots__ = ("_after", "_before", "trials")

    def __init__(self) -> None:
        self.trials = TRIALS
        """How often it may still be learnt."""
        self._before = self._after = b""

    def learn(self, data: bytes, words: str, read: Callable[[bytes], object]) -> None:
        """Learn from the JSON of a chunk with these words, as `read` finds them in any."""
        self.trials -= 1
        before, found, after = data.partition(b'"%b"' % words.encode(errors="replace"))
        if not found or len(data) > MAX_LENGTH:
            return
        try:
            is_place = read(b'%b"%b"%b' % (before, TRIAL.encode(), after)) == TRIAL
        except ValueError:  # a comma, say, stands between any two strings
            return
        if is_place:
            self._before, self._after = b'data: %b"' % before, b'"%b\n\n' % after

    def hear(self, data: bytes) -> list[Part] | None:
        """Return the words of whole events that are all alike, or nothing if one of them is not."""
        before, after = self._before, self._after
        heard: list[Part] = []
        at = 0
        while at < len(data):
            start = at + len(before)
            end = data.find(QUOTE, start)
            if not (before and data.startswith(before, at) and data.startswith(after, end)):
                return None
            said = data[start:end]
            try:
                words = said.decode()
            except UnicodeDecodeError:
                return None
            if not words or BACKSLASH in said or not words.isprintable():
                return None  # JSON has no line breaks in a string, nor have we
            heard.append(Text(words))
            at = end + len(after)
        return heard
