"""What a stream repeats with every chunk; only the words between are new.

Nearly every chunk of a chat is the one before it with other words. Once one has been read in full,
those that are like it, byte for byte but for the words, need not be: what stands in the words'
place and could not be anything but words, is words. Everything else is read as always.
"""

from collections.abc import Callable

MAX_LENGTH = 4096
"""How long a chunk may be that is learnt."""

TRIALS = 3
"""How often a stream is learnt whose chunks turn out not to be alike."""

TRIAL = "Is this the place?"


class Refrain:
    """What stands before and after the words in a stream's events."""

    __slots__ = ("_after", "_before", "_between", "_end", "_start", "trials")

    def __init__(self) -> None:
        self.trials = TRIALS
        """How often it may still be learnt."""
        self._before = self._after = b""
        self._between = "\n"
        self._start = self._end = 0

    @property
    def is_known(self) -> bool:
        """Whether something was learnt."""
        return bool(self._before)

    def learn(self, data: bytes, words: str, read: Callable[[bytes], object]) -> None:
        """Learn from the JSON of a chunk with these words, as `read` finds them in any."""
        self.trials -= 1
        before, found, after = data.partition(b'"%b"' % words.encode(errors="replace"))
        if not found or len(data) > MAX_LENGTH:
            return
        try:
            is_place = read(b'%b"%b"%b' % (before, TRIAL.encode(), after)) == TRIAL
            before, after = b'data: %b"' % before, b'"%b\n\n' % after
            between = (after + before).decode()
        except ValueError:  # a comma, say, stands between any two strings
            return
        if is_place:
            self._before, self._after, self._between = before, after, between
            self._start, self._end = len(before), -len(after)

    def words(self, data: bytes) -> list[str] | None:
        """Return the words of whole events that are all alike, or nothing if one of them is not."""
        if not (data.startswith(self._before) and data.endswith(self._after)):
            return None
        try:
            said = data[self._start : self._end].decode()
        except UnicodeDecodeError:
            return None
        if is_plain(said):
            return [said]
        each = said.split(self._between)
        return each if all(map(is_plain, each)) else None


def is_plain(said: str) -> bool:
    """Tell whether something is words, as JSON writes them and without anything to unescape."""
    return '"' not in said and "\\" not in said and said != "" and said.isprintable()
