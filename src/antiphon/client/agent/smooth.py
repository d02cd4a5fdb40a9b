"""Text let out at an even pace, however unevenly it comes.

Nothing is lost or moved, and nobody waits for the pace when there is no more to come: a flush lets
out all that is left at once, and what comes after it begins anew.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.client.agent.chunks import Custom, Strategy, chunker

Emit = Callable[[str], Awaitable[None] | None]

DELAY = 0.03


class Smoother:
    """Paces one stream of text: a chunk, `delay` seconds of rest, and the next chunk.

    If it is not enabled, text goes out as it comes, and what comes during a rest goes out together.
    `together` does the same with chunks, and lets the first words out before their chunk is whole.
    """

    def __init__(
        self,
        emit: Emit,
        strategy: Strategy | Custom = "word",
        delay: float = DELAY,
        *,
        enabled: bool = True,
        together: bool = False,
    ) -> None:
        self._emit = emit
        self._chunker = chunker(strategy) if enabled else None
        self._delay = delay
        self._together = together or not enabled
        self._ready: deque[str] = deque()
        self._rested: float | None = None  # the time at which the next may go; None at first
        self._turn = asyncio.Lock()  # one emission at a time, in order
        self._pacer: asyncio.Task[None] | None = None

    async def feed(self, text: str) -> None:
        """Take text, and let out what may go at once; raises what `emit` raised."""
        self._raise_failure()
        self._ready += self._chunks(text)
        if self._pacer is None:
            await self._let_out()
        if self._pacer is None and self._ready:
            self._pacer = asyncio.create_task(self._pace())

    async def flush(self) -> None:
        """Let out all that is left, in one piece; raises what `emit` raised."""
        async with self._turn:
            self._raise_failure()
            await self._stop()  # it is resting, for the turn is ours
            if self._chunker:
                self._ready += self._chunker.flush()
            await self._send(self._all())
            self._rested = None

    async def discard(self) -> None:
        """Give up all that is left, and what is being let out."""
        await self._stop()
        if self._chunker:
            self._chunker.flush()
        self._ready.clear()
        self._rested = None

    def _chunks(self, text: str) -> list[str]:
        if self._chunker is None:
            return [text] if text else []
        chunks = self._chunker.feed(text)
        if self._together and self._rested is None and not chunks:
            return self._chunker.flush()
        return chunks

    async def _pace(self) -> None:
        while self._ready:
            await asyncio.sleep(self._rest())
            await self._let_out()
        self._pacer = None

    async def _let_out(self) -> None:
        """Let out what need not wait: the next chunk if it has rested; all, if nothing rests."""
        while self._ready and self._rest() <= 0:
            async with self._turn:
                await self._send(self._next())
            if self._delay:
                return

    def _rest(self) -> float:
        """Return how long the next chunk has to wait."""
        return 0 if self._rested is None else self._rested - asyncio.get_running_loop().time()

    def _next(self) -> str:
        if self._together or not self._ready:  # a flush may have come before this turn
            return self._all()
        return self._ready.popleft()

    def _all(self) -> str:
        text = "".join(self._ready)
        self._ready.clear()
        return text

    async def _send(self, text: str) -> None:
        if not text:
            return
        self._rested = asyncio.get_running_loop().time() + self._delay
        emitted = self._emit(text)
        if emitted is not None:
            await emitted

    def _raise_failure(self) -> None:
        """Raise what `emit` raised while nobody was waiting for it."""
        if self._pacer and self._pacer.done():
            pacer, self._pacer = self._pacer, None
            pacer.result()

    async def _stop(self) -> None:
        pacer, self._pacer = self._pacer, None
        if pacer:
            pacer.cancel()
            await asyncio.wait([pacer])
            if not pacer.cancelled():
                pacer.exception()  # seen, so that asyncio does not complain
