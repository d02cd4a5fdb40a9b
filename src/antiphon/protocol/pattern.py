"""Strings that a regular expression matches, written from the expression itself.

An expression is never tried on a string, because an untrusted one can keep `re` busy for years:
only its single characters are, and the rest is read here. Literals, classes, groups, alternatives
and repetitions are understood; lookarounds, backreferences, boundaries and flags are not.
"""

import re
import string
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

MAX_PATTERN = 512
MAX_GROUPS = 32
MAX_LENGTH = 4096

_VARIANTS = 100
_CHARACTERS = string.ascii_letters + string.digits + string.punctuation + string.whitespace
_ATOM = re.compile(
    r"\\u[0-9a-fA-F]{4} | \\x[0-9a-fA-F]{2} | \\. | \[\^?(?:\\.|[^\\\[\]])+\] | [^][\\()*+?{}|^$]",
    re.DOTALL | re.VERBOSE,
)
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_]\w*>)?(?!\?)")
_REPEAT = re.compile(r"(?:([*+?])|\{([0-9]+)(?:(,)([0-9]*))?\})\??")
_SIGNS = {"*": (0, MAX_LENGTH), "+": (1, MAX_LENGTH), "?": (0, 1)}
_SET_OPERATORS = ("--", "&&", "~~", "||")


class _Unreadable(Exception):
    """An expression beyond this module."""


def matching(pattern: str, min_length: int = 0) -> Iterator[str]:
    """Return some strings that hold a match, the shortest first; none if it cannot be read."""
    if len(pattern) > MAX_PATTERN or pattern.count("(") > MAX_GROUPS or min_length > MAX_LENGTH:
        return
    try:
        extra = bisect_left(range(min_length), min_length, key=lambda n: len(_write(pattern, n)))
        last = None
        for text in (_write(pattern, n) for n in range(extra, extra + _VARIANTS)):
            if text == last or len(text) < min_length:
                return
            yield text
            last = text
    except _Unreadable:
        return


def _write(pattern: str, extra: int) -> str:
    """Write one match, each repetition as short as it may be and `extra` rounds longer."""
    reader = _Reader(pattern, extra)
    text = reader.alternatives(top=True)
    if reader.at < len(pattern):
        raise _Unreadable
    return text


class _Reader:
    """Reads an expression from left to right, writing what it reads."""

    def __init__(self, pattern: str, extra: int) -> None:
        self.pattern = pattern
        self.extra = extra
        self.at = 0

    def alternatives(self, *, top: bool = False) -> str:
        """Read alternatives; the first one is written."""
        first = self.sequence(top=top)
        while self.take("|"):
            self.sequence(top=top)
        return first

    def sequence(self, *, top: bool) -> str:
        """Read pieces in a row; an end that is not anchored may go on with anything."""
        if top:
            self.take("^")
        text = "".join(iter(self.piece, None))
        if top and not self.take("$"):
            text += "a" * self.extra
        return text

    def piece(self) -> str | None:
        """Read a character or a group with its repetition, or nothing."""
        if self.match(_GROUP):
            text = self.alternatives()
            if not self.take(")"):
                raise _Unreadable
        elif atom := self.match(_ATOM):
            text = _character(atom.group())
        else:
            return None
        return text * self.rounds(len(text))

    def rounds(self, length: int) -> int:
        """Read a repetition, and decide how often to go round."""
        if not (repeat := self.match(_REPEAT)):
            return 1
        sign, least, comma, most = repeat.groups()
        unbounded = MAX_LENGTH if comma else int(least or 0)
        low, high = _SIGNS[sign] if sign else (int(least), int(most or unbounded))
        room = MAX_LENGTH // max(length, 1)
        if not low <= min(high, room):
            raise _Unreadable
        return min(low + self.extra, high, room)

    def take(self, sign: str) -> bool:
        """Read a sign, if it comes next."""
        taken = self.pattern.startswith(sign, self.at)
        self.at += len(sign) * taken
        return taken

    def match(self, token: re.Pattern[str]) -> re.Match[str] | None:
        """Read a token, if it comes next."""
        if found := token.match(self.pattern, self.at):
            self.at = found.end()
        return found


@lru_cache(maxsize=256)
def _character(atom: str) -> str:
    """Return a character that a literal, an escape or a class stands for."""
    if any(pair in atom for pair in _SET_OPERATORS):
        raise _Unreadable
    try:
        return next(char for char in _CHARACTERS + atom if re.fullmatch(atom, char))
    except (re.error, StopIteration):
        raise _Unreadable from None
