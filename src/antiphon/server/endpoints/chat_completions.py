"""`POST /chat/completions`: the same responses, for clients that know only chats."""

from msgspec.structs import replace

from antiphon.engine.engine import Engine
from antiphon.protocol.errors import RequestError
from antiphon.protocol.request import Request
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.endpoints.responses import CreateResponse, ResponseExchange
from antiphon.server.service import Service
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.chat.request import decode_chat
from antiphon.wire.openresponses import Dialect


class ChatCompletionsEndpoint(CreateResponse):
    """The endpoint, which is the same at every door."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, ChatDialect)

    def parse(self, body: object) -> tuple[Request, Dialect]:
        """Read a chat request, and choose how it is answered; raises RequestError."""
        try:
            asked = decode_chat(body)
        except InvalidValueError as error:
            raise RequestError.from_invalid_value(error) from None
        return asked.request, ChatDialect(asked)

    async def respond(self, engine: Engine, exchange: ResponseExchange) -> None:
        """Answer a request; what is refused is blamed on the client's own params."""
        try:
            await super().respond(engine, exchange)
        except RequestError as error:
            if error.payload.param:
                param = exchange.dialect.param_name(error.payload.param)
                error.payload = replace(error.payload, param=param)
            raise
