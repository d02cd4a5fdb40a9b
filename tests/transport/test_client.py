"""The HTTP client: requests, the connection pool, TLS verification, cancellation."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.errors import UpstreamError
from antiphon.transport import client as module
from antiphon.transport import connection as connection_module
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from tests.scripted_upstream import scripted_upstream, sse_answer
from tests.transport.buffered_response import BufferedResponse, fetch_response
from tests.transport.certificates import make_certificate, server_context
from tests.transport.leak_check import check_no_leaks
from tests.transport.scripted_server import (
    ScriptedConnection,
    chunked_response,
    ok_response,
    respond_with,
    scripted_server,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both event loops, in debug mode."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    """Return a client, and check at the end that it leaks nothing."""
    client = HttpClient()
    async with check_no_leaks():
        yield client
        client.close()


async def fetch(client: HttpClient, url: str, **options: Any) -> BufferedResponse:
    """Send a request and return the whole response."""
    return await fetch_response(client, HttpRequest(url=url, peer_name="p", **options))


async def fetch_error(client: HttpClient, url: str, **options: Any) -> UpstreamError:
    """Return the error of a request."""
    with pytest.raises(UpstreamError) as caught:
        await fetch(client, url, **options)
    return caught.value


async def test_a_request_is_sent_exactly_as_given(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"hello"))) as server:
        answer = await fetch(
            client,
            f"http://user:secret@127.0.0.1:{server.port}/v1/x?a=b#part",
            headers={"Authorization": "Bearer k", "User-Agent": "me"},
            body=b"{}",
        )
    assert answer == BufferedResponse(200, {"content-length": "5"}, b"hello")
    assert server.requests == [
        b"POST /v1/x?a=b HTTP/1.1\r\n"
        b"host: 127.0.0.1:%d\r\n"
        b"accept-encoding: identity\r\n"
        b"user-agent: me\r\n"
        b"authorization: Bearer k\r\n"
        b"content-length: 2\r\n"
        b"\r\n{}" % server.port
    ]


async def test_only_a_post_without_a_body_has_a_content_length(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response())) as server:
        await fetch(client, server.url, method="GET")
        await fetch(client, server.url)
    first, second = server.requests
    assert first.startswith(b"GET / HTTP/1.1\r\n")
    assert b"content-length" not in first
    assert b"content-length: 0\r\n" in second


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\ny: b"},
        {"x": "a\n"},
        {"x": "a\rb"},
        {"x": "a\0b"},
        {"x": "\udc80"},
        {"x\r\ny": "b"},
        {"x y": "b"},
        {"x:": "b"},
        {"": "b"},
    ],
)
async def test_a_header_with_a_line_break_is_rejected(client: HttpClient, headers: dict[str, str]) -> None:
    error = await fetch_error(client, "http://127.0.0.1:9", headers=headers)
    (name,) = headers
    assert str(error) == (
        f"p: cannot be called: the header {name.lower()!r} contains a line break or another illegal character."
    )
    assert not error.retryable


@pytest.mark.parametrize("path", ["/a\r\nx: y", "/a b", "/a\tb", "/a\nb", "/ü", "/a\x00", "/?q=a\r\n"])
async def test_an_url_with_illegal_characters_is_rejected(client: HttpClient, path: str) -> None:
    error = await fetch_error(client, f"http://127.0.0.1:9{path}")
    assert str(error) == "p: cannot be reached: its address contains a character that is not allowed."
    assert not error.retryable


@pytest.mark.parametrize(
    "url",
    ["ftp://h/x", "h/x", "http://", "http://h:99999/", "http://h:0/", "http://h:x/", "http://[::1:80/", "file:///x"],
)
async def test_an_url_that_is_not_http_is_rejected(client: HttpClient, url: str) -> None:
    error = await fetch_error(client, url)
    assert str(error) == "p: cannot be reached: its address is not an http(s) URL."
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_unreachable", False)


async def test_non_ascii_letters_in_a_header_are_sent(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response())) as server:
        await fetch(client, server.url, headers={"x-title": "café"})
    assert "x-title: café\r\n".encode() in server.requests[0]


async def test_a_connection_is_reused(client: HttpClient) -> None:
    async with scripted_server(
        respond_with(ok_response(b"a"), chunked_response(b"b"), b"HTTP/1.1 204 N\r\n\r\n", ok_response(b"c"))
    ) as server:
        bodies = [(await fetch(client, server.url)).body for _ in range(4)]
    assert bodies == [b"a", b"b", b"", b"c"]
    assert len(server.connections) == 1


async def test_the_shared_scripted_upstream_keeps_connections(client: HttpClient) -> None:
    with scripted_upstream(sse_answer(b"data: a\n\ndata: b\n\n", chunk_size=1)) as provider:
        for _ in range(2):
            answer = await fetch(client, provider.url, body=b"{}")
            assert answer.body == b"data: a\n\ndata: b\n\n"
        assert (provider.connections, len(provider.requests)) == (1, 2)


@pytest.mark.parametrize(
    "said", [ok_response(b"a", "connection: close"), b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na"]
)
async def test_a_connection_is_closed_if_the_server_says_so(client: HttpClient, said: bytes) -> None:
    async with scripted_server(respond_with(said)) as server:
        for _ in range(2):
            assert (await fetch(client, server.url)).body == b"a"
        await server.wait_closed(0)
        await server.wait_closed(1)
    assert len(server.connections) == 2


async def test_concurrent_requests_use_separate_connections(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        await asyncio.gather(*(fetch(client, server.url) for _ in range(5)))
        assert len(server.connections) == 5
        await asyncio.gather(*(fetch(client, server.url) for _ in range(5)))
    assert len(server.connections) == 5


async def test_idle_connections_are_limited_and_the_oldest_is_closed_first(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_CONNECTIONS", 3)
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        responses = [await client.open(HttpRequest(url=server.url)) for _ in range(5)]
        for response in responses:
            await response.read()
            response.release()
        await server.wait_closed(0)
        await server.wait_closed(1)
        assert [peer.closed.is_set() for peer in server.connections] == [True, True, False, False, False]
        await fetch(client, server.url)
    assert [len(peer.requests) for peer in server.connections] == [1, 1, 1, 1, 2]


async def test_an_idle_connection_is_closed_after_a_while(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_SECONDS", 0.1)
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        await fetch(client, server.url)
        await server.wait_closed(0, seconds=1.0)
        await fetch(client, server.url)
    assert len(server.connections) == 2


async def test_closing_the_client_closes_idle_connections_and_keeps_no_more(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        busy = await client.open(HttpRequest(url=server.url))
        await fetch(client, server.url)
        client.close()
        await server.wait_closed(1)
        assert await busy.read() == b"a"
        busy.release()
        await server.wait_closed(0)


async def test_releasing_an_unread_response_closes_its_connection(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        (await client.open(HttpRequest(url=server.url))).release()
        await server.wait_closed(0, seconds=1.0)


def closing_script(closing: str, forgotten: int) -> Callable[[ScriptedConnection], Any]:
    """Answer once per connection; then close at once, or at the next request."""

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(ok_response(b"a"))
        if closing == "after the answer":
            peer.writer.close()
        elif peer.number < forgotten:
            await peer.read_request()
            if closing == "with a byte":
                await peer.send(b"H")
            peer.writer.close()
        else:
            await peer.read_request()
            await peer.send(ok_response(b"b"))
            await peer.wait_closed()

    return script


async def test_an_idle_connection_that_was_closed_is_not_used(client: HttpClient) -> None:
    async with scripted_server(closing_script("after the answer", 0)) as server:
        for _ in range(3):
            assert (await fetch(client, server.url)).body == b"a"
            await asyncio.sleep(0.05)
    assert [len(peer.requests) for peer in server.connections] == [1, 1, 1]


async def test_a_request_on_a_stale_connection_is_sent_again_once(client: HttpClient) -> None:
    async with scripted_server(closing_script("at the next request", 3)) as server:
        responses = [await client.open(HttpRequest(url=server.url)) for _ in range(3)]
        for response in responses:
            await response.read()
            response.release()
        assert (await fetch(client, server.url)).body == b"a"
        assert (await fetch(client, server.url)).body == b"b"
    assert [len(peer.requests) for peer in server.connections] == [1, 1, 2, 2]


async def test_a_reused_connection_that_closes_late_is_not_retried(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(ok_response(b"a"))
        await peer.read_request()
        await asyncio.sleep(0.1)  # it may have worked on an answer all the while

    monkeypatch.setattr("antiphon.transport.connection.STALE_SECONDS", 0.05)
    async with scripted_server(script) as server:
        await fetch(client, server.url)
        error = await fetch_error(client, server.url)
    assert error.payload.code == "upstream_cut"
    assert [len(peer.requests) for peer in server.connections] == [2]


async def test_a_request_is_not_sent_again_after_the_first_byte(client: HttpClient) -> None:
    async with scripted_server(closing_script("with a byte", 1)) as server:
        await fetch(client, server.url)
        error = await fetch_error(client, server.url)
    assert error.payload.code == "upstream_cut"
    assert [len(peer.requests) for peer in server.connections] == [2]


async def test_a_new_connection_that_closes_is_not_retried(client: HttpClient) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()

    async with scripted_server(script) as server:
        error = await fetch_error(client, server.url)
    assert error.payload.code == "upstream_cut"
    assert len(server.connections) == 1


async def test_a_connection_closed_right_after_it_opened_is_retryable(client: HttpClient) -> None:
    async def script(peer: ScriptedConnection) -> None:
        del peer

    async with scripted_server(script) as server:
        for _ in range(20):
            error = await fetch_error(client, server.url)
            assert error.retryable
            assert error.payload.code in ("upstream_cut", "upstream_unreachable")


async def test_a_refused_connection_is_retryable(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response())) as server:
        pass
    error = await fetch_error(client, server.url)
    where = f"127.0.0.1:{server.port}"
    assert str(error) == f"p: cannot be reached at {where}: connection refused."
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_unreachable", True)


async def test_an_unknown_host_is_retryable(client: HttpClient) -> None:
    error = await fetch_error(client, "http://nobody.invalid/")
    assert str(error).startswith("p: cannot be reached at nobody.invalid:80: ")
    assert (error.status, error.retryable) == (502, True)


async def test_an_invalid_host_name_is_rejected(client: HttpClient) -> None:
    error = await fetch_error(client, f"http://{'a' * 70}.example/")
    assert (error.status, error.payload.code) == (502, "upstream_unreachable")


async def test_a_slow_connection_attempt_is_a_timeout(client: HttpClient) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.wait_closed(30)  # it accepts, and never shakes hands

    async with scripted_server(script) as server:
        error = await fetch_error(client, f"https://127.0.0.1:{server.port}", timeouts=Timeouts(connect=0.5))
        await server.wait_closed()
    where = f"127.0.0.1:{server.port}"
    assert str(error) == f"p: could not be reached at {where} within 0.5 seconds."
    assert (error.status, error.payload.code, error.retryable) == (504, "timeout", True)


@pytest.mark.parametrize("moment", ["connecting", "waiting", "reading"])
async def test_cancelling_a_request_closes_the_connection(client: HttpClient, moment: str) -> None:
    async def script(peer: ScriptedConnection) -> None:
        if moment != "connecting":
            await peer.read_request()
        if moment == "reading":
            await peer.send(chunked_response(b"first", end=b""))
        await peer.wait_closed(30)

    async with scripted_server(script) as server:
        url = server.url.replace("http:", "https:") if moment == "connecting" else server.url
        task = asyncio.ensure_future(fetch(client, url))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_closed(0, seconds=1.0)


async def test_cancelling_at_any_moment_leaks_nothing(client: HttpClient) -> None:
    async with scripted_server(respond_with(chunked_response(b"a", b"b"))) as server:
        for turns in range(40):
            task = asyncio.ensure_future(fetch(client, server.url))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert (await fetch(client, server.url)).body == b"ab"


async def test_a_head_that_arrives_with_the_cancellation_is_closed(client: HttpClient) -> None:
    """The head arrives in the same iteration of the event loop as the cancellation."""
    task: asyncio.Task[BufferedResponse]

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.send(ok_response(b"a"))
        task.cancel()
        await peer.wait_closed()

    async with scripted_server(script) as server:
        task = asyncio.ensure_future(fetch(client, server.url))
        await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            await server.wait_closed(0, seconds=1.0)


@pytest.mark.parametrize(
    ("method", "again"), [("GET", True), ("PUT", True), ("DELETE", True), ("POST", False), ("PATCH", False)]
)
@pytest.mark.parametrize("timeouts", [Timeouts(first_byte=0.1), Timeouts(total=0.1)])
async def test_a_timeout_is_retryable_for_idempotent_methods_only(
    client: HttpClient, method: str, again: bool, timeouts: Timeouts
) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.wait_closed()

    async with scripted_server(script) as server:
        error = await fetch_error(client, server.url, method=method, timeouts=timeouts)
    assert (error.status, error.payload.code, error.retryable) == (504, "timeout", again)
    assert error.headers == ({} if again else {"x-should-retry": "false"})


async def test_an_untrusted_certificate_is_rejected(client: HttpClient, tmp_path: Path) -> None:
    async with scripted_server(
        respond_with(ok_response(b"a")), tls=server_context(make_certificate(tmp_path, "127.0.0.1"))
    ) as server:
        error = await fetch_error(client, server.url)
    assert re.fullmatch(
        rf"p: cannot be trusted at 127\.0\.0\.1:{server.port}: self.signed certificate "
        r"\(SSL_CERT_FILE names the authorities to trust\)\.",
        str(error),
    )
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_unreachable", False)
    assert server.requests == []


async def test_an_authority_in_ssl_cert_file_is_trusted(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_to_certificate = make_certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(path_to_certificate))
    async with scripted_server(
        respond_with(ok_response(b"a"), chunked_response(b"b")), tls=server_context(path_to_certificate)
    ) as server:
        assert (await fetch(client, server.url)).body == b"a"
        assert (await fetch(client, server.url)).body == b"b"
        assert len(server.connections) == 1


async def test_a_certificate_of_another_host_is_rejected(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_to_certificate = make_certificate(tmp_path, "elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(path_to_certificate))
    async with scripted_server(respond_with(ok_response(b"a")), tls=server_context(path_to_certificate)) as server:
        error = await fetch_error(client, server.url)
    assert "certificate is not valid for '127.0.0.1'" in str(error)
    assert not error.retryable
    assert server.requests == []


async def test_certificates_are_always_verified(client: HttpClient) -> None:
    context = client._tls
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_a_server_without_tls_is_an_error(client: HttpClient) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.reader.read(1)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await peer.wait_closed()

    async with scripted_server(script) as server:
        error = await fetch_error(client, f"https://127.0.0.1:{server.port}")
    assert "no TLS (" in str(error)
    assert error.status == 502


async def test_a_server_that_closes_during_the_tls_handshake_is_an_error(client: HttpClient) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.reader.read(1)
        peer.writer.transport.abort()

    async with scripted_server(script) as server:
        error = await fetch_error(client, f"https://127.0.0.1:{server.port}")
    assert re.fullmatch(
        rf"p: cannot be reached at 127\.0\.0\.1:{server.port}: "
        r"(the connection was lost|connection reset by peer)\.",
        str(error),
    )


async def test_a_tls_stream_can_be_paused_and_released(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_to_certificate = make_certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(path_to_certificate))
    sent = 0

    async def script(peer: ScriptedConnection) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(b"x" * 100_000)
            sent += 100_000

    async with scripted_server(script, tls=server_context(path_to_certificate)) as server:
        response = await client.open(HttpRequest(url=server.url))
        response.subscribe(lambda data: response.pause())
        assert not await response.wait()
        await asyncio.sleep(0.3)
        held = sent
        await asyncio.sleep(0.1)
        assert sent == held < 50_000_000
        response.release()
        await server.wait_closed(0, seconds=1.0)
