"""What a store is: where responses rest, how events travel, what conversations are made of.

Four narrow protocols, usually implemented by one class over one engine. Every implementation must
pass the contract suite in `tests/store`. Rules that all of them keep:

- What a call has returned from is durable (as durable as the engine is).
- A response ends once: a terminal status never changes, whoever comes second.
- A chain does not copy history. A response points to its parent and holds only its own items.
- Everything belongs to a tenant; what belongs to another does not exist.
- A failing engine raises StoreError, and the next call may succeed.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from antiphon.protocol.errors import StoreError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

TERMINAL_STATUSES = frozenset({"completed", "failed", "incomplete", "cancelled"})
"""The statuses that a response never leaves."""

Order = Literal["asc", "desc"]


class ConversationBusyError(StoreError):
    """Another response is being made in this conversation."""


class StoredResponse(Struct, frozen=True):
    """A response at rest. `epoch` counts its workers; `last` is its newest event, -1 for none."""

    response: Response
    request: bytes = b""
    conversation: str | None = None
    epoch: int = 0
    last_sequence: int = -1


class IdempotencyRecord(Struct, frozen=True):
    """An idempotency key in use: whose body it came with, and the response it led to."""

    fingerprint: str
    response_id: str


class History(Struct, frozen=True):
    """A chain: its items, oldest first, the responses they are of, and the parent beyond them.

    `beyond` is the id of a parent that is not in the store, None at a true beginning.
    """

    items: list[Item]
    responses: list[str]
    missing_parent: str | None = None


class ItemPage(Struct, frozen=True):
    """A stretch of a list; `has_more` is exact."""

    items: list[Item]
    has_more: bool


class PageCursor(Struct, frozen=True):
    """Which stretch of a list is wanted: after or before an item, in an order."""

    limit: int = 20
    order: Order = "desc"
    after: str | None = None
    before: str | None = None


class LoggedEvents(Struct, frozen=True):
    """Events from the log, as canonical JSON; `ended` says that no more will ever come."""

    events: list[bytes]
    ended: bool


class StoredConversation(Struct, frozen=True):
    """A conversation, apart from its items."""

    id: str
    created_at: int
    metadata: dict[str, str]


class ResponseStore(Protocol):
    """Where responses and their items rest."""

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
        """Keep a response that has just begun, and its own input; items have ids.

        `request` is whatever the caller needs to make the response later. With `conversation`, the
        response's input and output join that conversation when it ends completed or incomplete;
        ConversationBusy is raised while another response does the same. `key` is an idempotency
        key and the fingerprint of its body: if the key is taken, nothing is kept and its claim is
        returned.
        """
        ...

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        """Keep how a response ended, unless it had ended before; return what is kept.

        None when there is no such response (any more).
        """
        ...

    async def find(self, id: str, *, tenant: str = "") -> StoredResponse | None:
        """Return a response."""
        ...

    async def read_history(self, id: str, *, tenant: str = "") -> History | None:
        """Return a chain as far back as the store has it: each response's input, then its output.

        None when `id` itself is unknown, or a response in the middle of the chain was deleted.
        """
        ...

    async def list_input_items(
        self, id: str, cursor: PageCursor, *, tenant: str = ""
    ) -> ItemPage | None:
        """Return a page of a response's own input, None if there is no such response."""
        ...

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        """Return one item, of any response's input or output, or of any conversation."""
        ...

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        """Remove a response and everything of it; tell whether there was one."""
        ...

    async def list_unfinished(self) -> list[tuple[str, StoredResponse]]:
        """Return every response that has not ended, with its tenant, oldest first."""
        ...

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        """Remove responses and events that ended before given times; return how many went.

        Works in chunks of `limit` so that nobody waits long; call again until it returns 0.
        """
        ...

    async def close(self) -> None:
        """Finish what was begun, and let go of everything."""
        ...


class Feed(Protocol):
    """How the events of a response travel from the one who makes it to those who read it."""

    async def claim(self, id: str, *, tenant: str = "") -> int | None:
        """Become the one who makes a response: return the new epoch, None if it has ended."""
        ...

    async def append(
        self,
        id: str,
        epoch: int,
        after: int,
        events: Sequence[bytes],
        *,
        final: Response | None = None,
        tenant: str = "",
    ) -> bool:
        """Add events after number `after`, durably, all or none; wake the readers.

        With `final` the response ends with these events, in one step. False (and nothing happens)
        when the epoch is not the newest, `after` is not the last number, or the response has ended.
        """
        ...

    async def read(
        self, id: str, after: int, *, limit: int = 512, tenant: str = ""
    ) -> LoggedEvents | None:
        """Return events with numbers greater than `after`; None if there is no such log."""
        ...

    async def wait(self, id: str, after: int) -> None:
        """Return when there may be events after a number, or the response may have ended."""
        ...


class ConversationStore(Protocol):
    """What conversations are made of."""

    async def save_conversation(
        self, conversation: StoredConversation, *, tenant: str = ""
    ) -> None:
        """Keep a conversation, new or changed."""
        ...

    async def find_conversation(self, id: str, *, tenant: str = "") -> StoredConversation | None:
        """Return a conversation."""
        ...

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        """Remove a conversation and its items; tell whether there was one."""
        ...

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> bool:
        """Append items, all or none; False when there is no such conversation."""
        ...

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        """Return a page of a conversation's items, None if there is no such conversation."""
        ...

    async def find_conversation_item(
        self, id: str, item_id: str, *, tenant: str = ""
    ) -> Item | None:
        """Return one item of a conversation, the newest if it has the id twice."""
        ...

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        """Remove one item of a conversation; tell whether there was one."""
        ...


class ThreadStore(Protocol):
    """Where threads rest: lists of messages that only their client can read."""

    async def save_thread(self, id: str, messages: bytes, *, tenant: str = "") -> None:
        """Keep a thread, new or changed. It goes as long after that as a response after its end."""
        ...

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        """Return a thread."""
        ...


class Store(ResponseStore, Feed, ConversationStore, ThreadStore, Protocol):
    """All of it."""
