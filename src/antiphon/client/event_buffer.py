"""Events on their way to a reader who may be slower than they come."""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class EventBuffer(Generic[T]):
    """Events that wait for their reader; when there are too many, their writer waits too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[T] = []
        self._size = 0
        self._changed = asyncio.Event()
        self._closed = False

    # --- for the writer ---

    @property
    def full(self) -> bool:
        """Whether more than enough waits to be read."""
        return self._size > self._limit and bool(self._events) and not self._closed

    def write(self, events: Sequence[T], size: int | None = None) -> None:
        """Give events; their size is their number, if none is said."""
        self._events += events
        self._size += len(events) if size is None else size
        self._changed.set()

    async def drain(self) -> None:
        """Return when more may be given."""
        while self.full:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Give no more."""
        self._closed = True
        self._changed.set()

    # --- for the reader ---

    async def next_batch(self) -> list[T]:
        """Return all that has come, at least one event; nothing at the end."""
        while not (self._events or self._closed):
            self._changed.clear()
            await self._changed.wait()
        batch, self._events, self._size = self._events, [], 0
        self._changed.set()
        return batch
