"""`POST /responses/input_tokens`: count the tokens of a request's input."""

from starlette.routing import BaseRoute

from antiphon.protocol.struct import encode
from antiphon.server.asgi import Receive, Scope, Send, read_json, send_json
from antiphon.server.endpoints.base import Endpoints, parse_body, route
from antiphon.wire.openresponses import decode_request


class InputTokensEndpoint(Endpoints):
    """Counts input tokens; the answer is the same in every dialect."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        """Return the routes below a door's prefix."""
        return [route(f"{prefix}/responses/input_tokens", POST=self.count)]

    async def count(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /responses/input_tokens`."""
        body = await read_json(scope, receive, self._settings.body_limit)
        request = parse_body(decode_request, body)
        counted = await (await self._service.engine()).count_input_tokens(request)
        await send_json(send, encode(counted))
