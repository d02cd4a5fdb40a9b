"""One connection: framings, chunkings, timeouts, invalid and hostile servers."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import cycle, pairwise
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import HttpConnection, Timeouts
from antiphon.transport.response import HttpResponse
from tests.transport.buffered_response import BufferedResponse, fetch_response
from tests.transport.fake_loop import NullTransport
from tests.transport.scripted_server import (
    Script,
    ScriptedConnection,
    ScriptedServer,
    chunked_response,
    ok_response,
    respond_in_pieces,
    respond_with,
    scripted_server,
    send_then_wait,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both event loops, in debug mode."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


@asynccontextmanager
async def run_client(script: Script, timeouts: Timeouts | None = None) -> AsyncIterator[tuple[ScriptedServer, Any]]:
    """Run a server; yield it and a function that sends it a request."""
    client = HttpClient(timeouts)
    try:
        async with scripted_server(script) as server:

            async def ask(body: bytes = b"?") -> BufferedResponse:
                return await fetch_response(client, HttpRequest(url=f"{server.url}/x", body=body, peer_name="p"))

            yield server, ask
    finally:
        client.close()


async def fetch_error(script: Script, timeouts: Timeouts | None = None) -> UpstreamError:
    """Return the error of a response, after its connection was closed."""
    async with run_client(script, timeouts) as (server, ask):
        with pytest.raises(UpstreamError) as caught:
            await ask()
        await server.wait_closed()
    return caught.value


WHOLE = {
    "length": ok_response(b"hello world", "x-a: 1"),
    "chunks": chunked_response(b"hello", b" ", b"world", lines=["x-a: 1"]),
    "trailers": chunked_response(b"hello world", lines=["x-a: 1"], end=b"0\r\nx-a: 2\r\nx-b: 3\r\n\r\n"),
    "extension": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: 1\r\n\r\n"
    b"b;name=value\r\nhello world\r\n0\r\n\r\n",
    "close": b"HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\nhello world",
    "http/1.0": b"HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nhello world",
    "announced": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx-a: 0\r\n\r\n"
    + ok_response(b"hello world", "x-a: 1"),
    "no reason": b"HTTP/1.1 200\r\nx-a: 1\r\ncontent-length: 11\r\n\r\nhello world",
}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_every_framing_and_chunking_gives_the_same_response(kind: str, size: int) -> None:
    data = WHOLE[kind]
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    async with run_client(respond_in_pieces(pieces)) as (server, ask):
        answer = await ask(b"question")
    assert (answer.status, answer.headers["x-a"], answer.body) == (200, "1", b"hello world")
    assert server.requests[0].startswith(b"POST /x HTTP/1.1\r\nhost: 127.0.0.1:")
    assert server.requests[0].endswith(b"\r\ncontent-length: 8\r\n\r\nquestion")


@pytest.mark.parametrize(
    "data", [ok_response(), b"HTTP/1.1 204 No Content\r\n\r\n", chunked_response(), b"HTTP/1.1 200 OK\r\n\r\n"]
)
async def test_a_response_may_have_no_body(data: bytes) -> None:
    async with run_client(respond_with(data, close=True)) as (_, ask):
        assert (await ask()).body == b""


async def receive(connection: HttpConnection, pieces: Iterable[bytes]) -> tuple[HttpResponse, bytes]:
    """Send a request, feed some reads, and return the response and its body."""
    response = connection.send(b"", Timeouts(), "p")
    for piece in pieces:
        connection.data_received(piece)
    body = await asyncio.wait_for(response.read(), 5)
    response.release()
    return response, body


def parse_reads(pieces: list[bytes]) -> tuple[int, dict[str, str], bytes, bool]:
    """Return the result of some reads: status, headers, body, whether the connection was kept."""

    async def run() -> tuple[int, dict[str, str], bytes, bool]:
        idle_connections: list[HttpConnection] = []
        connection = HttpConnection(idle_connections.append)
        connection.connection_made(NullTransport())
        response, body = await receive(connection, pieces)
        connection.close()
        return response.status, response.headers, body, idle_connections == [connection]

    return asyncio.run(run())


@given(
    body=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 400)),
    chunks=st.lists(st.integers(1, 300)),
    packed=st.booleans(),
)
def test_any_chunking_gives_the_same_response(body: bytes, cuts: list[int], chunks: list[int], packed: bool) -> None:
    sent = gzip.compress(body) if packed else body
    bounds = sorted({0, len(sent), *(cut for cut in chunks if cut < len(sent))})
    parts = [sent[a:b] for a, b in pairwise(bounds)]
    data = chunked_response(*parts, lines=["content-encoding: gzip"] if packed else [])
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    status, _, body_read, idle_connections = parse_reads(pieces)
    assert (status, body_read, idle_connections) == (200, body, True)


# Bodies that look like chunks, ends of chunks, and ends of bodies.
LOOKALIKES = [b"\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"2\r\n\r\n\r\n", b"hello\r\n", b"5\r\n"]
BODIES = st.binary(min_size=1, max_size=20) | st.lists(st.sampled_from(LOOKALIKES), min_size=1, max_size=3).map(
    b"".join
)
SIZES = st.sampled_from([b"%x\r\n"] * 4 + [b"%X\r\n", b"0%x;a=b\r\n"])
ENDS = st.sampled_from([[b"0\r\n", b"\r\n"], [b"0\r\n", b"x: y\r\n", b"\r\n"]])
JOINED = st.lists(st.booleans(), min_size=1)


def reads(pieces: list[bytes], joined: list[bool]) -> list[bytes]:
    """Return pieces as reads; some share a read with the piece before."""
    read = [b""]
    for piece, join in zip(pieces, cycle(joined), strict=False):
        read = [*read[:-1], read[-1] + piece] if join else [*read, piece]
    return [data for data in read if data]


@given(st.lists(st.tuples(SIZES, BODIES)), ENDS, JOINED)
def test_chunks_in_any_reads_give_the_same_body(
    chunks: list[tuple[bytes, bytes]], end: list[bytes], joined: list[bool]
) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    cut = [piece for size, body in chunks for piece in (size % len(body), body, b"\r\n")]
    status, _, body_read, idle_connections = parse_reads(reads([head, *cut, *end], joined))
    assert (status, body_read, idle_connections) == (200, b"".join(body for _, body in chunks), True)


@given(st.lists(BODIES), JOINED)
def test_an_unchunked_body_may_look_like_chunks(bodies: list[bytes], joined: list[bool]) -> None:
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n", b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % sum(map(len, bodies))

    async def run() -> bytes:
        connection = HttpConnection(lambda connection: None)
        connection.connection_made(NullTransport())
        await receive(connection, chunks)  # one answer after another
        _, body_read = await receive(connection, reads([head, *bodies], joined))
        connection.close()
        return body_read

    assert asyncio.run(run()) == b"".join(bodies)


async def test_a_read_of_exactly_one_chunk_bypasses_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []

    class Parser(httptools.HttpResponseParser):
        def feed_data(self, data: Any) -> None:
            fed.append(data)
            super().feed_data(data)

    monkeypatch.setattr(httptools, "HttpResponseParser", Parser)
    connection = HttpConnection(lambda connection: None)
    connection.connection_made(NullTransport())
    response = connection.send(b"", Timeouts(), "p")
    pieces = [chunked_response(b"first", end=b""), b"6\r\nsecond\r\n", b"5\r\nthird\r\n", b"0\r\n\r\n"]
    for piece in pieces:
        connection.data_received(piece)
    assert await response.read() == b"firstsecondthird"
    assert fed == [pieces[0], pieces[3]]
    connection.close()


async def test_one_read_with_many_chunks_is_one_callback() -> None:
    data = chunked_response(*(b"data: %d\n\n" % number for number in range(50)))
    got: list[bytes] = []
    connection = HttpConnection(lambda connection: None)
    connection.connection_made(NullTransport())
    response = connection.send(b"", Timeouts(), "p")
    response.subscribe(got.append)
    connection.data_received(data)
    assert got == [b"".join(b"data: %d\n\n" % number for number in range(50))]
    assert await response.wait()
    connection.close()


async def test_sending_on_a_closed_connection_is_an_error() -> None:
    connection = HttpConnection(lambda connection: None)
    wire = NullTransport()
    connection.connection_made(wire)
    wire.abort()
    with pytest.raises(UpstreamError, match="before its response was complete"):
        await connection.send(b"", Timeouts(), "p").wait_for_head()


HOSTILE = {
    "garbage": (b"\x16\x03\x01\x00\xffgarbage\r\n\r\n", "sent an invalid HTTP response"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "sent an invalid HTTP response"),
    "negative length": (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "sent an invalid HTTP response"),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "sent an invalid HTTP response",
    ),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "sent an invalid HTTP response",
    ),
    "huge chunk": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "sent an invalid HTTP response",
    ),
    "negative chunk": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        "sent an invalid HTTP response",
    ),
    "upgrade": (
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n\x81\x00",
        "sent an invalid HTTP response (its status is 101)",
    ),
    "bare upgrade": (b"HTTP/1.1 101 Switching\r\n\r\n", "sent an invalid HTTP response (its status is 101)"),
    "no status": (
        b"HTTP/1.1 000 Nothing\r\ncontent-length: 0\r\n\r\n",
        "sent an invalid HTTP response (its status is 0)",
    ),
    "folded header": (b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n", "sent an invalid HTTP response"),
    "control bytes": (b"HTTP/1.1 200 OK\r\nx: \x00\x01\r\ncontent-length: 0\r\n\r\n", "sent an invalid HTTP response"),
    "many headers": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000 + b"\r\n", "sent too many headers"),
    "coded": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "sent a body encoded as 'gzip, chunked', which was not requested",
    ),
    "packed": (
        ok_response(b"hello", "content-encoding: br"),
        "sent a body compressed as 'br', which was not requested",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_an_invalid_response_is_rejected(kind: str) -> None:
    data, why = HOSTILE[kind]

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(data)
        await peer.wait_closed()

    error = await fetch_error(script)
    assert str(error).startswith(f"p: {why}")
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_invalid", True)


ENDLESS = {
    "one header": (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 8000),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 8000 + b"\r\n"),
    "announcements": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100),
    "empty lines": (b"", b"\r\n" * 4000),
    "trailers": (chunked_response(b"hi", end=b"0\r\n"), b"x: " + b"y" * 8000 + b"\r\n"),
    "one trailer": (chunked_response(b"hi", end=b"0\r\nx: "), b"y" * 8000),
    "chunk extension": (chunked_response(end=b"5;x="), b"y" * 8000),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_endless_data_without_a_body_is_rejected(kind: str) -> None:
    first, then = ENDLESS[kind]
    sent = 0

    async def script(peer: ScriptedConnection) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(first)
        await asyncio.sleep(0.05)
        while True:
            await peer.send(then)
            sent += len(then)
            await asyncio.sleep(0)

    error = await fetch_error(script)
    assert str(error) == "p: sent too many headers."
    assert sent < 20_000_000  # what the sockets hold, and no more


async def test_header_bytes_are_decoded_as_latin_1() -> None:
    async with run_client(respond_with(ok_response(b"", "x: \xe9t\xe9\tz"))) as (_, ask):
        assert (await ask()).headers["x"] == "\xe9t\xe9\tz"


async def test_repeated_headers_are_joined() -> None:
    async with run_client(respond_with(ok_response(b"", "X-A: 1", "x-a: 2"))) as (_, ask):
        assert (await ask()).headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        chunked_response(b"hello", end=b""),
        chunked_response(b"hello", end=b"0\r\n"),
    ],
)
async def test_a_connection_closed_before_the_end_is_an_error(data: bytes) -> None:
    error = await fetch_error(respond_in_pieces([data]))
    assert str(error) == "p: closed the connection before its response was complete."
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_cut", True)


@pytest.mark.parametrize("more", [b"junk", ok_response(b"another"), b"\x00", b"HTTP/1.1 500"])
async def test_data_after_a_response_is_ignored_and_closes_the_connection(more: bytes) -> None:
    async with run_client(respond_with(ok_response(b"hello") + more)) as (server, ask):
        for _ in range(2):
            answer = await ask()
            assert (answer.status, answer.body) == (200, b"hello")
        await server.wait_closed(0)
    assert [len(peer.requests) for peer in server.connections] == [1, 1]


async def test_unrequested_data_closes_an_idle_connection() -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(ok_response(b"hello"))
        await asyncio.sleep(0.05)
        await peer.send(ok_response(b"an answer to nothing"))
        await peer.read_request()

    async with run_client(script) as (server, ask):
        assert (await ask()).body == b"hello"
        await server.wait_closed(0)
        assert (await ask()).body == b"hello"
    assert [len(peer.requests) for peer in server.connections] == [1, 1]


async def test_a_body_before_an_error_in_the_same_read_is_delivered() -> None:
    got: list[bytes] = []
    async with scripted_server(respond_with(chunked_response(b"hello", end=b"xyz"))) as server:
        client = HttpClient()
        response = await client.open(HttpRequest(url=server.url, peer_name="p"))
        response.subscribe(got.append)
        with pytest.raises(UpstreamError, match="Invalid character in chunk size"):
            await response.wait()
        response.release()
    assert got == [b"hello"]


async def send_forever(peer: ScriptedConnection) -> None:
    """Send an endless response."""
    await peer.read_request()
    await peer.send(chunked_response(b":", end=b""))
    while not await peer.wait_closed(0.02):
        await peer.send(b"1\r\n:\r\n")


async def test_a_response_that_never_ends_is_a_timeout() -> None:
    error = await fetch_error(send_forever, Timeouts(idle=5, total=0.2))
    assert str(error) == "p: did not finish within 0.2 seconds."


@pytest.mark.parametrize(
    ("data", "seconds", "begun"),
    [(b"", "0.1", False), (b"HTTP/1.1 200 OK\r\n", "0.1", False), (chunked_response(b"hi", end=b""), "0.2", True)],
)
async def test_silence_is_a_timeout_and_retryable_only_after_the_head(data: bytes, seconds: str, begun: bool) -> None:
    error = await fetch_error(send_then_wait(data), Timeouts(first_byte=0.1, idle=0.2))
    assert str(error) == f"p: sent nothing for {seconds} seconds."
    assert (error.status, error.payload.code, error.retryable) == (504, "timeout", begun)


async def test_a_response_before_the_request_was_sent_closes_the_connection() -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(ok_response(b"too large"))
        await asyncio.sleep(0.3)
        await peer.wait_closed()

    async with run_client(script) as (server, ask):
        assert (await ask(b"x" * 30_000_000)).body == b"too large"
        await server.wait_closed()
        assert (await ask()).body == b"too large"
    assert len(server.connections) == 2
