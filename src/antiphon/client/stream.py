"""A streamed response: its events, its text, a snapshot at any time, and its end."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.response import Response

T = TypeVar("T")


class EventSource(Protocol):
    """The source of a stream's events: an HTTP response, a WebSocket turn or a chat completion."""

    @property
    def response(self) -> Response | None:
        """The response as far as it is known."""

    async def next_batch(self) -> list[Event]:
        """Return the events that have arrived, at least one; none at the end.

        Raises UpstreamError, and RemoteProtocolError in strict mode.
        """
        ...

    async def close(self) -> None:
        """Stop reading; if the response has not ended, close the connection or the turn."""


class Stream:
    """A streamed response.

    The request is sent when the stream is entered or first read. Leaving early cancels it:

        async with client.stream(model="demo", input="Hi!") as stream:
            async for event in stream:      # typed events, one by one
                ...
            print(stream.response)          # the response as far as it is known, at any time

        async for text in client.stream(model="demo", input="Hi!").text:
            print(text, end="")

        response = await client.stream(model="demo", input="Hi!").final()
    """

    def __init__(self, open: Callable[[], Awaitable[EventSource]]) -> None:
        self._open = open
        self._source: EventSource | None = None
        self.pending: deque[Event] = deque()
        """Events that have arrived but are not read."""
        self.entered = False
        """Whether `async with` closes the stream."""
        self._ended = False

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open" if self._source else "not sent"
        return f"<Stream: {state}>"

    async def __aenter__(self) -> "Stream":
        self.entered = True
        await self._ensure_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Yield the events one by one. Outside `async with`, leaving the loop closes the stream."""
        pending = self.pending
        try:
            while pending or await self.read_more():
                yield pending.popleft()
        finally:
            await self._close_unless_entered()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Yield the events in lists, as many at a time as have arrived."""
        try:
            while batch := await self.next_batch():
                yield batch
        finally:
            await self._close_unless_entered()

    async def next_batch(self) -> list[Event]:
        """Return the events that have arrived, at least one; none at the end."""
        if not self.pending:
            await self.read_more()
        batch = list(self.pending)
        self.pending.clear()
        return batch

    @property
    async def text(self) -> AsyncIterator[str]:
        """The text, delta by delta."""
        async with aclosing(self.__aiter__()) as events:
            async for event in events:
                # An exact comparison: the struct has no subclasses, and this runs for every event.
                if type(event) is OutputTextDelta:
                    yield event.delta

    @property
    def response(self) -> Response:
        """The response as far as it is known, also after an error; raises AntiphonError before the first event."""
        response = self._source.response if self._source else None
        if response is None:
            raise AntiphonError("The stream has no response yet. Read it first.")
        return response

    async def final(self) -> Response:
        """Read to the end and return the response; its status may be failed or incomplete."""
        try:
            while await self.read_more():
                # The source folds the events into the response, so they need not be kept.
                self.pending.clear()
        finally:
            await self._close_unless_entered()
        return self.response

    async def close(self) -> None:
        """Stop reading; if the response has not ended, close the connection."""
        self._ended = True
        self.pending.clear()
        if self._source is not None:
            await self._source.close()

    async def _ensure_open(self) -> EventSource:
        if self._source is None:
            if self._ended:
                raise AntiphonError("This stream was closed before it was read. Make a new one.")
            self._source = await self._open()
        return self._source

    async def read_more(self) -> bool:
        """Wait for more events; return whether there are any."""
        if self._ended:
            return False
        source = self._source or await self._ensure_open()
        try:
            batch = await source.next_batch()
        except AntiphonError:
            self._ended = True
            raise
        self._ended = not batch
        self.pending.extend(batch)
        return bool(batch)

    async def _close_unless_entered(self) -> None:
        # Inside `async with` a reader may stop and go on later; its end closes the stream.
        if not self.entered or self._ended:
            await self.close()


class EventBuffer(Generic[T]):
    """A buffer between a writer and a slower reader; when it is full, the writer waits."""

    def __init__(self, limit: int) -> None:
        import asyncio  # start-up time: constructing a client needs no event loop

        self._limit = limit
        self._events: list[T] = []
        self._size = 0
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether the writer should wait."""
        # An empty buffer is never full: one event larger than the limit must still pass.
        return self._size > self._limit and bool(self._events) and not self._closed

    def write(self, events: Sequence[T], size: int | None = None) -> None:
        """Add events; `size` is their number unless given."""
        self._events += events
        # Bytes are a better measure than events where they are known: deltas vary in size.
        self._size += len(events) if size is None else size
        self._changed.set()

    async def drain(self) -> None:
        """Wait until the buffer is not full."""
        while self.full:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """End the stream: the reader gets what is left, then nothing."""
        self._closed = True
        self._changed.set()

    async def next_batch(self) -> list[T]:
        """Return the events that have arrived, at least one; none at the end."""
        while not (self._events or self._closed):
            self._changed.clear()
            await self._changed.wait()
        batch, self._events, self._size = self._events, [], 0
        self._changed.set()
        return batch
