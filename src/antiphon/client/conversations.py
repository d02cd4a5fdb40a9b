"""Conversations of a server that keeps them: made, changed, read and deleted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import field

from antiphon.adapters.fields import fields_of, given
from antiphon.client.ask import Ask, path
from antiphon.client.fields import Input, Json, Order, written
from antiphon.client.lenient import items_in, lenient
from antiphon.client.pages import Pages
from antiphon.core.items import Item, user
from antiphon.core.value import Value

if TYPE_CHECKING:
    from antiphon.client.peer import Peer

PREFIX = "conversations"


class ConversationResource(Value):
    """A conversation: its id, when it was made, and what was noted about it."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int = 0
    metadata: dict[str, str] = field(default_factory=dict[str, str])


class Conversations:
    """The conversations of one server, as `client.conversations`."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer

    async def create(
        self, *, items: Input = (), metadata: Mapping[str, str] | None = None
    ) -> ConversationResource:
        """Begin a conversation, with items in it or without."""
        body = given({"items": _list(items) or None, "metadata": metadata})
        return await self._one("POST", PREFIX, body)

    async def retrieve(self, id: str) -> ConversationResource:
        """Return a conversation."""
        return await self._one("GET", path(PREFIX, id))

    async def update(self, id: str, *, metadata: Mapping[str, str]) -> ConversationResource:
        """Note something else about a conversation."""
        return await self._one("POST", path(PREFIX, id), {"metadata": dict(metadata)})

    async def delete(self, id: str) -> None:
        """Delete a conversation, and keep the responses that were made in it."""
        await self._peer.delete(path(PREFIX, id))

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Pages:
        """Give the items of a conversation, the oldest first; pages are read as needed."""
        return Pages(self._peer, path(PREFIX, id, "items"), order, after)

    async def add(self, id: str, items: Input) -> list[Item]:
        """Add items to a conversation; return them as they are kept, with ids."""
        ask = Ask(path=path(PREFIX, id, "items"), body={"items": _list(items)})
        return items_in(fields_of(await self._peer.ask(ask)).get("data"))

    async def delete_item(self, id: str, item_id: str) -> ConversationResource:
        """Take an item out of a conversation."""
        return await self._one("DELETE", path(PREFIX, id, "items", item_id))

    async def _one(self, method: str, path: str, body: Json | None = None) -> ConversationResource:
        return lenient(
            ConversationResource, await self._peer.ask(Ask(method=method, path=path, body=body))
        )


def _list(items: Input) -> Sequence[object]:
    return [written(item) for item in ([user(items)] if isinstance(items, str) else items)]
