"""The interfaces that every store implements, and the values they exchange, and the notifier of new events.

There are five protocols, usually implemented by one class. Every implementation must pass the
contract suite in `tests/store`. The rules for all of them:

- When a call returns, its change is durable (as far as the storage engine is).
- A response ends once: a terminal status never changes.
- A response holds only its own items and points to its parent; history is not copied.
- Ids are unique in a response's input and in a conversation, because a page of a list starts after an id: an item
  that repeats one, such as one that a client replays, is stored under a new id.
- Everything belongs to a tenant. Objects of other tenants are treated as missing.
- A failing engine raises StoreError; the next call may succeed.
"""

import asyncio
import os
import re
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.errors import StoreError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.lists import ConversationSummary, ListFilter, ResponseFilter, ResponseSummary, SummaryPage
from antiphon.store.pagination import ItemPage, PageCursor

POLL_SECONDS = 1.0
"""The longest wait for a notification. Other processes do not notify us, so readers also poll."""


class Notifier:
    """The subscribers of each response. A response without subscribers takes no memory."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._subscribers)

    def notify(self, id: str) -> None:
        """Wake all subscribers of a response."""
        for future in self._subscribers.get(id, ()):
            if not future.done():
                future.set_result(None)

    @contextmanager
    def subscribe(self, id: str) -> Generator[asyncio.Future[None]]:
        """Yield a future that is done at the next notification for a response."""
        # A future per wait, not an event per response: nothing has to be reset between two waits.
        future = asyncio.get_running_loop().create_future()
        subscribers = self._subscribers.setdefault(id, set())
        subscribers.add(future)
        try:
            yield future
        finally:
            subscribers.discard(future)
            if not subscribers:
                self._subscribers.pop(id, None)


TERMINAL_STATUSES = frozenset({"completed", "failed", "incomplete", "cancelled"})


class ConversationBusyError(StoreError):
    """Another response is in progress in this conversation."""

    def __init__(self, conversation: str) -> None:
        super().__init__(f"Conversation '{conversation}' has a response in progress.")


class StoredResponse(Struct, frozen=True):
    """A stored response.

    `epoch` is the number of times it was claimed by a worker, `attempts` how often it was taken from the queue;
    `last_sequence` is the sequence number of its newest event, -1 if there is none.
    """

    response: Response
    request: bytes = b""
    conversation: str | None = None
    epoch: int = 0
    last_sequence: int = -1
    attempts: int = 0


class IdempotencyRecord(Struct, frozen=True):
    """A used idempotency key: the fingerprint of its request body, and its response."""

    fingerprint: str
    response_id: str


class History(Struct, frozen=True):
    """The chain of responses that ends with a given one; items are oldest first.

    `missing_parent` is the id of a parent that is not in the store.
    """

    items: list[Item]
    responses: list[str]
    missing_parent: str | None = None


class LoggedEvents(Struct, frozen=True):
    """Events as canonical JSON; `ended` is true if there will be no more."""

    events: list[bytes]
    ended: bool


class StoredConversation(Struct, frozen=True):
    """A conversation without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]


class ResponseStore(Protocol):
    """Storage of responses and their items."""

    async def begin(
        self,
        response: Response,
        input: Sequence[Item],
        *,
        tenant: str = "",
        request: bytes = b"",
        conversation: str | None = None,
        key: tuple[str, str] | None = None,
    ) -> IdempotencyRecord | None:
        """Store a new response and its own input; items have ids.

        `request` is opaque data for the worker. With `conversation`, the response's input and output are appended to
        that conversation when it ends completed or incomplete; ConversationBusyError is raised while another response
        does the same. `key` is an idempotency key and the fingerprint of its body: if the key is in use, nothing is
        stored and its record is returned.
        """

    async def save_output(self, response: Response, *, tenant: str = "") -> None:
        """Store the output of a response so far, unless it has ended."""

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        """Store the end of a response, unless it has ended; return what is stored, None if nothing is."""

    async def find(self, id: str, *, tenant: str = "") -> StoredResponse | None:
        """Return a response."""

    async def read_history(self, id: str, *, tenant: str = "") -> History | None:
        """Return the chain that ends with a response: each one's input, then its output.

        None if `id` is unknown, or a response in the middle of the chain was deleted.
        """

    async def list_input_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        """Return a page of a response's own input, None if there is no such response."""

    async def list_responses(
        self, cursor: PageCursor, filter: ResponseFilter, *, tenant: str = ""
    ) -> SummaryPage[ResponseSummary]:
        """Return a page of a tenant's responses, in the order of their creation."""
        ...

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        """Return one item of any response or conversation."""

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        """Delete a response, its items and events; return whether it existed."""
        ...

    async def release_key(self, id: str, *, tenant: str = "") -> None:
        """Release the idempotency key of a response, if it has one."""

    async def list_unfinished(self) -> list[tuple[str, StoredResponse]]:
        """Return every response that has not ended, with its tenant, oldest first."""
        ...

    async def take_abandoned(self, running: Collection[str]) -> list[tuple[str, StoredResponse]]:
        """Return the unfinished responses that nobody makes, with their tenants, oldest first.

        These are those of processes that are gone, which can write nothing any more, and those of this process that
        are not `running`. Queued ones are not among them.
        """
        ...

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        """Delete responses and events that ended before given times; return how many rows.

        A response that another one continues is kept as long as that one. Deletes at most `limit` rows, so that other
        writers do not wait long; call it until it returns 0.
        """
        ...

    async def close(self) -> None:
        """Finish pending writes and release all resources."""


