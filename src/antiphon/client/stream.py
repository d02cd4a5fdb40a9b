"""A response as it is told: its events, its text, a snapshot at any time, and how it ends."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.response import Response


class EventSource(Protocol):
    """Where a stream's events come from: an HTTP answer, a socket's lane, a chat completion."""

    @property
    def response(self) -> Response | None:
        """The response as far as it is known."""
        ...

    async def next_batch(self) -> list[Event]:
        """Return all that has come, at least one event; nothing at the end.

        Raises UpstreamError, and RemoteProtocolError in strict mode.
        """
        ...

    async def close(self) -> None:
        """Listen no more; before the end that closes the connection, or gives up the lane."""
        ...


class Stream:
    """A response as it is told.

    Nothing is asked before the stream is entered or read. Leaving it early stops the request:

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
        self._pending: deque[Event] = deque()
        self._entered = False
        self._ended = False

    def __repr__(self) -> str:
        state = "over" if self._ended else "open" if self._source else "not asked yet"
        return f"<Stream: {state}>"

    async def __aenter__(self) -> "Stream":
        self._entered = True
        await self._ensure_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Give the events one by one.

        Outside `async with`, leaving the loop early closes the stream.
        """
        ready = self._pending
        try:
            while True:
                while ready:
                    yield ready.popleft()
                if not await self._read_more():
                    return
        finally:
            await self._close_unless_entered()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Give the events in lists, as many at a time as have come."""
        try:
            while batch := await self.next_batch():
                yield batch
        finally:
            await self._close_unless_entered()

    async def next_batch(self) -> list[Event]:
        """Return the events that have come, at least one; nothing at the end."""
        if not self._pending:
            await self._read_more()
        batch = list(self._pending)
        self._pending.clear()
        return batch

    @property
    async def text(self) -> AsyncIterator[str]:
        """The text as it grows, piece by piece."""
        async with aclosing(self.__aiter__()) as events:
            async for event in events:
                if type(event) is OutputTextDelta:
                    yield event.delta

    @property
    def response(self) -> Response:
        """The response as far as it is known, also after an error; raises AntiphonError before."""
        response = self._source.response if self._source else None
        if response is None:
            raise AntiphonError("The stream has not told of a response yet. Read it first.")
        return response

    async def final(self) -> Response:
        """Read to the end and return the response; its status may be failed or incomplete."""
        try:
            while await self._read_more():
                self._pending.clear()
        finally:
            await self._close_unless_entered()
        return self.response

    async def close(self) -> None:
        """Listen no more. Before the end, that closes the connection."""
        self._ended = True
        self._pending.clear()
        if self._source is not None:
            await self._source.close()

    async def _ensure_open(self) -> EventSource:
        if self._source is None:
            if self._ended:
                raise AntiphonError("This stream was closed before it was read. Ask again.")
            self._source = await self._open()
        return self._source

    async def _read_more(self) -> bool:
        """Wait for more events; tell whether there are any."""
        if self._ended:
            return False
        source = self._source or await self._ensure_open()
        try:
            batch = await source.next_batch()
        except AntiphonError:
            self._ended = True
            raise
        self._ended = not batch
        self._pending.extend(batch)
        return bool(batch)

    async def _close_unless_entered(self) -> None:
        if not self._entered or self._ended:
            await self.close()
