"""Smoothing: streamed text split into characters, words or sentences, and emitted at an even pace.

The chunks, joined, are the text, and no grapheme is split. A chunk that may still grow is buffered,
so the chunks do not depend on the deltas in which the text arrived. A flush emits all that is left
at once: no text waits for the pace when no more is coming.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Literal

from antiphon.protocol.errors import RequestError

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
    """Splits a stream of text with a function; its last piece is buffered, because it may still grow.

    What is buffered is split again when it has grown by a sixteenth. So the total cost stays
    linear, even for a long grapheme that arrives one character at a time.
    """

    def __init__(self, split: "ChunkFunction") -> None:
        self._split = split
        self._keep("")

    def _keep(self, text: str) -> None:
        self._texts, self._size = [text], len(text)
        self._next_size = self._size + self._size // 16 + 1

    def feed(self, text: str) -> list[str]:
        """Return the pieces that this text completes."""
        self._texts.append(text)
        self._size += len(text)
        if self._size < self._next_size:
            return []
        pieces = self._split("".join(self._texts))
        self._keep(pieces.pop())
        return pieces

    def flush(self) -> list[str]:
        """Return the pieces of what is buffered."""
        text = "".join(self._texts)
        self._keep("")
        return self._split(text) if text else []


class GraphemeSplitter:
    """Splits one stream of text into pieces that must stay whole."""

    def __init__(self) -> None:
        self._tail = TailBuffer(_split_graphemes)
        self._marker: list[str] = []
        self._begins_line = True
        self._marks_line = False

    def feed(self, text: str) -> list[str]:
        """Return the pieces that this text completes; the last grapheme is buffered."""
        return list(self._join_markers(self._tail.feed(text)))

    def flush(self) -> list[str]:
        """Return what is buffered."""
        return [*self._join_markers(self._tail.flush()), *self._close_marker()]

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
            self._begins_line = piece in _LINE_ENDS or (self._begins_line and piece in _BEFORE_A_FENCE)

    def _continues_marker(self, piece: str) -> bool:
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
    return _SIMPLE_PIECE.findall(text) if _SINGLE_CHARACTERS.fullmatch(text) else _grapheme_pattern().findall(text)


@cache
def _grapheme_pattern() -> "regex.Pattern[str]":
    import regex  # start-up time: it takes longer to import than the whole client

    return regex.compile(_GRAPHEME, regex.VERBOSE | regex.DOTALL)


ChunkStrategy = Literal["character", "word", "sentence"]
ChunkFunction = Callable[[str], list[str]]
"""Splits a text into chunks; the last one is buffered and passed again with the text after it."""

# Limits for text without breaks, such as base64: it should not wait until the end.
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
"""Letters of languages without spaces between words, such as Chinese, Japanese and Thai."""


class Chunker:
    """Splits one stream of text into chunks; joined, they are the text. Here every piece is a chunk."""

    def __init__(self) -> None:
        self._splitter = GraphemeSplitter()
        self._chunk: list[str] = []
        self._size = 0

    def feed(self, text: str) -> list[str]:
        """Return the chunks that this text completes."""
        return self._group(self._splitter.feed(text))

    def flush(self) -> list[str]:
        """Return everything that is buffered."""
        return self._group(self._splitter.flush()) + self._take_rest()

    def _group(self, pieces: list[str]) -> list[str]:
        chunks: list[str] = []
        for piece in pieces:
            if self._starts_chunk(piece):
                chunks += self._take_rest()
            self._chunk.append(piece)
            self._size += len(piece)
            if self._ends_chunk(piece):
                chunks += self._take_rest()
        return chunks

    def _take_rest(self) -> list[str]:
        chunk = "".join(self._chunk)
        self._chunk.clear()
        self._size = 0
        return [chunk] if chunk else []

    def _starts_chunk(self, piece: str) -> bool:
        """Process the next piece; return whether a chunk starts with it."""
        return False

    def _ends_chunk(self, piece: str) -> bool:
        """Return whether a chunk ends with this piece, whatever follows."""
        return True


def create_chunker(strategy: ChunkStrategy | ChunkFunction) -> Chunker:
    """Create the chunker of a strategy; raises RequestError if it is unknown."""
    if callable(strategy):
        return CustomChunker(strategy)
    kinds = {"character": Chunker, "word": WordChunker, "sentence": SentenceChunker}
    if kind := kinds.get(strategy):
        return kind()
    known = ", ".join(f"'{name}'" for name in kinds)
    message = f"Unknown chunking strategy '{strategy}'. Use {known}, or a function."
    raise RequestError(message, param="chunking_strategy", code="invalid_value")


class WordChunker(Chunker):
    """A word and the text up to the next one; single letters in languages without spaces."""

    def __init__(self) -> None:
        super().__init__()
        self._in_word = False
        self._after_infix = False
        self._unspaced = False

    def _starts_chunk(self, piece: str) -> bool:
        is_fence = piece.startswith(FENCES)
        is_word = is_fence or piece[0].isalnum() or piece[0] == "_"
        unspaced = piece[0] > "\u0e00" and _UNSPACED.match(piece) is not None
        goes_on = (self._in_word or self._after_infix) and not (unspaced or self._unspaced)
        too_long = self._size + len(piece) > MAX_WORD
        # An infix belongs to the word only if a letter follows: "3.14", but not "end. Next".
        self._after_infix = self._in_word and piece in _INFIXES
        self._in_word, self._unspaced = is_word, is_word and unspaced
        return is_fence or too_long or (is_word and not goes_on)

    def _ends_chunk(self, piece: str) -> bool:
        return len(piece) > 2 and piece[-1] in "\r\n"  # the line of a fence


class SentenceChunker(Chunker):
    """A sentence and the spaces after it, or a line; a long one ends at the next space."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = ""
        self._gap = False
        self._solid = 0

    def _starts_chunk(self, piece: str) -> bool:
        if piece.isspace():
            self._gap, self._solid = True, 0
            return False
        # A closing quote after a wide mark belongs to the sentence that it ends.
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
    """Chunks from the caller's function; if it raises or loses text, the text as it arrived."""

    def __init__(self, split: ChunkFunction) -> None:
        super().__init__()
        self._split = split
        self._tail = TailBuffer(self._split_text)

    def _group(self, pieces: list[str]) -> list[str]:
        return self._tail.feed("".join(pieces))

    def _take_rest(self) -> list[str]:
        return [chunk for chunk in self._tail.flush() if chunk]

    def _split_text(self, text: str) -> list[str]:
        # Smoothing must never lose text because of a faulty function, which may raise anything.
        with suppress(Exception):
            chunks = [chunk for chunk in self._split(text) if chunk]
            if "".join(chunks) == text:
                return chunks
        return [text, ""]  # the last one is buffered: nothing of the text


