"""Pieces of bodies on their way to clients, past `send`; they leave when a turn's work is done.

A write wakes its reader, who often takes the processor from us. So we write when the loop has read
everything that was there to be read, and to each client once.
"""

from asyncio import AbstractEventLoop

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_WEIGHT = 65536
"""How many bytes may gather for a client in one turn of the loop; a task may never let it turn."""


class Departures:
    """Everything that leaves at the end of this turn of the loop."""

    __slots__ = ("ways",)

    def __init__(self) -> None:
        self.ways: list[DirectWay] = []

    def leave(self) -> None:
        """Write everything, each client's in one chunk."""
        ways, self.ways = self.ways, []
        for way in ways:
            waiting, way.waiting, way.weight = way.waiting, [], 0
            data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
            if not way.cycle.disconnected:
                way.cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


class DirectWay:
    """The way of pieces of a body past `send`, unless the client is behind."""

    __slots__ = ("_departures", "_loop", "cycle", "size", "waiting", "weight")

    def __init__(
        self, cycle: RequestResponseCycle, departures: Departures, loop: AbstractEventLoop
    ) -> None:
        self.cycle = cycle
        self.size = 0
        """How many bytes have gone this way."""
        self.waiting: list[bytes] = []
        self.weight = 0
        """How many of them have still to leave, in this turn of the loop."""
        self._departures = departures
        self._loop = loop

    def write(self, piece: bytes) -> bool:
        """Send a piece of a body that has begun, as `send` would; tell whether it could be."""
        cycle, weight = self.cycle, self.weight + len(piece)
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        if not self.waiting:
            ways = self._departures.ways
            if not ways:
                self._loop.call_soon(self._departures.leave)
            ways.append(self)
        elif weight > MAX_WEIGHT:
            return False
        self.waiting.append(piece)
        self.weight = weight
        self.size += len(piece)
        return True
