"""Responses that are kept: read, followed, listed, cancelled and deleted."""

import asyncio

from antiphon.engine.background import follow_events
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.struct import encode
from antiphon.server.asgi import (
    Receive,
    Scope,
    Send,
    send_json,
)
from antiphon.server.endpoints.query import (
    MAX_INT64,
    Query,
    not_found_error,
    path_id,
)
from antiphon.server.service import Service
from antiphon.server.streaming.disconnect import StreamTask
from antiphon.server.streaming.event_stream import EventStream
from antiphon.store.base import ItemPage
from antiphon.wire.openresponses import Dialect

RESPONSE = "Response"


class StoredResponseEndpoints:
    """The endpoints of one door for what is kept."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def get_or_delete(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET` and `DELETE /responses/{id}`."""
        if scope["method"] == "DELETE":
            await self._delete(scope, send)
        else:
            await self._get(scope, receive, send)

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        id, query = path_id(scope, "id", RESPONSE), Query(scope)
        after = query.integer("starting_after", 0, MAX_INT64)
        engine = await self._service.engine()
        stored = await engine.find(id)
        if stored is None:
            raise not_found_error(RESPONSE, id)
        dialect = self._dialect(frozenset(query.texts("include")))
        if not query.flag("stream"):
            if after is not None:
                message = "'starting_after' goes with stream=true."
                raise RequestError(message, param="starting_after", code="invalid_value")
            await send_json(send, dialect.encode_response(stored.response))
            return
        if not stored.response.background:
            raise RequestError(
                "Only background responses can be streamed again. Read this one without 'stream'.",
                param="stream",
                code="not_a_background_response",
            )
        start = -1 if after is None else after
        if await engine.store.read(id, start, limit=1) is None:
            raise RequestError(
                f"The events of response '{id}' are not kept any more. Read it without 'stream'.",
                type="not_found",
                param="stream",
                code="events_not_found",
            )
        stream = EventStream(dialect, self._service.settings.outlet_bytes)
        events = follow_events(engine.store, id, start - 1)  # one early, see `EventStream.follow`
        async with StreamTask(asyncio.create_task(stream.follow(events, start)), receive, stream):
            await stream.send(send, self._service.settings.heartbeat_seconds)

    async def _delete(self, scope: Scope, send: Send) -> None:
        id = path_id(scope, "id", RESPONSE)
        engine = await self._service.engine()
        if not await engine.delete(id):
            raise not_found_error(RESPONSE, id)
        await send_json(send, encode({"id": id, "object": "response", "deleted": True}))

    async def cancel(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /responses/{id}/cancel`; a body is not needed, and not read."""
        del receive
        id = path_id(scope, "id", RESPONSE)
        response = await (await self._service.engine()).cancel(id)
        if response is None:
            raise not_found_error(RESPONSE, id)
        await send_json(send, self._dialect().encode_response(response))

    async def input_items(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /responses/{id}/input_items`."""
        del receive
        id, cursor = path_id(scope, "id", RESPONSE), Query(scope).cursor()
        page = await (await self._service.engine()).store.list_input_items(id, cursor)
        if page is None:
            raise not_found_error(RESPONSE, id)
        await send_json(send, encode_list(page, self._dialect()))


def encode_list(page: ItemPage, dialect: Dialect) -> bytes:
    """Write a page of items as the list that OpenAI's clients page through."""
    items: list[Item] = page.items
    ids = [item.id for item in items]
    data = b",".join(dialect.encode(item) for item in items)
    rest = encode(
        {
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": page.has_more,
        }
    )
    return b'{"object":"list","data":[' + data + b"]," + rest[1:]