class Queue(Protocol):
    """Responses that wait for a worker: those with the status `queued` that no worker has claimed."""

    async def claim_queued(self, limit: int) -> list[tuple[str, StoredResponse]]:
        """Become the worker of the oldest queued responses, of any process; return them with their tenants."""
        ...

    async def requeue(self, id: str, epoch: int, *, tenant: str = "") -> bool:
        """Give a response back to the queue, unless it was claimed since or has ended; return whether it is there."""
        ...

    async def find_lost(self, claims: Sequence[tuple[str, int]]) -> list[str]:
        """Return those of some responses, by id and epoch, that were claimed since, have ended or are gone."""
        ...


class Feed(Protocol):
    """The event log of each response: one writer, any number of readers."""

    async def claim(
        self, id: str, *, tenant: str = "", queued: bool = False, expected: int | None = None
    ) -> int | None:
        """Become the worker of a response: return the new epoch, None if it has ended.

        With `queued` only if it waits in the queue; otherwise it is taken over from its worker, if it has one.
        With `expected` only if this is still its epoch: nobody else has claimed it.
        """

    async def append(
        self, id: str, epoch: int, after: int, events: list[bytes], *, final: Response | None = None, tenant: str = ""
    ) -> bool:
        """Append all events after sequence number `after`, durably; wake the readers.

        With `final` the response ends in the same transaction. Returns False and changes nothing
        if the epoch is not the newest, `after` is not the last number, or the response has ended.
        """
        ...

    async def read(self, id: str, after: int, *, limit: int = 512, tenant: str = "") -> LoggedEvents | None:
        """Return events with sequence numbers above `after`; None if there is no such log."""

    async def wait(self, id: str, after: int) -> None:
        """Return when there may be events after a number, or the response may have ended."""


class ConversationStore(Protocol):
    """Storage of conversations and their items."""

    async def save_conversation(self, conversation: StoredConversation, *, tenant: str = "") -> None:
        """Create or update a conversation."""

    async def find_conversation(self, id: str, *, tenant: str = "") -> StoredConversation | None:
        """Return a conversation."""

    async def list_conversations(
        self, cursor: PageCursor, filter: ListFilter, *, tenant: str = ""
    ) -> SummaryPage[ConversationSummary]:
        """Return a page of a tenant's conversations, in the order of their creation."""
        ...

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        """Delete a conversation and its items; return whether it existed."""
        ...

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> list[Item] | None:
        """Append all items; return them as they are stored, None if there is no such conversation."""

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        """Return a page of a conversation's items, None if there is no such conversation."""

    async def find_conversation_item(self, id: str, item_id: str, *, tenant: str = "") -> Item | None:
        """Return one item of a conversation."""

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        """Delete one item of a conversation; return whether it existed."""
        ...


class ThreadSummary(Struct, frozen=True):
    """A Hashbrown thread in a list; `updated_at` is when it was last saved, in seconds since 1970."""

    id: str
    title: str
    updated_at: int


class ThreadStore(Protocol):
    """Storage of Hashbrown threads; their messages are opaque to the store."""

    async def create_thread(self, id: str, messages: bytes, title: str, *, tenant: str = "") -> None:
        """Store a new thread. Its retention, counted from its last save, is that of responses."""

    async def replace_thread(self, id: str, before: bytes, messages: bytes, *, tenant: str = "") -> bool:
        """Replace the messages `before` of a thread; return False if it has others by now."""
        ...

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        """Return a thread's messages."""

    async def list_threads(self, limit: int, after: str | None = None, *, tenant: str = "") -> list[ThreadSummary]:
        """Return threads, the last saved first, from the one that follows `after`; RequestError if there is none."""
        ...

    async def rename_thread(self, id: str, title: str | None, *, tenant: str = "") -> bool:
        """Set a thread's title, None for its first one; return whether it exists."""
        ...

    async def delete_thread(self, id: str, *, tenant: str = "") -> bool:
        """Delete a thread; return whether it existed."""
        ...


class Store(ResponseStore, Queue, Feed, ConversationStore, ThreadStore, Protocol):
    """The complete interface."""


def make_ids_unique(items: Iterable[Item], taken: Iterable[object] = ()) -> list[Item]:
    """Give items new ids where they repeat one."""
    unique, seen = list[Item](), set(taken)
    for item in items:
        unique.append(replace(item, id=renew_id(str(item.id))) if item.id in seen else item)
        seen.add(unique[-1].id)
    return unique


def renew_id(id: str) -> str:
    """Return a random id with the prefix of another."""
    return id[: id.find("_") + 1] + os.urandom(24).hex()


def describe_url(url: str) -> str:
    """Return a database's address without the password and the parameters."""
    return re.sub(r"(//[^/@:]*):[^/@]*@", r"\1@", url).partition("?")[0]
