"""Simulates a network between a client and a server: latency both ways, limited upload bandwidth.

A connection is accepted at once, but one round trip passes before its first byte is forwarded, as
with a TCP handshake. All uploads of the client share one token bucket without burst; a segment
arrives when its last bit has passed and the latency is over, in order. Downloads have the latency
only. There is no packet loss and no slow start: both would favour the transport that sends least.

On SIGTERM it prints the uploaded bytes, in total and per message.
"""

import asyncio
import contextlib
import json
import re
import selectors
import signal
import sys

DELAY = 0.025
"""One-way latency in seconds."""

UPLINK = 20_000_000
"""Upload bandwidth in bits per second."""

SEGMENT = 1460
"""Bytes per segment."""


class TokenBucket:
    """Token bucket of the upload direction, without burst."""

    def __init__(self) -> None:
        self._free = 0.0

    def through(self, size: int, now: float) -> float:
        """Return the time at which the next `size` bytes have passed."""
        self._free = max(self._free, now) + size * 8 / UPLINK
        return self._free


class OneWay:
    """One direction of one connection: delivers bytes later, in order."""

    def __init__(self, bucket: TokenBucket | None = None) -> None:
        self.sent = bytearray()
        self._bucket = bucket
        self._travelling: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._now = asyncio.get_running_loop().time

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward everything that is read, then end-of-file."""
        delivering = asyncio.create_task(self._deliver(writer))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                self._send(data)
        self._travelling.put_nowait((self._now() + DELAY, b""))
        await delivering

    def _send(self, data: bytes) -> None:
        now = self._now()
        if self._bucket is None:
            self._travelling.put_nowait((now + DELAY, data))
            return
        self.sent += data
        for start in range(0, len(data), SEGMENT):
            segment = data[start : start + SEGMENT]
            through = self._bucket.through(len(segment), now)
            self._travelling.put_nowait((through + DELAY, segment))

    async def _deliver(self, writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await self._travelling.get()
            await asyncio.sleep(due - self._now())
            if not data:
                writer.close()
                return
            writer.write(data)


class SlowNetwork:
    """The simulated network to one server."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._bucket = TokenBucket()
        self._ways: list[OneWay] = []
        self._joined: set[asyncio.Task[None]] = set()

    def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the server."""
        self._joined.add(asyncio.create_task(self._join(reader, writer)))

    async def settle(self) -> None:
        """Wait until bytes in transit have arrived."""
        if self._joined:
            await asyncio.wait(self._joined, timeout=1)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * DELAY)
        there, back = await asyncio.open_connection("127.0.0.1", self._server)
        up, down = OneWay(self._bucket), OneWay()
        self._ways.append(up)
        await asyncio.gather(up.carry(reader, back), down.carry(there, writer))

    def tally(self) -> dict[str, object]:
        """Return what was uploaded."""
        return {
            "connections": len(self._ways),
            "uplink": sum(len(way.sent) for way in self._ways),
            "bodies": [size for way in self._ways for size in bodies(bytes(way.sent))],
        }


def bodies(sent: bytes) -> list[int]:
    """Return the sizes of the request bodies or WebSocket messages of one connection."""
    sizes: list[int] = []
    while sent:
        head, _, sent = sent.partition(b"\r\n\r\n")
        if b"\r\nupgrade: websocket" in head.lower():
            return messages(sent)
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        sizes.append(int(length[1]) if length else 0)
        sent = sent[sizes[-1] :]
    return sizes


def messages(sent: bytes) -> list[int]:
    """Return the sizes of a WebSocket's data messages; control frames do not count."""
    sizes: list[int] = []
    while sent:
        kind, size, head = sent[0] & 0x0F, sent[1] & 0x7F, 2
        if size > 125:
            head = 4 if size == 126 else 10
            size = int.from_bytes(sent[2:head])
        if kind < 8:
            sizes.append(size)
        sent = sent[head + 4 + size :]  # a client's frame has a mask of four bytes
    return sizes


async def run(port: int, server: int) -> None:
    """Run the simulation until SIGTERM."""
    link, stop = SlowNetwork(server), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with await asyncio.start_server(link.connect, "127.0.0.1", port):
        print("open", flush=True)
        await stop.wait()
        await link.settle()
    print(json.dumps(link.tally()), flush=True)


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop with precise timers; the default one rounds up to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(run(int(sys.argv[1]), int(sys.argv[2])))
