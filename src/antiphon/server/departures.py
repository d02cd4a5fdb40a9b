"""Pieces of a body on their way to a client, past `send`.

A piece that comes alone leaves at once. Those that follow it within a millisecond, as when an agent
says much in a row, leave when the loop turns, as one: every write is a call of the kernel, and
wakes a reader who may take the processor from us.
"""

from asyncio import AbstractEventLoop

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_WEIGHT = 65536
"""How many bytes may gather; a task may never let the loop turn."""

ROW_SECONDS = 0.0005
"""How soon a piece follows another in a row. uvloop tells the time in whole milliseconds."""


class DirectWay:
    """The way of pieces of a body past `send`, unless the client is behind."""

    __slots__ = ("_cycle", "_left_at", "_loop", "_pieces", "_weight", "size")

    def __init__(self, cycle: RequestResponseCycle, loop: AbstractEventLoop) -> None:
        self.size = 0
        """How many bytes have gone this way."""
        self._cycle = cycle
        self._loop = loop
        self._left_at = 0.0
        """When a piece left alone for the last time."""
        self._pieces: list[bytes] = []
        """What has gathered since; it leaves when the loop turns."""
        self._weight = 0

    def write(self, piece: bytes) -> bool:
        """Send a piece of a body that has begun, as `send` would; tell whether it could be."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        size = len(piece)
        self.size += size
        if self._pieces:
            self._gather(piece, size)
        elif (now := self._loop.time()) - self._left_at > ROW_SECONDS:
            self._left_at = now
            cycle.transport.write(b"%x\r\n%b\r\n" % (size, piece))
        else:
            self._loop.call_soon(self._leave)
            self._gather(piece, size)
        return True

    def _gather(self, piece: bytes, size: int) -> None:
        self._pieces.append(piece)
        self._weight += size
        if self._weight > MAX_WEIGHT:
            self._leave()

    def _leave(self) -> None:
        """Write what has gathered, as one chunk."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._weight = 0
        if data and not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
