"""`POST /responses/compact`: replace a conversation by a shorter one to send as input."""

from starlette.routing import BaseRoute

from antiphon.engine.compaction import compact
from antiphon.server.asgi import Receive, Scope, Send, read_json, send_json
from antiphon.server.endpoints.base import Endpoints, parse_body, route
from antiphon.server.streaming.disconnect import run_until_disconnect
from antiphon.wire.openresponses import decode_compact


class CompactEndpoint(Endpoints):
    """Compacts conversations."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        """Return the routes below a door's prefix."""
        return [route(f"{prefix}/responses/compact", POST=self.compact)]

    async def compact(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /responses/compact`; the model is stopped if the client disconnects."""
        body = await read_json(scope, receive, self._settings.body_limit)
        request = parse_body(decode_compact, body)
        engine = await self._service.engine()
        # Without a stream there is no write that would notice a disconnect.
        resource = await run_until_disconnect(self._service, compact(engine, request), receive)
        await send_json(send, self._dialect().encode_compaction(resource))
