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
QUOTE, BACKSLASH = b'"\\'


class Refrain:
    """What stands before and after the words in a stream's events."""

    __slots__ = ("_after", "_before", "_end", "_start", "trials")

    def __init__(self) -> None:
        self.trials = TRIALS
        """How often it may still be learnt."""
        self._before = self._after = b""
        self._start = self._end = 0

    def learn(self, data: bytes, words: str, read: Callable[[bytes], object]) -> None:
        """Learn from the JSON of a chunk with these words, as `read` finds them in any."""
        self.trials -= 1
        before, found, after = data.partition(b'"%b"' % words.encode(errors="replace"))
        if not found or len(data) > MAX_LENGTH:
            return
        if read(b'%b"%b"%b' % (before, TRIAL.encode(), after)) == TRIAL:
            self._before, self._after = b'data: %b"' % before, b'"' + after
            self._start, self._end = len(self._before), -len(self._after)

    def hear(self, data: bytes) -> list[Part] | None:
        """Return the words of whole events that are all alike, or nothing if one of them is not."""
        before, after = self._before, self._after
        if not (before and data.startswith(before)):
            return None
        blocks = data.split(b"\n\n")
        if blocks.pop():
            return None  # the last event is not whole
        heard: list[Part] = []
        try:
            for block in blocks:
                said = block[self._start : self._end]
                words = said.decode()
                if (
                    not (words and block.startswith(before) and block.endswith(after))
                    or QUOTE in said
                    or BACKSLASH in said
                    or not words.isprintable()  # JSON has no line breaks in a string, nor have we
                ):
                    return None
                heard.append(Text(words))
        except UnicodeDecodeError:
            return None
        return heard
