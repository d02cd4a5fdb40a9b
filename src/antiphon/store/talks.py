"""Conversations in dictionaries, and the items that the memory store knows by their ids."""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from antiphon.core.items import Item, ItemReference
from antiphon.store.base import Conversation, Cursor, Page
from antiphon.store.pages import page_of

Key = tuple[str, str]
"""A tenant, and what is called something there."""


class Talk(Struct):
    """A conversation and its items."""

    conversation: Conversation
    items: list[Item] = field(default_factory=list[Item])


class MemoryConversations:
    """Conversations for as long as the process lives."""

    def __init__(self) -> None:
        self.talks: dict[Key, Talk] = {}
        self._items: dict[Key, list[Item]] = {}

    async def save_conversation(self, conversation: Conversation, *, tenant: str = "") -> None:
        """Keep a conversation, new or changed."""
        talk = self.talks.setdefault((tenant, conversation.id), Talk(conversation))
        talk.conversation = conversation

    async def conversation(self, id: str, *, tenant: str = "") -> Conversation | None:
        """Return a conversation."""
        talk = self.talks.get((tenant, id))
        return talk and talk.conversation

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        """Remove a conversation and its items."""
        talk = self.talks.pop((tenant, id), None)
        if talk:
            self.forget(tenant, talk.items)
        return talk is not None

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> bool:
        """Append items to a conversation."""
        talk = self.talks.get((tenant, id))
        if talk:
            self.extend(tenant, talk, items)
        return talk is not None

    async def list_items(self, id: str, cursor: Cursor, *, tenant: str = "") -> Page | None:
        """Return a page of a conversation's items."""
        talk = self.talks.get((tenant, id))
        return talk and page_of(talk.items, cursor)

    async def conversation_item(self, id: str, item_id: str, *, tenant: str = "") -> Item | None:
        """Return one item of a conversation."""
        talk = self.talks.get((tenant, id))
        newest = reversed(talk.items if talk else [])
        return next((item for item in newest if item.id == item_id), None)

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        """Remove one item of a conversation."""
        talk = self.talks.get((tenant, id))
        gone = [item for item in talk.items if item.id == item_id] if talk else []
        if talk and gone:
            talk.items = [item for item in talk.items if item.id != item_id]
            self.forget(tenant, gone)
        return bool(gone)

    # --- for the responses beside them -------------------------------------------------------

    def known(self, id: str, tenant: str) -> Item | None:
        """Return the item that was last made known by an id."""
        found = self._items.get((tenant, id))
        return found[-1] if found else None

    def extend(self, tenant: str, talk: Talk, items: Sequence[Item]) -> None:
        """Append items to a conversation."""
        talk.items += items
        self.index(tenant, items)

    def index(self, tenant: str, items: Iterable[Item]) -> None:
        """Make items known by their ids."""
        for item in items:
            if isinstance(item.id, str) and not isinstance(item, ItemReference):
                self._items.setdefault((tenant, item.id), []).append(item)

    def forget(self, tenant: str, items: Iterable[Item]) -> None:
        """Take items back that were made known."""
        for item in items:
            found = self._items.get((tenant, str(item.id)))
            if found and item in found:
                found.remove(item)
                if not found:
                    del self._items[tenant, str(item.id)]
