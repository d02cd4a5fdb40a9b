"""`POST /responses`: create a response, as JSON, as a stream or in the background.

Also its relatives: `/responses/compact`, `/responses/input_tokens`, `/chat/completions`, and stored
responses: list, get, stream again, cancel, delete, list input items.
"""

import asyncio
import hashlib
from typing import cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.routing import BaseRoute

from antiphon.adapters.errors import client_status, infer_status
from antiphon.engine.background import follow_events
from antiphon.engine.compaction import compact
from antiphon.engine.engine import Caller, Engine, IdempotencyKeyTaken
from antiphon.engine.persistence import replay_response
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, ResponseStatus
from antiphon.protocol.struct import encode
from antiphon.server.asgi import Receive, Scope, Send, WriteChunk, header, read_json, send_json
from antiphon.server.endpoints.base import (
    MAX_INT64,
    Endpoints,
    Query,
    check_found,
    encode_items,
    encode_list,
    path_id,
    route,
)
from antiphon.server.middleware import direct_write
from antiphon.server.streaming.event_stream import EventStream, StreamTask
from antiphon.store.base import TERMINAL_STATUSES, IdempotencyRecord
from antiphon.store.lists import ResponseFilter
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.chat.request import decode_chat
from antiphon.wire.openresponses import Dialect, decode_compact, decode_request, failure_payload

RESPONSE = "Response"


class ResponseExchange(Struct, frozen=True):
    """One decoded request, and where its response is sent."""

    engine: Engine
    caller: Caller
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
        failure = failure_payload(response)
        # The store failed after the model had answered: a retry may succeed.
        if response.error.code == "store_unavailable":
            await send_json(self.send, self.dialect.encode_error(failure), 503)
            return
        # Clients such as openai-python repeat every 5xx; an agent that failed would only fail again.
        headers = {"x-should-retry": "false"}
        body = self.dialect.encode_error(name_response(failure, response))
        await send_json(self.send, body, client_status(infer_status(failure)), headers)


def caller_of(scope: Scope) -> Caller:
    """Return who sends a request."""
    return Caller(request_id=scope["antiphon.request_id"])


