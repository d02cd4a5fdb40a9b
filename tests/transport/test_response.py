"""A response and its reader: buffering, pauses, stops, limits, compression."""

import asyncio
import gzip
import tracemalloc
import zlib
from typing import Any

import pytest

from antiphon.protocol.errors import UpstreamError
from antiphon.transport import response as module
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from antiphon.transport.response import HttpResponse
from tests.transport.scripted_server import (
    Script,
    ScriptedConnection,
    chunked_response,
    ok_response,
    open_response,
    respond_in_pieces,
    respond_with,
    scripted_server,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both event loops, in debug mode."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


async def test_the_head_is_available_before_the_body() -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 429 Slow Down\r\nRetry-After: 3\r\ncontent-length: 2\r\n\r\n")
        await asyncio.sleep(0.1)
        await peer.send(b"no")

    async with open_response(script) as (_, response):
        assert (response.status, response.headers) == (429, {"retry-after": "3", "content-length": "2"})
        assert repr(response) == "<HttpResponse from p: 429, open>"
        assert await response.read() == b"no"
        assert repr(response) == "<HttpResponse from p: 429, over>"


async def test_data_before_the_subscription_is_buffered() -> None:
    async with open_response(respond_in_pieces([chunked_response(b"a", end=b""), b"1\r\nb\r\n", b"0\r\n\r\n"])) as (
        _,
        response,
    ):
        await asyncio.sleep(0.1)
        got: list[bytes] = []
        response.subscribe(got.append)
        assert got == [b"ab"]
        assert await response.wait()


async def test_buffered_data_is_delivered_before_the_error() -> None:
    async with open_response(respond_in_pieces([chunked_response(b"a", end=b"")])) as (_, response):
        await asyncio.sleep(0.1)
        got: list[bytes] = []
        response.subscribe(got.append)
        assert got == [b"a"]
        with pytest.raises(UpstreamError, match="before its response was complete"):
            await response.wait()


def send_fast(sent: list[int], total: int = 200_000_000) -> Script:
    """Send as fast as the client takes it; note how much that was."""

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(f"HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n".encode())
        while sent[0] < total:
            await peer.send(b"x" * 100_000)
            sent[0] += 100_000
        await peer.wait_closed()

    return script


async def test_the_connection_is_paused_until_there_is_a_reader() -> None:
    sent = [0]
    async with open_response(send_fast(sent)) as (_, response):
        await asyncio.sleep(0.3)
        held = sent[0]
        await asyncio.sleep(0.1)
        assert sent[0] == held < 50_000_000
        got = 0

        def receive(data: bytes) -> None:
            nonlocal got
            got += len(data)

        response.subscribe(receive)
        while not response.is_over:
            await response.wait()
        assert got == 200_000_000


async def test_a_pause_stops_the_server_and_bounds_memory() -> None:
    sent, got = [0], [0]
    tracemalloc.start()
    try:
        async with open_response(send_fast(sent)) as (_, response):

            def receive(data: bytes) -> None:
                got[0] += len(data)
                response.pause()

            response.subscribe(receive)
            assert not await response.wait()
            assert repr(response) == "<HttpResponse from p: 200, paused>"
            before = got[0]
            await asyncio.sleep(0.3)
            assert got[0] == before <= 1_000_000
            held = sent[0]
            assert held < 50_000_000
            await asyncio.sleep(0.1)
            assert sent[0] == held
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
            for _ in range(3):
                response.resume()
                assert not await response.wait()
            assert got[0] > before
    finally:
        tracemalloc.stop()


async def test_the_idle_timeout_does_not_count_while_paused() -> None:
    resumed = asyncio.Event()

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(chunked_response(b"a", end=b""))
        await resumed.wait()
        await peer.send(b"1\r\nb\r\n0\r\n\r\n")
        await peer.wait_closed()

    got: list[bytes] = []
    async with open_response(script, Timeouts(idle=0.2)) as (_, response):

        def receive(data: bytes) -> None:
            got.append(data)
            if data == b"a":
                response.pause()

        response.subscribe(receive)
        assert not await response.wait()
        await asyncio.sleep(0.5)
        response.resume()
        resumed.set()
        assert await response.wait()
    assert got == [b"a", b"b"]


async def test_the_idle_timeout_counts_after_a_pause() -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(chunked_response(b"a", end=b""))
        await peer.wait_closed()

    async with open_response(script, Timeouts(idle=0.1)) as (_, response):
        response.subscribe(lambda data: response.pause())
        assert not await response.wait()
        await asyncio.sleep(0.2)
        response.resume()
        with pytest.raises(UpstreamError) as caught:
            await response.wait()
    assert caught.value.payload.code == "timeout"


@pytest.mark.parametrize("leave", ["pause", "stop"])
async def test_a_pause_in_the_last_read_does_not_stop_the_next_request(leave: str) -> None:
    client = HttpClient()
    async with scripted_server(respond_with(ok_response(b"hello"))) as server:
        for _ in range(3):
            response = await client.open(HttpRequest(url=server.url))

            def receive(data: bytes, response: HttpResponse = response) -> None:
                del data
                response.pause()
                if leave == "stop":
                    response.stop()

            response.subscribe(receive)
            async with asyncio.timeout(2):
                assert await response.wait()
            response.release()
        client.close()
    assert len(server.connections) == 1


async def test_data_after_a_stop_is_dropped() -> None:
    got: list[bytes] = []
    said = [chunked_response(b"a", end=b""), b"1\r\nb\r\n", b"0\r\n\r\n"]
    async with open_response(respond_in_pieces(said, pause=0.05)) as (_, response):

        def receive(data: bytes) -> None:
            got.append(data)
            response.stop()

        response.subscribe(receive)
        assert await response.wait()
        await asyncio.sleep(0.2)
    assert got == [b"a"]


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["open", "whole"])
@pytest.mark.parametrize("wait", [0, 0.1], ids=["at once", "later"])
async def test_an_exception_of_the_reader_is_raised_by_wait(end: bytes, wait: float) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(chunked_response(end=b""))
        await asyncio.sleep(0.05)
        await peer.send(b"1\r\na\r\n" + end)
        await peer.wait_closed()

    calls: list[bytes] = []

    def receive(data: bytes) -> None:
        calls.append(data)
        raise LookupError("a bug of ours")

    async with open_response(script) as (server, response):
        await asyncio.sleep(wait)
        response.subscribe(receive)
        with pytest.raises(LookupError, match="a bug of ours"):
            await response.wait()
        await server.wait_closed(0, seconds=1.0)
    assert calls == [b"a"]


