"""`WebSocket /responses`: many requests and their responses on one connection.

A connection caches the context of its own responses: one created with `store: false` can be
continued on the same connection only. Each turn ends with exactly one message: the terminal event
of a response, or an error message if it failed before `response.created` was sent.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from urllib.parse import quote

from starlette.routing import BaseRoute, WebSocketRoute

from antiphon.engine.engine import Caller
from antiphon.engine.persistence import ContextCache
from antiphon.engine.run import SERVER_STOPPING, Run, is_cancelled
from antiphon.protocol.errors import RequestError, StoreError, drop_tracebacks
from antiphon.protocol.request import WebSocketCreate
from antiphon.server.asgi import (
    BODY_BUDGET_KEY,
    CLIENT_CLOSED_REQUEST,
    BudgetShare,
    ClientDisconnected,
    Message,
    Receive,
    Scope,
    Send,
    access_log,
    decode,
)
from antiphon.server.endpoints.base import Endpoints
from antiphon.server.middleware import client_prefix, report_error
from antiphon.server.service import Service, server_stopping_error
from antiphon.server.streaming.ws_lanes import LaneScheduler, OutgoingQueue, TurnSink
from antiphon.wire.openresponses import Dialect
from antiphon.wire.websocket import ClientMessage, decode_message

GRACE_SECONDS = 5.0
"""How long running turns may take after the connection has expired."""
MAX_TRACKED_RESPONSES = 10_000
"""For how many responses a connection remembers the lane."""


class WebSocketEndpoint(Endpoints):
    """Accepts WebSocket connections."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [WebSocketRoute(f"{prefix}/responses", self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # "websocket.connect"
        self._service.reject_when_draining()
        await send({"type": "websocket.accept"})
        await WebSocketSession(self._service, self._dialect, scope).serve(receive, send)


