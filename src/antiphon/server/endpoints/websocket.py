"""`WebSocket /responses`: many requests and their responses on one connection.

A connection has a memory of its own: what it was told with `store: false` can be continued here
and nowhere else. Each turn ends with exactly one message: a response's last event, or an error
envelope if it failed before the response was announced.
"""

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from urllib.parse import quote

from antiphon.engine.engine import Caller
from antiphon.engine.history import ContextCache
from antiphon.engine.run import SERVER_STOPPING, Run, is_cancelled
from antiphon.protocol.errors import RequestError, drop_tracebacks
from antiphon.protocol.request import WebSocketCreate
from antiphon.server.asgi import (
    ClientDisconnected,
    Message,
    Receive,
    Scope,
    Send,
)
from antiphon.server.errors import report_error
from antiphon.server.service import Service, server_stopping_error
from antiphon.server.streaming.ws_lanes import LaneScheduler
from antiphon.server.streaming.ws_queue import OutgoingQueue, TurnSink
from antiphon.wire.openresponses import Dialect
from antiphon.wire.websocket import ClientMessage, decode_message

access_log = logging.getLogger("antiphon.access")

GRACE_SECONDS = 5.0
"""How long turns may go on when the connection's time is over."""
MAX_TRACKED_RESPONSES = 10_000
"""Of how many responses a connection remembers the lane."""
GOING_AWAY = 1001
CLIENT_CLOSED_REQUEST = 499


