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

from antiphon.core.errors import RequestError, drop_tracebacks
from antiphon.core.request import WebSocketCreate
from antiphon.engine.engine import Caller
from antiphon.engine.recent import Recent
from antiphon.engine.run import DRAIN, Run, is_cancelled
from antiphon.server.failures import explain
from antiphon.server.http import ClientGone, Message, Receive, Scope, Send
from antiphon.server.lanes import Lanes
from antiphon.server.outgoing import Outgoing, Voice
from antiphon.server.service import Service, stopping
from antiphon.wire.dialects import Dialect
from antiphon.wire.socket import Asked, read

access = logging.getLogger("antiphon.access")

GRACE_SECONDS = 5.0
"""How long turns may go on when the connection's time is over."""
HOMES = 10_000
"""Of how many responses a connection remembers the lane."""
GOING_AWAY = 1001
CLIENT_GONE = 499


class ConnectResponses:
    """The endpoint, at one door."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        self._service = service
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await receive()  # "websocket.connect"
        if self._service.draining:
            raise stopping()
        await send({"type": "websocket.accept"})
        await Connection(self._service, self._dialect, scope).serve(receive, send)


class Connection:
    """One client's connection: what it asks for, what it hears, what it remembers."""

    def __init__(self, service: Service, dialect: type[Dialect], scope: Scope) -> None:
        settings = service.settings
        self._service = service
        self._settings = settings
        self._dialect = dialect
        self._path = quote(scope["path"])
        self._id = str(scope.get("antiphon.request_id", "-"))
        self._outgoing = Outgoing(settings.outlet_bytes)
        self._lanes = Lanes(settings.body_limit)
        self._memory = Recent(settings.socket_memory_bytes, settings.memory_seconds)
        self._caller = Caller(local=self._memory)
        self._homes: dict[str, str] = {}
        self._making: set[asyncio.Task[None]] = set()
        self._time_is_over = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Answer until the client leaves, or has to."""
        sending = asyncio.create_task(self._outgoing.send(send))
        listening = asyncio.create_task(self._listen(receive))
        retiring = asyncio.create_task(self._retire(sending))
        tasks = (sending, listening, retiring)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            with suppress(ClientGone):
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
            if self._hear(message):
                await asyncio.sleep(0)  # what can begin at once does not count as waiting
            else:
                await self._outgoing.drained()

    def _hear(self, message: Message) -> bool:
        """Tell whether a message will be answered in its turn, and not at once with an error.

        Whatever is wrong with a message is said in its turn too, or it would be taken for the end
        of the turn before.
        """
        text: str | None = message.get("text")
        data: str | bytes = message["bytes"] if text is None else text
        asked = read(data, self._settings.body_limit)
        if isinstance(asked.create, RequestError):
            drop_tracebacks(asked.create)  # which hold the message, also while its lane is busy
        if isinstance(asked.create, RequestError) and not self._lanes.is_busy(asked.lane):
            self._refuse(asked.create, asked.lane)
            self._forget(asked)
            return False
        try:
            self._lanes.add(asked.lane, partial(self._answer, asked), len(data))
        except RequestError as error:
            self._refuse(error, asked.lane)
            return False
        return True

    def _refuse(self, error: RequestError, lane: str) -> None:
        voice = Voice(self._outgoing, self._dialect(), lane)
        voice.refuse(explain(error, self._dialect(), self._id))

    # --- what it is answered -----------------------------------------------------------------

    async def _answer(self, asked: Asked) -> None:
        """Answer a message when its turn has come."""
        begun = time.perf_counter()
        include = () if isinstance(asked.create, RequestError) else asked.create.include
        dialect = self._dialect(frozenset(include))
        voice = Voice(self._outgoing, dialect, asked.lane)
        try:
            if isinstance(asked.create, RequestError):
                raise asked.create
            await self._respond(asked.create, asked.lane, voice)
        except asyncio.CancelledError:
            voice.status = CLIENT_GONE
            raise
        except Exception as error:  # noqa: BLE001 - a process boundary, as for every HTTP request
            if not voice.ended:
                voice.refuse(explain(error, dialect, self._id))
            drop_tracebacks(error)
        finally:
            took = (time.perf_counter() - begun) * 1000
            access.info("TURN %s %d %.1fms %s", self._path, voice.status, took, self._id)
        if voice.status >= 400:
            self._forget(asked)

    async def _respond(self, create: WebSocketCreate, lane: str, voice: Voice) -> None:
        if self._time_is_over:
            raise limit_reached(self._settings.socket_seconds)
        if self._service.draining:
            raise stopping()
        engine = await self._service.engine()
        engine.locals.add(self._memory)
        run = await engine.open(create, voice, self._caller, generate=create.generate)
        making = self._service.run(self._make(run, lane, voice))
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        try:
            await making
        except asyncio.CancelledError:
            if not run.begun.is_set():  # it was cancelled before it could take its first step
                engine.abandon(run.response_id)
            if is_cancelled():
                raise
            if not voice.ended:
                raise stopping() from None

    async def _make(self, run: Run, lane: str, voice: Voice) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._settings.commit_seconds, voice.commit, run)
        try:
            response = await run.drive()
        finally:
            timer.cancel()
        if run.refusal:
            voice.status = run.refusal.status
        self._homes[response.id] = lane
        while len(self._homes) > HOMES:
            del self._homes[next(iter(self._homes))]
        await self._outgoing.flushed()

    def _forget(self, asked: Asked) -> None:
        """Forget what a failed turn continued, unless it came from another lane.

        "If a continuation fails with a 4xx or 5xx, the server MUST evict the referenced
        previous_response_id." A failed fork leaves the lane that it left as it was.
        """
        if asked.previous and self._homes.get(asked.previous, asked.lane) == asked.lane:
            self._memory.evict(asked.previous)
            self._homes.pop(asked.previous, None)

    # --- how it ends -------------------------------------------------------------------------

    async def _retire(self, sending: asyncio.Task[None]) -> None:
        """End the connection in order when its time is over, or the server stops."""
        try:
            async with asyncio.timeout(self._settings.socket_seconds):
                await self._service.stopping.wait()
            reason = "The server stops."
        except TimeoutError:
            reason = "The connection was open for as long as it may be."
            self._time_is_over = True
            await self._end_turns()
        await self._lanes.idle()
        if self._time_is_over:
            self._refuse(limit_reached(self._settings.socket_seconds), "")
        self._outgoing.close(GOING_AWAY, reason)
        await asyncio.wait([sending])

    async def _end_turns(self) -> None:
        """Let what runs go on for a while, and then interrupt it."""
        if self._making:
            await asyncio.wait(self._making, timeout=GRACE_SECONDS)
        for making in self._making:
            making.cancel(DRAIN)


def limit_reached(seconds: float) -> RequestError:
    """Say that a connection has been open for as long as it may be."""
    return RequestError(
        f"A WebSocket may be open for {seconds:g} seconds, which are over. Open a new one.",
        code="websocket_connection_limit_reached",
    )
