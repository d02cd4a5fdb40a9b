"""Conversations in dictionaries, and the items that the memory store knows by their ids."""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from antiphon.protocol.items import Item, ItemReference
from antiphon.store.base import ItemPage, PageCursor, StoredConversation
from antiphon.store.pagination import paginate

TenantKey = tuple[str, str]
"""A tenant, and what is called something there."""


class ConversationRecord(Struct):
    """A conversation and its items."""

    conversation: StoredConversation
    items: list[Item] = field(default_factory=list[Item])


class MemoryConversations:
    """Conversations for as long as the process lives."""

    def __init__(self) -> None:
        self.conversations: dict[TenantKey, ConversationRecord] = {}
        self._items_by_id: dict[TenantKey, list[Item]] = {}

    async def save_conversation(
        self, conversation: StoredConversation, *, tenant: str = ""
    ) -> None:
        """Keep a conversation, new or changed."""
        talk = self.conversations.setdefault(
            (tenant, conversation.id), ConversationRecord(conversation)
        )
        talk.conversation = conversation

    async def find_conversation(self, id: str, *, tenant: str = "") -> StoredConversation | None:
        """Return a conversation."""
        talk = self.conversations.get((tenant, id))
        return talk and talk.conversation

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        """Remove a conversation and its items."""
        talk = self.conversations.pop((tenant, id), None)
        if talk:
            self.unindex_items(tenant, talk.items)
        return talk is not None

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> bool:
        """Append items to a conversation."""
        talk = self.conversations.get((tenant, id))
        if talk:
            self.append_items(tenant, talk, items)
        return talk is not None

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        """Return a page of a conversation's items."""
        talk = self.conversations.get((tenant, id))
        return talk and paginate(talk.items, cursor)

    async def find_conversation_item(
        self, id: str, item_id: str, *, tenant: str = ""
    ) -> Item | None:
        """Return one item of a conversation."""
        talk = self.conversations.get((tenant, id))
        newest = reversed(talk.items if talk else [])
        return next((item for item in newest if item.id == item_id), None)

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        """Remove one item of a conversation."""
        talk = self.conversations.get((tenant, id))
        gone = [item for item in talk.items if item.id == item_id] if talk else []
        if talk and gone:
            talk.items = [item for item in talk.items if item.id != item_id]
            self.unindex_items(tenant, gone)
        return bool(gone)

    # --- for the responses beside them -------------------------------------------------------

    def find_indexed_item(self, id: str, tenant: str) -> Item | None:
        """Return the item that was last made known by an id."""
        found = self._items_by_id.get((tenant, id))
        return found[-1] if found else None

    def append_items(self, tenant: str, record: ConversationRecord, items: Sequence[Item]) -> None:
        """Append items to a conversation."""
        record.items += items
        self.index_items(tenant, items)

    def index_items(self, tenant: str, items: Iterable[Item]) -> None:
        """Make items known by their ids."""
        for item in items:
            if isinstance(item.id, str) and not isinstance(item, ItemReference):
                self._items_by_id.setdefault((tenant, item.id), []).append(item)

    def unindex_items(self, tenant: str, items: Iterable[Item]) -> None:
        """Take items back that were made known."""
        for item in items:
            found = self._items_by_id.get((tenant, str(item.id)))
            if found and item in found:
                found.remove(item)
                if not found:
                    del self._items_by_id[tenant, str(item.id)]
