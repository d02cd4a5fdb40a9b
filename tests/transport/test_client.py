"""The client: what it sends, which connections it keeps, whom it trusts, how it gives up."""

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
from antiphon.transport.client import BufferedResponse, HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from tests.scripted_upstream import scripted_upstream, sse_answer
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
    """Run on both loops, with their own checks on."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    """Give a client; at its end there is no noise, no timer and no socket left of it."""
    client = HttpClient()
    async with check_no_leaks():
        yield client
        client.close()


async def asked(client: HttpClient, url: str, **options: Any) -> BufferedResponse:
    """Ask, and read the answer."""
    return await client.fetch(HttpRequest(url=url, peer_name="p", **options))


async def refused(client: HttpClient, url: str, **options: Any) -> UpstreamError:
    """Ask in vain."""
    with pytest.raises(UpstreamError) as caught:
        await asked(client, url, **options)
    return caught.value


# --- what is sent ---


async def test_a_request_is_written_as_it_was_asked_for(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"hello"))) as server:
        answer = await asked(
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


async def test_a_request_without_a_body_says_so_only_where_one_is_expected(
    client: HttpClient,
) -> None:
    async with scripted_server(respond_with(ok_response())) as server:
        await asked(client, server.url, method="GET")
        await asked(client, server.url)
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
async def test_a_header_that_would_be_another_line_is_refused(
    client: HttpClient, headers: dict[str, str]
) -> None:
    error = await refused(client, "http://127.0.0.1:9", headers=headers)
    (name,) = headers
    assert str(error) == (
        f"p: cannot be called: the header {name.lower()!r} contains a line break or another "
        "illegal character."
    )
    assert not error.retryable


@pytest.mark.parametrize(
    "path", ["/a\r\nx: y", "/a b", "/a\tb", "/a\nb", "/ü", "/a\x00", "/?q=a\r\n"]
)
async def test_an_address_that_would_be_another_line_is_refused(
    client: HttpClient, path: str
) -> None:
    error = await refused(client, f"http://127.0.0.1:9{path}")
    assert (
        str(error) == "p: cannot be reached: its address contains a character that is not allowed."
    )
    assert not error.retryable


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x",
        "h/x",
        "http://",
        "http://h:99999/",
        "http://h:0/",
        "http://h:x/",
        "http://[::1:80/",
        "file:///x",
    ],
)
async def test_an_address_of_another_kind_is_refused(client: HttpClient, url: str) -> None:
    error = await refused(client, url)
    assert str(error) == "p: cannot be reached: its address is not an http(s) URL."
    assert (error.status, error.payload.code, error.retryable) == (
        502,
        "upstream_unreachable",
        False,
    )


async def test_odd_letters_in_a_header_are_sent(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response())) as server:
        await asked(client, server.url, headers={"x-title": "café"})
    assert "x-title: café\r\n".encode() in server.requests[0]


# --- connections that are kept ---


async def test_a_connection_serves_one_request_after_another(client: HttpClient) -> None:
    async with scripted_server(
        respond_with(
            ok_response(b"a"), chunked_response(b"b"), b"HTTP/1.1 204 N\r\n\r\n", ok_response(b"c")
        )
    ) as server:
        bodies = [(await asked(client, server.url)).body for _ in range(4)]
    assert bodies == [b"a", b"b", b"", b"c"]
    assert len(server.connections) == 1


async def test_the_scripted_upstream_is_understood(client: HttpClient) -> None:
    with scripted_upstream(sse_answer(b"data: a\n\ndata: b\n\n", chunk_size=1)) as provider:
        for _ in range(2):
            answer = await asked(client, provider.url, body=b"{}")
            assert answer.body == b"data: a\n\ndata: b\n\n"
        assert (provider.connections, len(provider.requests)) == (1, 2)


@pytest.mark.parametrize(
    "said",
    [
        ok_response(b"a", "connection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
    ],
)
async def test_a_connection_that_is_to_be_closed_is_closed(client: HttpClient, said: bytes) -> None:
    async with scripted_server(respond_with(said)) as server:
        for _ in range(2):
            assert (await asked(client, server.url)).body == b"a"
        await server.wait_closed(0)
        await server.wait_closed(1)
    assert len(server.connections) == 2


async def test_requests_at_the_same_time_have_connections_of_their_own(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        await asyncio.gather(*(asked(client, server.url) for _ in range(5)))
        assert len(server.connections) == 5
        await asyncio.gather(*(asked(client, server.url) for _ in range(5)))
    assert len(server.connections) == 5


async def test_only_so_many_are_kept_and_the_oldest_go_first(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_CONNECTIONS", 3)
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        opened = [await client.open(HttpRequest(url=server.url)) for _ in range(5)]
        for exchange in opened:
            await exchange.read()
            exchange.release()
        await server.wait_closed(0)
        await server.wait_closed(1)
        assert [visit.closed.is_set() for visit in server.connections] == [
            True,
            True,
            False,
            False,
            False,
        ]
        await asked(client, server.url)
    assert [len(visit.requests) for visit in server.connections] == [1, 1, 1, 1, 2]


async def test_a_connection_that_rests_too_long_is_closed(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_SECONDS", 0.1)
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        await asked(client, server.url)
        await server.wait_closed(0, seconds=1.0)
        await asked(client, server.url)
    assert len(server.connections) == 2


async def test_closing_the_client_closes_what_waits_and_keeps_nothing_later(
    client: HttpClient,
) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        busy = await client.open(HttpRequest(url=server.url))
        await asked(client, server.url)
        client.close()
        await server.wait_closed(1)
        assert await busy.read() == b"a"
        busy.release()
        await server.wait_closed(0)


async def test_an_answer_that_nobody_reads_closes_its_connection(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        (await client.open(HttpRequest(url=server.url))).release()
        await server.wait_closed(0, seconds=1.0)


# --- kept connections that were closed by the other side ---


def forgetful(closing: str, forgotten: int) -> Callable[[ScriptedConnection], Any]:
    """Answer once per connection; then close, or close when asked again."""

    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(ok_response(b"a"))
        if closing == "after the answer":
            visit.writer.close()
        elif visit.number < forgotten:
            await visit.read_request()
            if closing == "with a byte":
                await visit.send(b"H")
            visit.writer.close()
        else:
            await visit.read_request()
            await visit.send(ok_response(b"b"))
            await visit.wait_closed()

    return meet


async def test_a_kept_connection_that_was_closed_is_not_used(client: HttpClient) -> None:
    async with scripted_server(forgetful("after the answer", 0)) as server:
        for _ in range(3):
            assert (await asked(client, server.url)).body == b"a"
            await asyncio.sleep(0.05)
    assert [len(visit.requests) for visit in server.connections] == [1, 1, 1]


async def test_a_request_is_sent_again_once_however_many_connections_are_kept(
    client: HttpClient,
) -> None:
    async with scripted_server(forgetful("when asked", 3)) as server:
        opened = [await client.open(HttpRequest(url=server.url)) for _ in range(3)]
        for exchange in opened:
            await exchange.read()
            exchange.release()
        assert (await asked(client, server.url)).body == b"a"
        assert (await asked(client, server.url)).body == b"b"
    assert [len(visit.requests) for visit in server.connections] == [1, 1, 2, 2]


async def test_a_kept_connection_that_closes_later_was_read_and_is_not_asked_again(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(ok_response(b"a"))
        await visit.read_request()
        await asyncio.sleep(0.1)  # it may have worked on an answer all the while

    monkeypatch.setattr("antiphon.transport.connection.STALE_SECONDS", 0.05)
    async with scripted_server(meet) as server:
        await asked(client, server.url)
        error = await refused(client, server.url)
    assert error.payload.code == "upstream_cut"
    assert [len(visit.requests) for visit in server.connections] == [2]


async def test_nothing_is_asked_again_after_a_byte_of_the_answer(client: HttpClient) -> None:
    async with scripted_server(forgetful("with a byte", 1)) as server:
        await asked(client, server.url)
        error = await refused(client, server.url)
    assert error.payload.code == "upstream_cut"
    assert [len(visit.requests) for visit in server.connections] == [2]


async def test_a_new_connection_that_closes_is_not_asked_again(client: HttpClient) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()

    async with scripted_server(meet) as server:
        error = await refused(client, server.url)
    assert error.payload.code == "upstream_cut"
    assert len(server.connections) == 1


async def test_a_connection_that_is_closed_as_soon_as_it_is_open_is_a_cut(
    client: HttpClient,
) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        del visit

    async with scripted_server(meet) as server:
        for _ in range(20):
            error = await refused(client, server.url)
            assert error.retryable
            assert error.payload.code in ("upstream_cut", "upstream_unreachable")


# --- who cannot be reached ---


async def test_a_refused_connection_may_be_tried_again(client: HttpClient) -> None:
    async with scripted_server(respond_with(ok_response())) as server:
        pass
    error = await refused(client, server.url)
    where = f"127.0.0.1:{server.port}"
    assert str(error) == f"p: cannot be reached at {where}: connection refused."
    assert (error.status, error.payload.code, error.retryable) == (
        502,
        "upstream_unreachable",
        True,
    )


async def test_an_unknown_host_may_be_tried_again(client: HttpClient) -> None:
    error = await refused(client, "http://nobody.invalid/")
    assert str(error).startswith("p: cannot be reached at nobody.invalid:80: ")
    assert (error.status, error.retryable) == (502, True)


async def test_a_host_that_can_be_none_is_refused(client: HttpClient) -> None:
    error = await refused(client, f"http://{'a' * 70}.example/")
    assert (error.status, error.payload.code) == (502, "upstream_unreachable")


async def test_a_connection_that_takes_too_long_is_a_timeout(client: HttpClient) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.wait_closed(30)  # it accepts, and never shakes hands

    async with scripted_server(meet) as server:
        error = await refused(
            client, f"https://127.0.0.1:{server.port}", timeouts=Timeouts(connect=0.5)
        )
        await server.wait_closed()
    where = f"127.0.0.1:{server.port}"
    assert str(error) == f"p: could not be reached at {where} within 0.5 seconds."
    assert (error.status, error.payload.code, error.retryable) == (504, "timeout", True)


# --- giving up ---


@pytest.mark.parametrize("moment", ["connecting", "waiting", "reading"])
async def test_who_gives_up_closes_the_connection(client: HttpClient, moment: str) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        if moment != "connecting":
            await visit.read_request()
        if moment == "reading":
            await visit.send(chunked_response(b"first", end=b""))
        await visit.wait_closed(30)

    async with scripted_server(meet) as server:
        url = server.url.replace("http:", "https:") if moment == "connecting" else server.url
        task = asyncio.ensure_future(asked(client, url))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_closed(0, seconds=1.0)


async def test_giving_up_at_any_moment_leaves_nothing_behind(client: HttpClient) -> None:
    async with scripted_server(respond_with(chunked_response(b"a", b"b"))) as server:
        for turns in range(40):
            task = asyncio.ensure_future(asked(client, server.url))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert (await asked(client, server.url)).body == b"ab"


async def test_a_head_that_nobody_waits_for_any_more_is_closed(client: HttpClient) -> None:
    """The head comes in the same turn of the loop as the cancellation."""
    task: asyncio.Task[BufferedResponse]

    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(ok_response(b"a"))
        task.cancel()
        await visit.wait_closed()

    async with scripted_server(meet) as server:
        task = asyncio.ensure_future(asked(client, server.url))
        await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            await server.wait_closed(0, seconds=1.0)


@pytest.mark.parametrize(
    ("method", "again"),
    [("GET", True), ("PUT", True), ("DELETE", True), ("POST", False), ("PATCH", False)],
)
@pytest.mark.parametrize("timeouts", [Timeouts(first_byte=0.1), Timeouts(total=0.1)])
async def test_silence_is_a_reason_to_ask_again_where_that_does_no_more_than_asking_once(
    client: HttpClient, method: str, again: bool, timeouts: Timeouts
) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.wait_closed()

    async with scripted_server(meet) as server:
        error = await refused(client, server.url, method=method, timeouts=timeouts)
    assert (error.status, error.payload.code, error.retryable) == (504, "timeout", again)
    assert error.headers == ({} if again else {"x-should-retry": "false"})


# --- whom to trust ---


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    client: HttpClient, tmp_path: Path
) -> None:
    async with scripted_server(
        respond_with(ok_response(b"a")), tls=server_context(make_certificate(tmp_path, "127.0.0.1"))
    ) as server:
        error = await refused(client, server.url)
    assert re.fullmatch(
        rf"p: cannot be trusted at 127\.0\.0\.1:{server.port}: self.signed certificate "
        r"\(SSL_CERT_FILE names the authorities to trust\)\.",
        str(error),
    )
    assert (error.status, error.payload.code, error.retryable) == (
        502,
        "upstream_unreachable",
        False,
    )
    assert server.requests == []


async def test_an_authority_of_the_environment_is_trusted(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    async with scripted_server(
        respond_with(ok_response(b"a"), chunked_response(b"b")), tls=server_context(made)
    ) as server:
        assert (await asked(client, server.url)).body == b"a"
        assert (await asked(client, server.url)).body == b"b"
        assert len(server.connections) == 1


async def test_a_certificate_of_another_host_is_refused(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificate(tmp_path, "elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    async with scripted_server(respond_with(ok_response(b"a")), tls=server_context(made)) as server:
        error = await refused(client, server.url)
    assert "certificate is not valid for '127.0.0.1'" in str(error)
    assert not error.retryable
    assert server.requests == []


async def test_verification_is_never_off(client: HttpClient) -> None:
    context = client._tls
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_a_server_without_tls_is_no_tls_server(client: HttpClient) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.reader.read(1)
        await visit.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await visit.wait_closed()

    async with scripted_server(meet) as server:
        error = await refused(client, f"https://127.0.0.1:{server.port}")
    assert "no TLS (" in str(error)
    assert error.status == 502


async def test_a_server_that_leaves_instead_of_speaking_tls_is_said_to(client: HttpClient) -> None:
    async def meet(visit: ScriptedConnection) -> None:
        await visit.reader.read(1)
        visit.writer.transport.abort()

    async with scripted_server(meet) as server:
        error = await refused(client, f"https://127.0.0.1:{server.port}")
    assert re.fullmatch(
        rf"p: cannot be reached at 127\.0\.0\.1:{server.port}: "
        r"(the connection was lost|connection reset by peer)\.",
        str(error),
    )


async def test_a_stream_over_tls_can_be_held_back_and_given_up(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    sent = 0

    async def meet(visit: ScriptedConnection) -> None:
        nonlocal sent
        await visit.read_request()
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await visit.send(b"x" * 100_000)
            sent += 100_000

    async with scripted_server(meet, tls=server_context(made)) as server:
        exchange = await client.open(HttpRequest(url=server.url))
        exchange.subscribe(lambda data: exchange.pause())
        assert not await exchange.wait()
        await asyncio.sleep(0.3)
        held = sent
        await asyncio.sleep(0.1)
        assert sent == held < 50_000_000
        exchange.release()
        await server.wait_closed(0, seconds=1.0)