class ResponseEndpoints(Endpoints):
    """Creates, finds and compacts responses, and counts their input tokens."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        path = f"{prefix}/responses"
        # Starlette tries routes in order: the fixed paths come before `/responses/{id}`.
        return [
            route(path, GET=self.list_responses, POST=self.create),
            route(f"{path}/compact", POST=self.compact),
            route(f"{path}/input_tokens", POST=self.count_input_tokens),
            route(f"{path}/{{id}}", GET=self.get, DELETE=self.delete),
            route(f"{path}/{{id}}/cancel", POST=self.cancel),
            route(f"{path}/{{id}}/input_items", GET=self.input_items),
        ]

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        def convert(body: object) -> tuple[Request, Dialect, tuple[str, str] | None]:
            return *self.parse(body), idempotency_key(scope, body)

        request, dialect, key = await read_json(scope, receive, self._settings.body_limit, convert)
        engine = await self._service.engine()
        self._service.reject_when_draining()
        direct = direct_write(scope, send)
        await self.respond(ResponseExchange(engine, caller_of(scope), request, dialect, key, receive, send, direct))

    def parse(self, body: object) -> tuple[Request, Dialect]:
        """Decode a request; return it with the dialect of its response. Raises InvalidValueError or RequestError."""
        request = decode_request(body)
        return request, self._dialect(frozenset(request.include))

    async def respond(self, exchange: ResponseExchange) -> None:
        request, key = exchange.request, exchange.idempotency_key
        try:
            if request.background:
                await self._send_background(exchange, await exchange.engine.submit(request, exchange.caller, key=key))
            elif request.stream:
                await self._respond_stream(exchange)
            else:
                await self._respond_json(exchange)
        except IdempotencyKeyTaken as taken:
            await self._replay_idempotent(exchange, taken.claim)

    async def _respond_json(self, exchange: ResponseExchange) -> None:
        run = await exchange.engine.create_run(exchange.request, caller=exchange.caller, key=exchange.idempotency_key)
        response = await self._service.run_until_disconnect(run.execute(), exchange.receive)
        # A failed response says less than the error, which has a status and headers of its own.
        if run.error:
            run.error.payload = name_response(run.error.payload, response)
            raise run.error
        await exchange.send_response(response)

    async def _respond_stream(self, exchange: ResponseExchange) -> None:
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes, exchange.direct_write)
        engine, key = exchange.engine, exchange.idempotency_key
        run = await engine.create_run(exchange.request, stream, exchange.caller, key=key)
        task = self._service.start_task(run.execute())
        async with StreamTask(task, exchange.receive, stream) as producer:
            # Until the model starts, an error can still be sent with its own HTTP status.
            if await producer.wait_started(run, self._settings.commit_seconds):
                await stream.send(exchange.send, self._settings.heartbeat_seconds)
                producer.check_connected()
            else:
                await producer.result()

    async def _send_background(self, exchange: ResponseExchange, response: Response) -> None:
        """Send a background response in its current state, or stream all its events."""
        if not exchange.request.stream:
            await send_json(exchange.send, exchange.dialect.encode_response(response))
            return
        stream = EventStream(exchange.dialect, self._settings.outlet_bytes)
        reading = asyncio.create_task(stream.follow(follow_events(exchange.engine.store, response.id)))
        async with StreamTask(reading, exchange.receive, stream):
            await stream.send(exchange.send, self._settings.heartbeat_seconds)

    async def _replay_idempotent(self, exchange: ResponseExchange, claim: IdempotencyRecord) -> None:
        """Send the response to an earlier request with the same idempotency key."""
        if exchange.idempotency_key and claim.fingerprint != exchange.idempotency_key[1]:
            message = "This Idempotency-Key was used with another body before. Use a new key."
            raise RequestError(message, param="Idempotency-Key", code="idempotency_key_reused", status=422)
        response = await exchange.engine.find_claimed(claim, "")
        if exchange.request.background and response is not None:
            await self._send_background(exchange, response)
            return
        if response is None or response.status not in TERMINAL_STATUSES:
            message = "The first request with this Idempotency-Key is still in progress. Try again."
            error = RequestError(message, param="Idempotency-Key", code="idempotency_key_in_use", status=409)
            raise error.with_retry_after(1)
        if not exchange.request.stream:
            await exchange.send_response(response)
            return
        await self._send_replay(exchange.send, exchange.dialect, response)

    async def compact(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /responses/compact`; the model is stopped if the client disconnects."""
        request = await read_json(scope, receive, self._settings.body_limit, decode_compact)
        engine = await self._service.engine()
        # Without a stream there is no write that would notice a disconnect.
        resource = await self._service.run_until_disconnect(compact(engine, request, caller_of(scope)), receive)
        await send_json(send, self._dialect().encode_compaction(resource))

    async def count_input_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /responses/input_tokens`; the answer is the same in every dialect."""
        request = await read_json(scope, receive, self._settings.body_limit, decode_request)
        counted = await (await self._service.engine()).count_input_tokens(request)
        await send_json(send, encode(counted))

    async def list_responses(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`GET /responses`: stored responses without their items, the newest first."""
        query = Query(scope)
        status = query.choice("status", get_args(ResponseStatus))
        wanted = ResponseFilter(
            **query.conditions(),
            model=query.text("model") or None,
            status=cast("ResponseStatus | None", status),
            background=query.flag("background") if query.text("background") else None,
            previous_response_id=query.text("previous_response_id") or None,
            conversation=query.text("conversation") or None,
        )
        page = await (await self._service.engine()).store.list_responses(query.cursor(), wanted)
        ids = (page.first_id, page.last_id)
        await send_json(send, encode_list(page.rows, self._dialect(), ids, has_more=page.has_more))

    async def get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /responses/{id}`; with `stream=true` its events, after `starting_after`."""
        id, query = path_id(scope, "id", RESPONSE), Query(scope)
        after = query.integer("starting_after", 0, MAX_INT64)
        engine = await self._service.engine()
        stored = check_found(await engine.find(id), RESPONSE, id)
        dialect = self._dialect(frozenset(query.texts("include")))
        if not query.flag("stream"):
            if after is not None:
                message = "'starting_after' requires stream=true."
                raise RequestError(message, param="starting_after", code="invalid_value")
            await send_json(send, dialect.encode_response(stored.response))
            return
        if after is not None and not stored.response.background:
            message = "Only background responses can be resumed. Leave 'starting_after' out to get the whole stream."
            raise RequestError(message, param="starting_after", code="not_a_background_response")
        start = -1 if after is None else after
        log = await engine.store.read(id, start, limit=1) if stored.response.background else None
        # The log of a response that a crash interrupted may be empty.
        if log and (log.events or not log.ended or after is not None):
            stream = EventStream(dialect, self._settings.outlet_bytes)
            # One event early: in some dialects it is two frames, see `EventStream.follow`.
            events = follow_events(engine.store, id, start - 1)
            async with StreamTask(asyncio.create_task(stream.follow(events, start)), receive, stream):
                await stream.send(send, self._settings.heartbeat_seconds)
        elif after is not None:
            message = f"The events of response '{id}' have expired. Leave 'starting_after' out to get the whole stream."
            raise RequestError(message, type="not_found", param="starting_after", code="events_not_found")
        elif stored.response.status not in TERMINAL_STATUSES:
            message = "This response is still in progress. Read it without 'stream', or stream it when it has ended."
            raise RequestError(message, param="stream", code="response_in_progress")
        else:
            await self._send_replay(send, dialect, stored.response)

    async def _send_replay(self, send: Send, dialect: Dialect, response: Response) -> None:
        """Stream a response that has ended; its events are generated anew."""
        stream = EventStream(dialect, self._settings.outlet_bytes)
        stream.write(replay_response(response))
        stream.close()
        await stream.send(send, self._settings.heartbeat_seconds)

    async def delete(self, scope: Scope, _receive: Receive, send: Send) -> None:
        id = path_id(scope, "id", RESPONSE)
        check_found(await (await self._service.engine()).delete(id), RESPONSE, id)
        await send_json(send, encode({"id": id, "object": "response", "deleted": True}))

    async def cancel(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`POST /responses/{id}/cancel`; a body is ignored."""
        id = path_id(scope, "id", RESPONSE)
        response = check_found(await (await self._service.engine()).cancel(id), RESPONSE, id)
        await send_json(send, self._dialect().encode_response(response))

    async def input_items(self, scope: Scope, _receive: Receive, send: Send) -> None:
        id, cursor = path_id(scope, "id", RESPONSE), Query(scope).cursor()
        page = await (await self._service.engine()).store.list_input_items(id, cursor)
        await send_json(send, encode_items(check_found(page, RESPONSE, id), self._dialect()))


