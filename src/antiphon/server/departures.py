"""Pieces of bodies on their way to clients, past `send`; they leave when a turn's work is done.

A write wakes its reader, who often takes the processor from us. So we write when the loop has read
everything that was there to be read, and to each client once.
"""

from asyncio import AbstractEventLoop

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_WEIGHT = 65536
"""How many bytes may gather in one turn of the loop; a task may never let it turn."""


class Departures:
    """Everything that leaves at the end of this turn of the loop."""

    __slots__ = ("pieces", "weight")

    def __init__(self) -> None:
        self.pieces: list[tuple[RequestResponseCycle, bytes]] = []
        self.weight = 0
        """How many bytes they have in all."""

    def leave(self) -> None:
        """Write everything, each piece as a chunk of its own."""
        pieces, self.pieces, self.weight = self.pieces, [], 0
        for cycle, piece in pieces:
            if not cycle.disconnected:
                cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


class DirectWay:
    """The way of pieces of a body past `send`, unless the client is behind."""

    __slots__ = ("_cycle", "_departures", "_loop", "size")

    def __init__(
        self, cycle: RequestResponseCycle, departures: Departures, loop: AbstractEventLoop
    ) -> None:
        self.size = 0
        """How many bytes have gone this way."""
        self._cycle = cycle
        self._departures = departures
        self._loop = loop

    def write(self, piece: bytes) -> bool:
        """Send a piece of a body that has begun, as `send` would; tell whether it could be."""
        cycle, departures = self._cycle, self._departures
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        size = len(piece)
        self.size += size
        departures.weight += size
        pieces = departures.pieces
        if not pieces:
            self._loop.call_soon(departures.leave)
        pieces.append((cycle, piece))
        if departures.weight > MAX_WEIGHT:
            departures.leave()
        return True
