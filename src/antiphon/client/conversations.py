"""Conversations that the server stores: create, read, change and delete them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import field

from antiphon.client.params import ApiRequest, Input, JsonObject, Order, build_path, to_json_value
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import Item, user_message
from antiphon.protocol.struct import ProtocolStruct, as_object, as_string, drop_none

if TYPE_CHECKING:
    from antiphon.client.http import HttpApi

CONVERSATIONS_PATH = "conversations"
PAGE_SIZE = 100
"""Items per page; the most that OpenAI's API allows."""


class Paginator:
    """The items at a path. Iterate it for one item after another; pages are read as needed."""

    def __init__(
        self, http: "HttpApi", path: str, order: Order, after: str | None, include: Sequence[str] = ()
    ) -> None:
        self._http = http
        self._path = path
        self._after = after
        self._query = [("order", order), ("limit", str(PAGE_SIZE))]
        self._query += [("include[]", name) for name in include]

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Item]]:
        """Yield the items page by page."""
        after, seen = self._after, set[str]()
        while True:
            query = [*self._query, *([("after", after)] if after else [])]
            request = ApiRequest(method="GET", path=self._path, query=query)
            page = as_object(await self._http.request_json(request))
            items = LENIENT.read_items(page.get("data"))
            # An empty page, or one cursor twice, would repeat forever if `has_more` is wrong.
            if not items:
                return
            yield items
            after = as_string(page.get("last_id")) or as_string(items[-1].id)
            if page.get("has_more") is not True or not after or after in seen:
                return
            seen.add(after)


class ConversationResource(ProtocolStruct):
    """A stored conversation: its id, its time of creation and its metadata."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int = 0
    metadata: dict[str, str] = field(default_factory=dict[str, str])


class ConversationsApi:
    """The conversations of one server, as `client.conversations`."""

    def __init__(self, http: "HttpApi") -> None:
        self._http = http

    async def create(self, *, items: Input = (), metadata: Mapping[str, str] | None = None) -> ConversationResource:
        """Create a conversation, empty or with items."""
        # The specification leaves optional fields out; it does not send null.
        body = drop_none({"items": _to_json_items(items) or None, "metadata": metadata})
        return await self._request("POST", body=body)

    async def retrieve(self, id: str) -> ConversationResource:
        """Return a conversation."""
        return await self._request("GET", id)

    async def update(self, id: str, *, metadata: Mapping[str, str]) -> ConversationResource:
        """Replace the metadata of a conversation."""
        return await self._request("POST", id, body={"metadata": dict(metadata)})

    async def delete(self, id: str) -> None:
        """Delete a conversation; the responses made in it stay."""
        await self._http.delete(build_path(CONVERSATIONS_PATH, id))

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Paginator:
        """Return the items of a conversation, the oldest first; pages are read as needed."""
        return Paginator(self._http, build_path(CONVERSATIONS_PATH, id, "items"), order, after)

    async def add(self, id: str, items: Input) -> list[Item]:
        """Add items to a conversation; return them as stored, with ids."""
        path = build_path(CONVERSATIONS_PATH, id, "items")
        request = ApiRequest(path=path, body={"items": _to_json_items(items)})
        return LENIENT.read_items(as_object(await self._http.request_json(request)).get("data"))

    async def delete_item(self, id: str, item_id: str) -> ConversationResource:
        """Remove an item from a conversation."""
        return await self._request("DELETE", id, "items", item_id)

    async def _request(self, method: str, *ids: str, body: JsonObject | None = None) -> ConversationResource:
        # Conversations of other servers may lack fields: they are read leniently.
        request = ApiRequest(method=method, path=build_path(CONVERSATIONS_PATH, *ids), body=body)
        return LENIENT.read(ConversationResource, await self._http.request_json(request))


def _to_json_items(items: Input) -> list[object]:
    given = [user_message(items)] if isinstance(items, str) else items
    return [to_json_value(item) for item in given]
