"""`POST /responses/compact`: a conversation in, a small one out that can be sent back as input."""

from antiphon.core.errors import RequestError
from antiphon.core.request import CompactRequest
from antiphon.core.value import ShapeError
from antiphon.engine.compact import compact
from antiphon.server.http import Receive, Scope, Send, read_json, send_json
from antiphon.server.making import attended
from antiphon.server.service import Service
from antiphon.wire.dialects import Dialect, read_compact


class CompactConversation:
    """The endpoint, at one door."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the model is stopped if the client leaves."""
        body = await read_json(scope, receive, self._service.settings.body_limit)
        request = read(body)
        engine = await self._service.engine()
        resource = await attended(self._service, compact(engine, request), receive)
        await send_json(send, self._dialect().compaction(resource))


def read(body: object) -> CompactRequest:
    """Read a request; raises RequestError."""
    try:
        return read_compact(body)
    except ShapeError as error:
        raise RequestError.of_shape(error) from None
