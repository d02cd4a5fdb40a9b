"""What no chunk may take apart: graphemes, line ends, and the markers of code fences.

Graphemes are those of Unicode's annex 29. The last one is kept back, because it may still grow:
a flag, a family of emoji or an accented letter comes in several characters, and perhaps in several
deltas. A fence's marker is a run of three or more backticks or tildes; where it begins a line, the
rest of the line, its info string, belongs to it.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

FENCES = ("```", "~~~")

_LINE_ENDS = frozenset({"\n", "\r\n", "\r"})
_BEFORE_A_FENCE = frozenset(" \t>-*+.)0123456789")  # indentation, quotes and lists
_INFO_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+#.-")

_SINGLE_CHARACTERS = re.compile(
    "[\0-\u02ff\u0370-\u0482\u048a-\u058f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u22ff"
    "\u3001-\u3029\u3041-\u3096\u30a0-\u30ff\u3400-\u9fff\uff01-\uff60]*"
)
"""Characters that stand alone: Latin, Greek, Cyrillic, Han, kana and their punctuation."""

_SIMPLE_PIECE = re.compile(r"\r\n|`+|~+|.", re.DOTALL)

# Before the library's \X: halves of a surrogate pair, which a str may hold; flags, which it reads
# in quadratic time; and rule GB9c, which keeps Indic conjuncts whole and is not known to it yet.
_GRAPHEME = r"""
    [\ud800-\udbff][\udc00-\udfff]
  | \p{RI}{2} [\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]*+
  | \p{GCB=Prepend}*+ (?: \p{InCB=Consonant} (?:\p{InCB=Extend}*+\p{InCB=Linker})++
      \p{InCB=Extend}*+ (?=\p{InCB=Consonant}) )++ \X
  | (?: (?:`(?=`))++ | (?:~(?=~))++ )? \X
"""


class TailBuffer:
    """Text that is kept back and read again as it grows.

    It is ready when it has grown by a share of itself: so, however long it becomes and however
    little is added at a time, reading it costs no more than a few times its length.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0
        self._next_size = 1

    def add(self, text: str) -> bool:
        """Add text; tell whether it is time to read it all."""
        self._texts.append(text)
        self._size += len(text)
        return self._size >= self._next_size

    def take(self) -> str:
        """Return the text, and keep none of it."""
        text = "".join(self._texts)
        self.keep("")
        return text

    def keep(self, text: str) -> None:
        """Keep this of what was taken."""
        self._texts, self._size = [text], len(text)
        self._next_size = self._size + self._size // 16 + 1


class GraphemeSplitter:
    """Cuts one stream of text into what has to stay whole."""

    def __init__(self) -> None:
        self._tail = TailBuffer()
        self._marker: list[str] = []
        self._begins_line = True
        self._marks_line = False

    def feed(self, text: str) -> list[str]:
        """Return the atoms that this text completes; its last grapheme may still grow."""
        if not self._tail.add(text):
            return []
        found = _split_graphemes(self._tail.take())
        self._tail.keep(found.pop())
        return list(self._join_markers(found))

    def flush(self) -> list[str]:
        """Return what was kept back."""
        return [*self._join_markers(_split_graphemes(self._tail.take())), *self._close_marker()]

    def _join_markers(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            if self._marker and self._continues_marker(piece):
                self._marker.append(piece)
                if piece in _LINE_ENDS:
                    self._begins_line = True
                    yield from self._close_marker()
                continue
            yield from self._close_marker()
            if piece.startswith(FENCES):
                self._marker, self._marks_line = [piece], self._begins_line
            else:
                yield piece
            self._begins_line = piece in _LINE_ENDS or (
                self._begins_line and piece in _BEFORE_A_FENCE
            )

    def _continues_marker(self, piece: str) -> bool:
        """Tell whether a piece goes on with the marker that is open."""
        if self._marks_line:
            # CommonMark: "Info strings for backtick code blocks cannot contain backticks."
            return not piece[0] == self._marker[0][0] == "`"
        return piece in _INFO_CHARACTERS

    def _close_marker(self) -> Iterator[str]:
        if self._marker:
            marker, self._marker = "".join(self._marker), []
            yield marker


def grapheme_boundary(text: str, at: int) -> int:
    """Return the last place, not after `at`, where no grapheme is taken apart."""
    around = text[max(0, at - 1) : at + 1]
    if at <= 0 or at >= len(text) or (around.isascii() and around != "\r\n"):
        return max(0, min(at, len(text)))
    place = text.rfind("\n", 0, at) + 1  # nothing is joined to a line's end
    for piece in _split_graphemes(text[place : at + 1]):
        if place + len(piece) > at:
            break
        place += len(piece)
    return place


def _split_graphemes(text: str) -> list[str]:
    """Cut a text into graphemes and runs of fence marks."""
    return (
        _SIMPLE_PIECE.findall(text)
        if _SINGLE_CHARACTERS.fullmatch(text)
        else _grapheme_pattern().findall(text)
    )


@cache
def _grapheme_pattern() -> "regex.Pattern[str]":
    import regex  # it takes longer to import than all of the client

    return regex.compile(_GRAPHEME, regex.VERBOSE | regex.DOTALL)
