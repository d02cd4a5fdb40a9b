"""Pieces of bodies on their way to clients, past `send`; they leave when a turn's work is done.

A write wakes its reader, who often takes the processor from us. So we write when the loop has read
everything that was there to be read, and what a client is sent in a row at once.
"""

from asyncio import AbstractEventLoop

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_WEIGHT = 65536
"""How many bytes may gather in one turn of the loop; a task may never let it turn."""


class Departures:
    """Everything that leaves at the end of this turn of the loop."""

    __slots__ = ("last", "pieces", "weight")

    def __init__(self) -> None:
        self.pieces: list[tuple[RequestResponseCycle, list[bytes]]] = []
        self.last: RequestResponseCycle | None = None
        """Whose the last pieces are."""
        self.weight = 0
        """How many bytes there are in all."""

    def leave(self) -> None:
        """Write everything, what is one client's in a row as one chunk."""
        leaving, self.pieces, self.last, self.weight = self.pieces, [], None, 0
        for cycle, pieces in leaving:
            if not cycle.disconnected:
                data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


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
        if departures.last is cycle:
            pieces[-1][1].append(piece)
        else:
            if not pieces:
                self._loop.call_soon(departures.leave)
            pieces.append((cycle, [piece]))
            departures.last = cycle
        if departures.weight > MAX_WEIGHT:
            departures.leave()
        return True
