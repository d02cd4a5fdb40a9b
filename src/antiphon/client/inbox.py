"""One turn on a socket: what has come of it and is not read yet, and whoever reads it."""

import asyncio
from collections.abc import Callable
from weakref import finalize

from antiphon.client.errors import WHO
from antiphon.client.listener import Listener
from antiphon.core.errors import AntiphonError, RemoteProtocolError, UpstreamError
from antiphon.core.events import Event
from antiphon.core.response import Response
from antiphon.transport.connection import Timeouts
from antiphon.transport.errors import late

MAX_UNREAD = 1024 * 1024
"""How many bytes may wait for a reader before the socket is not read any further."""
MAX_BATCH = 256
"""How many messages are handed over at once, so that others get their turn."""


class Inbox:
    """What has come of one turn. It ends with its last message; its reader may leave before."""

    def __init__(self, lane: str, drained: Callable[[], None]) -> None:
        self.lane = lane
        self.first: bytes | None = None
        """The message that it began with, if it has begun."""
        self.left = False
        """Whether its reader has left."""
        self._drained = drained
        self._unread: list[bytes] = []
        self._size = 0
        self._failure: UpstreamError | None = None
        self._more = asyncio.Event()
        self._free = asyncio.Event()
        self._over = asyncio.Event()

    # --- for the socket ---

    @property
    def full(self) -> bool:
        """Whether its reader is so far behind that nothing more should come."""
        return self._size > MAX_UNREAD and not self._over.is_set()

    def put(self, message: bytes) -> None:
        """Keep a message for the reader, or drop it if there is none."""
        self.first = self.first or message
        if not self.left:
            self._unread.append(message)
            self._size += len(message)
            self._more.set()

    def end(self, failure: UpstreamError | None = None) -> None:
        """Take note that nothing more will come, and why that is wrong if it is."""
        self._failure = failure
        for event in (self._more, self._free, self._over):
            event.set()

    async def ended(self, seconds: float) -> None:
        """Return when it is over; raises UpstreamError if that takes long without a reader."""
        await self._free.wait()
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            reason = f"did not end the turn before within {seconds:g} seconds."
            raise late(WHO, reason) from None

    # --- for the reader ---

    async def take(self, seconds: float) -> list[bytes]:
        """Return what has come, waiting for it; nothing at the end. Raises UpstreamError."""
        if self._unread:
            await asyncio.sleep(0)  # a reader that is behind lets others go first
        elif not self._free.is_set():
            await self._wait(seconds)
        taken = self._unread[:MAX_BATCH]
        if not taken and self._failure is not None:
            raise self._failure
        del self._unread[:MAX_BATCH]
        self._size -= sum(map(len, taken))
        self._drained()
        return taken

    def leave(self) -> None:
        """Read no further: what is still to come is dropped."""
        self.left = True
        self._unread.clear()
        self._size = 0
        self._more.set()
        self._free.set()
        self._drained()

    async def _wait(self, seconds: float) -> None:
        self._more.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            raise late(WHO, f"sent nothing for {seconds:g} seconds.") from None


class SocketSource:
    """The reader of a turn: the source of one stream."""

    def __init__(self, turn: Inbox, timeouts: Timeouts, *, strict: bool) -> None:
        self._turn = turn
        self._timeouts = timeouts
        self._listener = Listener(strict=strict)
        self._error: RemoteProtocolError | None = None
        # A stream that is dropped and never closed must not hold up its lane.
        finalize(self, _forget, turn, asyncio.get_running_loop()).atexit = False

    @property
    def response(self) -> Response | None:
        """The response as far as it was read."""
        return self._listener.response

    async def batch(self) -> list[Event]:
        """Return the events of all that has come; nothing at the end."""
        events: list[Event] = []
        try:
            while not events and (taken := await self._taken()):
                events = self._events(taken)
        except AntiphonError:
            self._turn.leave()  # whoever holds on to the error does not hold up the lane
            raise
        return events

    async def _taken(self) -> list[bytes]:
        if self._error is not None:
            raise self._error
        turn, limits = self._turn, self._timeouts
        taken = await turn.take(limits.idle if turn.first else limits.first_byte)
        if not taken and not turn.left:
            self._listener.close()
        return taken

    def _events(self, messages: list[bytes]) -> list[Event]:
        events: list[Event] = []
        try:
            for message in messages:
                events += self._listener.feed(message)
        except RemoteProtocolError as error:  # raised when what came before it has been read
            self._error = error
        return events

    async def close(self) -> None:
        """Leave the turn; what is left of it is dropped as it comes."""
        self._turn.leave()


def _forget(turn: Inbox, loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(turn.leave)
