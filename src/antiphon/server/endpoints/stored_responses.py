"""Stored responses: get, stream again, cancel, delete, list input items."""

import asyncio

from starlette.routing import BaseRoute

from antiphon.engine.background import follow_events
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.struct import encode
from antiphon.server.asgi import Receive, Scope, Send, send_json
from antiphon.server.endpoints.base import MAX_INT64, Endpoints, Query, not_found_error, path_id, route
from antiphon.server.streaming.event_stream import EventStream, StreamTask
from antiphon.store.base import ItemPage
from antiphon.wire.openresponses import Dialect

RESPONSE = "Response"


class StoredResponseEndpoints(Endpoints):
    """Endpoints of stored responses."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        """Return the routes below a door's prefix."""
        path = f"{prefix}/responses/{{id}}"
        return [
            route(path, GET=self.get, DELETE=self.delete),
            route(f"{path}/cancel", POST=self.cancel),
            route(f"{path}/input_items", GET=self.input_items),
        ]

    async def get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /responses/{id}`; with `stream=true` its events, after `starting_after`."""
        id, query = path_id(scope, "id", RESPONSE), Query(scope)
        after = query.integer("starting_after", 0, MAX_INT64)
        engine = await self._service.engine()
        stored = await engine.find(id)
        if stored is None:
            raise not_found_error(RESPONSE, id)
        dialect = self._dialect(frozenset(query.texts("include")))
        if not query.flag("stream"):
            if after is not None:
                message = "'starting_after' requires stream=true."
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
                f"The events of response '{id}' have expired. Read it without 'stream'.",
                type="not_found",
                param="stream",
                code="events_not_found",
            )
        stream = EventStream(dialect, self._settings.outlet_bytes)
        # One event early: in some dialects it is two frames, see `EventStream.follow`.
        events = follow_events(engine.store, id, start - 1)
        async with StreamTask(asyncio.create_task(stream.follow(events, start)), receive, stream):
            await stream.send(send, self._settings.heartbeat_seconds)

    async def delete(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /responses/{id}`."""
        del receive
        id = path_id(scope, "id", RESPONSE)
        engine = await self._service.engine()
        if not await engine.delete(id):
            raise not_found_error(RESPONSE, id)
        await send_json(send, encode({"id": id, "object": "response", "deleted": True}))

    async def cancel(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /responses/{id}/cancel`; a body is ignored."""
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
    """Encode a page of items as a list object with the cursors of the next page."""
    items: list[Item] = page.items
    ids = [item.id for item in items]
    data = b",".join(dialect.encode(item) for item in items)
    rest = encode({"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None, "has_more": page.has_more})
    # The items are encoded by the dialect, the rest is not: `rest[1:]` is without its brace.
    return b'{"object":"list","data":[' + data + b"]," + rest[1:]
