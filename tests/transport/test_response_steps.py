"""Large and compressed bodies are passed on in steps, so that no server can block the event loop."""

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.response import STEP_BYTES, HttpResponse
from tests.transport.scripted_server import (
    ScriptedConnection,
    chunked_response,
    ok_response,
    open_response,
    respond_in_pieces,
    respond_with,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both event loops."""
    return "asyncio", {"use_uvloop": request.param}


class CountingReader:
    """Counts the bytes that it gets in each iteration of the event loop."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.most = self.now = 0

    def receive(self, data: bytes) -> None:
        """Take a piece."""
        self.pieces.append(data)
        self.now += len(data)
        self.most = max(self.most, self.now)

    @contextmanager
    def count_per_iteration(self) -> Iterator[None]:
        """Begin a new count in every iteration."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            nonlocal handle
            self.now = 0
            handle = loop.call_soon(tick)

        handle = loop.call_soon(tick)
        try:
            yield
        finally:
            handle.cancel()


COMMENTS = b":\n\n" * 1_000_000
EMPTY = b"data: {}\n\n" * 300_000
ONE_BYTE_CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 300_000 + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (ok_response(EMPTY), EMPTY),
        (chunked_response(EMPTY), EMPTY),
        (ok_response(gzip.compress(COMMENTS), "content-encoding: gzip"), COMMENTS),
        (ok_response(b"".join([gzip.compress(b"a")] * 2000), "content-encoding: gzip"), b"a" * 2000),
        (ok_response(b"x" * 1_000_000), b"x" * 1_000_000),
        (ONE_BYTE_CHUNKS, b"x" * 300_000),
    ],
    ids=["empty objects", "one chunk", "gzip of comments", "tiny gzip members", "no lines", "one-byte chunks"],
)
async def test_one_iteration_of_the_loop_passes_on_a_bounded_piece(answer: bytes, body: bytes) -> None:
    reader = CountingReader()
    async with open_response(respond_with(answer)) as (_, response), asyncio.timeout(60):
        await asyncio.sleep(0.05)
        with reader.count_per_iteration():
            response.subscribe(reader.receive)
            assert await response.wait()
    assert b"".join(reader.pieces) == body
    assert 0 < reader.most <= STEP_BYTES


class FakeConnection:
    """A connection that does nothing."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...
    def release(self, response: HttpResponse) -> None: ...


async def test_a_large_read_is_cut_after_a_line_if_it_has_one() -> None:
    reader = CountingReader()
    response = HttpResponse(FakeConnection(), "p")
    response.head_received(200, {})
    response.subscribe(reader.receive)
    response.receive_in_steps(b"data: hello\n\n" * 20_000, later=True)
    response.end()
    assert await response.wait()
    assert len(reader.pieces) > 2
    assert all(piece.endswith(b"\n") for piece in reader.pieces)


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_a_reader_can_pause_between_two_steps(coding: str) -> None:
    body = EMPTY[:200_000]
    sent = gzip.compress(body) if coding == "gzip" else body
    got: list[bytes] = []
    async with open_response(respond_with(ok_response(sent, f"content-encoding: {coding}"))) as (_, response):

        def receive(data: bytes) -> None:
            got.append(data)
            response.pause()

        response.subscribe(receive)
        async with asyncio.timeout(10):
            while not await response.wait():
                count = len(got)
                for _ in range(5):
                    await asyncio.sleep(0)
                assert len(got) == count
                response.resume()
    assert b"".join(got) == body
    assert len(got) > 5


async def test_what_arrived_is_passed_on_before_the_error() -> None:
    half = ok_response(EMPTY)[: 1_000_000 + 200]
    reader = CountingReader()
    async with open_response(respond_in_pieces([half])) as (_, response):
        response.subscribe(reader.receive)
        with pytest.raises(UpstreamError, match="before its response was complete"):
            await response.wait()
    got = b"".join(reader.pieces)
    assert len(got) > 1_000_000
    assert EMPTY.startswith(got)


async def test_a_stop_drops_the_steps_that_are_left() -> None:
    got: list[bytes] = []
    async with open_response(respond_with(ok_response(EMPTY))) as (_, response):

        def receive(data: bytes) -> None:
            got.append(data)
            response.stop()

        response.subscribe(receive)
        assert await response.wait()
        await asyncio.sleep(0.05)
    assert len(got) == 1


def compress_stream(*pieces: bytes) -> list[bytes]:
    """Return gzip pieces that can each be decompressed as they arrive; the last holds the end only."""
    packing = zlib.compressobj(wbits=31)
    flushed = [packing.compress(piece) + packing.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*flushed, packing.flush()]


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("cut", [0, 4, 8, 10], ids=["whole", "length", "checksum", "all"])
@pytest.mark.parametrize("together", [True, False], ids=["one read", "two reads"])
async def test_a_compressed_stream_needs_its_end_also_after_a_stop(cut: int, together: bool) -> None:
    first, end = compress_stream(b"data: [DONE]\n\n")
    end = end[: len(end) - cut]
    head = chunked_response(first, lines=["content-encoding: gzip"], end=b"")
    rest = (chunk(end) if end else b"") + b"0\r\n\r\n"
    got: list[bytes] = []
    pieces = [head + rest] if together else [head, rest]
    async with open_response(respond_in_pieces(pieces, pause=0.02)) as (_, response):

        def receive(data: bytes) -> None:
            got.append(data)
            response.stop()

        response.subscribe(receive)
        async with asyncio.timeout(10):
            if cut:
                with pytest.raises(UpstreamError, match="its end is missing") as caught:
                    await response.wait()
                assert caught.value.payload.code == "upstream_cut"
            else:
                assert await response.wait()
    assert got == [b"data: [DONE]\n\n"]


async def test_a_stopped_stream_does_not_wait_for_ever_for_its_end() -> None:
    first, _ = compress_stream(b"data: [DONE]\n\n")

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(chunked_response(first, lines=["content-encoding: gzip"], end=b""))
        await peer.wait_closed()

    async with open_response(script) as (_, response):
        response.subscribe(lambda data: response.stop())
        async with asyncio.timeout(4):
            assert await response.wait()
