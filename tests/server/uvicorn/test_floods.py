"""One connection that floods the server with frames or chunks does not block the event loop."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from antiphon.protocol.errors import RequestError
from antiphon.server.cors import CrossOriginPolicy
from antiphon.server.uvicorn.connection import ConnectionLimits
from antiphon.server.uvicorn.http_protocol import HardenedHttpProtocol
from antiphon.server.uvicorn.ws_protocol import HardenedWebSocketProtocol
from antiphon.wire.websocket import decode_message
from tests.http_client import WAIT

pytestmark = pytest.mark.anyio

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
CONTINUATION, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10


def frame(opcode: int, data: bytes = b"", *, fin: bool = True) -> bytes:
    """Encode a short frame of a client; a mask of zeros changes nothing."""
    assert len(data) < 126
    return bytes([opcode | (0x80 if fin else 0), 0x80 | len(data), 0, 0, 0, 0]) + data


class FloodedServer:
    """A server on the test's own loop; counts what it parses in each iteration of that loop."""

    def __init__(self, limits: ConnectionLimits) -> None:
        server = self
        self.per_iteration = [0]
        self.received: list[Any] = []
        self.most_queued = 0
        self.text_key = "text"

        class CountingWebSocket(HardenedWebSocketProtocol):
            def handle_ping(self) -> None:
                server.per_iteration[-1] += 1
                super().handle_ping()

            def handle_pong(self, event: Any) -> None:
                server.per_iteration[-1] += 1
                super().handle_pong(event)

            def handle_cont(self, event: Any) -> None:
                server.per_iteration[-1] += 1
                super().handle_cont(event)

            def send_receive_event_to_app(self) -> None:
                super().send_receive_event_to_app()
                server.most_queued = max(server.most_queued, self.queue.qsize())

        class CountingHttp(HardenedHttpProtocol):
            def on_body(self, body: bytes) -> None:
                server.per_iteration[-1] += 1
                super().on_body(body)

        self.config = uvicorn.Config(
            self.app,
            interface="asgi3",
            http=partial(CountingHttp, limits=limits, cross_origin=CrossOriginPolicy(())),  # pyright: ignore[reportArgumentType]
            ws=partial(CountingWebSocket, limits=limits, drain_seconds=1),  # pyright: ignore[reportArgumentType]
            lifespan="off",
            log_config=None,
            ws_ping_interval=None,
        )
        self.config.load()
        self.state = ServerState()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                self.received.append(message)
                await send({"type": "websocket.send", "text": str(len(message[self.text_key]))})
            self.received.append(message)
            with suppress(OSError):
                await send({"type": "websocket.send", "text": "late"})
            return
        size, message = 0, {"more_body": True}
        while message["more_body"]:
            message = await receive()
            size += len(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"size %d" % size})

    async def count_iterations(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.per_iteration.append(0)

    @asynccontextmanager
    async def connect(self, start: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        loop = asyncio.get_running_loop()
        protocol: Any = self.config.http_protocol_class
        server = await loop.create_server(
            lambda: protocol(config=self.config, server_state=self.state, app_state={}), "127.0.0.1", 0
        )
        counting = asyncio.create_task(self.count_iterations())
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            async with asyncio.timeout(WAIT):
                writer.write(start)
                if start == HANDSHAKE:
                    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
                yield reader, writer
        finally:
            writer.close()
            counting.cancel()
            server.close()
            await asyncio.wait([counting, *self.state.tasks], timeout=WAIT)


async def read_close(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Read to the end of a connection; return the code and the reason of its close frame."""
    end = (await reader.read())[-80:]
    close = end[end.index(0x80 | CLOSE) :]
    return struct.unpack("!H", close[2:4])[0], close[4:].decode()


FRAMES = [
    (b"", frame(PING)),
    (b"", frame(PONG)),
    (frame(TEXT, fin=False), frame(CONTINUATION, fin=False)),
    (frame(TEXT, fin=False), frame(CONTINUATION, b"x", fin=False)),
]


@pytest.mark.parametrize(("start", "repeated"), FRAMES, ids=["ping", "pong", "empty", "one byte"])
async def test_small_frames_are_parsed_over_many_iterations(start: bytes, repeated: bytes):
    server, count = FloodedServer(ConnectionLimits(small_frames=10_000)), 9000
    async with server.connect(HANDSHAKE) as (reader, writer):
        end = frame(CONTINUATION, b"end") if start else frame(TEXT, b"end")
        writer.write(start + repeated * count + end)
        answer = str(3 + count * (len(repeated) - 6)).encode()
        await reader.readuntil(b"\x81" + bytes([len(answer)]) + answer)
    assert sum(server.per_iteration) in (count, count + 1)
    assert max(server.per_iteration) < 500


async def test_messages_wait_until_the_application_takes_them():
    server, count = FloodedServer(ConnectionLimits()), 9000
    async with server.connect(HANDSHAKE) as (reader, writer):
        writer.write(frame(TEXT, b"x") * count + frame(TEXT, b"end"))
        await reader.readuntil(b"\x81\x013")
    assert len(server.received) == count + 2  # the last one says that the client has left
    assert server.most_queued < 500


@pytest.mark.parametrize(("start", "repeated"), FRAMES, ids=["ping", "pong", "empty", "one byte"])
async def test_a_flood_of_small_frames_closes_the_connection(start: bytes, repeated: bytes):
    server = FloodedServer(ConnectionLimits(small_frames=100))
    async with server.connect(HANDSHAKE) as (reader, writer):
        writer.write(start + repeated * 2000)
        assert await read_close(reader) == (1008, "Too many control frames or tiny fragments.")


async def test_pings_at_a_normal_rate_are_no_flood():
    server = FloodedServer(ConnectionLimits(small_frames=10, small_frame_seconds=0))
    async with server.connect(HANDSHAKE) as (reader, writer):
        for _ in range(50):
            writer.write(frame(PING))
            assert await reader.readexactly(2) == bytes([0x80 | PONG, 0])
            await asyncio.sleep(0.002)


async def test_invalid_utf8_and_a_send_after_the_close_log_nothing(caplog: pytest.LogCaptureFixture):
    server = FloodedServer(ConnectionLimits())
    with caplog.at_level(logging.WARNING):
        async with server.connect(HANDSHAKE) as (reader, writer):
            writer.write(frame(TEXT, b"\xff"))
            assert await read_close(reader) == (1007, "A text message is not valid UTF-8.")
    assert server.received == [
        {"type": "websocket.disconnect", "code": 1007, "reason": "A text message is not valid UTF-8."}
    ]
    assert caplog.records == []


async def test_small_chunks_are_parsed_over_many_iterations():
    server, count = FloodedServer(ConnectionLimits()), 40_000
    async with server.connect(CHUNKED) as (reader, writer):
        writer.write(b"1\r\nx\r\n" * count + b"0\r\n\r\n")
        await reader.readuntil(b"size 40000")
    assert sum(server.per_iteration) == count
    assert max(server.per_iteration) < 6000


async def test_a_large_body_and_a_large_message_arrive_whole():
    server = FloodedServer(ConnectionLimits())
    async with server.connect(CHUNKED) as (reader, writer):
        writer.write(b"400000\r\n" + b"x" * 0x400000 + b"\r\n0\r\n\r\n")
        await reader.readuntil(b"size 4194304")
    async with server.connect(HANDSHAKE) as (reader, writer):
        writer.write(b"\x81\xff" + struct.pack("!Q", 900_000) + bytes(4) + b"x" * 900_000)
        await reader.readuntil(b"900000")


async def test_a_binary_message_may_be_fragmented():
    server = FloodedServer(ConnectionLimits())
    server.text_key = "bytes"
    async with server.connect(HANDSHAKE) as (reader, writer):
        writer.write(frame(2, b"a", fin=False) + frame(CONTINUATION, b"b", fin=False) + frame(CONTINUATION, b"c"))
        await reader.readuntil(b"\x81\x013")
    error = decode_message(server.received[0]["bytes"], 100).create
    assert isinstance(error, RequestError)
    assert error.payload.code == "unsupported_message"
