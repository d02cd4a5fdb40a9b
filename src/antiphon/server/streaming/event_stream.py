"""A run's events as Server-Sent Events.

The run calls `write`, which encodes at once and never waits; the request's task sends what was
buffered. Everything written between two sends goes out in one write, and an event is never split.
A slow client makes the model wait: the buffer grows little beyond its limit.

If the server supports direct writes, chunks bypass the sending task: waking it for every event
would cost more than the event itself. It is woken only when the client is behind.

`StreamTask` cancels the run when its client leaves.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Generic, TypeVar

from antiphon.engine.models import WriteText
from antiphon.engine.run import Run
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath
from antiphon.server.asgi import ClientDisconnected, DisconnectWatcher, Receive, Send, WriteChunk
from antiphon.server.service import server_stopping_error
from antiphon.wire import sse
from antiphon.wire.openresponses import Dialect

T = TypeVar("T")


class EventStream:
    """The event sink of a streamed run."""

    response_headers: ClassVar[Sequence[tuple[bytes, bytes]]] = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        # Without these, proxies compress the stream or buffer it until it ends (nginx: the second).
        (b"cache-control", b"no-cache, no-transform"),
        (b"x-accel-buffering", b"no"),
    ]
    heartbeat: ClassVar[bytes] = sse.encode_comment("keep-alive")
    """What is sent after every interval without data, if anything."""
    end_marker: ClassVar[bytes] = sse.DONE_FRAME
    """The last bytes of the stream."""

    def __init__(self, dialect: Dialect, limit: int, direct: WriteChunk | None = None) -> None:
        self._dialect = dialect
        self._encode = dialect.encode_sse
        self._limit = limit
        self._direct_write: WriteChunk = direct or (lambda _: False)
        self._can_write_direct = False
        """Whether the head was sent and the buffer is empty, so that order is kept."""
        self._chunks: list[bytes] = []
        self._size = 0
        self.full = False
        """Whether the client is so far behind that the model must wait."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._idle_ticks = 0
        """How many quarters of the heartbeat's interval have passed since something was sent."""
        self._timer: asyncio.TimerHandle
        self.closed = False

    def write(self, events: list[Event]) -> None:
        """Encode events, and write or buffer them."""
        encode = self._encode
        chunk = encode(events[0]) if len(events) == 1 else b"".join(map(encode, events))
        if chunk:  # a dialect may not have an equivalent of an event
            self._write_chunk(chunk)

    def text_fast_path(self, fast_path: TextFastPath) -> WriteText | None:
        """Return a function that writes deltas of one text from a prepared template."""
        template = self._dialect.text_fast_path(fast_path.delta_template)
        if template is None:
            return None

        def write_text(deltas: list[str]) -> bool:
            number = fast_path.append(deltas)
            if len(deltas) == 1:
                chunk = template % (number, deltas[0].encode())
            else:
                numbered = enumerate(deltas, number)
                chunk = b"".join([template % (n, text.encode()) for n, text in numbered])
            self._write_chunk(chunk)
            return self.full

        return write_text

    async def follow(self, batches: AsyncIterator[list[Event]], after: int = -1) -> None:
        """Write the events after a sequence number, as they arrive, with backpressure.

        In OpenAI's dialect a failed stream ends with two frames for one event. A client may have
        received only the first, so the event at `after` may still have a frame to send.
        """
        async for events in batches:
            while events and events[0].sequence_number <= after:
                if rest := self._dialect.encode_after(events.pop(0), after):
                    self.buffer(rest)
            self.write(events)
            await self.drain()

    async def drain(self) -> None:
        """Wait until the client has caught up."""
        while self.full and not self.closed:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Mark the end; buffered chunks are still sent."""
        self.closed = True
        self._wake.set()
        self._room.set()

    def _write_chunk(self, chunk: bytes) -> None:
        if self._can_write_direct and self._direct_write(chunk):
            self._idle_ticks = 0
        else:
            self.buffer(chunk)

    def buffer(self, chunk: bytes) -> None:
        """Have a chunk sent by the sending task."""
        self._can_write_direct = False
        self._chunks.append(chunk)
        self._size += len(chunk)
        self.full = self._size > self._limit
        self._wake.set()

    async def send(self, send: Send, heartbeat: float) -> None:
        """Send all chunks until the stream is closed, then the end marker."""
        await send({"type": "http.response.start", "status": 200, "headers": self.response_headers})
        self._start_timer(heartbeat)
        try:
            while True:
                # Direct writes are allowed only while this task waits with an empty buffer: they
                # would overtake chunks that are buffered or being sent.
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
            self._timer.cancel()
        await send({"type": "http.response.body", "body": self.end_marker})

    def _take_buffered(self) -> bytes:
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self.full = False
        self._idle_ticks = 0
        self._room.set()
        # The event was cleared before the buffer was taken: without this, `send` would wait again.
        if self.closed:
            self._wake.set()
        return chunk

    def _start_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds / 4, self._send_heartbeat, seconds)

    def _send_heartbeat(self, seconds: float) -> None:
        self._idle_ticks += 1
        # A slow client has data to read: it needs no sign of life.
        if self._idle_ticks >= 4 and not self._chunks and self.heartbeat:
            self.buffer(self.heartbeat)
        self._start_timer(seconds)


class StreamTask(Generic[T]):
    """A task that produces a stream while the current task sends it."""

    def __init__(self, task: asyncio.Task[T], receive: Receive, stream: EventStream) -> None:
        self._task = task
        self._watcher = DisconnectWatcher(receive, task)
        # However the task ends, the sender must not wait for more.
        self._task.add_done_callback(lambda _: stream.close())

    async def __aenter__(self) -> "StreamTask[T]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watcher.stop()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # mark as retrieved, or asyncio logs it when it is freed

    def check_connected(self) -> None:
        """Raise ClientDisconnected if the client has disconnected."""
        if self._watcher.disconnected and self._task.cancelled():
            raise ClientDisconnected

    async def result(self) -> T:
        """Return the task's result; raises its error, ClientDisconnected, or a 503."""
        try:
            return await self._task
        except asyncio.CancelledError:
            self.check_connected()
            if self._task.cancelled():
                raise server_stopping_error() from None
            raise

    async def wait_started(self, run: Run, seconds: float) -> bool:
        """Wait until the model starts to answer; return whether there is a stream to send.

        If the model fails before, its error is sent with an HTTP status instead. After `seconds`
        the stream starts anyway, so that the client gets its headers and heartbeats.
        """
        try:
            async with asyncio.timeout(seconds):
                await run.started.wait()
        except TimeoutError:
            run.answering = run.answering or run.error is None
        if run.error and not run.answering:
            await asyncio.wait([self._task])  # it only has to delete the stored response
        return run.answering or not (self._task.cancelled() or isinstance(self._task.exception(), AntiphonError))
