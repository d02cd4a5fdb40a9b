"""A TCP server in the same event loop that runs one function per connection.

async with scripted_server(respond_with(b"HTTP/1.1 200 OK\\r\\n…")) as server:
    await fetch_response(client, HttpRequest(url=server.url))
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from antiphon.transport.response import HttpResponse

Script = Callable[["ScriptedConnection"], Awaitable[None]]


@dataclass
class ScriptedConnection:
    """One connection, seen from the server; `number` counts from zero."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_request(self) -> bytes:
        """Return the head and body of the next request; raises IncompleteReadError at the end."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        body = b""
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                body = await self.reader.readexactly(int(line.partition(b":")[2]))
        self.requests.append(head + body)
        return head + body

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self.writer.transport.is_closing():
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def wait_closed(self, seconds: float = 5.0) -> bool:
        """Wait until the client has closed the connection; return whether it did."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


@dataclass
class ScriptedServer:
    """A running server and its connections."""

    url: str
    port: int
    connections: list[ScriptedConnection] = field(default_factory=list)

    @property
    def requests(self) -> list[bytes]:
        """All requests, in order."""
        return [request for connection in self.connections for request in connection.requests]

    async def wait_closed(self, number: int = 0, seconds: float = 3.0) -> None:
        """Wait until a connection was closed."""
        async with asyncio.timeout(seconds):
            await self.connections[number].closed.wait()


@asynccontextmanager
async def scripted_server(
    script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[ScriptedServer]:
    """Run a server."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ScriptedConnection(len(server.connections), reader, writer)
        server.connections.append(connection)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(connection)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            connection.closed.set()
            writer.transport.abort()
            tasks.discard(task)

    listener = await asyncio.start_server(serve, host, 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    server = ScriptedServer(f"{'https' if tls else 'http'}://{name}:{port}", port)
    try:
        yield server
    finally:
        listener.close()
        waiting = list(tasks)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def respond_with(*responses: bytes, close: bool = False) -> Script:
    """Respond to each request in turn, repeating the last response; or close after the first."""

    async def script(connection: ScriptedConnection) -> None:
        for number in range(1_000_000):
            await connection.read_request()
            await connection.send(responses[min(number, len(responses) - 1)])
            if close:
                connection.writer.close()
                return

    return script


def respond_in_pieces(pieces: Iterable[bytes], pause: float = 0.0) -> Script:
    """Respond to one request in pieces, one write each; then close."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.read_request()
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(pause)
        connection.writer.close()

    return script


def send_then_wait(data: bytes) -> Script:
    """Send some bytes, and nothing more."""

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(data)
        await peer.wait_closed(30)

    return script


def ok_response(body: bytes = b"", *lines: str) -> bytes:
    """Return a response with a content length."""
    head = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def chunked_response(*pieces: bytes, lines: Iterable[str] = (), end: bytes = b"0\r\n\r\n") -> bytes:
    """Return a chunked response."""
    head = ["HTTP/1.1 200 OK", "transfer-encoding: chunked", *lines, "", ""]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join(head).encode() + body + end


@asynccontextmanager
async def open_response(
    script: Script, timeouts: Timeouts | None = None
) -> AsyncIterator[tuple[ScriptedServer, HttpResponse]]:
    """Send a request to a server; yield the server and its response."""
    client = HttpClient(timeouts)
    async with scripted_server(script) as server:
        response = await client.open(HttpRequest(url=server.url, peer_name="p"))
        try:
            yield server, response
        finally:
            response.release()
            client.close()