async def test_a_body_that_is_too_large_to_read_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READ", 1_000_000)
    async with open_response(send_fast([0])) as (server, response):
        with pytest.raises(UpstreamError, match="p: sent a body that is too large"):
            await response.read()
        await server.wait_closed()


async def test_an_endless_stream_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY", 1_000_000)
    monkeypatch.setattr(module, "CHECK_BYTES", 100_000)
    got: list[int] = []
    async with open_response(send_fast([0])) as (server, response):
        response.subscribe(lambda data: got.append(len(data)))
        with pytest.raises(UpstreamError, match="p: sent a body that is too large"):
            await response.wait()
        await server.wait_closed()
    assert sum(got) <= 1_000_000


TEXT = b"data: hello\n\n" * 1000


def compressed(body: bytes, coding: str) -> bytes:
    """Return a response with a compressed body."""
    return ok_response(body, f"content-encoding: {coding}")


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(TEXT), "gzip"),
        (gzip.compress(TEXT), "X-GZIP"),
        (zlib.compress(TEXT), "deflate"),
        (gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]), "gzip"),
        (TEXT, "identity"),
    ],
    ids=["gzip", "x-gzip", "deflate", "two members", "identity"],
)
async def test_a_compressed_body_is_decompressed(body: bytes, coding: str) -> None:
    async with open_response(respond_with(compressed(body, coding))) as (_, response):
        assert await response.read() == TEXT


async def test_a_compressed_body_may_be_empty() -> None:
    async with open_response(respond_with(compressed(b"", "gzip"))) as (_, response):
        assert await response.read() == b""


async def test_a_compressed_stream_is_decompressed_piece_by_piece() -> None:
    packing = zlib.compressobj(wbits=31)
    first = packing.compress(b"data: a\n\n") + packing.flush(zlib.Z_SYNC_FLUSH)
    then = packing.compress(b"data: b\n\n") + packing.flush()
    head = chunked_response(first, lines=["content-encoding: gzip"], end=b"")
    got: list[bytes] = []
    async with open_response(respond_in_pieces([head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(then), then)], pause=0.05)) as (
        _,
        response,
    ):
        response.subscribe(got.append)
        await response.wait()
    assert got == [b"data: a\n\n", b"data: b\n\n"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (gzip.compress(TEXT)[:-4], "upstream_cut"),
        (gzip.compress(TEXT)[:30], "upstream_cut"),
        (b"no gzip", "upstream_invalid"),
        (gzip.compress(TEXT) + b"!!!!", "upstream_invalid"),
    ],
    ids=["no checksum", "cut", "garbage", "more"],
)
async def test_an_invalid_compressed_body_is_rejected(body: bytes, code: str) -> None:
    async with open_response(respond_with(compressed(body, "gzip"))) as (server, response):
        with pytest.raises(UpstreamError, match="p: sent a body that cannot be decompressed") as caught:
            await response.read()
        await server.wait_closed()
    assert caught.value.payload.code == code


async def test_a_compression_bomb_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READ", 4_000_000)
    bomb = gzip.compress(b"\0" * 200_000_000, compresslevel=9)
    tracemalloc.start()
    try:
        async with open_response(respond_with(compressed(bomb, "gzip"))) as (_, response):
            with pytest.raises(UpstreamError, match="sent a body that is too large"):
                await response.read()
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


async def test_a_compression_bomb_stops_with_its_reader() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    got: list[int] = []
    async with open_response(respond_with(compressed(bomb, "gzip"))) as (_, response):

        def receive(data: bytes) -> None:
            got.append(len(data))
            response.stop()

        response.subscribe(receive)
        assert await response.wait()
    assert len(got) == 1


async def test_only_the_start_of_an_error_body_is_read() -> None:
    sent = [0]
    async with open_response(send_fast(sent)) as (server, response):
        body = await response.read_and_release_within(20)
        await server.wait_closed()
    assert 0 < len(body) <= module.MAX_ERROR_BODY
    assert sent[0] < 50_000_000
