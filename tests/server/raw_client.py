"""A server with the hardened protocol and a test application; clients that send raw bytes."""

import asyncio
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from typing import Any, cast

import uvicorn

from antiphon.server.uvicorn.connection import ConnectionLimits
from antiphon.server.uvicorn.http_protocol import http_protocol

WAIT = 5.0  # for a client; the servers under test give up after SHORT
SHORT = 0.25
LONGER = 2 * SHORT


class PeculiarApp:
    """An ASGI app which answers with the length of the body, after its path's peculiarity."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.disconnected = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope["path"])
        match scope["type"], scope["path"]:
            case "websocket", _:
                await self.echo_messages(receive, send)
            case _, "/endless":
                await self.stream(receive, send)
            case _, "/unread":
                await answer(send, b"unread")
            case _, "/early":
                early = b"early" * int(scope["query_string"] or 0)
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": early, "more_body": True})
                await asyncio.sleep(LONGER)
                await send({"type": "http.response.body", "body": b"late"})
            case _, "/until-disconnect":
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.disconnected.set()
            case _, "/sized":
                await answer(send, b"x" * int(scope["query_string"]))
            case _, path:
                await asyncio.sleep({"/slow": LONGER, "/soon": SHORT / 6}.get(path, 0))
                await self.measure(scope, receive, send)

    async def measure(self, scope: Any, receive: Any, send: Any) -> None:
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return self.disconnected.set()
            length += len(message["body"])
            more = message["more_body"]
        self.headers = list(scope["headers"])
        return await answer(send, b"%d" % length)

    async def stream(self, receive: Any, send: Any) -> None:
        async def until_disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        listening = asyncio.create_task(until_disconnected())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not listening.done():
            await send({"type": "http.response.body", "body": b"x" * 4096, "more_body": True})
            await asyncio.sleep(0)
        self.disconnected.set()

    async def echo_messages(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})


async def answer(send: Any, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class RawServer:
    """A running server, and what its app has seen."""

    def __init__(self, limits: ConnectionLimits, loop: Any) -> None:
        self.app = PeculiarApp()
        self.server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                http=http_protocol(limits),
                ws="websockets-sansio",
                loop=loop,
                lifespan="off",
                log_config=None,
                log_level="critical",
                port=0,
                timeout_graceful_shutdown=1,
            )
        )

    @property
    def port(self) -> int:
        return self.server.servers[0].sockets[0].getsockname()[1]

    def is_empty(self) -> bool:
        return not self.server.server_state.connections

    @contextmanager
    def connect(self, *pieces: bytes, buffer: int = 0) -> Iterator[socket.socket]:
        """Open a connection and send the pieces."""
        with socket.socket() as client:
            client.settimeout(WAIT)
            if buffer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.connect(("127.0.0.1", self.port))
            send_all(client, *pieces)
            yield client

    def exchange(self, *pieces: bytes, pause: float = 0) -> list[tuple[int, bytes]]:
        """Return every answer that comes until the server closes the connection."""
        with self.connect() as client:
            send_all(client, *pieces, pause=pause)
            return parse_answers(receive_all(client))


def send_all(client: socket.socket, *chunks: bytes, pause: float = 0) -> None:
    """Send, even to a server that has hung up already."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for piece in chunks:
            client.sendall(piece)
            time.sleep(pause)


def receive_all(client: socket.socket, until: bytes | None = None) -> bytes:
    """Read until the connection closes, or until these bytes have come."""
    received = b""
    with suppress(ConnectionResetError):
        while until is None or until not in received:
            piece = client.recv(65536)
            if not piece:
                break
            received += piece
    return received


class RecordedSocket(io.BytesIO):
    """Bytes that pass for a socket; `HTTPResponse` closes it after each answer, in vain."""

    def makefile(self, mode: str) -> "RecordedSocket":
        return self

    def close(self) -> None:
        pass


def parse_answers(raw: bytes) -> list[tuple[int, bytes]]:
    """Read all answers; a refusal, which must be the last, is reduced to its code."""
    recorded, found = RecordedSocket(raw), list[tuple[int, bytes]]()
    while recorded.tell() < len(raw):
        response = HTTPResponse(cast("socket.socket", recorded))
        response.begin()
        body = response.read()
        if response.status >= 400:
            assert recorded.tell() == len(raw)
            assert response.headers["content-type"] == "application/json"
            assert response.headers["connection"] == "close"
            assert re.fullmatch("req_[0-9a-f]{32}", response.headers["x-request-id"])
            error = json.loads(body)["error"]
            message, code = error.pop("message"), error.pop("code")
            assert error == {"type": "invalid_request", "param": None}
            assert re.fullmatch(r"[A-Z].+\. [A-Z].+\.", message)
            body = code.encode()
        found.append((response.status, body))
    return found


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@contextmanager
def run_server(limits: ConnectionLimits, loop: str = "uvloop") -> Iterator[RawServer]:
    running_server = RawServer(limits, loop)
    thread = threading.Thread(target=running_server.server.run)
    thread.start()
    try:
        assert eventually(lambda: running_server.server.started)
        yield running_server
    finally:
        running_server.server.should_exit = True
        thread.join(WAIT)
