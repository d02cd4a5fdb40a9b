"""Conversations of a server that keeps them: made, changed, read and deleted."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import field

from antiphon.adapters.fields import fields_of, given
from antiphon.client.ask import Ask, path
from antiphon.client.fields import Input, Json, Order, written
from antiphon.client.pages import items_in, pages
from antiphon.client.patient import patient
from antiphon.core.items import Item, user
from antiphon.core.value import Value

if TYPE_CHECKING:
    from antiphon.client.link import Link

PREFIX = "conversations"


class Conversation(Value):
    """A conversation: its id, when it was made, and what was noted about it."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int = 0
    metadata: dict[str, str] = field(default_factory=dict[str, str])


class Conversations:
    """The conversations of one server, as `client.conversations`."""

    def __init__(self, link: "Link") -> None:
        self._link = link

    async def create(
        self, *, items: Input = (), metadata: Mapping[str, str] | None = None
    ) -> Conversation:
        """Begin a conversation, with items in it or without."""
        body = given({"items": _list(items) or None, "metadata": metadata})
        return await self._one("POST", PREFIX, body)

    async def retrieve(self, id: str) -> Conversation:
        """Return a conversation."""
        return await self._one("GET", path(PREFIX, id))

    async def update(self, id: str, *, metadata: Mapping[str, str]) -> Conversation:
        """Note something else about a conversation."""
        return await self._one("POST", path(PREFIX, id), {"metadata": dict(metadata)})

    async def delete(self, id: str) -> None:
        """Delete a conversation, and keep the responses that were made in it."""
        await self._link.ask(Ask(method="DELETE", path=path(PREFIX, id)))

    async def items(
        self, id: str, *, order: Order = "asc", after: str | None = None
    ) -> AsyncIterator[Item]:
        """Give the items of a conversation, the oldest first; pages are read as needed."""
        async for page in self.pages(id, order=order, after=after):
            for item in page:
                yield item

    def pages(
        self, id: str, *, order: Order = "asc", after: str | None = None
    ) -> AsyncIterator[list[Item]]:
        """Give the items of a conversation, a page at a time."""
        return pages(self._link, path(PREFIX, id, "items"), order, after)

    async def add(self, id: str, items: Input) -> list[Item]:
        """Add items to a conversation; return them as they are kept, with ids."""
        ask = Ask(path=path(PREFIX, id, "items"), body={"items": _list(items)})
        return items_in(fields_of(await self._link.ask(ask)).get("data"))

    async def delete_item(self, id: str, item_id: str) -> Conversation:
        """Take an item out of a conversation."""
        return await self._one("DELETE", path(PREFIX, id, "items", item_id))

    async def _one(self, method: str, path: str, body: Json | None = None) -> Conversation:
        return patient(Conversation, await self._link.ask(Ask(method=method, path=path, body=body)))


def _list(items: Input) -> Sequence[object]:
    return [written(item) for item in ([user(items)] if isinstance(items, str) else items)]
