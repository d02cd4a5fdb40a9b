"""Conversations: made, changed, read and deleted, and the items they are made of."""

import time
from typing import Annotated, TypeVar, cast

from msgspec import UNSET, Meta, field
from msgspec.structs import asdict, replace

from antiphon.core.errors import RequestError
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, ItemReference, Message
from antiphon.core.request import Metadata, prepare_input
from antiphon.core.value import ShapeError, Value, decode, encode, join
from antiphon.engine.ids import identified, new_id
from antiphon.server.http import Receive, Scope, Send, header, read_json, send_json
from antiphon.server.query import Query, path_id, unknown
from antiphon.server.service import Service
from antiphon.server.stored import listed
from antiphon.store.base import Conversation, Page, Store
from antiphon.wire.dialects import Dialect, canonical_item

WHAT, ITEM = "Conversation", "Item"
MOST_ITEMS = 20
"""How many items may come at once."""

V = TypeVar("V", bound=Value)


class _Items(Value):
    """A body with items in it."""

    @classmethod
    def prepare(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept items in either dialect, and without a type where the shape tells it."""
        items = raw.get("items")
        if not isinstance(items, list):
            return raw
        known = [canonical_item(item) for item in cast("list[object]", items)]
        return raw | {"items": prepare_input(known, join(path, "items"))}


class NewConversation(_Items):
    """What a conversation may begin with."""

    items: Annotated[list[Item], Meta(max_length=MOST_ITEMS)] = field(default_factory=list[Item])
    metadata: Metadata = field(default_factory=dict[str, str])


class ChangedConversation(Value):
    """What can be changed of a conversation; null means none."""

    metadata: Metadata | None


class NewItems(_Items):
    """What is added to a conversation."""

    items: Annotated[list[Item], Meta(min_length=1, max_length=MOST_ITEMS)]


class ConversationEndpoints:
    """The endpoints of one door for conversations."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /conversations`; nothing has to be said."""
        body: object = {} if _is_empty(scope) else await self._body(scope, receive)
        new = _read(NewConversation, body)
        store = await self._store()
        items = await _kept(store, new.items)
        conversation = Conversation(new_id("conv"), int(time.time()), new.metadata)
        await store.save_conversation(conversation)
        if items:
            await store.add_items(conversation.id, items)
        await send_json(send, _shown(conversation))

    async def one(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET`, `POST` and `DELETE /conversations/{id}`."""
        conversation = await self._find(scope)
        store = await self._store()
        match scope["method"]:
            case "POST":
                change = _read(ChangedConversation, await self._body(scope, receive))
                conversation = replace(conversation, metadata=change.metadata or {})
                await store.save_conversation(conversation)
                await send_json(send, _shown(conversation))
            case "DELETE":
                if not await store.delete_conversation(conversation.id):
                    raise unknown(WHAT, conversation.id)
                gone = {"id": conversation.id, "object": "conversation.deleted", "deleted": True}
                await send_json(send, encode(gone))
            case _:
                await send_json(send, _shown(conversation))

    async def items(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET` and `POST /conversations/{id}/items`."""
        id = path_id(scope, "id", WHAT)
        if scope["method"] == "POST":
            page = await self._add(id, scope, receive)
        else:
            page = await (await self._store()).list_items(id, Query(scope).cursor())
        if page is None:
            raise unknown(WHAT, id)
        whole = Page([_whole(item) for item in page.items], page.has_more)
        await send_json(send, listed(whole, self._dialect()))

    async def item(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET` and `DELETE /conversations/{id}/items/{item_id}`."""
        del receive
        conversation = await self._find(scope)
        store = await self._store()
        # Whoever sent an item may have chosen its id, so that it can look like anything.
        item_id = str(scope["path_params"]["item_id"])
        item = await store.conversation_item(conversation.id, item_id)
        if item is None:
            raise unknown(ITEM, item_id)
        if scope["method"] == "DELETE":
            await store.delete_item(conversation.id, item_id)
            await send_json(send, _shown(conversation))
        else:
            await send_json(send, self._dialect().encode(_whole(item)))

    async def _add(self, id: str, scope: Scope, receive: Receive) -> Page | None:
        new = _read(NewItems, await self._body(scope, receive))
        store = await self._store()
        items = await _kept(store, new.items)
        return Page(items, has_more=False) if await store.add_items(id, items) else None

    async def _find(self, scope: Scope) -> Conversation:
        id = path_id(scope, "id", WHAT)
        conversation = await (await self._store()).conversation(id)
        if conversation is None:
            raise unknown(WHAT, id)
        return conversation

    async def _store(self) -> Store:
        return (await self._service.engine()).store

    async def _body(self, scope: Scope, receive: Receive) -> object:
        return await read_json(scope, receive, self._service.settings.body_limit)


def _read(kind: type[V], body: object) -> V:
    try:
        return decode(kind, body)
    except ShapeError as error:
        raise RequestError.of_shape(error) from None


def _is_empty(scope: Scope) -> bool:
    """Tell whether a request comes without a body."""
    length = header(scope, b"content-length")
    signs = (length, header(scope, b"content-type"), header(scope, b"transfer-encoding"))
    return length == "0" or not any(signs)


async def _kept(store: Store, items: list[Item]) -> list[Item]:
    """Return items as they are kept: with ids, and with what references name in their place."""
    kept = [identified(item) for item in items]
    for index, item in enumerate(kept):
        if isinstance(item, ItemReference):
            named = await store.find_item(item.id)
            if named is None:
                raise RequestError(
                    f"Item '{item.id[:80]}' not found. Send the item itself.",
                    param=f"items[{index}].id",
                    code="item_not_found",
                )
            kept[index] = named
    return kept


def _shown(conversation: Conversation) -> bytes:
    return encode({**asdict(conversation), "object": "conversation"})


def _whole(item: Item) -> Item:
    """Return an item with the status that everything said in a conversation has."""
    if isinstance(item, Message | FunctionCall | FunctionCallOutput) and item.status is UNSET:
        return replace(item, status="completed")
    return item
