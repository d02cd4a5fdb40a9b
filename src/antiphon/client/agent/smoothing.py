"""Text cut into chunks as it streams, so that a reader sees letters, words or sentences come.

Joined, the chunks are the text; none of them takes an atom apart. What may still grow is kept back
until more text, or the end, shows what it is. So the chunks are the same however the text was cut
on its way here.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

from antiphon.client.agent.graphemes import FENCES, GraphemeSplitter, TailBuffer
from antiphon.protocol.errors import RequestError

ChunkStrategy = Literal["character", "word", "sentence"]
ChunkFunction = Callable[[str], list[str]]
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
        self._splitter = GraphemeSplitter()

    def feed(self, text: str) -> list[str]:
        """Return the chunks that this text completes."""
        return self._group(self._splitter.feed(text))

    def flush(self) -> list[str]:
        """Return everything that was kept back."""
        return self._group(self._splitter.flush()) + self._take_rest()

    @abstractmethod
    def _group(self, pieces: list[str]) -> list[str]:
        """Return the chunks that these atoms complete."""

    @abstractmethod
    def _take_rest(self) -> list[str]:
        """Return the chunk that is not complete, if there is one."""


def create_chunker(strategy: ChunkStrategy | ChunkFunction) -> Chunker:
    """Make the chunker of a strategy; raises RequestError if there is none."""
    if callable(strategy):
        return CustomChunker(strategy)
    kinds = {"character": CharacterChunker, "word": WordChunker, "sentence": SentenceChunker}
    if kind := kinds.get(strategy):
        return kind()
    known = ", ".join(f"'{name}'" for name in kinds)
    message = f"Unknown chunking strategy '{strategy}'. Use {known}, or a function."
    raise RequestError(message, param="chunking_strategy", code="invalid_value")


class CharacterChunker(Chunker):
    """Every atom is a chunk."""

    def _group(self, pieces: list[str]) -> list[str]:
        return pieces

    def _take_rest(self) -> list[str]:
        return []


class GroupingChunker(Chunker):
    """Chunks of several atoms, each complete when the next one begins."""

    def __init__(self) -> None:
        super().__init__()
        self._chunk: list[str] = []
        self._size = 0

    def _group(self, pieces: list[str]) -> list[str]:
        chunks: list[str] = []
        for atom in pieces:
            if self._starts_chunk(atom):
                chunks += self._take_rest()
            self._chunk.append(atom)
            self._size += len(atom)
            if self._ends_chunk(atom):
                chunks += self._take_rest()
        return chunks

    def _take_rest(self) -> list[str]:
        chunk = "".join(self._chunk)
        self._chunk.clear()
        self._size = 0
        return [chunk] if chunk else []

    @abstractmethod
    def _starts_chunk(self, piece: str) -> bool:
        """Take note of the next atom; tell whether a chunk begins with it."""

    @abstractmethod
    def _ends_chunk(self, piece: str) -> bool:
        """Tell whether a chunk ends with this atom, whatever may come."""


class WordChunker(GroupingChunker):
    """A word and what follows it up to the next; each letter, where words are not spaced."""

    def __init__(self) -> None:
        super().__init__()
        self._in_word = False
        self._after_infix = False
        self._unspaced = False

    def _starts_chunk(self, piece: str) -> bool:
        fence = piece.startswith(FENCES)
        word = fence or piece[0].isalnum() or piece[0] == "_"
        unspaced = piece[0] > "\u0e00" and _UNSPACED.match(piece) is not None
        goes_on = (self._in_word or self._after_infix) and not (unspaced or self._unspaced)
        too_long = self._size + len(piece) > MAX_WORD
        self._after_infix = self._in_word and piece in _INFIXES
        self._in_word, self._unspaced = word, word and unspaced
        return fence or too_long or (word and not goes_on)

    def _ends_chunk(self, piece: str) -> bool:
        return len(piece) > 2 and piece[-1] in "\r\n"  # the line of a fence


class SentenceChunker(GroupingChunker):
    """A sentence and the spaces after it, or a line; what is too long ends at the next gap."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = ""
        self._gap = False
        self._solid = 0

    def _starts_chunk(self, piece: str) -> bool:
        if piece.isspace():
            self._gap, self._solid = True, 0
            return False
        wide = self._mark in _WIDE_MARKS and piece not in _MARKS and piece not in _CLOSERS
        over = self._mark != "" and (self._gap or wide)
        too_long = self._size > MAX_SENTENCE if self._gap else self._solid >= MAX_SENTENCE
        begins = over or too_long or piece.startswith(FENCES)
        if piece in _MARKS:
            self._mark = piece
        elif begins or piece not in _CLOSERS:
            self._mark = ""
        self._gap, self._solid = False, len(piece) if begins else self._solid + len(piece)
        return begins

    def _ends_chunk(self, piece: str) -> bool:
        return piece[-1] in "\r\n"


