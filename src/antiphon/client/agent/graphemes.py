"""Splits streamed text into pieces that must stay whole: graphemes, line ends, code fence markers.

Graphemes follow Unicode's annex 29. The last one is buffered, because it may still grow: a flag, a
family emoji or an accented letter has several characters, which may arrive in several deltas. A
fence marker is a run of three or more backticks or tildes; at the start of a line it includes the
rest of the line, its info string.
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
"""Characters that are graphemes by themselves: Latin, Greek, Cyrillic, Han, kana."""

_SIMPLE_PIECE = re.compile(r"\r\n|`+|~+|.", re.DOTALL)

# Alternatives before the library's \X: surrogate pairs, which a str may contain; flags, for which
# \X takes quadratic time; and rule GB9c for Indic conjuncts, which it does not implement yet.
_GRAPHEME = r"""
    [\ud800-\udbff][\udc00-\udfff]
  | \p{RI}{2} [\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]*+
  | \p{GCB=Prepend}*+ (?: \p{InCB=Consonant} (?:\p{InCB=Extend}*+\p{InCB=Linker})++
      \p{InCB=Extend}*+ (?=\p{InCB=Consonant}) )++ \X
  | (?: (?:`(?=`))++ | (?:~(?=~))++ )? \X
"""


class TailBuffer:
    """Text that is buffered and split again as it grows.

    It is due for splitting when it has grown by a sixteenth. So the total cost stays linear, even
    for a long grapheme that arrives one character at a time.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0
        self._next_size = 1

    def add(self, text: str) -> bool:
        """Add text; return whether the buffer is due for splitting."""
        self._texts.append(text)
        self._size += len(text)
        return self._size >= self._next_size

    def take(self) -> str:
        """Return the text and empty the buffer."""
        text = "".join(self._texts)
        self.keep("")
        return text

    def keep(self, text: str) -> None:
        """Put back the part that may still grow."""
        self._texts, self._size = [text], len(text)
        self._next_size = self._size + self._size // 16 + 1


class GraphemeSplitter:
    """Splits one stream of text into pieces that must stay whole."""

    def __init__(self) -> None:
        self._tail = TailBuffer()
        self._marker: list[str] = []
        self._begins_line = True
        self._marks_line = False

    def feed(self, text: str) -> list[str]:
        """Return the pieces that this text completes; the last grapheme is buffered."""
        if not self._tail.add(text):
            return []
        pieces = _split_graphemes(self._tail.take())
        self._tail.keep(pieces.pop())
        return list(self._join_markers(pieces))

    def flush(self) -> list[str]:
        """Return what is buffered."""
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
            # At the start of a line, also in a quote or a list, a fence may open a code block.
            if piece.startswith(FENCES):
                self._marker, self._marks_line = [piece], self._begins_line
            else:
                yield piece
            self._begins_line = piece in _LINE_ENDS or (
                self._begins_line and piece in _BEFORE_A_FENCE
            )

    def _continues_marker(self, piece: str) -> bool:
        """Return whether a piece belongs to the open marker."""
        if self._marks_line:
            # CommonMark: "Info strings for backtick code blocks cannot contain backticks."
            return not piece[0] == self._marker[0][0] == "`"
        return piece in _INFO_CHARACTERS

    def _close_marker(self) -> Iterator[str]:
        if self._marker:
            marker, self._marker = "".join(self._marker), []
            yield marker


def grapheme_boundary(text: str, at: int) -> int:
    """Return the last position, at most `at`, that does not split a grapheme."""
    # Between two ASCII characters there is always a boundary, except within CR LF.
    around = text[max(0, at - 1) : at + 1]
    if at <= 0 or at >= len(text) or (around.isascii() and around != "\r\n"):
        return max(0, min(at, len(text)))
    # A line end is always a boundary, so splitting can start there.
    place = text.rfind("\n", 0, at) + 1
    for piece in _split_graphemes(text[place : at + 1]):
        if place + len(piece) > at:
            break
        place += len(piece)
    return place


def _split_graphemes(text: str) -> list[str]:
    """Split a text into graphemes and runs of fence characters."""
    return (
        _SIMPLE_PIECE.findall(text)
        if _SINGLE_CHARACTERS.fullmatch(text)
        else _grapheme_pattern().findall(text)
    )


@cache
def _grapheme_pattern() -> "regex.Pattern[str]":
    import regex  # start-up time: it takes longer to import than the whole client

    return regex.compile(_GRAPHEME, regex.VERBOSE | regex.DOTALL)
