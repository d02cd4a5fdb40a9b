"""A run's events as Server-Sent Events.

The model's side calls `write`, which encodes at once and never waits; the client's side sends what
has gathered. Whatever was written between two sends leaves in one write, and an event is never
split. A reader that is too slow makes the model wait, not the memory grow.

Where the server lets us, what is written leaves past the task that sends: waking it for every event
would cost more than the event. It is woken only for a reader that is behind.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import ClassVar

from antiphon.core.events import Event
from antiphon.core.opened import Flow
from antiphon.engine.outlet import Flowing
from antiphon.server.http import Direct, Send
from antiphon.wire import sse
from antiphon.wire.dialects import Dialect

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
HEARTBEAT = sse.comment("keep-alive")


class EventStream:
    """The outlet of a run that is streamed."""

    headers: ClassVar[Sequence[tuple[bytes, bytes]]] = HEADERS
    last: ClassVar[bytes] = sse.DONE_FRAME
    """What the stream says when nothing more will be."""

    def __init__(self, dialect: Dialect, limit: int, direct: Direct | None = None) -> None:
        self._dialect = dialect
        self._encode = dialect.sse
        self._limit = limit
        self._direct = direct or _nowhere
        self._clear = False
        """Whether the head has been sent, and nothing waits before what is written next."""
        self._chunks: list[bytes] = []
        self._size = 0
        self.full = False
        """Whether the reader is so far behind that the model has to wait."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._quiet = True
        self._timer: asyncio.TimerHandle
        self.closed = False

    def write(self, events: list[Event]) -> None:
        """Encode events, and have them sent."""
        encode = self._encode
        chunk = encode(events[0]) if len(events) == 1 else b"".join(map(encode, events))
        if chunk:  # a door may have no words for an event
            self._give(chunk)

    def flow(self, flow: Flow) -> Flowing | None:
        """Return what writes more of a text, in the form that all its deltas have."""
        form = self._dialect.form(flow.delta)
        if form is None:
            return None

        def go_on(said: list[str]) -> bool:
            number = flow.add(said)
            if len(said) == 1:
                chunk = form % (number, said[0].encode())
            else:
                chunk = b"".join([form % (n, text.encode()) for n, text in enumerate(said, number)])
            self._give(chunk)
            return self.full

        return go_on

    async def follow(self, batches: AsyncIterator[list[Event]], after: int = -1) -> None:
        """Write what comes after a number, as it comes from elsewhere, no faster than it is read.

        The end of a broken stream may be two frames at this door, and the reader may have one.
        """
        async for events in batches:
            while events and events[0].sequence_number <= after:
                if rest := self._dialect.rest(events.pop(0), after):
                    self._put(rest)
                    self._wake.set()
            self.write(events)
            await self.drained()

    async def drained(self) -> None:
        """Return when the reader has caught up."""
        while self.full and not self.closed:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Say that nothing more will be written."""
        self.closed = True
        self._wake.set()
        self._room.set()

    def _give(self, chunk: bytes) -> None:
        if self._clear and self._direct(chunk):
            self._quiet = False
        else:
            self._put(chunk)
            self._wake.set()

    def _put(self, chunk: bytes) -> None:
        self._clear = False
        self._chunks.append(chunk)
        self._size += len(chunk)
        self.full = self._size > self._limit

    async def send(self, send: Send, heartbeat: float) -> None:
        """Send everything that is written until the stream is closed, then its last word."""
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        stop = self._beat(heartbeat)
        try:
            while True:
                self._clear = not self._chunks
                await self._wake.wait()
                self._wake.clear()
                self._clear = False
                if chunk := self._take():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                elif self.closed:
                    break
        finally:
            self._clear = False
            stop()
        await send({"type": "http.response.body", "body": self.last})

    def _take(self) -> bytes:
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self.full = False
        self._quiet = False
        self._room.set()
        if self.closed:
            self._wake.set()
        return chunk

    def _beat(self, seconds: float) -> Callable[[], None]:
        """Write a comment whenever a whole interval was silent; return what stops it."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick, seconds)
        return lambda: self._timer.cancel()

    def _tick(self, seconds: float) -> None:
        if self._quiet and not self._chunks:
            self._put(HEARTBEAT)
            self._wake.set()
        self._quiet = True
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick, seconds)


def _nowhere(chunk: bytes) -> bool:
    del chunk
    return False
