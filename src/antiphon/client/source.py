"""A stream over HTTP: the events of one answer, and of those that go on where it was cut.

What arrives in one read is heard in one call and waits for the reader; when too much waits, the
connection is not read. A background response whose connection is lost is followed on with another,
after the last event that came; any other raises what happened, and its snapshot can still be read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from antiphon.client.channel import Channel
from antiphon.client.errors import cut, invalid
from antiphon.client.listener import Listener
from antiphon.client.reading import whole_response
from antiphon.core.errors import RemoteProtocolError, UpstreamError
from antiphon.core.events import Event, ResponseCompleted, ResponseFailed, ResponseIncomplete
from antiphon.core.response import Response
from antiphon.transport.exchange import Exchange
from antiphon.transport.retry import Patience, delay
from antiphon.wire import sse

MAX_EVENT = 32 * 1024 * 1024
"""How large one event may be; images and sealed thinking are long."""

MAX_WAITING = 256 * 1024
"""How many bytes may have been heard that nobody has read yet."""

FOLLOWING = Patience(retries=5)
"""How often a lost connection is replaced before anything new has come."""

ENDS = {"failed": ResponseFailed, "incomplete": ResponseIncomplete, "cancelled": ResponseIncomplete}

Follow = Callable[[str, int], Awaitable[Exchange]]
"""Opens the rest of a response's stream: its id, and the number of the last event that came."""


class HttpSource:
    """The events of one response, over as many connections as it takes.

    `id` is the response's, if it is known to be one that can be followed on.
    """

    def __init__(
        self, exchange: Exchange, listener: Listener, follow: Follow, id: str | None = None
    ) -> None:
        self._exchange = exchange
        self._listener = listener
        self._follow = follow
        self._id = id
        self._frames = sse.Decoder(MAX_EVENT)
        self._heard = Channel[Event](MAX_WAITING)
        self._task = asyncio.create_task(self._listen())

    @property
    def response(self) -> Response | None:
        """The response as far as it is known."""
        return self._listener.response

    async def batch(self) -> list[Event]:
        """Return all that has come; nothing at the end."""
        batch = await self._heard.batch()
        if not batch and self._task.done() and not self._task.cancelled():
            self._task.result()  # raises what went wrong
        return batch

    async def close(self) -> None:
        """Listen no more; before the end that closes the connection."""
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # nobody is left to be told
        self._task.cancel()
        self._end()

    def _end(self) -> None:
        self._exchange.release()
        self._heard.close()

    # --- connection by connection ---

    async def _listen(self) -> None:
        """Hear the answer, and those that go on where it was cut."""
        tried, heard = 0, self._listener.number
        try:
            while not self._listener.ended:
                try:
                    await self._hear()
                except UpstreamError as error:
                    if self._listener.ended:
                        break  # only its last words were lost
                    tried = tried if self._listener.number == heard else 0
                    heard = self._listener.number
                    tried = await self._go_on(error, tried)
        finally:
            self._end()

    async def _hear(self) -> None:
        """Hear one answer to its end; raises UpstreamError if that comes too early."""
        exchange = self._exchange
        kind = exchange.headers.get("content-type", "").lower()
        if "event-stream" not in kind and ("json" in kind or "html" in kind):
            self._take_whole(await exchange.read())
            return
        exchange.listen(self._receive)
        while not await exchange.turn():
            await self._heard.drained()
            exchange.resume()
        self._take(self._cut_up(None))
        try:
            self._listener.close()
        except RemoteProtocolError:
            if self._followed() is None:
                raise
            raise cut() from None  # the rest may come yet

    async def _go_on(self, error: UpstreamError, tried: int) -> int:
        """Go on with another connection; return how often that was tried, or raise the error."""
        while True:
            id = self._followed()
            wait = delay(error, tried, FOLLOWING, now=time.time())
            if wait is None or id is None:
                raise error
            self._exchange.release()
            await asyncio.sleep(wait)
            tried += 1
            try:
                self._exchange = await self._follow(id, self._listener.number)
            except UpstreamError as failure:
                error = failure
                continue
            self._frames = sse.Decoder(MAX_EVENT)
            self._listener.again()
            return tried

    def _followed(self) -> str | None:
        """Return the id of a response that the server goes on with, whoever listens."""
        response = self._listener.response
        return response.id if response and response.background and response.id else self._id

    # --- bytes ---

    def _cut_up(self, data: bytes | None) -> list[sse.Event]:
        """Cut bytes into frames; at the end of all there may be one more."""
        try:
            return self._frames.close() if data is None else self._frames.feed(data)
        except sse.SSEError as error:
            raise invalid(self._exchange.who, str(error)) from None

    def _receive(self, data: bytes) -> None:
        self._take(self._cut_up(data), len(data))
        if self._heard.full:
            self._exchange.pause()

    def _take(self, frames: list[sse.Event], size: int = 0) -> None:
        listener, events = self._listener, list[Event]()
        try:
            for frame in frames:
                if frame.data == sse.DONE:
                    self._exchange.stop()
                    break
                events += listener.feed(frame.data)
        finally:
            self._heard.write(events, size)
        if listener.ended and not listener.strict:
            self._exchange.stop()

    def _take_whole(self, body: bytes) -> None:
        """Take an answer that came in one piece, though a stream was asked for."""
        if self._listener.strict:
            raise RemoteProtocolError("The answer is no stream of events.")
        response = whole_response(body, self._exchange.who)
        kind = ENDS.get(response.status, ResponseCompleted)
        self._heard.write(self._listener.take(kind(sequence_number=0, response=response)))
