"""`POST /responses`: a request in, a response out, whole or as a stream."""

import asyncio
import hashlib

import msgspec
from msgspec import Struct

from antiphon.adapters.errors import client_status, infer_status
from antiphon.engine.background import follow_events
from antiphon.engine.engine import Engine, IdempotencyKeyTaken
from antiphon.engine.persistence import replay_response
from antiphon.protocol.errors import RequestError
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.asgi import (
    Receive,
    Scope,
    Send,
    WriteChunk,
    header,
    read_json,
    send_json,
)
from antiphon.server.middleware import direct_write
from antiphon.server.service import Service, server_stopping_error
from antiphon.server.streaming.disconnect import StreamTask, run_until_disconnect
from antiphon.server.streaming.event_stream import EventStream
from antiphon.store.base import TERMINAL_STATUSES
from antiphon.wire.openresponses import Dialect, decode_request, failure_payload


class ResponseExchange(Struct, frozen=True):
    """One request, and where its answer goes."""

    request: Request
    dialect: Dialect
    idempotency_key: tuple[str, str] | None
    receive: Receive
    send: Send
    direct_write: WriteChunk | None

    async def send_response(self, response: Response) -> None:
        """Send a response, or the error it ended with."""
        if response.error is None:
            await send_json(self.send, self.dialect.encode_response(response))
            return
        unkept = response.error.code == "store_unavailable"
        failure = failure_payload(response)
        status = 503 if unkept else client_status(infer_status(failure))
        await send_json(self.send, self.dialect.encode_error(failure), status)


class CreateResponse:
    """The endpoint, at one door."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._settings = service.settings
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = await read_json(scope, receive, self._settings.body_limit)
        request, dialect = self.parse(body)
        exchange = ResponseExchange(
            request=request,
            dialect=dialect,
            idempotency_key=idempotency_key(scope, body),
            receive=receive,
            send=send,
            direct_write=direct_write(scope, send),
        )
        engine = await self._service.engine()
        if self._service.draining:
            raise server_stopping_error()
        await self.respond(engine, exchange)

    def parse(self, body: object) -> tuple[Request, Dialect]:
        """Read a request, and choose how it is answered; raises RequestError."""
        request = read_response_request(body)
        return request, self._dialect(frozenset(request.include))

    async def respond(self, engine: Engine, exchange: ResponseExchange) -> None:
        """Answer a request that was understood."""
        try:
            if exchange.request.background:
                await self._respond_background(engine, exchange)
            elif exchange.request.stream:
                await self._respond_stream(engine, exchange)
            else:
                await self._respond_json(engine, exchange)
        except IdempotencyKeyTaken as taken:
            await self._replay_idempotent(engine, exchange, taken)

    async def _respond_json(self, engine: Engine, exchange: ResponseExchange) -> None:
        run = await engine.create_run(exchange.request, key=exchange.idempotency_key)
        response = await run_until_disconnect(self._service, run.execute(), exchange.receive)
        if run.error:
            raise run.error
        await exchange.send_response(response)

    async def _respond_stream(self, engine: Engine, exchange: ResponseExchange) -> None:
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes, exchange.direct_write)
        run = await engine.create_run(exchange.request, stream, key=exchange.idempotency_key)
        async with StreamTask(
            self._service.start_task(run.execute()), exchange.receive, stream
        ) as making:
            if await making.wait_started(run, self._settings.commit_seconds):
                await stream.send(exchange.send, self._settings.heartbeat_seconds)
                making.check_connected()
            else:
                await making.result()

    async def _respond_background(self, engine: Engine, exchange: ResponseExchange) -> None:
        response = await engine.submit(exchange.request, key=exchange.idempotency_key)
        await self._send_background(engine, exchange, response)

    async def _send_background(
        self, engine: Engine, exchange: ResponseExchange, response: Response
    ) -> None:
        """Send a background response as it is now, or all its events as they come."""
        if not exchange.request.stream:
            await send_json(exchange.send, exchange.dialect.encode_response(response))
            return
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes)
        reading = asyncio.create_task(stream.follow(follow_events(engine.store, response.id)))
        async with StreamTask(reading, exchange.receive, stream):
            await stream.send(exchange.send, self._settings.heartbeat_seconds)

    async def _replay_idempotent(
        self, engine: Engine, exchange: ResponseExchange, conflict: IdempotencyKeyTaken
    ) -> None:
        """Answer a request that came before, as it was answered then."""
        if exchange.idempotency_key and conflict.claim.fingerprint != exchange.idempotency_key[1]:
            raise RequestError(
                "This Idempotency-Key came with another body before. Use a new key.",
                param="Idempotency-Key",
                code="idempotency_key_reused",
                status=422,
            )
        response = await engine.find_claimed(conflict.claim, "")
        if exchange.request.background and response is not None:
            await self._send_background(engine, exchange, response)
            return
        if response is None or response.status not in TERMINAL_STATUSES:
            raise RequestError(
                "The first request with this Idempotency-Key is still being answered. Wait for it.",
                param="Idempotency-Key",
                code="idempotency_key_in_use",
                status=409,
            ).with_retry_after(1)
        if not exchange.request.stream:
            await exchange.send_response(response)
            return
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes)
        stream.write(replay_response(response))
        stream.close()
        await stream.send(exchange.send, self._settings.heartbeat_seconds)


def read_response_request(body: object) -> Request:
    """Read a request; raises RequestError."""
    try:
        return decode_request(body)
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None


def idempotency_key(scope: Scope, body: object) -> tuple[str, str] | None:
    """Return the request's idempotency key and its body's fingerprint, if it has a key."""
    key = header(scope, b"idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise RequestError(
            "An Idempotency-Key is 1 to 255 printable ASCII characters.",
            param="Idempotency-Key",
            code="invalid_value",
        )
    canonical = msgspec.json.encode(body, order="sorted")
    return key, hashlib.sha256(canonical).hexdigest()
