"""One turn on a socket: what has come of it and is not read yet, and whoever reads it."""

import asyncio
from collections.abc import Callable
from weakref import finalize

from antiphon.client.errors import SERVER
from antiphon.client.listener import EventReader
from antiphon.core.errors import AntiphonError, RemoteProtocolError, UpstreamError
from antiphon.core.events import Event
from antiphon.core.response import Response
from antiphon.transport.connection import Timeouts
from antiphon.transport.errors import timeout_error

MAX_UNREAD_BYTES = 1024 * 1024
"""How many bytes may wait for a reader before the socket is not read any further."""
MAX_BATCH_MESSAGES = 256
"""How many messages are handed over at once, so that others get their turn."""


class TurnBuffer:
    """What has come of one turn. It ends with its last message; its reader may leave before."""

    def __init__(self, lane: str, on_drain: Callable[[], None]) -> None:
        self.lane = lane
        self.first_message: bytes | None = None
        """The message that it began with, if it has begun."""
        self.abandoned = False
        """Whether its reader has left."""
        self._on_drain = on_drain
        self._unread: list[bytes] = []
        self._size = 0
        self._failure: UpstreamError | None = None
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()
        self._ended = asyncio.Event()

    # --- for the socket ---

    @property
    def full(self) -> bool:
        """Whether its reader is so far behind that nothing more should come."""
        return self._size > MAX_UNREAD_BYTES and not self._ended.is_set()

    def put(self, message: bytes) -> None:
        """Keep a message for the reader, or drop it if there is none."""
        self.first_message = self.first_message or message
        if not self.abandoned:
            self._unread.append(message)
            self._size += len(message)
            self._arrived.set()

    def end(self, failure: UpstreamError | None = None) -> None:
        """Take note that nothing more will come, and why that is wrong if it is."""
        self._failure = failure
        for event in (self._arrived, self._released, self._ended):
            event.set()

    async def wait_ended(self, seconds: float) -> None:
        """Return when it is over; raises UpstreamError if that takes long without a reader."""
        await self._released.wait()
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            reason = f"did not end the turn before within {seconds:g} seconds."
            raise timeout_error(SERVER, reason) from None

    # --- for the reader ---

    async def next_messages(self, seconds: float) -> list[bytes]:
        """Return what has come, waiting for it; nothing at the end. Raises UpstreamError."""
        if self._unread:
            await asyncio.sleep(0)  # a reader that is behind lets others go first
        elif not self._released.is_set():
            await self._wait_for_message(seconds)
        taken = self._unread[:MAX_BATCH_MESSAGES]
        if not taken and self._failure is not None:
            raise self._failure
        del self._unread[:MAX_BATCH_MESSAGES]
        self._size -= sum(map(len, taken))
        self._on_drain()
        return taken

    def abandon(self) -> None:
        """Read no further: what is still to come is dropped."""
        self.abandoned = True
        self._unread.clear()
        self._size = 0
        self._arrived.set()
        self._released.set()
        self._on_drain()

    async def _wait_for_message(self, seconds: float) -> None:
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            raise timeout_error(SERVER, f"sent nothing for {seconds:g} seconds.") from None


class WebSocketEventSource:
    """The reader of a turn: the source of one stream."""

    def __init__(self, turn: TurnBuffer, timeouts: Timeouts, *, strict: bool) -> None:
        self._turn = turn
        self._timeouts = timeouts
        self._reader = EventReader(strict=strict)
        self._error: RemoteProtocolError | None = None
        # A stream that is dropped and never closed must not hold up its lane.
        finalize(self, _abandon_threadsafe, turn, asyncio.get_running_loop()).atexit = False

    @property
    def response(self) -> Response | None:
        """The response as far as it was read."""
        return self._reader.response

    async def next_batch(self) -> list[Event]:
        """Return the events of all that has come; nothing at the end."""
        events: list[Event] = []
        try:
            while not events and (taken := await self._next_messages()):
                events = self._decode_events(taken)
        except AntiphonError:
            self._turn.abandon()  # whoever holds on to the error does not hold up the lane
            raise
        return events

    async def _next_messages(self) -> list[bytes]:
        if self._error is not None:
            raise self._error
        turn, limits = self._turn, self._timeouts
        taken = await turn.next_messages(limits.idle if turn.first_message else limits.first_byte)
        if not taken and not turn.abandoned:
            self._reader.close()
        return taken

    def _decode_events(self, messages: list[bytes]) -> list[Event]:
        events: list[Event] = []
        try:
            for message in messages:
                events += self._reader.feed(message)
        except RemoteProtocolError as error:  # raised when what came before it has been read
            self._error = error
        return events

    async def close(self) -> None:
        """Leave the turn; what is left of it is dropped as it comes."""
        self._turn.abandon()


def _abandon_threadsafe(turn: TurnBuffer, loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(turn.abandon)
