"""Writes a response with few system calls: the head with the first chunk, later chunks past ASGI's `send`.

A single chunk is written at once. Chunks that follow within a millisecond, as from an agent that
yields often, are joined and written in the next iteration of the loop: every write is a system
call, and wakes a client that may compete for the processor.
"""

from asyncio import AbstractEventLoop

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_JOINED_BYTES = 65536
"""How many bytes are buffered at most: a task that writes may not yield to the loop for long."""

COALESCE_SECONDS = 0.0005
"""Chunks closer together than this are joined. uvloop's clock has a resolution of a millisecond."""


class ChunkWriter:
    """Writes body chunks of one response while the client keeps up."""

    __slots__ = ("_buffered_bytes", "_chunks", "_cycle", "_last_write_at", "_loop", "size")

    def __init__(self, cycle: RequestResponseCycle, loop: AbstractEventLoop) -> None:
        self.size = 0
        """How many bytes of the body were written here."""
        self._cycle = cycle
        self._loop = loop
        self._last_write_at = 0.0
        """When a chunk was last written at once."""
        self._chunks: list[bytes] = []
        """Chunks that the next iteration of the loop writes."""
        self._buffered_bytes = 0

    def write(self, chunk: bytes) -> bool:
        """Write a chunk of a body whose head was sent; return False if `send` must be used."""
        # A paused transport must make the model wait, which only `send` does; without chunked
        # encoding (HTTP/1.0) uvicorn frames the body differently.
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        size = len(chunk)
        self.size += size
        # Never past a buffered chunk, or the order would change.
        if self._chunks:
            self._buffer(chunk, size)
        elif (now := self._loop.time()) - self._last_write_at > COALESCE_SECONDS:
            self._last_write_at = now
            cycle.transport.write(b"%x\r\n%b\r\n" % (size, chunk))
        else:
            self._loop.call_soon(self._flush)
            self._buffer(chunk, size)
        return True

    def _buffer(self, chunk: bytes, size: int) -> None:
        self._chunks.append(chunk)
        self._buffered_bytes += size
        if self._buffered_bytes > MAX_JOINED_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._buffered_bytes = 0
        if data and not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


class HeaderBuffer:
    """The transport of a response until its head is written, together with the first body chunk.

    uvicorn writes the two separately, and every write is a system call that wakes the client.
    """

    __slots__ = ("_buffered", "_cycle", "_loop", "_transport")

    def __init__(self, cycle: RequestResponseCycle, loop: AbstractEventLoop) -> None:
        self._cycle = cycle
        self._loop = loop
        self._transport = cycle.transport
        self._buffered = b""

    def write(self, data: bytes) -> None:
        """Buffer the head until the next iteration of the loop, or until more is written."""
        if self._buffered:
            self.flush(data)
        else:
            self._buffered = data
            self._loop.call_soon(self.flush)

    def flush(self, data: bytes = b"") -> None:
        """Write the head and the data, and restore the response's real transport."""
        if self._cycle.transport is not self._transport:
            self._cycle.transport = self._transport
            if not self._transport.is_closing():
                self._transport.write(self._buffered + data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