Emit = Callable[[str], Awaitable[None] | None]


class Smoother:
    """Emits one stream of text at an even pace: a chunk, a pause of `delay` seconds, a chunk.

    If not enabled, text is emitted as it arrives, and text that arrives during a pause as one.
    `coalesce` does the same with chunks, and emits the first text before its chunk is complete.
    """

    def __init__(
        self,
        emit: Emit,
        strategy: ChunkStrategy | ChunkFunction = "word",
        delay: float = 0.03,
        *,
        enabled: bool = True,
        coalesce: bool = False,
    ) -> None:
        self._emit = emit
        self._chunker = create_chunker(strategy) if enabled else None
        self._delay = delay
        self._coalesce = coalesce or not enabled
        self._ready: deque[str] = deque()
        self._next_at: float | None = None
        """When the next chunk may be emitted; None before the first."""
        self._emit_lock = asyncio.Lock()
        """Keeps the chunks in order: one emission at a time."""
        self._pace_task: asyncio.Task[None] | None = None

    async def feed(self, text: str) -> None:
        """Add text; emit what is due. Raises the exceptions of `emit`."""
        self._raise_failure()
        self._ready += self._chunk(text)
        if self._pace_task is None:
            await self._emit_due()
        if self._pace_task is None and self._ready:
            self._pace_task = asyncio.create_task(self._pace())

    async def flush(self) -> None:
        """Emit all that is left as one chunk. Raises the exceptions of `emit`."""
        async with self._emit_lock:
            self._raise_failure()
            # The task is between two chunks, because this call holds the lock.
            await self._stop()
            if self._chunker:
                self._ready += self._chunker.flush()
            await self._send(self._take_all())
            self._next_at = None

    async def discard(self) -> None:
        """Drop all that is left, and stop an emission under way."""
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
        """Emit the next chunk if it is due; all chunks if there is no delay."""
        while self._ready and self._remaining_delay() <= 0:
            async with self._emit_lock:
                # A flush may have emptied it during the wait for the lock.
                takes_one = self._ready and not self._coalesce
                await self._send(self._ready.popleft() if takes_one else self._take_all())
            # With a delay, the background task emits the rest.
            if self._delay:
                return

    def _remaining_delay(self) -> float:
        return 0 if self._next_at is None else self._next_at - asyncio.get_running_loop().time()

    def _take_all(self) -> str:
        text = "".join(self._ready)
        self._ready.clear()
        return text

    async def _send(self, text: str) -> None:
        if not text:
            return
        # Before the call, so that a slow consumer does not add its own time to the pause.
        self._next_at = asyncio.get_running_loop().time() + self._delay
        emitted = self._emit(text)
        if emitted is not None:
            await emitted

    def _raise_failure(self) -> None:
        """Raise the exception that `emit` raised in the background task."""
        if self._pace_task and self._pace_task.done():
            task, self._pace_task = self._pace_task, None
            task.result()

    async def _stop(self) -> None:
        task, self._pace_task = self._pace_task, None
        if task:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it
