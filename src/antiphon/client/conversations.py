"""Conversations of a server that keeps them: made, changed, read and deleted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import field

from antiphon.adapters.json_access import as_object, drop_none
from antiphon.client.pagination import Paginator
from antiphon.client.params import (
    ApiRequest,
    Input,
    JsonObject,
    Order,
    build_path,
    to_json_value,
)
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import Item, user_message
from antiphon.protocol.struct import ProtocolStruct

if TYPE_CHECKING:
    from antiphon.client.http import HttpApi

CONVERSATIONS_PATH = "conversations"


class ConversationResource(ProtocolStruct):
    """A conversation: its id, when it was made, and what was noted about it."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int = 0
    metadata: dict[str, str] = field(default_factory=dict[str, str])


class ConversationsApi:
    """The conversations of one server, as `client.conversations`."""

    def __init__(self, http: "HttpApi") -> None:
        self._http = http

    async def create(
        self, *, items: Input = (), metadata: Mapping[str, str] | None = None
    ) -> ConversationResource:
        """Begin a conversation, with items in it or without."""
        body = drop_none({"items": _to_json_items(items) or None, "metadata": metadata})
        return await self._request_conversation("POST", CONVERSATIONS_PATH, body)

    async def retrieve(self, id: str) -> ConversationResource:
        """Return a conversation."""
        return await self._request_conversation("GET", build_path(CONVERSATIONS_PATH, id))

    async def update(self, id: str, *, metadata: Mapping[str, str]) -> ConversationResource:
        """Note something else about a conversation."""
        return await self._request_conversation(
            "POST", build_path(CONVERSATIONS_PATH, id), {"metadata": dict(metadata)}
        )

    async def delete(self, id: str) -> None:
        """Delete a conversation, and keep the responses that were made in it."""
        await self._http.delete(build_path(CONVERSATIONS_PATH, id))

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Paginator:
        """Give the items of a conversation, the oldest first; pages are read as needed."""
        return Paginator(self._http, build_path(CONVERSATIONS_PATH, id, "items"), order, after)

    async def add(self, id: str, items: Input) -> list[Item]:
        """Add items to a conversation; return them as they are kept, with ids."""
        ask = ApiRequest(
            path=build_path(CONVERSATIONS_PATH, id, "items"), body={"items": _to_json_items(items)}
        )
        return LENIENT.read_items(as_object(await self._http.request_json(ask)).get("data"))

    async def delete_item(self, id: str, item_id: str) -> ConversationResource:
        """Take an item out of a conversation."""
        return await self._request_conversation(
            "DELETE", build_path(CONVERSATIONS_PATH, id, "items", item_id)
        )

    async def _request_conversation(
        self, method: str, path: str, body: JsonObject | None = None
    ) -> ConversationResource:
        return LENIENT.read(
            ConversationResource,
            await self._http.request_json(ApiRequest(method=method, path=path, body=body)),
        )


def _to_json_items(items: Input) -> Sequence[object]:
    return [
        to_json_value(item) for item in ([user_message(items)] if isinstance(items, str) else items)
    ]
