"""An answer as its reader meets it: early bytes, pauses, stops, limits, packed bodies."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.protocol.errors import UpstreamError
from antiphon.transport import connection
from antiphon.transport import response as module
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from antiphon.transport.response import HttpResponse
from tests.transport.scripted_server import (
    Script,
    ScriptedConnection,
    ScriptedServer,
    chunked_response,
    ok_response,
    respond_in_pieces,
    respond_with,
    scripted_server,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both loops, with their own checks on."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


@asynccontextmanager
async def opened(
    meet: Script, timeouts: Timeouts | None = None
) -> AsyncIterator[tuple[ScriptedServer, HttpResponse]]:
    """Ask a peer; give it and its answer."""
    client = HttpClient(timeouts)
    async with scripted_server(meet) as server:
        exchange = await client.open(HttpRequest(url=server.url, peer_name="p"))
        try:
            yield server, exchange
        finally:
            exchange.release()
            client.close()


async def test_the_head_is_there_before_the_body() -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(b"HTTP/1.1 429 Slow Down\r\nRetry-After: 3\r\ncontent-length: 2\r\n\r\n")
        await asyncio.sleep(0.1)
        await visit.send(b"no")

    async with opened(meet) as (_, exchange):
        assert (exchange.status, exchange.headers) == (
            429,
            {"retry-after": "3", "content-length": "2"},
        )
        assert repr(exchange) == "<HttpResponse from p: 429, open>"
        assert await exchange.read() == b"no"
        assert repr(exchange) == "<HttpResponse from p: 429, over>"


async def test_what_comes_before_anybody_listens_is_kept_for_the_reader() -> None:
    async with opened(
        respond_in_pieces([chunked_response(b"a", end=b""), b"1\r\nb\r\n", b"0\r\n\r\n"])
    ) as (
        _,
        exchange,
    ):
        await asyncio.sleep(0.1)
        got: list[bytes] = []
        exchange.subscribe(got.append)
        assert got == [b"ab"]
        assert await exchange.wait()


async def test_early_bytes_of_an_answer_that_was_cut_are_heard_before_the_error() -> None:
    async with opened(respond_in_pieces([chunked_response(b"a", end=b"")])) as (_, exchange):
        await asyncio.sleep(0.1)
        got: list[bytes] = []
        exchange.subscribe(got.append)
        assert got == [b"a"]
        with pytest.raises(UpstreamError, match="before its response was complete"):
            await exchange.wait()


def pouring(sent: list[int], total: int = 200_000_000) -> Script:
    """Send as fast as the client takes it; note how much that was."""

    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(f"HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n".encode())
        while sent[0] < total:
            await visit.send(b"x" * 100_000)
            sent[0] += 100_000
        await visit.wait_closed()

    return meet


async def test_an_upstream_is_held_back_until_somebody_listens() -> None:
    sent = [0]
    async with opened(pouring(sent)) as (_, exchange):
        await asyncio.sleep(0.3)
        held = sent[0]
        await asyncio.sleep(0.1)
        assert sent[0] == held < 50_000_000
        got = 0

        def receive(data: bytes) -> None:
            nonlocal got
            got += len(data)

        exchange.subscribe(receive)
        while not exchange.is_over:
            await exchange.wait()
        assert got == 200_000_000


async def test_a_pause_holds_the_upstream_back_and_keeps_memory_small() -> None:
    sent, got = [0], [0]
    tracemalloc.start()
    try:
        async with opened(pouring(sent)) as (_, exchange):

            def receive(data: bytes) -> None:
                got[0] += len(data)
                exchange.pause()

            exchange.subscribe(receive)
            assert not await exchange.wait()
            assert repr(exchange) == "<HttpResponse from p: 200, paused>"
            before = got[0]
            await asyncio.sleep(0.3)
            assert got[0] == before <= 1_000_000
            held = sent[0]
            assert held < 50_000_000
            await asyncio.sleep(0.1)
            assert sent[0] == held
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
            for _ in range(3):
                exchange.resume()
                assert not await exchange.wait()
            assert got[0] > before
    finally:
        tracemalloc.stop()


async def test_time_stands_still_while_paused() -> None:
    resumed = asyncio.Event()

    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(chunked_response(b"a", end=b""))
        await resumed.wait()
        await visit.send(b"1\r\nb\r\n0\r\n\r\n")
        await visit.wait_closed()

    got: list[bytes] = []
    async with opened(meet, Timeouts(idle=0.2)) as (_, exchange):

        def receive(data: bytes) -> None:
            got.append(data)
            if data == b"a":
                exchange.pause()

        exchange.subscribe(receive)
        assert not await exchange.wait()
        await asyncio.sleep(0.5)
        exchange.resume()
        resumed.set()
        assert await exchange.wait()
    assert got == [b"a", b"b"]


async def test_time_goes_on_after_a_pause() -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(chunked_response(b"a", end=b""))
        await visit.wait_closed()

    async with opened(meet, Timeouts(idle=0.1)) as (_, exchange):
        exchange.subscribe(lambda data: exchange.pause())
        assert not await exchange.wait()
        await asyncio.sleep(0.2)
        exchange.resume()
        with pytest.raises(UpstreamError) as caught:
            await exchange.wait()
    assert caught.value.payload.code == "timeout"


@pytest.mark.parametrize("leave", ["pause", "stop"])
async def test_a_pause_in_the_last_read_does_not_stop_the_next_request(leave: str) -> None:
    client = HttpClient()
    async with scripted_server(respond_with(ok_response(b"hello"))) as server:
        for _ in range(3):
            exchange = await client.open(HttpRequest(url=server.url))

            def receive(data: bytes, exchange: HttpResponse = exchange) -> None:
                del data
                exchange.pause()
                if leave == "stop":
                    exchange.stop()

            exchange.subscribe(receive)
            async with asyncio.timeout(2):
                assert await exchange.wait()
            exchange.release()
        client.close()
    assert len(server.connections) == 1


async def test_what_comes_after_a_stop_reaches_nobody() -> None:
    got: list[bytes] = []
    said = [chunked_response(b"a", end=b""), b"1\r\nb\r\n", b"0\r\n\r\n"]
    async with opened(respond_in_pieces(said, pause=0.05)) as (_, exchange):

        def receive(data: bytes) -> None:
            got.append(data)
            exchange.stop()

        exchange.subscribe(receive)
        assert await exchange.wait()
        await asyncio.sleep(0.2)
    assert got == [b"a"]


# --- readers that fail ---


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["open", "whole"])
@pytest.mark.parametrize("wait", [0, 0.1], ids=["at once", "later"])
async def test_a_reader_that_fails_is_told_to_whoever_waits(end: bytes, wait: float) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(chunked_response(end=b""))
        await asyncio.sleep(0.05)
        await visit.send(b"1\r\na\r\n" + end)
        await visit.wait_closed()

    calls: list[bytes] = []

    def receive(data: bytes) -> None:
        calls.append(data)
        raise LookupError("a bug of ours")

    async with opened(meet) as (server, exchange):
        await asyncio.sleep(wait)
        exchange.subscribe(receive)
        with pytest.raises(LookupError, match="a bug of ours"):
            await exchange.wait()
        await server.wait_closed(0, seconds=1.0)
    assert calls == [b"a"]


# --- limits ---


async def test_a_body_that_is_too_long_to_read_at_once_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_READ", 1_000_000)
    async with opened(pouring([0])) as (server, exchange):
        with pytest.raises(UpstreamError, match="p: sent a body that is too large"):
            await exchange.read()
        await server.wait_closed()


async def test_a_stream_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_BODY", 1_000_000)
    got: list[int] = []
    async with opened(pouring([0])) as (server, exchange):
        exchange.subscribe(lambda data: got.append(len(data)))
        with pytest.raises(UpstreamError, match="p: sent a body that is too large"):
            await exchange.wait()
        await server.wait_closed()
    assert sum(got) <= 1_000_000


# --- packed bodies, which nobody asked for ---

TEXT = b"data: hello\n\n" * 1000


def packed(body: bytes, coding: str) -> bytes:
    """Write an answer whose body is packed."""
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
async def test_a_packed_body_is_unpacked(body: bytes, coding: str) -> None:
    async with opened(respond_with(packed(body, coding))) as (_, exchange):
        assert await exchange.read() == TEXT


async def test_a_packed_body_may_be_empty() -> None:
    async with opened(respond_with(packed(b"", "gzip"))) as (_, exchange):
        assert await exchange.read() == b""


async def test_a_packed_stream_is_unpacked_as_it_comes() -> None:
    packing = zlib.compressobj(wbits=31)
    first = packing.compress(b"data: a\n\n") + packing.flush(zlib.Z_SYNC_FLUSH)
    then = packing.compress(b"data: b\n\n") + packing.flush()
    head = chunked_response(first, lines=["content-encoding: gzip"], end=b"")
    got: list[bytes] = []
    async with opened(
        respond_in_pieces([head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(then), then)], pause=0.05)
    ) as (
        _,
        exchange,
    ):
        exchange.subscribe(got.append)
        await exchange.wait()
    assert got == [b"data: a\n\n", b"data: b\n\n"]


@pytest.mark.parametrize(
    "body",
    [gzip.compress(TEXT)[:-4], gzip.compress(TEXT)[:30], b"no gzip", gzip.compress(TEXT) + b"!"],
    ids=["no checksum", "cut", "garbage", "more"],
)
async def test_what_cannot_be_unpacked_is_refused(body: bytes) -> None:
    async with opened(respond_with(packed(body, "gzip"))) as (server, exchange):
        with pytest.raises(
            UpstreamError, match="p: sent a body that cannot be decompressed"
        ) as caught:
            await exchange.read()
        await server.wait_closed()
    assert caught.value.payload.code == "upstream_invalid"


async def test_a_bomb_does_not_go_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READ", 4_000_000)
    bomb = gzip.compress(b"\0" * 200_000_000, compresslevel=9)
    tracemalloc.start()
    try:
        async with opened(respond_with(packed(bomb, "gzip"))) as (_, exchange):
            with pytest.raises(UpstreamError, match="sent a body that is too large"):
                await exchange.read()
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


async def test_a_bomb_stops_where_the_reader_does() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    got: list[int] = []
    async with opened(respond_with(packed(bomb, "gzip"))) as (_, exchange):

        def receive(data: bytes) -> None:
            got.append(len(data))
            exchange.stop()

        exchange.subscribe(receive)
        assert await exchange.wait()
    assert len(got) == 1
