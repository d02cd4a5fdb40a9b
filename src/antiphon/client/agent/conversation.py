"""Conversations that agent runs continue, and the lock that lets one run at a time use each.

A `Conversation` lives in this process; the server stores a `RemoteConversation`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, cast

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item, Message
from antiphon.protocol.request import MAX_ITEMS_PER_REQUEST, Request
from antiphon.protocol.struct import InvalidValueError, decode_as
from antiphon.store.ids import new_id
from antiphon.wire.openresponses import decode_request

if TYPE_CHECKING:
    from antiphon.client.async_client import AsyncClient

HELD_LOCKS: ContextVar[frozenset["ConversationLock"]] = ContextVar("HELD_LOCKS", default=frozenset())
"""Locks of the runs that wait for the code that runs now."""


class ConversationLock:
    """Lets one run at a time use a conversation; the others wait in the order they came.

    The runs of a conversation may be in several threads and loops. asyncio's own lock belongs to one loop.
    """

    def __init__(self) -> None:
        # Protects the queue, and is never held while waiting.
        self._mutex = threading.Lock()
        self._waiters: deque[Future[None]] = deque()
        self.locked = False
        """Whether a run holds the lock."""

    async def __aenter__(self) -> None:
        if self in HELD_LOCKS.get():
            # The outer run waits for the tool, the tool's run would wait for the outer run.
            message = "A tool cannot run an agent in its own conversation: both would wait."
            raise RequestError(message, param="conversation")
        with self._mutex:
            if not self.locked:
                self.locked = True
                return
            waiter = Future[None]()
            self._waiters.append(waiter)
        try:
            await asyncio.wrap_future(waiter)
        except asyncio.CancelledError:
            if not waiter.cancel():  # the lock was handed over at the same moment
                self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        """Hand the lock to the first run that still waits."""
        with self._mutex:
            while self._waiters:
                waiter = self._waiters.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(None)
                    return
            self.locked = False

    @contextmanager
    def forbid_reentry(self) -> Generator[None]:
        """Make code that runs meanwhile raise RequestError instead of waiting for this lock."""
        token = HELD_LOCKS.set(HELD_LOCKS.get() | {self})
        try:
            yield
        finally:
            HELD_LOCKS.reset(token)


class Conversation:
    """A conversation in memory: pass the same one to run after run."""

    def __init__(
        self,
        items: Sequence[Item | Mapping[str, object]] = (),
        *,
        id: str | None = None,
        instructions: str | None = None,
    ) -> None:
        self.id = id or new_id("conv")
        self.items: list[Item] = parse_items(list(items))
        self.instructions = instructions
        self.lock = ConversationLock()
        """Held by the run that uses the conversation."""

    def __repr__(self) -> str:
        return f"<Conversation {self.id}: {len(self.items)} items>"

    @classmethod
    def of_messages(cls, messages: Sequence[Mapping[str, object]]) -> "Conversation":
        """Convert chat messages: system messages become instructions, the rest items.

        >>> chat = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi"}]
        >>> Conversation.of_messages(chat).instructions
        'Be terse.'
        """
        from antiphon.wire.chat import wire_types  # start-up time
        from antiphon.wire.chat.request import ChatTranscript

        chat = decode_as(list[wire_types.Message], [dict(message) for message in messages], "messages")
        items = ChatTranscript(chat).items  # pyright: ignore[reportArgumentType]
        system = [item for item in items if isinstance(item, Message) and item.role == "system"]
        rest = [item for item in items if item not in system]
        return cls(rest, instructions="\n\n".join(item.text for item in system) or None)

    async def load(self) -> list[Item]:
        """Return the items so far."""
        return list(self.items)

    async def add(self, items: Sequence[Item]) -> None:
        """Add the items of a run."""
        self.items += items


class RemoteConversation(Conversation):
    """A conversation that the server stores."""

    def __init__(self, client: "AsyncClient", id: str) -> None:
        super().__init__()
        self.id = id
        # One lock per id, however many objects stand for the conversation.
        self.lock = client.conversation_locks.setdefault(id, self.lock)
        self._conversations = client.conversations

    async def load(self) -> list[Item]:
        return [item async for item in self._conversations.items(self.id)]

    async def add(self, items: Sequence[Item]) -> None:
        for start in range(0, len(items), MAX_ITEMS_PER_REQUEST):
            await self._conversations.add(self.id, items[start : start + MAX_ITEMS_PER_REQUEST])


def parse_items(given: object) -> list[Item]:
    """Parse a prompt: a text, an item, a message, or a list of these; raises RequestError."""
    whole = cast("object", given) if isinstance(given, str | list) else [given]
    return build_request({"input": whole}).input


def build_request(fields: dict[str, object]) -> Request:
    """Decode the fields of a request; raises RequestError."""
    try:
        return decode_request(fields)
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None
