"""One connection: timeouts, timers, and the end of a stopped response."""

import asyncio
from typing import Any

import pytest

from antiphon.protocol.errors import UpstreamError
from antiphon.transport import connection as module
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import HttpConnection, Timeouts
from antiphon.transport.response import HttpResponse
from tests.transport.buffered_response import fetch_response
from tests.transport.fake_loop import FakeLoop, NullTransport
from tests.transport.scripted_server import (
    ScriptedConnection,
    chunked_response,
    ok_response,
    respond_in_pieces,
    scripted_server,
    send_then_wait,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both event loops, in debug mode."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


def connect_with_fake_loop() -> tuple[HttpConnection, FakeLoop]:
    """Return a connection whose time the test advances."""
    connection, loop = HttpConnection(lambda connection: None), FakeLoop()
    connection.connection_made(NullTransport())
    connection._loop = loop  # pyright: ignore[reportAttributeAccessIssue]
    return connection, loop


async def test_a_slow_head_is_a_timeout() -> None:
    connection, loop = connect_with_fake_loop()
    response = connection.send(b"", Timeouts(first_byte=2), "p")
    connection.data_received(b"HTTP/1.1 200 OK\r\nx: ")
    for _ in range(3):
        loop.advance(1)
        connection.data_received(b"y")
    with pytest.raises(UpstreamError) as caught:
        await response.wait_for_head()
    assert (caught.value.payload.code, caught.value.retryable) == ("timeout", False)


async def test_a_slow_body_is_not_a_timeout() -> None:
    connection, loop = connect_with_fake_loop()
    response = connection.send(b"", Timeouts(first_byte=2, idle=2), "p")
    connection.data_received(chunked_response(end=b""))
    for _ in range(8):
        loop.advance(1.5)
        connection.data_received(b"1\r\nx\r\n")
    connection.data_received(b"0\r\n\r\n")
    assert await response.read() == b"x" * 8


@pytest.mark.parametrize("seconds", [0.0001, 0.0004, 0.0006, 0.0104])
async def test_a_timer_under_a_millisecond_can_be_replaced(seconds: float) -> None:
    idle_connections: list[HttpConnection] = []
    connection = HttpConnection(idle_connections.append)
    connection.connection_made(NullTransport())
    for _ in range(2):
        response = connection.send(b"", Timeouts(first_byte=seconds), "p")
        connection.data_received(ok_response(b"hello"))
        assert await response.read() == b"hello"
        response.release()
    assert idle_connections == [connection, connection]
    connection.close()


async def test_a_timer_that_fires_early_still_times_out() -> None:
    """A loop may round a delay down, and call before the deadline."""
    connection, loop = connect_with_fake_loop()
    response = connection.send(b"", Timeouts(first_byte=2), "p")
    loop.advance(1.9995, early=0.001)
    assert response.waits_for_head
    loop.advance(0.0006)
    with pytest.raises(UpstreamError, match=r"sent nothing for 2 seconds"):
        await response.wait_for_head()


def stop_after_first(response: HttpResponse, got: list[bytes]) -> None:
    """Stop after the first piece."""

    def receive(data: bytes) -> None:
        got.append(data)
        response.stop()

    response.subscribe(receive)


async def test_a_stopped_response_that_ends_soon_keeps_its_connection() -> None:
    async def script(peer: ScriptedConnection) -> None:
        while True:
            await peer.read_request()
            await peer.send(chunked_response(b"data: [DONE]\n\n", end=b""))
            await asyncio.sleep(0.05)
            await peer.send(b"3\r\nend\r\n0\r\n\r\n")

    client = HttpClient()
    async with scripted_server(script) as server:
        for _ in range(3):
            got: list[bytes] = []
            response = await client.open(HttpRequest(url=server.url))
            stop_after_first(response, got)
            assert await response.wait()
            response.release()
            await asyncio.sleep(0.15)
            assert got == [b"data: [DONE]\n\n"]
        client.close()
    assert len(server.connections) == 1


async def test_a_stopped_response_that_continues_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.1)

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(chunked_response(b"first", end=b""))
        while True:
            await peer.send(b"4\r\nmore\r\n")
            await asyncio.sleep(0.01)

    client = HttpClient()
    async with scripted_server(script) as server:
        got: list[bytes] = []
        response = await client.open(HttpRequest(url=server.url))
        stop_after_first(response, got)
        assert await response.wait()
        response.release()
        await server.wait_closed(0, seconds=1.0)
        assert len(got) == 1
        client.close()


async def test_an_invalid_chunk_after_the_stop_is_not_an_error() -> None:
    client = HttpClient()
    async with scripted_server(
        respond_in_pieces([chunked_response(b"first", end=b""), b"no chunk at all"], 0.05)
    ) as server:
        response = await client.open(HttpRequest(url=server.url))
        stop_after_first(response, [])
        assert await response.wait()
        response.release()
        await asyncio.sleep(0.1)
        assert await response.wait()
        await server.wait_closed()
        client.close()


async def test_releasing_before_the_end_closes_the_connection() -> None:
    client = HttpClient()
    async with scripted_server(send_then_wait(chunked_response(b"first", end=b""))) as server:
        response = await client.open(HttpRequest(url=server.url))
        response.subscribe(lambda data: None)
        response.release()
        await server.wait_closed(0, seconds=1.0)
        client.close()


async def test_a_second_release_does_not_affect_the_next_request() -> None:
    client = HttpClient()

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(ok_response(b"first"))
        await peer.read_request()
        await asyncio.sleep(0.1)
        await peer.send(ok_response(b"second"))
        await peer.wait_closed()

    async with scripted_server(script) as server:
        first = await client.open(HttpRequest(url=server.url))
        assert await first.read() == b"first"
        first.release()
        second = asyncio.ensure_future(fetch_response(client, HttpRequest(url=server.url)))
        await asyncio.sleep(0.05)
        first.release()
        assert (await second).body == b"second"
        client.close()
    assert len(server.connections) == 1
