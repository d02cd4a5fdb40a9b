"""Storage of Hashbrown's threads: the interface, and the default in the response store.

A thread is a list of messages in Hashbrown's format. A storage keeps them unchanged, unknown fields included.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.store import base
from antiphon.wire.hashbrown.request import Json


class ThreadError(AntiphonError):
    """A thread cannot be loaded or saved; the message is shown to the client."""


class ThreadStorage(Protocol):
    """A storage of threads. Any exception but ThreadError is logged and not shown to the client."""

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        """Return the messages of a thread; raises ThreadError if there is none."""
        ...

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        """Save the messages of a thread, a new one if `thread_id` is None; return its id."""
        ...


class StoredThreads:
    """Threads in the response store."""

    def __init__(self, store: base.ThreadStore, ids: Callable[[str], str]) -> None:
        self._store = store
        self._ids = ids

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        body = await self._store.find_thread(thread_id, tenant=tenant)
        if body is None:
            raise ThreadError(f"Thread '{thread_id[:80]}' not found.")
        return msgspec.json.decode(body, type=list[Json])

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        id = thread_id or self._ids("thread")
        await self._store.save_thread(id, msgspec.json.encode(messages), tenant=tenant)
        return id
