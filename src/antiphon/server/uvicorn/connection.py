"""What HTTP and WebSocket connections share: limits, fair parsing, and a timeout for clients that do not read."""

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, Protocol, TimerHandle, Transport
from dataclasses import dataclass


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one connection. The size of a body is limited by `Settings.body_limit`."""

    header_seconds: float = 10
    body_stall_seconds: float = 10
    body_total_seconds: float = 60
    write_stall_seconds: float = 30
    # Longer than the 60 seconds after which common load balancers drop an idle connection, so that
    # they do not send a request on a connection that is being closed here.
    keep_alive_seconds: float = 75
    header_bytes: int = 65536
    header_count: int = 100
    write_buffer: int = 65536
    pipelined: int = 16
    connections: int = 2000
    small_frames: int = 1000
    """How many control frames and tiny fragments a WebSocket may receive in `small_frame_seconds`."""
    small_frame_seconds: float = 10


MAX_PARSED_UNITS = 128
"""How many frames or chunks one connection parses per iteration of the loop; a piece may exceed it."""


class ClientConnection(Protocol, ABC):
    """One connection.

    A read of 256 kB can hold 40,000 empty frames or chunks, which take a second to parse. It is
    parsed in pieces, and a connection parses only a limited number per iteration of the loop.
    """

    loop: AbstractEventLoop
    transport: Transport
    limits: ConnectionLimits
    piece_size: int
    """How many bytes are parsed before frames or chunks are counted."""
    unparsed: memoryview | bytes = b""
    parsed_units = 0
    """How many frames or chunks were parsed in this iteration."""
    write_timer: TimerHandle | None = None

    @property
    @abstractmethod
    def is_paused(self) -> bool:
        """Whether the application must first take what was parsed."""

    @abstractmethod
    def parse(self, data: memoryview) -> None:
        """Parse a piece of the received bytes."""

    def data_received(self, data: bytes) -> None:
        if self.unparsed:
            self.unparsed = b"".join((self.unparsed, data))
            self.continue_parsing()
        else:
            self.unparsed = memoryview(data)
            self._parse_pieces()

    def continue_parsing(self) -> None:
        """Parse what is left in the next iteration of the loop; read nothing more until then."""
        if self.unparsed and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_soon(self._parse_pieces)

    def _parse_pieces(self) -> None:
        self.parsed_units = 0
        while self.unparsed and not self.is_paused and not self.transport.is_closing():
            if self.parsed_units > MAX_PARSED_UNITS:
                self.continue_parsing()
                return
            rest = memoryview(self.unparsed)
            self.unparsed = rest[self.piece_size :]
            self.parse(rest[: self.piece_size])
        if self.transport.is_closing():
            self.unparsed = b""
        elif not self.is_paused:
            self.transport.resume_reading()

    def waits_for_client(self) -> bool:
        """Return whether data is buffered that only the client, by reading, can release."""
        return self.transport.get_write_buffer_size() > 0

    def start_write_timer(self) -> None:
        """Abort the connection if the client reads nothing for `write_stall_seconds`."""
        self.write_timer = cancel_timer(self.write_timer)
        if self.waits_for_client():
            size = self.transport.get_write_buffer_size()
            self.write_timer = self.loop.call_later(self.limits.write_stall_seconds, self._check_progress, size)

    def _check_progress(self, size: int) -> None:
        """Abort unless less than `size` is left to read; a slow client may take as long as it needs."""
        if self.waits_for_client() and self.transport.get_write_buffer_size() >= size:
            self.transport.abort()
        else:
            self.start_write_timer()


def cancel_timer(timer: TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