class WebSocketEndpoint:
    """The endpoint, at one door."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await receive()  # "websocket.connect"
        if self._service.draining:
            raise server_stopping_error()
        await send({"type": "websocket.accept"})
        await WebSocketConnection(self._service, self._dialect, scope).serve(receive, send)


class WebSocketConnection:
    """One client's connection: what it asks for, what it hears, what it remembers."""

    def __init__(self, service: Service, dialect: type[Dialect], scope: Scope) -> None:
        settings = service.settings
        self._service = service
        self._settings = settings
        self._dialect = dialect
        self._path = quote(scope["path"])
        self._request_id = str(scope.get("antiphon.request_id", "-"))
        self._outgoing = OutgoingQueue(settings.outlet_bytes)
        self._lanes = LaneScheduler(settings.body_limit)
        self._history_cache = ContextCache(settings.socket_memory_bytes, settings.memory_seconds)
        self._caller = Caller(connection_cache=self._history_cache)
        self._response_lanes: dict[str, str] = {}
        self._turn_tasks: set[asyncio.Task[None]] = set()
        self._expired = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Answer until the client leaves, or has to."""
        sending = asyncio.create_task(self._outgoing.run(send))
        listening = asyncio.create_task(self._listen(receive))
        retiring = asyncio.create_task(self._close_when_due(sending))
        tasks = (sending, listening, retiring)
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

    # --- what the client says ----------------------------------------------------------------

    async def _listen(self, receive: Receive) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            if self._receive_message(message):
                await asyncio.sleep(0)  # what can begin at once does not count as waiting
            else:
                await self._outgoing.drain()

    def _receive_message(self, message: Message) -> bool:
        """Tell whether a message will be answered in its turn, and not at once with an error.

        Whatever is wrong with a message is said in its turn too, or it would be taken for the end
        of the turn before.
        """
        text: str | None = message.get("text")
        data: str | bytes = message["bytes"] if text is None else text
        asked = decode_message(data, self._settings.body_limit)
        if isinstance(asked.create, RequestError):
            drop_tracebacks(asked.create)  # which hold the message, also while its lane is busy
        if isinstance(asked.create, RequestError) and not self._lanes.is_busy(asked.lane):
            self._send_error(asked.create, asked.lane)
            self._evict_parent(asked)
            return False
        try:
            self._lanes.add(asked.lane, partial(self._run_turn, asked), len(data))
        except RequestError as error:
            self._send_error(error, asked.lane)
            return False
        return True

    def _send_error(self, error: RequestError, lane: str) -> None:
        voice = TurnSink(self._outgoing, self._dialect(), lane)
        voice.fail(report_error(error, self._dialect(), self._request_id))

    # --- what it is answered -----------------------------------------------------------------

    async def _run_turn(self, message: ClientMessage) -> None:
        """Answer a message when its turn has come."""
        begun = time.perf_counter()
        include = () if isinstance(message.create, RequestError) else message.create.include
        dialect = self._dialect(frozenset(include))
        voice = TurnSink(self._outgoing, dialect, message.lane)
        try:
            if isinstance(message.create, RequestError):
                raise message.create
            await self._create_response(message.create, message.lane, voice)
        except asyncio.CancelledError:
            voice.status = CLIENT_CLOSED_REQUEST
            raise
        except Exception as error:  # noqa: BLE001 - a process boundary, as for every HTTP request
            if not voice.ended:
                voice.fail(report_error(error, dialect, self._request_id))
            drop_tracebacks(error)
        finally:
            took = (time.perf_counter() - begun) * 1000
            access_log.info(
                "TURN %s %d %.1fms %s", self._path, voice.status, took, self._request_id
            )
        if voice.status >= 400:
            self._evict_parent(message)

    async def _create_response(self, create: WebSocketCreate, lane: str, sink: TurnSink) -> None:
        if self._expired:
            raise connection_limit_error(self._settings.socket_seconds)
        if self._service.draining:
            raise server_stopping_error()
        engine = await self._service.engine()
        engine.connection_caches.add(self._history_cache)
        run = await engine.create_run(create, sink, self._caller, generate=create.generate)
        making = self._service.start_task(self._execute(run, lane, sink))
        self._turn_tasks.add(making)
        making.add_done_callback(self._turn_tasks.discard)
        try:
            await making
        except asyncio.CancelledError:
            if not run.started.is_set():  # it was cancelled before it could take its first step
                engine.add_orphan(run.response_id)
            if is_cancelled():
                raise
            if not sink.ended:
                raise server_stopping_error() from None

    async def _execute(self, run: Run, lane: str, sink: TurnSink) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._settings.commit_seconds, sink.commit, run)
        try:
            response = await run.execute()
        finally:
            timer.cancel()
        if run.error:
            sink.status = run.error.status
        self._response_lanes[response.id] = lane
        while len(self._response_lanes) > MAX_TRACKED_RESPONSES:
            del self._response_lanes[next(iter(self._response_lanes))]
        await self._outgoing.flush()

    def _evict_parent(self, message: ClientMessage) -> None:
        """Forget what a failed turn continued, unless it came from another lane.

        "If a continuation fails with a 4xx or 5xx, the server MUST evict the referenced
        previous_response_id." A failed fork leaves the lane that it left as it was.
        """
        if (
            message.previous_response_id
            and self._response_lanes.get(message.previous_response_id, message.lane) == message.lane
        ):
            self._history_cache.evict(message.previous_response_id)
            self._response_lanes.pop(message.previous_response_id, None)

    # --- how it ends -------------------------------------------------------------------------

    async def _close_when_due(self, sending: asyncio.Task[None]) -> None:
        """End the connection in order when its time is over, or the server stops."""
        try:
            async with asyncio.timeout(self._settings.socket_seconds):
                await self._service.shutdown_event.wait()
            reason = "The server stops."
        except TimeoutError:
            reason = "The connection was open for as long as it may be."
            self._expired = True
            await self._end_turns()
        await self._lanes.wait_idle()
        if self._expired:
            self._send_error(connection_limit_error(self._settings.socket_seconds), "")
        self._outgoing.close(GOING_AWAY, reason)
        await asyncio.wait([sending])

    async def _end_turns(self) -> None:
        """Let what runs go on for a while, and then interrupt it."""
        if self._turn_tasks:
            await asyncio.wait(self._turn_tasks, timeout=GRACE_SECONDS)
        for making in self._turn_tasks:
            making.cancel(SERVER_STOPPING)


def connection_limit_error(seconds: float) -> RequestError:
    """Say that a connection has been open for as long as it may be."""
    return RequestError(
        f"A WebSocket may be open for {seconds:g} seconds, which are over. Open a new one.",
        code="websocket_connection_limit_reached",
    )
