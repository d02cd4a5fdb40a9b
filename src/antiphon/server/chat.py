"""`POST /chat/completions`: the same responses, for clients that know only chats."""

from msgspec.structs import replace

from antiphon.core.errors import RequestError
from antiphon.core.request import Request
from antiphon.core.value import ShapeError
from antiphon.engine.engine import Engine
from antiphon.server.responses import CreateResponse, Exchange
from antiphon.server.service import Service
from antiphon.wire.chat import ChatDialect
from antiphon.wire.chat_request import read_chat
from antiphon.wire.dialects import Dialect


class CompleteChat(CreateResponse):
    """The endpoint, which is the same at every door."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, ChatDialect)

    def understand(self, body: object) -> tuple[Request, Dialect]:
        """Read a chat request, and choose how it is answered; raises RequestError."""
        try:
            asked = read_chat(body)
        except ShapeError as error:
            raise RequestError.of_shape(error) from None
        return asked.request, ChatDialect(asked)

    async def answer(self, engine: Engine, exchange: Exchange) -> None:
        """Answer a request; what is refused is blamed on the client's own params."""
        try:
            await super().answer(engine, exchange)
        except RequestError as error:
            if error.payload.param:
                param = exchange.dialect.param(error.payload.param)
                error.payload = replace(error.payload, param=param)
            raise
