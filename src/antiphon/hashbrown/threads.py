"""Storage of Hashbrown's threads: the interface, and the default in the response store.

A thread is a list of messages in Hashbrown's format. A storage keeps them unchanged, unknown fields included.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.struct import as_string
from antiphon.store.base import ThreadStore, ThreadSummary
from antiphon.wire.hashbrown.request import Json, is_same_json

MAX_TITLE_LENGTH = 200
GENERATED_TITLE_LENGTH = 80

THREAD_CHANGED = "This thread has changed since the answer began: another answer was saved in it. Load it again."


class ThreadError(AntiphonError):
    """A thread cannot be loaded or saved; the message is shown to the client."""


class ThreadStorage(Protocol):
    """A storage of threads. Any exception but ThreadError is logged and not shown to the client."""

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        """Return the messages of a thread; raises ThreadError if there is none."""
        ...

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        """Save the messages of a thread, a new one if `thread_id` is None; return its id.

        Raises ThreadError if the messages do not begin with those of the stored thread: then another answer was
        saved in it since it was loaded.
        """
        ...


@runtime_checkable
class ThreadDirectory(ThreadStorage, Protocol):
    """A storage that can also list its threads, as a page's sidebar needs it. These methods are optional."""

    async def list(self, limit: int, after: str | None, *, tenant: str) -> Sequence[ThreadSummary]:
        """Return at most `limit` threads, the last saved first, from the one that follows the thread `after`."""
        ...

    async def rename(self, thread_id: str, title: str | None, *, tenant: str) -> None:
        """Set a thread's title, None for one that is made from its messages; raises ThreadError if there is none."""
        ...

    async def delete(self, thread_id: str, *, tenant: str) -> None:
        """Delete a thread; raises ThreadError if there is none."""
        ...


class StoredThreads(ThreadDirectory):
    """Threads in the response store."""

    def __init__(self, store: ThreadStore, ids: Callable[[str], str]) -> None:
        self._store = store
        self._ids = ids

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        body = await self._store.find_thread(thread_id, tenant=tenant)
        if body is None:
            raise thread_not_found_error(thread_id)
        return msgspec.json.decode(body, type=list[Json])

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        body = msgspec.json.encode(messages)
        if thread_id is None:
            id = self._ids("thread")
            await self._store.create_thread(id, body, make_title(messages), tenant=tenant)
            return id
        stored = await self._store.find_thread(thread_id, tenant=tenant)
        if stored is None:
            raise thread_not_found_error(thread_id)
        earlier = msgspec.json.decode(stored, type=list[Json])
        begins_alike = is_same_json(messages[: len(earlier)], earlier)
        if not (begins_alike and await self._store.replace_thread(thread_id, stored, body, tenant=tenant)):
            raise ThreadError(THREAD_CHANGED)
        return thread_id

    async def list(self, limit: int, after: str | None, *, tenant: str) -> Sequence[ThreadSummary]:
        return await self._store.list_threads(limit, after, tenant=tenant)

    async def rename(self, thread_id: str, title: str | None, *, tenant: str) -> None:
        if not await self._store.rename_thread(thread_id, title, tenant=tenant):
            raise thread_not_found_error(thread_id)

    async def delete(self, thread_id: str, *, tenant: str) -> None:
        if not await self._store.delete_thread(thread_id, tenant=tenant):
            raise thread_not_found_error(thread_id)


def thread_not_found_error(thread_id: str) -> ThreadError:
    return ThreadError(f"Thread '{thread_id[:80]}' not found.")


def make_title(messages: Sequence[Json]) -> str:
    """Return the start of the first message of the user as a title; empty if it has no text."""
    texts = (as_string(message.get("content")) for message in messages if message.get("role") == "user")
    words = " ".join(next(filter(str.strip, texts), "").split())
    return words if len(words) <= GENERATED_TITLE_LENGTH else f"{words[: GENERATED_TITLE_LENGTH - 1].rstrip()}…"
