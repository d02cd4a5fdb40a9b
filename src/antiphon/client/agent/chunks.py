"""Text cut into chunks as it streams, so that a reader sees letters, words or sentences come.

Joined, the chunks are the text; none of them takes an atom apart. What may still grow is kept back
until more text, or the end, shows what it is. So the chunks are the same however the text was cut
on its way here.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from antiphon.client.agent.atoms import FENCES, Atoms, Kept
from antiphon.core.errors import RequestError

Strategy = Literal["character", "word", "sentence"]
Custom = Callable[[str], list[str]]
"""Cuts a text into chunks; the last of them is kept, and given again with what follows."""

MAX_WORD = 50
MAX_SENTENCE = 400

_INFIXES = frozenset(".,'’")  # it's one word, and so are 3.14 and example.com
_MARKS = frozenset(".?!…。！？")
_WIDE_MARKS = frozenset("。！？")  # no space follows them
_CLOSERS = frozenset("\"'”’»)]}*_」』）】》")

_UNSPACED = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u3007"
    "\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""Letters of languages that put no space between words, such as Chinese, Japanese and Thai."""


class Chunker(ABC):
    """Cuts one stream of text; what it returns, joined, is what it was fed."""

    def __init__(self) -> None:
        self._atoms = Atoms()

    def feed(self, text: str) -> list[str]:
        """Return the chunks that this text completes."""
        return self._gathered(self._atoms.feed(text))

    def flush(self) -> list[str]:
        """Return everything that was kept back."""
        return self._gathered(self._atoms.flush()) + self._rest()

    @abstractmethod
    def _gathered(self, atoms: list[str]) -> list[str]:
        """Return the chunks that these atoms complete."""

    @abstractmethod
    def _rest(self) -> list[str]:
        """Return the chunk that is not complete, if there is one."""


def chunker(strategy: Strategy | Custom) -> Chunker:
    """Make the chunker of a strategy; raises RequestError if there is none."""
    if callable(strategy):
        return Customs(strategy)
    kinds = {"character": Characters, "word": Words, "sentence": Sentences}
    if kind := kinds.get(strategy):
        return kind()
    known = ", ".join(f"'{name}'" for name in kinds)
    message = f"Unknown chunking strategy '{strategy}'. Use {known}, or a function."
    raise RequestError(message, param="chunking_strategy", code="invalid_value")


class Characters(Chunker):
    """Every atom is a chunk."""

    def _gathered(self, atoms: list[str]) -> list[str]:
        return atoms

    def _rest(self) -> list[str]:
        return []


class Gathering(Chunker):
    """Chunks of several atoms, each complete when the next one begins."""

    def __init__(self) -> None:
        super().__init__()
        self._chunk: list[str] = []
        self._size = 0

    def _gathered(self, atoms: list[str]) -> list[str]:
        chunks: list[str] = []
        for atom in atoms:
            if self._begins(atom):
                chunks += self._rest()
            self._chunk.append(atom)
            self._size += len(atom)
            if self._ends(atom):
                chunks += self._rest()
        return chunks

    def _rest(self) -> list[str]:
        chunk = "".join(self._chunk)
        self._chunk.clear()
        self._size = 0
        return [chunk] if chunk else []

    @abstractmethod
    def _begins(self, atom: str) -> bool:
        """Take note of the next atom; tell whether a chunk begins with it."""

    @abstractmethod
    def _ends(self, atom: str) -> bool:
        """Tell whether a chunk ends with this atom, whatever may come."""


class Words(Gathering):
    """A word and what follows it up to the next; each letter, where words are not spaced."""

    def __init__(self) -> None:
        super().__init__()
        self._in_word = False
        self._after_infix = False
        self._unspaced = False

    def _begins(self, atom: str) -> bool:
        fence = atom.startswith(FENCES)
        word = fence or atom[0].isalnum() or atom[0] == "_"
        unspaced = atom[0] > "\u0e00" and _UNSPACED.match(atom) is not None
        goes_on = (self._in_word or self._after_infix) and not (unspaced or self._unspaced)
        too_long = self._size + len(atom) > MAX_WORD
        self._after_infix = self._in_word and atom in _INFIXES
        self._in_word, self._unspaced = word, word and unspaced
        return fence or too_long or (word and not goes_on)

    def _ends(self, atom: str) -> bool:
        return len(atom) > 2 and atom[-1] in "\r\n"  # the line of a fence


class Sentences(Gathering):
    """A sentence and the spaces after it, or a line; what is too long ends at the next gap."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = ""
        self._gap = False
        self._solid = 0

    def _begins(self, atom: str) -> bool:
        if atom.isspace():
            self._gap, self._solid = True, 0
            return False
        wide = self._mark in _WIDE_MARKS and atom not in _MARKS and atom not in _CLOSERS
        over = self._mark != "" and (self._gap or wide)
        too_long = self._size > MAX_SENTENCE if self._gap else self._solid >= MAX_SENTENCE
        begins = over or too_long or atom.startswith(FENCES)
        if atom in _MARKS:
            self._mark = atom
        elif begins or atom not in _CLOSERS:
            self._mark = ""
        self._gap, self._solid = False, len(atom) if begins else self._solid + len(atom)
        return begins

    def _ends(self, atom: str) -> bool:
        return atom[-1] in "\r\n"


class Customs(Chunker):
    """Chunks as the caller's function cuts them; as they come, where it fails or loses text."""

    def __init__(self, cut: Custom) -> None:
        super().__init__()
        self._cut = cut
        self._kept = Kept()

    def _gathered(self, atoms: list[str]) -> list[str]:
        if not self._kept.add("".join(atoms)):
            return []
        text = self._kept.take()
        chunks = self._chunks(text)
        if chunks is None:
            return [text]
        self._kept.keep(chunks.pop())
        return chunks

    def _rest(self) -> list[str]:
        text = self._kept.take()
        return (self._chunks(text) or [text]) if text else []

    def _chunks(self, text: str) -> list[str] | None:
        """Ask for the chunks of a text; None if they are of no use."""
        try:
            chunks = [chunk for chunk in self._cut(text) if chunk]
            return chunks if "".join(chunks) == text else None
        except Exception:  # noqa: BLE001 - the caller's function may raise anything
            return None
