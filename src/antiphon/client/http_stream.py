"""A stream over HTTP: the events of one answer, and of those that go on where it was cut.

What arrives in one read is heard in one call and waits for the reader; when too much waits, the
connection is not read. A background response whose connection is lost is followed on with another,
after the last event that came; any other raises what happened, and its snapshot can still be read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from antiphon.client.errors import invalid_response_error, stream_cut_error
from antiphon.client.event_buffer import EventBuffer
from antiphon.client.event_reader import EventReader, parse_response
from antiphon.protocol.errors import RemoteProtocolError, UpstreamError
from antiphon.protocol.events import (
    Event,
)
from antiphon.protocol.response import Response
from antiphon.transport.response import HttpResponse
from antiphon.transport.retry import RetryPolicy, retry_delay
from antiphon.wire import sse

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""How large one event may be; images and sealed thinking are long."""

MAX_BUFFERED_BYTES = 256 * 1024
"""How many bytes may have been heard that nobody has read yet."""

RECONNECT_POLICY = RetryPolicy(retries=5)
"""How often a lost connection is replaced before anything new has come."""

Reopen = Callable[[str, int], Awaitable[HttpResponse]]
"""Opens the rest of a response's stream: its id, and the number of the last event that came."""


class HttpEventSource:
    """The events of one response, over as many connections as it takes.

    `id` is the response's, if it is known to be one that can be followed on.
    """

    def __init__(
        self, exchange: HttpResponse, reader: EventReader, reopen: Reopen, id: str | None = None
    ) -> None:
        self._exchange = exchange
        self._reader = reader
        self._reopen = reopen
        self._id = id
        self._sse_decoder = sse.Decoder(MAX_EVENT_BYTES)
        self._buffer = EventBuffer[Event](MAX_BUFFERED_BYTES)
        self._task = asyncio.create_task(self._read_all())

    @property
    def response(self) -> Response | None:
        """The response as far as it is known."""
        return self._reader.response

    async def next_batch(self) -> list[Event]:
        """Return all that has come; nothing at the end."""
        batch = await self._buffer.next_batch()
        if not batch and self._task.done() and not self._task.cancelled():
            self._task.result()  # raises what went wrong
        return batch

    async def close(self) -> None:
        """Listen no more; before the end that closes the connection."""
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # nobody is left to be told
        self._task.cancel()
        self._release()

    def _release(self) -> None:
        self._exchange.release()
        self._buffer.close()

    # --- connection by connection ---

    async def _read_all(self) -> None:
        """Hear the answer, and those that go on where it was cut."""
        tried, heard = 0, self._reader.last_number
        try:
            while not self._reader.ended:
                try:
                    await self._read_exchange()
                except UpstreamError as error:
                    if self._reader.ended:
                        break  # only its last words were lost
                    tried = tried if self._reader.last_number == heard else 0
                    heard = self._reader.last_number
                    tried = await self._reconnect(error, tried)
        finally:
            self._release()

    async def _read_exchange(self) -> None:
        """Hear one answer to its end; raises UpstreamError if that comes too early."""
        exchange = self._exchange
        kind = exchange.headers.get("content-type", "").lower()
        if "event-stream" not in kind and ("json" in kind or "html" in kind):
            self._feed_whole_response(await exchange.read())
            return
        exchange.subscribe(self._on_data)
        while not await exchange.wait():
            await self._buffer.drain()
            exchange.resume()
        self._feed_frames(self._split_frames(None))
        try:
            self._reader.close()
        except RemoteProtocolError:
            if self._resumable_id() is None:
                raise
            raise stream_cut_error() from None  # the rest may come yet

    async def _reconnect(self, error: UpstreamError, attempts: int) -> int:
        """Go on with another connection; return how often that was tried, or raise the error."""
        while True:
            id = self._resumable_id()
            wait = retry_delay(error, attempts, RECONNECT_POLICY, now=time.time())
            if wait is None or id is None:
                raise error
            self._exchange.release()
            await asyncio.sleep(wait)
            attempts += 1
            try:
                self._exchange = await self._reopen(id, self._reader.last_number)
            except UpstreamError as failure:
                error = failure
                continue
            self._sse_decoder = sse.Decoder(MAX_EVENT_BYTES)
            self._reader.reconnect()
            return attempts

    def _resumable_id(self) -> str | None:
        """Return the id of a response that the server goes on with, whoever listens."""
        response = self._reader.response
        return response.id if response and response.background and response.id else self._id

    # --- bytes ---

    def _split_frames(self, data: bytes | None) -> list[sse.SseEvent]:
        """Cut bytes into frames; at the end of all there may be one more."""
        try:
            return self._sse_decoder.close() if data is None else self._sse_decoder.feed(data)
        except sse.SSEError as error:
            raise invalid_response_error(self._exchange.peer_name, str(error)) from None

    def _on_data(self, data: bytes) -> None:
        self._feed_frames(self._split_frames(data), len(data))
        if self._buffer.full:
            self._exchange.pause()

    def _feed_frames(self, frames: list[sse.SseEvent], size: int = 0) -> None:
        listener, events = self._reader, list[Event]()
        try:
            for frame in frames:
                if frame.data == sse.DONE:
                    self._exchange.stop()
                    break
                events += listener.feed_frame(frame.data)
        finally:
            self._buffer.write(events, size)
        if listener.ended and not listener.strict:
            self._exchange.stop()

    def _feed_whole_response(self, body: bytes) -> None:
        """Take an answer that came in one piece, though a stream was asked for."""
        if self._reader.strict:
            raise RemoteProtocolError("The answer is no stream of events.")
        response = parse_response(body, self._exchange.peer_name)
        self._buffer.write(self._reader.feed_response(response))
