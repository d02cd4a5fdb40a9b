"""Pieces of a body on their way to a client, past `send`.

A piece that comes alone leaves at once. Those that follow it within a millisecond, as when an agent
says much in a row, leave when the loop turns, as one: every write is a call of the kernel, and
wakes a reader who may take the processor from us.
"""

from asyncio import AbstractEventLoop

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_BUFFERED_BYTES = 65536
"""How many bytes may gather; a task may never let the loop turn."""

COALESCE_SECONDS = 0.0005
"""How soon a piece follows another in a row. uvloop tells the time in whole milliseconds."""


class ChunkWriter:
    """The way of pieces of a body past `send`, unless the client is behind."""

    __slots__ = ("_buffered_bytes", "_cycle", "_last_write_at", "_loop", "_pieces", "size")

    def __init__(self, cycle: RequestResponseCycle, loop: AbstractEventLoop) -> None:
        self.size = 0
        """How many bytes have gone this way."""
        self._cycle = cycle
        self._loop = loop
        self._last_write_at = 0.0
        """When a piece left alone for the last time."""
        self._pieces: list[bytes] = []
        """What has gathered since; it leaves when the loop turns."""
        self._buffered_bytes = 0

    def write(self, chunk: bytes) -> bool:
        """Send a piece of a body that has begun, as `send` would; tell whether it could be."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        size = len(chunk)
        self.size += size
        if self._pieces:
            self._buffer(chunk, size)
        elif (now := self._loop.time()) - self._last_write_at > COALESCE_SECONDS:
            self._last_write_at = now
            cycle.transport.write(b"%x\r\n%b\r\n" % (size, chunk))
        else:
            self._loop.call_soon(self._flush)
            self._buffer(chunk, size)
        return True

    def _buffer(self, chunk: bytes, size: int) -> None:
        self._pieces.append(chunk)
        self._buffered_bytes += size
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write what has gathered, as one chunk."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered_bytes = 0
        if data and not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
