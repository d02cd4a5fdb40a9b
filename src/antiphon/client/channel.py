"""Events on their way to a reader who may be slower than they come."""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """Events that wait for their reader; when there are too many, their writer waits too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: list[T] = []
        self._size = 0
        self._moved = asyncio.Event()
        self._closed = False

    # --- for the writer ---

    @property
    def full(self) -> bool:
        """Whether more than enough waits to be read."""
        return self._size > self._most and bool(self._waiting) and not self._closed

    def write(self, events: Sequence[T], size: int | None = None) -> None:
        """Give events; their size is their number, if none is said."""
        self._waiting += events
        self._size += len(events) if size is None else size
        self._moved.set()

    async def drained(self) -> None:
        """Return when more may be given."""
        while self.full:
            self._moved.clear()
            await self._moved.wait()

    def close(self) -> None:
        """Give no more."""
        self._closed = True
        self._moved.set()

    # --- for the reader ---

    async def batch(self) -> list[T]:
        """Return all that has come, at least one event; nothing at the end."""
        while not (self._waiting or self._closed):
            self._moved.clear()
            await self._moved.wait()
        batch, self._waiting, self._size = self._waiting, [], 0
        self._moved.set()
        return batch
