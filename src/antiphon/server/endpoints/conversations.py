"""Conversations and their items: create, get, update, delete, list."""

import time
from functools import partial
from typing import Annotated, TypeVar, cast

from msgspec import UNSET, Meta, field
from msgspec.structs import asdict, replace
from starlette.routing import BaseRoute

from antiphon.engine.persistence import ensure_id
from antiphon.engine.validation import check_images
from antiphon.protocol.errors import RequestError
from antiphon.protocol.foreign.lenient import ITEM_TYPES, add_slugs
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, ItemReference, Message
from antiphon.protocol.request import MAX_ITEMS_PER_REQUEST, Metadata, normalize_input
from antiphon.protocol.struct import ProtocolStruct, decode, encode, join_path
from antiphon.server.asgi import Receive, Scope, Send, header, read_json, send_json
from antiphon.server.endpoints.base import Endpoints, Query, check_found, encode_items, encode_list, path_id, route
from antiphon.store.base import Store, StoredConversation
from antiphon.store.ids import new_id
from antiphon.store.lists import ListFilter
from antiphon.store.pagination import ItemPage

T = TypeVar("T", bound=ProtocolStruct)

CONVERSATION = "Conversation"


class _ItemsBody(ProtocolStruct):
    """A body with items."""

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Accept items in either dialect, and messages without a `type`."""
        items = raw.get("items")
        if not isinstance(items, list):
            return raw
        known = [add_slugs(item, ITEM_TYPES) for item in cast("list[object]", items)]
        return raw | {"items": normalize_input(known, join_path(path, "items"))}


class CreateConversationBody(_ItemsBody):
    """The body of `POST /conversations`."""

    items: Annotated[list[Item], Meta(max_length=MAX_ITEMS_PER_REQUEST)] = field(default_factory=list[Item])
    metadata: Metadata = field(default_factory=dict[str, str])


class UpdateConversationBody(ProtocolStruct):
    """The body of `POST /conversations/{id}`; null removes the metadata."""

    metadata: Metadata | None


class AddItemsBody(_ItemsBody):
    """The body of `POST /conversations/{id}/items`."""

    items: Annotated[list[Item], Meta(min_length=1, max_length=MAX_ITEMS_PER_REQUEST)]


class ConversationEndpoints(Endpoints):
    """Endpoints of conversations and their items."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        path = f"{prefix}/conversations/{{id}}"
        return [
            route(f"{prefix}/conversations", GET=self.list_conversations, POST=self.create),
            route(path, GET=self.get, POST=self.update, DELETE=self.delete),
            route(f"{path}/items", GET=self.list_items, POST=self.add_items),
            route(f"{path}/items/{{item_id}}", GET=self.get_item, DELETE=self.delete_item),
        ]

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /conversations`; the body is optional."""
        new = CreateConversationBody()
        if not _has_no_body(scope):
            new = await self._read_body(scope, receive, CreateConversationBody)
        store = await self._store()
        items = await _resolve_items(store, new.items)
        conversation = StoredConversation(new_id("conv"), int(time.time()), new.metadata)
        await store.save_conversation(conversation)
        if items:
            await store.add_items(conversation.id, items)
        await send_json(send, _encode_conversation(conversation))

    async def list_conversations(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`GET /conversations`: the conversations without their items, the newest first."""
        query = Query(scope)
        page = await (await self._store()).list_conversations(query.cursor(), ListFilter(**query.conditions()))
        ids = (page.first_id, page.last_id)
        await send_json(send, encode_list(page.rows, self._dialect(), ids, has_more=page.has_more))

    async def get(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, _encode_conversation(await self._find(scope)))

    async def update(self, scope: Scope, receive: Receive, send: Send) -> None:
        conversation = await self._find(scope)
        change = await self._read_body(scope, receive, UpdateConversationBody)
        conversation = replace(conversation, metadata=change.metadata or {})
        await (await self._store()).save_conversation(conversation)
        await send_json(send, _encode_conversation(conversation))

    async def delete(self, scope: Scope, _receive: Receive, send: Send) -> None:
        id = path_id(scope, "id", CONVERSATION)
        check_found(await (await self._store()).delete_conversation(id), CONVERSATION, id)
        await send_json(send, encode({"id": id, "object": "conversation.deleted", "deleted": True}))

    async def list_items(self, scope: Scope, _receive: Receive, send: Send) -> None:
        id = path_id(scope, "id", CONVERSATION)
        page = await (await self._store()).list_items(id, Query(scope).cursor())
        await self._send_items(send, check_found(page, CONVERSATION, id))

    async def add_items(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = path_id(scope, "id", CONVERSATION)
        new = await self._read_body(scope, receive, AddItemsBody)
        store = await self._store()
        added = await store.add_items(id, await _resolve_items(store, new.items))
        items = check_found(added, CONVERSATION, id)
        await self._send_items(send, ItemPage(items, has_more=False))

    async def get_item(self, scope: Scope, _receive: Receive, send: Send) -> None:
        _, item = await self._find_item(scope)
        await send_json(send, self._dialect().encode(_with_status(item)))

    async def delete_item(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`DELETE /conversations/{id}/items/{item_id}`; answers with the conversation."""
        conversation, item = await self._find_item(scope)
        await (await self._store()).delete_item(conversation.id, str(item.id))
        await send_json(send, _encode_conversation(conversation))

    async def _send_items(self, send: Send, page: ItemPage) -> None:
        items = [_with_status(item) for item in page.items]
        await send_json(send, encode_items(ItemPage(items, page.has_more), self._dialect()))

    async def _find_item(self, scope: Scope) -> tuple[StoredConversation, Item]:
        conversation = await self._find(scope)
        # Not `path_id`: clients may choose the ids of the items they send.
        item_id = str(scope["path_params"]["item_id"])
        item = await (await self._store()).find_conversation_item(conversation.id, item_id)
        return conversation, check_found(item, "Item", item_id)

    async def _find(self, scope: Scope) -> StoredConversation:
        id = path_id(scope, "id", CONVERSATION)
        return check_found(await (await self._store()).find_conversation(id), CONVERSATION, id)

    async def _store(self) -> Store:
        return (await self._service.engine()).store

    async def _read_body(self, scope: Scope, receive: Receive, type: type[T]) -> T:
        return await read_json(scope, receive, self._settings.body_limit, partial(decode, type))


def _has_no_body(scope: Scope) -> bool:
    # Some clients send `Content-Length: 0`, others no header at all.
    length = header(scope, b"content-length")
    signs = (length, header(scope, b"content-type"), header(scope, b"transfer-encoding"))
    return length == "0" or not any(signs)


async def _resolve_items(store: Store, items: list[Item]) -> list[Item]:
    """Return items with ids, and with item references replaced by the items they name."""
    check_images(items, "items")
    resolved = list(items)
    for index, item in enumerate(resolved):
        if isinstance(item, ItemReference):
            target = await store.find_item(item.id)
            if target is None:
                message = f"Item '{item.id[:80]}' not found. Send the item itself."
                raise RequestError(message, param=f"items[{index}].id", code="item_not_found")
            resolved[index] = target
    return [ensure_id(item) for item in resolved]


def _encode_conversation(conversation: StoredConversation) -> bytes:
    return encode({**asdict(conversation), "object": "conversation"})


def _with_status(item: Item) -> Item:
    """Return an item with a status; items of a conversation are always completed."""
    if isinstance(item, Message | FunctionCall | FunctionCallOutput) and item.status is UNSET:
        return replace(item, status="completed")
    return item
