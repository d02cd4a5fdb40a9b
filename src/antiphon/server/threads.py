"""Where threads are kept: a pair of hooks, and the pair that keeps them with the responses.

A thread is a list of messages in the words of Hashbrown's clients. What it holds is its client's
and the door's affair; whoever keeps it keeps all of it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.store import base
from antiphon.wire.hashbrown.threads import Json


class ThreadError(AntiphonError):
    """A thread that cannot be loaded or saved, in words that its client may read."""


class ThreadStorage(Protocol):
    """A place for threads. What it raises beside ThreadError is for the log alone."""

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        """Return the messages of a thread; raises ThreadError if there is none."""
        ...

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        """Keep the messages of a thread, a new one if it has no id yet; return its id."""
        ...


class StoredThreads:
    """Threads in the store that keeps the responses."""

    def __init__(self, store: base.ThreadStore, ids: Callable[[str], str]) -> None:
        self._store = store
        self._ids = ids

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        """Return the messages of a thread."""
        kept = await self._store.find_thread(thread_id, tenant=tenant)
        if kept is None:
            raise ThreadError(f"Thread '{thread_id[:80]}' not found.")
        return msgspec.json.decode(kept, type=list[Json])

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        """Keep the messages of a thread."""
        id = thread_id or self._ids("thread")
        await self._store.save_thread(id, msgspec.json.encode(messages), tenant=tenant)
        return id