class CustomChunker(Chunker):
    """Chunks as the caller's function cuts them; as they come, where it fails or loses text."""

    def __init__(self, split: ChunkFunction) -> None:
        super().__init__()
        self._split = split
        self._tail = TailBuffer()

    def _group(self, pieces: list[str]) -> list[str]:
        if not self._tail.add("".join(pieces)):
            return []
        text = self._tail.take()
        chunks = self._split_text(text)
        if chunks is None:
            return [text]
        self._tail.keep(chunks.pop())
        return chunks

    def _take_rest(self) -> list[str]:
        text = self._tail.take()
        return (self._split_text(text) or [text]) if text else []

    def _split_text(self, text: str) -> list[str] | None:
        """Ask for the chunks of a text; None if they are of no use."""
        try:
            chunks = [chunk for chunk in self._split(text) if chunk]
            return chunks if "".join(chunks) == text else None
        except Exception:  # noqa: BLE001 - the caller's function may raise anything
            return None


Emit = Callable[[str], Awaitable[None] | None]

DEFAULT_DELAY = 0.03


class Smoother:
    """Paces one stream of text: a chunk, `delay` seconds of rest, and the next chunk.

    If it is not enabled, text goes out as it comes, and what comes during a rest goes out together.
    `together` does the same with chunks, and lets the first words out before their chunk is whole.
    """

    def __init__(
        self,
        emit: Emit,
        strategy: ChunkStrategy | ChunkFunction = "word",
        delay: float = DEFAULT_DELAY,
        *,
        enabled: bool = True,
        coalesce: bool = False,
    ) -> None:
        self._emit = emit
        self._chunker = create_chunker(strategy) if enabled else None
        self._delay = delay
        self._coalesce = coalesce or not enabled
        self._ready: deque[str] = deque()
        self._next_at: float | None = None  # the time at which the next may go; None at first
        self._emit_lock = asyncio.Lock()  # one emission at a time, in order
        self._pace_task: asyncio.Task[None] | None = None

    async def feed(self, text: str) -> None:
        """Take text, and let out what may go at once; raises what `emit` raised."""
        self._raise_failure()
        self._ready += self._chunk(text)
        if self._pace_task is None:
            await self._emit_due()
        if self._pace_task is None and self._ready:
            self._pace_task = asyncio.create_task(self._pace())

    async def flush(self) -> None:
        """Let out all that is left, in one piece; raises what `emit` raised."""
        async with self._emit_lock:
            self._raise_failure()
            await self._stop()  # it is resting, for the turn is ours
            if self._chunker:
                self._ready += self._chunker.flush()
            await self._send(self._take_all())
            self._next_at = None

    async def discard(self) -> None:
        """Give up all that is left, and what is being let out."""
        await self._stop()
        if self._chunker:
            self._chunker.flush()
        self._ready.clear()
        self._next_at = None

    def _chunk(self, text: str) -> list[str]:
        if self._chunker is None:
            return [text] if text else []
        chunks = self._chunker.feed(text)
        if self._coalesce and self._next_at is None and not chunks:
            return self._chunker.flush()
        return chunks

    async def _pace(self) -> None:
        while self._ready:
            await asyncio.sleep(self._remaining_delay())
            await self._emit_due()
        self._pace_task = None

    async def _emit_due(self) -> None:
        """Let out what need not wait: the next chunk if it has rested; all, if nothing rests."""
        while self._ready and self._remaining_delay() <= 0:
            async with self._emit_lock:
                await self._send(self._take_next())
            if self._delay:
                return

    def _remaining_delay(self) -> float:
        """Return how long the next chunk has to wait."""
        return 0 if self._next_at is None else self._next_at - asyncio.get_running_loop().time()

    def _take_next(self) -> str:
        if self._coalesce or not self._ready:  # a flush may have come before this turn
            return self._take_all()
        return self._ready.popleft()

    def _take_all(self) -> str:
        text = "".join(self._ready)
        self._ready.clear()
        return text

    async def _send(self, text: str) -> None:
        if not text:
            return
        self._next_at = asyncio.get_running_loop().time() + self._delay
        emitted = self._emit(text)
        if emitted is not None:
            await emitted

    def _raise_failure(self) -> None:
        """Raise what `emit` raised while nobody was waiting for it."""
        if self._pace_task and self._pace_task.done():
            pacer, self._pace_task = self._pace_task, None
            pacer.result()

    async def _stop(self) -> None:
        pacer, self._pace_task = self._pace_task, None
        if pacer:
            pacer.cancel()
            await asyncio.wait([pacer])
            if not pacer.cancelled():
                pacer.exception()  # seen, so that asyncio does not complain
