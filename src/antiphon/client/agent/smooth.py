"""Text let out at an even pace, however unevenly it comes.

Nothing is lost or moved, and nobody waits for the pace when there is no more to come: a flush lets
out all that is left at once, and what comes after it begins anew.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.client.agent.chunks import ChunkFunction, ChunkStrategy, create_chunker

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
