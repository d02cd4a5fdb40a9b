"""WebSocket clients that do not read or do not answer pings; shutdown of the server."""

import asyncio
import gc
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.connection import ConnectionLimits
from antiphon.server.uvicorn.http_protocol import http_protocol
from antiphon.server.uvicorn.server import uvicorn_config
from antiphon.server.uvicorn.ws_protocol import websocket_protocol
from tests.http_client import WAIT, wait_until
from tests.run_server import run_command
from tests.ws_client import response_text, ws_client

SHORT = 0.25
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class StreamingServer:
    """A running server whose app sends messages until its client disconnects."""

    def __init__(self, size: int, stall: float = SHORT, **options: Any) -> None:
        self.size = size
        self.left = threading.Event()
        limits = ConnectionLimits(write_stall_seconds=stall)
        self.server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                interface="asgi3",
                http=http_protocol(limits),
                ws=websocket_protocol(limits, SHORT),
                lifespan="off",
                log_config=None,
                log_level="critical",
                port=0,
                timeout_graceful_shutdown=5,
                **options,
            )
        )

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        sending = asyncio.create_task(self.send_messages(send))
        while (await receive())["type"] != "websocket.disconnect":
            pass
        sending.cancel()
        self.left.set()

    async def send_messages(self, send: Any) -> None:
        while self.size:
            await send({"type": "websocket.send", "text": "x" * self.size})
            await asyncio.sleep(0.01)

    @property
    def port(self) -> int:
        return self.server.servers[0].sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def is_empty(self) -> bool:
        return not self.server.server_state.connections

    @contextmanager
    def connect_raw(self) -> Iterator[socket.socket]:
        """Open a WebSocket by hand, to be read as slowly as a test likes."""
        with socket.socket() as client:
            client.settimeout(WAIT)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", self.port))
            client.sendall(HANDSHAKE)
            assert client.recv(12) == b"HTTP/1.1 101"
            yield client


@contextmanager
def run_streaming_server(size: int, **options: Any) -> Iterator[StreamingServer]:
    """Run a server."""
    running_server = StreamingServer(size, **options)
    thread = threading.Thread(target=running_server.server.run)
    thread.start()
    try:
        wait_until(lambda: running_server.server.started)
        yield running_server
    finally:
        running_server.server.should_exit = True
        thread.join(WAIT)


def read_close_code(client: Connection) -> int | None:
    """Read to the end of a connection; return the code that the server closes it with."""
    with suppress(ConnectionClosed):
        while client.recv(WAIT):
            pass
    return client.close_code


def test_a_client_that_does_not_read_is_cut_off() -> None:
    with run_streaming_server(size=100_000) as running_server, running_server.connect_raw():
        assert running_server.left.wait(WAIT)
        wait_until(running_server.is_empty)


def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    with run_streaming_server(size=20_000) as running_server, running_server.connect_raw() as client:
        deadline = time.monotonic() + 4 * SHORT
        while time.monotonic() < deadline:
            client.recv(65536)
        assert not running_server.left.is_set()


def test_a_ping_behind_a_message_that_is_read_slowly_does_not_cut_the_client_off() -> None:
    keepalive = {"ws_ping_interval": 0.2, "ws_ping_timeout": 0.2}
    with run_streaming_server(size=6_000_000, stall=1, **keepalive) as server, server.connect_raw() as client:
        received = 0
        while received < server.size and (piece := client.recv(200_000, socket.MSG_WAITALL)):
            received += len(piece)
            time.sleep(0.1)
        assert received > server.size


@pytest.mark.parametrize("size", [0, 100_000])
def test_a_client_that_answers_no_ping_is_cut_off(size: int) -> None:
    keepalive = {"ws_ping_interval": 0.1, "ws_ping_timeout": 0.1}
    with run_streaming_server(size, **keepalive) as running_server, running_server.connect_raw():
        assert running_server.left.wait(WAIT)
        wait_until(running_server.is_empty)


def test_a_client_that_answers_pings_may_be_idle() -> None:
    keepalive = {"ws_ping_interval": 0.05, "ws_ping_timeout": 0.1}
    with run_streaming_server(0, **keepalive) as running_server, connect(running_server.url, proxy=None) as client:
        with pytest.raises(TimeoutError):
            client.recv(0.5)
        assert not running_server.left.is_set()


def test_a_stopping_server_lets_the_app_continue_for_the_drain_time() -> None:
    with run_streaming_server(10) as running_server, connect(running_server.url, proxy=None) as client:
        client.recv(WAIT)
        running_server.server.should_exit = True
        wait_until(lambda: not running_server.server.servers[0].is_serving())
        assert client.recv(WAIT)
        assert read_close_code(client) == 1012


def test_a_stopping_server_finishes_its_turns() -> None:
    with run_command("--drain-seconds", "10") as (address, process), ws_client(address) as ws_session:
        ws_session.create(input="SLOW")
        while ws_session.receive()["type"] != "response.output_text.delta":
            pass
        process.send_signal(signal.SIGTERM)
        last = ws_session.receive_turn()[-1]
        assert last["type"] == "response.completed"
        assert len(response_text(last["response"]).split()) >= 30
        assert read_close_code(ws_session.socket) == 1001
        process.wait(5)


def test_a_stopping_server_fails_the_turns_that_do_not_end_in_time() -> None:
    with run_command("--drain-seconds", "0.2") as (address, process), ws_client(address) as ws_session:
        ws_session.create(input="SLOW")
        while ws_session.receive()["type"] != "response.output_text.delta":
            pass
        process.send_signal(signal.SIGTERM)
        last = ws_session.receive_turn()[-1]
        assert last["type"] == "response.failed"
        assert "server stopped" in last["response"]["error"]["message"]
        assert read_close_code(ws_session.socket) == 1012
        process.wait(WAIT)


def test_a_frame_that_is_too_large_closes_the_connection() -> None:
    with run_streaming_server(0, ws_max_size=1000) as running_server, connect(running_server.url, proxy=None) as client:
        client.send("x" * 1001)
        assert read_close_code(client) == 1009


def test_an_unclean_close_releases_the_last_message_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        with run_streaming_server(0) as running_server:
            with connect(running_server.url, proxy=None) as client:
                client.send("x" * 10_000)
                client.ping().wait(WAIT)  # the server has read the message
                client.send("y" * 10_000)
                client.socket.shutdown(socket.SHUT_RDWR)
            assert running_server.left.wait(WAIT)
            wait_until(running_server.is_empty)
            frames = [one for one in gc.get_objects() if isinstance(one, Frame)]
            assert [frame for frame in frames if len(frame.data) == 10_000] == []
    finally:
        gc.enable()


def test_frames_and_bodies_have_the_same_limit() -> None:
    chosen = uvicorn_config(create_app(), "127.0.0.1", 0, Settings(body_limit=1000))
    assert chosen.ws_max_size == 1000
    assert (chosen.ws_ping_interval, chosen.ws_ping_timeout) == (20, 20)
    assert chosen.ws_per_message_deflate is False
