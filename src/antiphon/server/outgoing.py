"""What leaves a WebSocket: the messages of all lanes, in order, no faster than they are read."""

import asyncio
from collections import deque

from antiphon.core.events import TERMINAL, Event, ResponseFailed
from antiphon.engine.outlet import Outlet
from antiphon.engine.run import Run
from antiphon.server.failures import Failure
from antiphon.server.http import Send
from antiphon.wire.dialects import Dialect
from antiphon.wire.socket import envelope, stamped


class Outgoing:
    """The messages of one connection that have still to be sent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._put = self._sent = 0
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._end: tuple[int, str] | None = None

    @property
    def full(self) -> bool:
        """Whether the reader is so far behind that models have to wait."""
        return self._size > self._limit

    def put(self, message: bytes) -> None:
        """Have a message sent."""
        if self._end is None:
            self._messages.append(message)
            self._size += len(message)
            self._put += 1
            self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close the connection when everything has been sent."""
        self._end = self._end or (code, reason)
        self._wake.set()
        self._moved.set()

    async def drained(self) -> None:
        """Return when the reader has caught up."""
        while self.full and self._end is None:
            await self._move()

    async def flushed(self) -> None:
        """Return when everything that was put here so far has been sent."""
        until = self._put
        while self._sent < until and self._end is None:
            await self._move()

    async def _move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def send(self, send: Send) -> None:
        """Send everything, to the end; raises ClientGone."""
        while self._messages or self._end is None:
            await self._wake.wait()
            self._wake.clear()
            while self._messages:
                message = self._messages.popleft()
                await send({"type": "websocket.send", "text": message.decode()})
                self._size -= len(message)
                self._sent += 1
                self._moved.set()
        code, reason = self._end
        await send({"type": "websocket.close", "code": code, "reason": reason})


class Voice(Outlet):
    """The outlet of one turn: its events, as messages of its lane.

    The first events wait until the model begins to answer: a turn that fails before they are sent
    ends with an error envelope, and one that fails after it with `response.failed`.
    """

    def __init__(self, outgoing: Outgoing, dialect: Dialect, lane: str) -> None:
        self._outgoing = outgoing
        self._dialect = dialect
        self._lane = lane
        self._held: list[Event] = []
        self._announced = False
        self.ended = False
        """Whether the message that ends the turn has been sent."""
        self.status = 200
        """How the turn ended, as HTTP would say it."""

    @property
    def full(self) -> bool:
        """Whether the reader is far behind, in whichever lane."""
        return self._outgoing.full

    async def drained(self) -> None:
        """Return when the reader has caught up."""
        await self._outgoing.drained()

    def write(self, events: list[Event]) -> None:
        """Have events sent; the first ones, which announce the response, with those after them."""
        self._held += events
        if self._announced:
            self._release()
        self._announced = True

    def commit(self, run: Run) -> None:
        """Announce a response whose model takes long to begin."""
        if run.refusal is None:
            run.answering = True
            self._release()

    def _release(self) -> None:
        for event in self._held:
            self._outgoing.put(stamped(self._dialect.message(event), self._lane))
            if isinstance(event, TERMINAL):
                self.ended = True
                self.status = 500 if isinstance(event, ResponseFailed) else 200
        self._held.clear()

    def refuse(self, failure: Failure) -> None:
        """End a turn with an error envelope."""
        self.ended = True
        self.status = failure.status
        self._outgoing.put(stamped(self._dialect.envelope(envelope(*failure)), self._lane))
