"""`POST /responses/input_tokens`: what a request would give its model to read, counted."""

from antiphon.protocol.struct import encode
from antiphon.server.asgi import (
    Receive,
    Scope,
    Send,
    read_json,
    send_json,
)
from antiphon.server.endpoints.responses import read_response_request
from antiphon.server.service import Service


class InputTokensEndpoint:
    """The endpoint; it says the same at every door."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = read_response_request(
            await read_json(scope, receive, self._service.settings.body_limit)
        )
        counted = await (await self._service.engine()).count_input_tokens(request)
        await send_json(send, encode(counted))
