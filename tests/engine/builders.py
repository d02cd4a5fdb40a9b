"""A store that can fail, and engines whose only model is one function."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from antiphon.agents.agent import Agent, Function
from antiphon.engine.background import follow_events
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.protocol.errors import StoreError
from antiphon.protocol.events import Event
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.store.base import TERMINAL_STATUSES, IdempotencyRecord, Store
from antiphon.store.memory import MemoryStore


class FailingStore(MemoryStore):
    """A store that fails `failures` times, and records how many events each append had."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.appends: list[int] = []

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is full")

    async def append(
        self, id: str, epoch: int, after: int, events: list[bytes], *, final: Response | None = None, tenant: str = ""
    ) -> bool:
        """Append events, unless it fails."""
        await asyncio.sleep(0)
        self._fail()
        self.appends.append(len(events))
        return await super().append(id, epoch, after, events, final=final, tenant=tenant)

    async def begin(self, *args: Any, **options: Any) -> IdempotencyRecord | None:
        """Store a beginning, unless it fails."""
        self._fail()
        return await super().begin(*args, **options)

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        """Store an end, unless it fails."""
        self._fail()
        return await super().end(response, tenant=tenant)

    async def claim(
        self, id: str, *, tenant: str = "", queued: bool = False, expected: int | None = None
    ) -> int | None:
        """Claim a response, unless it fails."""
        self._fail()
        return await super().claim(id, tenant=tenant, queued=queued, expected=expected)


def make_engine(function: Function, store: Store | None = None, **options: Any) -> Engine:
    """Make an engine whose only model is one function."""
    return Engine(Models([Agent("m", function)]), store=store, **options)


def make_request(text: str = "hello", **options: Any) -> Request:
    """Ask that model something."""
    return Request.from_message("m", text, **options)


async def read_log(store: Store, id: str) -> list[Event]:
    """Return every event of a response's log."""
    return [event async for batch in follow_events(store, id, wait=False) for event in batch]


async def wait_for_end(store: Store, id: str) -> Response:
    """Wait until a response has ended, and return it."""
    async with asyncio.timeout(20):
        while True:
            stored = await store.find(id)
            assert stored
            if stored.response.status in TERMINAL_STATUSES:
                return stored.response
            await asyncio.sleep(0.001)


async def say_words(*words: str) -> AsyncIterator[str]:
    """Yield words, one at a time."""
    for word in words:
        yield word