class WebSocketSession:
    """One connection: its lanes of turns, its outgoing messages and its cached context."""

    def __init__(self, service: Service, dialect: type[Dialect], scope: Scope) -> None:
        settings = service.settings
        self._service = service
        self._settings = settings
        self._dialect = dialect
        self._path = quote(scope["path"])
        self._budget_share: BudgetShare = scope[BODY_BUDGET_KEY]
        self._prefix = client_prefix(scope)
        self._request_id = str(scope.get("antiphon.request_id", "-"))
        self._outgoing = OutgoingQueue(settings.outlet_bytes)
        self._lanes = LaneScheduler(settings.body_limit)
        self._history_cache = ContextCache(settings.socket_memory_bytes, settings.memory_seconds)
        self._caller = Caller(connection_cache=self._history_cache, request_id=self._request_id)
        self._response_lanes: dict[str, str] = {}
        self._turn_tasks: set[asyncio.Task[None]] = set()
        self._expired = False
        self._close_code = 1001  # going away

    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve until the client disconnects, the connection expires or the server stops."""
        # Whichever ends first ends the connection: the client is gone, or the time is over.
        sending = asyncio.create_task(self._outgoing.run(send))
        listening = asyncio.create_task(self._listen(receive))
        closing = asyncio.create_task(self._close_when_due(sending))
        tasks = (sending, listening, closing)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            with suppress(ClientDisconnected):
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await self._lanes.stop()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, receive: Receive) -> None:
        # The message is passed on at once: a variable would hold it until the next one arrives.
        while (queued := await self._receive_message(await receive())) is not None:
            # A turn that can start now does not count as queued, and a flood must not block the loop.
            await asyncio.sleep(0)
            if not queued:
                await self._outgoing.drain()

    async def _receive_message(self, message: Message) -> bool | None:
        """Queue a turn in its lane and return True.

        Return False if an error was sent instead (the caller then waits until it is written), and
        None if the client disconnected.
        """
        if message["type"] != "websocket.receive":
            return None
        text: str | None = message.get("text")
        data: str | bytes = message["bytes"] if text is None else text
        turn = await decode(partial(decode_message, limit=self._settings.body_limit), data)
        if isinstance(turn.create, RequestError):
            drop_tracebacks(turn.create)  # they hold the message, also while its lane is busy
            # In a busy lane the error waits for its turn, or the client would take it for the end of the turn before.
            if not self._lanes.is_busy(turn.lane):
                self._send_error(turn.create, turn.lane)
                self._evict_parent(turn)
                return False
        held, size = self._budget_share.size, len(data)
        try:
            self._budget_share.resize(held + size)
            self._lanes.add(turn.lane, partial(self._run_turn, turn, size), size)
        except RequestError as error:
            self._budget_share.resize(held)
            self._send_error(error, turn.lane)
            return False
        return True

    def _send_error(self, error: RequestError, lane: str) -> None:
        sink = TurnSink(self._outgoing, self._dialect(), lane)
        sink.fail(report_error(error, self._dialect(), self._request_id, self._prefix))

    async def _run_turn(self, message: ClientMessage, size: int) -> None:
        """Respond to a message of `size` bytes, and log it."""
        started_at = time.perf_counter()
        include = () if isinstance(message.create, RequestError) else message.create.include
        dialect = self._dialect(frozenset(include))
        sink = TurnSink(self._outgoing, dialect, message.lane)
        try:
            if isinstance(message.create, RequestError):
                raise message.create
            await self._create_response(message.create, message.lane, sink)
        except asyncio.CancelledError:
            sink.status = CLIENT_CLOSED_REQUEST
            raise
        except Exception as error:  # noqa: BLE001 - a process boundary, as for every HTTP request
            if not sink.ended:
                sink.fail(report_error(error, dialect, self._request_id, self._prefix))
            drop_tracebacks(error)
        finally:
            milliseconds = (time.perf_counter() - started_at) * 1000
            self._budget_share.resize(self._budget_share.size - size)
            access_log.info("TURN %s %d %.1fms %s", self._path, sink.status, milliseconds, self._request_id)
        if sink.status >= 400:
            self._evict_parent(message)

    async def _create_response(self, create: WebSocketCreate, lane: str, sink: TurnSink) -> None:
        if self._expired:
            raise connection_limit_error(self._settings.socket_seconds)
        self._service.reject_when_draining()
        engine = await self._service.engine()
        engine.connection_caches.add(self._history_cache)
        creating = asyncio.create_task(engine.create_run(create, sink, self._caller, generate=create.generate))
        try:
            # Shielded: a client that leaves now must not leave a stored response without an end.
            run = await asyncio.shield(creating)
        except asyncio.CancelledError as error:
            with suppress(RequestError, StoreError):
                await (await creating).end_unexecuted(error)
            raise
        task = self._service.start_task(self._execute(run, lane, sink))
        self._turn_tasks.add(task)
        task.add_done_callback(self._turn_tasks.discard)
        try:
            await task
        except asyncio.CancelledError as error:
            # Cancelled before its first step: nobody else ends the stored response.
            if not run.started.is_set():
                await run.end_unexecuted(error)
            if is_cancelled():
                raise
            if self._service.draining:
                self._close_code = 1012  # service restart
            if not sink.ended:
                raise server_stopping_error() from None

    async def _execute(self, run: Run, lane: str, sink: TurnSink) -> None:
        timer = asyncio.get_running_loop().call_later(self._settings.commit_seconds, sink.commit, run)
        try:
            response = await run.execute()
        finally:
            timer.cancel()
        if run.error:
            sink.status = run.error.status
        self._response_lanes[response.id] = lane
        while len(self._response_lanes) > MAX_TRACKED_RESPONSES:
            del self._response_lanes[next(iter(self._response_lanes))]
        # The next turn of the lane starts when the client has received this one: a client that does
        # not read cannot queue up finished responses.
        await self._outgoing.flush()

    def _evict_parent(self, message: ClientMessage) -> None:
        """Evict the response that a failed turn continued, unless it is another lane's.

        "If a continuation fails with a 4xx or 5xx, the server MUST evict the referenced
        previous_response_id." A failed fork does not affect the lane it forked from.
        """
        parent = message.previous_response_id
        if parent and self._response_lanes.get(parent, message.lane) == message.lane:
            self._history_cache.evict(parent)
            self._response_lanes.pop(parent, None)

    async def _close_when_due(self, sending: asyncio.Task[None]) -> None:
        """Close the connection in order when it expires, or when the server stops."""
        try:
            async with asyncio.timeout(self._settings.socket_seconds):
                await self._service.shutdown_event.wait()
            reason = "The server is stopping."
        except TimeoutError:
            reason = "The connection reached its maximum duration."
            self._expired = True
            if self._turn_tasks:
                await asyncio.wait(self._turn_tasks, timeout=GRACE_SECONDS)
            for task in self._turn_tasks:
                task.cancel(SERVER_STOPPING)
        await self._lanes.wait_idle()
        # Sent last, outside any turn, so that clients can tell it from a failed turn.
        if self._expired:
            self._send_error(connection_limit_error(self._settings.socket_seconds), "")
        self._outgoing.close(self._close_code, reason)
        await asyncio.wait([sending])


def connection_limit_error(seconds: float) -> RequestError:
    message = f"This WebSocket reached its limit of {seconds:g} seconds. Open a new one."
    return RequestError(message, code="websocket_connection_limit_reached")
