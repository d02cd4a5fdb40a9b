"""`POST /chat/completions`: responses for clients of the chat completions API."""

from msgspec.structs import replace
from starlette.routing import BaseRoute

from antiphon.engine.engine import Engine
from antiphon.protocol.errors import RequestError
from antiphon.protocol.request import Request
from antiphon.server.endpoints.base import parse_body, route
from antiphon.server.endpoints.responses import ResponseEndpoint, ResponseExchange
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.chat.request import decode_chat
from antiphon.wire.openresponses import Dialect


class ChatCompletionsEndpoint(ResponseEndpoint):
    """Creates responses from chat requests; the same at every door."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        """Return the routes below a door's prefix."""
        return [route(f"{prefix}/chat/completions", POST=self.create)]

    def parse(self, body: object) -> tuple[Request, Dialect]:
        """Decode a chat request; return it with the dialect of its response."""
        chat = parse_body(decode_chat, body)
        return chat.request, ChatDialect(chat)

    async def respond(self, engine: Engine, exchange: ResponseExchange) -> None:
        """Respond to a request; errors name the parameters of the chat request."""
        try:
            await super().respond(engine, exchange)
        except RequestError as error:
            # The engine knows the parameters of a response only, which the client has never sent.
            if error.payload.param:
                param = exchange.dialect.param_name(error.payload.param)
                error.payload = replace(error.payload, param=param)
            raise
