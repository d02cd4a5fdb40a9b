"""Conversations: made, changed, read and deleted, and the items they are made of."""

import time
from typing import Annotated, TypeVar, cast

from msgspec import UNSET, Meta, field
from msgspec.structs import asdict, replace

from antiphon.engine.persistence import ensure_id, new_id
from antiphon.protocol.errors import RequestError
from antiphon.protocol.foreign.openai_types import add_item_slugs
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
)
from antiphon.protocol.request import Metadata, normalize_input
from antiphon.protocol.struct import (
    InvalidValueError,
    ProtocolStruct,
    decode,
    encode,
    join_path,
)
from antiphon.server.asgi import (
    Receive,
    Scope,
    Send,
    header,
    read_json,
    send_json,
)
from antiphon.server.endpoints.query import Query, not_found_error, path_id
from antiphon.server.endpoints.stored_responses import encode_list
from antiphon.server.service import Service
from antiphon.store.base import ItemPage, Store, StoredConversation
from antiphon.wire.openresponses import Dialect

CONVERSATION, ITEM = "Conversation", "Item"
MAX_ITEMS_PER_REQUEST = 20
"""How many items may come at once."""

V = TypeVar("V", bound=ProtocolStruct)


class _ItemsBody(ProtocolStruct):
    """A body with items in it."""

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept items in either dialect, and without a type where the shape tells it."""
        items = raw.get("items")
        if not isinstance(items, list):
            return raw
        known = [add_item_slugs(item) for item in cast("list[object]", items)]
        return raw | {"items": normalize_input(known, join_path(path, "items"))}


class CreateConversationBody(_ItemsBody):
    """What a conversation may begin with."""

    items: Annotated[list[Item], Meta(max_length=MAX_ITEMS_PER_REQUEST)] = field(
        default_factory=list[Item]
    )
    metadata: Metadata = field(default_factory=dict[str, str])


class UpdateConversationBody(ProtocolStruct):
    """What can be changed of a conversation; null means none."""

    metadata: Metadata | None


class AddItemsBody(_ItemsBody):
    """What is added to a conversation."""

    items: Annotated[list[Item], Meta(min_length=1, max_length=MAX_ITEMS_PER_REQUEST)]


class ConversationEndpoints:
    """The endpoints of one door for conversations."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /conversations`; nothing has to be said."""
        body: object = {} if _has_no_body(scope) else await self._read_body(scope, receive)
        new = _parse(CreateConversationBody, body)
        store = await self._store()
        items = await _resolve_items(store, new.items)
        conversation = StoredConversation(new_id("conv"), int(time.time()), new.metadata)
        await store.save_conversation(conversation)
        if items:
            await store.add_items(conversation.id, items)
        await send_json(send, _encode_conversation(conversation))

    async def get_update_or_delete(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET`, `POST` and `DELETE /conversations/{id}`."""
        conversation = await self._find(scope)
        store = await self._store()
        match scope["method"]:
            case "POST":
                change = _parse(UpdateConversationBody, await self._read_body(scope, receive))
                conversation = replace(conversation, metadata=change.metadata or {})
                await store.save_conversation(conversation)
                await send_json(send, _encode_conversation(conversation))
            case "DELETE":
                if not await store.delete_conversation(conversation.id):
                    raise not_found_error(CONVERSATION, conversation.id)
                gone = {"id": conversation.id, "object": "conversation.deleted", "deleted": True}
                await send_json(send, encode(gone))
            case _:
                await send_json(send, _encode_conversation(conversation))

    async def list_or_add_items(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET` and `POST /conversations/{id}/items`."""
        id = path_id(scope, "id", CONVERSATION)
        if scope["method"] == "POST":
            page = await self._add(id, scope, receive)
        else:
            page = await (await self._store()).list_items(id, Query(scope).cursor())
        if page is None:
            raise not_found_error(CONVERSATION, id)
        whole = ItemPage([_with_status(item) for item in page.items], page.has_more)
        await send_json(send, encode_list(whole, self._dialect()))

    async def get_or_delete_item(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET` and `DELETE /conversations/{id}/items/{item_id}`."""
        del receive
        conversation = await self._find(scope)
        store = await self._store()
        # Whoever sent an item may have chosen its id, so that it can look like anything.
        item_id = str(scope["path_params"]["item_id"])
        item = await store.find_conversation_item(conversation.id, item_id)
        if item is None:
            raise not_found_error(ITEM, item_id)
        if scope["method"] == "DELETE":
            await store.delete_item(conversation.id, item_id)
            await send_json(send, _encode_conversation(conversation))
        else:
            await send_json(send, self._dialect().encode(_with_status(item)))

    async def _add(self, id: str, scope: Scope, receive: Receive) -> ItemPage | None:
        new = _parse(AddItemsBody, await self._read_body(scope, receive))
        store = await self._store()
        items = await _resolve_items(store, new.items)
        return ItemPage(items, has_more=False) if await store.add_items(id, items) else None

    async def _find(self, scope: Scope) -> StoredConversation:
        id = path_id(scope, "id", CONVERSATION)
        conversation = await (await self._store()).find_conversation(id)
        if conversation is None:
            raise not_found_error(CONVERSATION, id)
        return conversation

    async def _store(self) -> Store:
        return (await self._service.engine()).store

    async def _read_body(self, scope: Scope, receive: Receive) -> object:
        return await read_json(scope, receive, self._service.settings.body_limit)


def _parse(kind: type[V], body: object) -> V:
    try:
        return decode(kind, body)
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None


def _has_no_body(scope: Scope) -> bool:
    """Tell whether a request comes without a body."""
    length = header(scope, b"content-length")
    signs = (length, header(scope, b"content-type"), header(scope, b"transfer-encoding"))
    return length == "0" or not any(signs)


async def _resolve_items(store: Store, items: list[Item]) -> list[Item]:
    """Return items as they are kept: with ids, and with what references name in their place."""
    kept = [ensure_id(item) for item in items]
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


def _encode_conversation(conversation: StoredConversation) -> bytes:
    return encode({**asdict(conversation), "object": "conversation"})


def _with_status(item: Item) -> Item:
    """Return an item with the status that everything said in a conversation has."""
    if isinstance(item, Message | FunctionCall | FunctionCallOutput) and item.status is UNSET:
        return replace(item, status="completed")
    return item