def name_response(error: ErrorPayload, response: Response) -> ErrorPayload:
    """Add the id of the stored response to the error that its client gets instead of it."""
    return replace(error, extra={"antiphon:response_id": response.id}) if response.store else error


def idempotency_key(scope: Scope, body: object) -> tuple[str, str] | None:
    """Return the idempotency key and the body's fingerprint, or None without a key."""
    key = header(scope, b"idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        message = "An Idempotency-Key is 1 to 255 printable ASCII characters."
        raise RequestError(message, param="Idempotency-Key", code="invalid_value")
    # A retry may serialize the same fields in another order.
    canonical = msgspec.json.encode(body, order="sorted")
    return key, hashlib.sha256(canonical).hexdigest()


class ChatCompletionsEndpoint(ResponseEndpoints):
    """Creates responses from chat requests; the same at every door."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [route(f"{prefix}/chat/completions", POST=self.create)]

    def parse(self, body: object) -> tuple[Request, Dialect]:
        chat = decode_chat(body)
        return chat.request, ChatDialect(chat)

    async def respond(self, exchange: ResponseExchange) -> None:
        """Respond to a request; errors name the parameters of the chat request."""
        try:
            await super().respond(exchange)
        except RequestError as error:
            # The engine knows the parameters of a response only, which the client has never sent.
            if error.payload.param:
                param = exchange.dialect.param_name(error.payload.param)
                error.payload = replace(error.payload, param=param)
            raise
