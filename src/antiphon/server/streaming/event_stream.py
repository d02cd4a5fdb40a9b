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

from antiphon.engine.interfaces import WriteText
from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath
from antiphon.server.asgi import Send, WriteChunk
from antiphon.wire import sse
from antiphon.wire.openresponses import Dialect

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
HEARTBEAT = sse.encode_comment("keep-alive")


class EventStream:
    """The outlet of a run that is streamed."""

    response_headers: ClassVar[Sequence[tuple[bytes, bytes]]] = SSE_HEADERS
    end_marker: ClassVar[bytes] = sse.DONE_FRAME
    """What the stream says when nothing more will be."""

    def __init__(self, dialect: Dialect, limit: int, direct: WriteChunk | None = None) -> None:
        self._dialect = dialect
        self._encode = dialect.encode_sse
        self._limit = limit
        self._direct_write = direct or _no_direct_write
        self._can_write_direct = False
        """Whether the head has been sent, and nothing waits before what is written next."""
        self._chunks: list[bytes] = []
        self._size = 0
        self.full = False
        """Whether the reader is so far behind that the model has to wait."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._idle = True
        self._timer: asyncio.TimerHandle
        self.closed = False

    def write(self, events: list[Event]) -> None:
        """Encode events, and have them sent."""
        encode = self._encode
        chunk = encode(events[0]) if len(events) == 1 else b"".join(map(encode, events))
        if chunk:  # a door may have no words for an event
            self._write_chunk(chunk)

    def text_fast_path(self, fast_path: TextFastPath) -> WriteText | None:
        """Return what writes more of a text, in the form that all its deltas have."""
        form = self._dialect.text_fast_path(fast_path.delta_template)
        if form is None:
            return None

        def go_on(said: list[str]) -> bool:
            number = fast_path.append(said)
            if len(said) == 1:
                chunk = form % (number, said[0].encode())
            else:
                chunk = b"".join([form % (n, text.encode()) for n, text in enumerate(said, number)])
            self._write_chunk(chunk)
            return self.full

        return go_on

    async def follow(self, batches: AsyncIterator[list[Event]], after: int = -1) -> None:
        """Write what comes after a number, as it comes from elsewhere, no faster than it is read.

        The end of a broken stream may be two frames at this door, and the reader may have one.
        """
        async for events in batches:
            while events and events[0].sequence_number <= after:
                if rest := self._dialect.encode_after(events.pop(0), after):
                    self._buffer(rest)
                    self._wake.set()
            self.write(events)
            await self.drain()

    async def drain(self) -> None:
        """Return when the reader has caught up."""
        while self.full and not self.closed:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Say that nothing more will be written."""
        self.closed = True
        self._wake.set()
        self._room.set()

    def _write_chunk(self, chunk: bytes) -> None:
        if self._can_write_direct and self._direct_write(chunk):
            self._idle = False
        else:
            self._buffer(chunk)
            self._wake.set()

    def _buffer(self, chunk: bytes) -> None:
        self._can_write_direct = False
        self._chunks.append(chunk)
        self._size += len(chunk)
        self.full = self._size > self._limit

    async def send(self, send: Send, heartbeat: float) -> None:
        """Send everything that is written until the stream is closed, then its last word."""
        await send({"type": "http.response.start", "status": 200, "headers": self.response_headers})
        stop = self._start_heartbeat(heartbeat)
        try:
            while True:
                self._can_write_direct = not self._chunks
                await self._wake.wait()
                self._wake.clear()
                self._can_write_direct = False
                if chunk := self._take_buffered():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                elif self.closed:
                    break
        finally:
            self._can_write_direct = False
            stop()
        await send({"type": "http.response.body", "body": self.end_marker})

    def _take_buffered(self) -> bytes:
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self.full = False
        self._idle = False
        self._room.set()
        if self.closed:
            self._wake.set()
        return chunk

    def _start_heartbeat(self, seconds: float) -> Callable[[], None]:
        """Write a comment whenever a whole interval was silent; return what stops it."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self._heartbeat, seconds)
        return lambda: self._timer.cancel()

    def _heartbeat(self, seconds: float) -> None:
        if self._idle and not self._chunks:
            self._buffer(HEARTBEAT)
            self._wake.set()
        self._idle = True
        self._timer = asyncio.get_running_loop().call_later(seconds, self._heartbeat, seconds)


def _no_direct_write(chunk: bytes) -> bool:
    del chunk
    return False
