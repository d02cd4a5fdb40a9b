"""`POST /responses/compact`: a conversation in, a small one out that can be sent back as input."""

from antiphon.engine.compaction import compact
from antiphon.protocol.errors import RequestError
from antiphon.protocol.request import CompactRequest
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.asgi import (
    Receive,
    Scope,
    Send,
    read_json,
    send_json,
)
from antiphon.server.service import Service
from antiphon.server.streaming.disconnect import run_until_disconnect
from antiphon.wire.openresponses import Dialect, decode_compact


class CompactEndpoint:
    """The endpoint, at one door."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the model is stopped if the client leaves."""
        body = await read_json(scope, receive, self._service.settings.body_limit)
        request = read_compact_request(body)
        engine = await self._service.engine()
        resource = await run_until_disconnect(self._service, compact(engine, request), receive)
        await send_json(send, self._dialect().encode_compaction(resource))


def read_compact_request(body: object) -> CompactRequest:
    """Read a request; raises RequestError."""
    try:
        return decode_compact(body)
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None
