"""`POST /responses`: a request in, a response out, whole or as a stream."""

import asyncio
import hashlib

import msgspec
from msgspec import Struct

from antiphon.adapters.faults import passed_on, status_of
from antiphon.core.errors import RequestError
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.value import ShapeError
from antiphon.engine.background import followed
from antiphon.engine.engine import Engine, KeyTaken
from antiphon.engine.retell import retell
from antiphon.server.edge import direct
from antiphon.server.http import Direct, Receive, Scope, Send, header, read_json, send_json
from antiphon.server.making import Making, attended
from antiphon.server.service import Service, stopping
from antiphon.server.stream import EventStream
from antiphon.store.base import TERMINAL
from antiphon.wire.dialects import Dialect, failure_of, read_request


class Exchange(Struct, frozen=True):
    """One request, and where its answer goes."""

    request: Request
    dialect: Dialect
    key: tuple[str, str] | None
    receive: Receive
    send: Send
    direct: Direct | None

    async def give(self, response: Response) -> None:
        """Send a response, or the error it ended with."""
        if response.error is None:
            await send_json(self.send, self.dialect.response(response))
            return
        unkept = response.error.code == "store_unavailable"
        failure = failure_of(response)
        status = 503 if unkept else passed_on(status_of(failure))
        await send_json(self.send, self.dialect.error(failure), status)


class CreateResponse:
    """The endpoint, at one door."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._settings = service.settings
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = await read_json(scope, receive, self._settings.body_limit)
        request, dialect = self.understand(body)
        exchange = Exchange(
            request=request,
            dialect=dialect,
            key=idempotency_key(scope, body),
            receive=receive,
            send=send,
            direct=direct(scope, send),
        )
        engine = await self._service.engine()
        if self._service.draining:
            raise stopping()
        await self.answer(engine, exchange)

    def understand(self, body: object) -> tuple[Request, Dialect]:
        """Read a request, and choose how it is answered; raises RequestError."""
        request = read(body)
        return request, self._dialect(frozenset(request.include))

    async def answer(self, engine: Engine, exchange: Exchange) -> None:
        """Answer a request that was understood."""
        try:
            if exchange.request.background:
                await self._submit(engine, exchange)
            elif exchange.request.stream:
                await self._stream(engine, exchange)
            else:
                await self._whole(engine, exchange)
        except KeyTaken as taken:
            await self._again(engine, exchange, taken)

    async def _whole(self, engine: Engine, exchange: Exchange) -> None:
        run = await engine.open(exchange.request, key=exchange.key)
        response = await attended(self._service, run.drive(), exchange.receive)
        if run.refusal:
            raise run.refusal
        await exchange.give(response)

    async def _stream(self, engine: Engine, exchange: Exchange) -> None:
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes, exchange.direct)
        run = await engine.open(exchange.request, stream, key=exchange.key)
        async with Making(self._service.run(run.drive()), exchange.receive, stream) as making:
            if await making.begun(run, self._settings.commit_seconds):
                await stream.send(exchange.send, self._settings.heartbeat_seconds)
                making.check()
            else:
                await making.result()

    async def _submit(self, engine: Engine, exchange: Exchange) -> None:
        response = await engine.submit(exchange.request, key=exchange.key)
        await self._tell(engine, exchange, response)

    async def _tell(self, engine: Engine, exchange: Exchange, response: Response) -> None:
        """Send a background response as it is now, or all its events as they come."""
        if not exchange.request.stream:
            await send_json(exchange.send, exchange.dialect.response(response))
            return
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes)
        reading = asyncio.create_task(stream.follow(followed(engine.store, response.id)))
        async with Making(reading, exchange.receive, stream):
            await stream.send(exchange.send, self._settings.heartbeat_seconds)

    async def _again(self, engine: Engine, exchange: Exchange, taken: KeyTaken) -> None:
        """Answer a request that came before, as it was answered then."""
        if exchange.key and taken.claim.fingerprint != exchange.key[1]:
            raise RequestError(
                "This Idempotency-Key came with another body before. Use a new key.",
                param="Idempotency-Key",
                code="idempotency_key_reused",
                status=422,
            )
        response = await engine.led_to(taken.claim, "")
        if exchange.request.background and response is not None:
            await self._tell(engine, exchange, response)
            return
        if response is None or response.status not in TERMINAL:
            raise RequestError(
                "The first request with this Idempotency-Key is still being answered. Wait for it.",
                param="Idempotency-Key",
                code="idempotency_key_in_use",
                status=409,
            ).retry_after(1)
        if not exchange.request.stream:
            await exchange.give(response)
            return
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes)
        stream.write(retell(response))
        stream.close()
        await stream.send(exchange.send, self._settings.heartbeat_seconds)


def read(body: object) -> Request:
    """Read a request; raises RequestError."""
    try:
        return read_request(body)
    except ShapeError as error:
        raise RequestError.of_shape(error) from None


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
