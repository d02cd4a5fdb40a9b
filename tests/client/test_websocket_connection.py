"""Opening a WebSocket, and every way in which that fails."""

import asyncio
import logging
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from antiphon.client.websocket import Session, open_websocket
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.transport.connection import Timeouts
from tests.client.websocket_server import ServerSide, serve_websocket, turn_messages
from tests.transport.certificates import make_certificate, server_context
from tests.transport.scripted_server import ScriptedConnection, scripted_server

pytestmark = pytest.mark.anyio

SECRET = {"authorization": "Bearer sk-topsecret", "x-api-key": "topsecret"}


async def answer_turns(peer: ServerSide) -> None:
    """Answer one turn after another."""
    while True:
        await peer.receive()
        await peer.send(*turn_messages("Yes."))


async def open_error(url: str, seconds: float = 5) -> UpstreamError:
    """Return the error of a session that cannot be opened; no secret is in it."""
    session = Session(url, SECRET, timeout=Timeouts(connect=seconds))
    with pytest.raises(UpstreamError) as failed:
        await session.open()
    assert "topsecret" not in repr(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__
    await session.close()
    return failed.value


async def test_the_callers_headers_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Request] = []

    def look(connection: ServerConnection, request: Request) -> None:
        seen.append(request)

    with caplog.at_level(logging.DEBUG):
        async with serve_websocket(answer_turns, process_request=look) as url, Session(url, SECRET) as session:
            await session.stream(model="m").final()
    (request,) = seen
    assert request.path == "/v1/responses"
    headers = {name.lower(): value for name, value in request.headers.raw_items()}
    assert SECRET.items() <= headers.items()
    assert headers["user-agent"] == "antiphon"
    assert "sec-websocket-extensions" not in headers
    assert [line for line in caplog.records if line.name.startswith("antiphon")] == []


@pytest.mark.parametrize("header", [{"x": "a\r\nb: c"}, {"x y": "z"}, {"x\n": "topsecret"}])
async def test_a_header_with_a_line_break_is_rejected(header: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="such as a line break") as refused:
        await open_websocket("ws://127.0.0.1:1", header, 1)
    assert "topsecret" not in str(refused.value)


async def test_only_trusted_tls_certificates_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_certificate(tmp_path, "127.0.0.1")
    async with serve_websocket(answer_turns, ssl=server_context(path)) as url:
        distrust = await open_error(url)
        host = urlsplit(url).netloc
        assert f"cannot be trusted at {host}: self-signed certificate" in str(distrust)
        assert (distrust.status, distrust.payload.code) == (502, "upstream_unreachable")
        assert not distrust.retryable
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        async with Session(url) as session:
            assert (await session.stream(model="m").final()).status == "completed"


@pytest.mark.parametrize(
    ("status", "type", "retryable"),
    [
        (401, "authentication_error", False),
        (404, "not_found", False),
        (426, "model_error", False),
        (503, "model_error", True),
        (200, "model_error", False),
    ],
)
async def test_a_refused_handshake_keeps_its_status(status: int, type: str, retryable: bool) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(HTTPStatus(status), "no JSON")

    async with serve_websocket(answer_turns, process_request=refuse) as url:
        refused = await open_error(url)
    assert (refused.status, refused.payload.code) == (status, "websocket_refused")
    assert refused.payload.type == type
    assert refused.retryable is retryable
    assert str(refused) == (f"The server answered {status} instead of opening a WebSocket: It did not say why.")


async def test_the_error_contains_the_servers_message() -> None:
    body = '{"error": {"message": "No key sk-topsecret here.", "type": "auth", "param": "key"}}'

    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(HTTPStatus.TOO_MANY_REQUESTS, body)
        response.headers["Retry-After"] = "7"
        return response

    async with serve_websocket(answer_turns, process_request=refuse) as url:
        refused = await open_error(url)
    assert str(refused).endswith("instead of opening a WebSocket: No key [redacted] here.")
    assert (refused.payload.type, refused.payload.param) == ("auth", "key")
    assert refused.headers == {"retry-after": "7"}


async def test_our_server_refuses_an_unknown_path(server: str) -> None:
    refused = await open_error(f"{server}/v1/nowhere")
    assert (refused.status, refused.payload.code) == (403, "websocket_refused")


async def test_a_redirect_is_followed_only_to_the_same_server() -> None:
    seen: list[str] = []

    def watch(connection: ServerConnection, request: Request) -> None:
        seen.append(request.path)

    async with serve_websocket(answer_turns, process_request=watch) as other:

        def redirect(connection: ServerConnection, request: Request) -> Response | None:
            if request.path == "/v1/moved":
                return None
            response = connection.respond(HTTPStatus.TEMPORARY_REDIRECT, "")
            away = request.path == "/v1/away"
            response.headers["Location"] = other.replace("http", "ws") if away else "/v1/moved"
            return response

        async with serve_websocket(answer_turns, process_request=redirect) as url:
            async with Session(url, SECRET) as session:
                await session.stream(model="m").final()
            refused = await open_error(url.replace("/responses", "/away"))
            assert (refused.status, refused.payload.code) == (307, "websocket_refused")
    assert seen == []


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("wss://there.example/v2/responses", "https://there.example/v2"),
        ("https://me:topsecret@there.example/v2/responses?a=b", "https://there.example/v2"),
        ("//there.example/v1/responses", "http://there.example/v1"),
        ("http://there.example/sk-topsecret", "http://there.example/[redacted]"),
    ],
)
async def test_a_redirect_to_another_server_names_its_target(location: str, place: str) -> None:
    def redirect(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(HTTPStatus.PERMANENT_REDIRECT, "")
        response.headers["Location"] = location
        return response

    async with serve_websocket(answer_turns, process_request=redirect) as url:
        moved = await open_error(url)
    assert (moved.status, moved.payload.code) == (308, "websocket_refused")
    assert str(moved) == (
        "The server answered 308 instead of opening a WebSocket: "
        f"it has moved to {place}. Its base_url should lead there."
    )


async def test_a_closed_port_is_an_error() -> None:
    async with serve_websocket(answer_turns) as url:
        pass
    absent = await open_error(url)
    host = urlsplit(url).netloc
    assert str(absent) == f"The server: cannot be reached at {host}: connection refused."
    assert (absent.status, absent.payload.code) == (502, "upstream_unreachable")
    assert absent.retryable


async def test_a_silent_server_times_out() -> None:
    async def silent(visit: ScriptedConnection) -> None:
        await visit.wait_closed()

    async with scripted_server(silent) as quiet:
        late = await open_error(quiet.url, 0.1)
    assert str(late) == "The server: opened no WebSocket within 0.1 seconds."
    assert (late.status, late.payload.code, late.retryable) == (504, "timeout", True)


@pytest.mark.parametrize("said", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 Yes\r\n\r\n", b""])
async def test_a_server_without_http_is_an_error(said: bytes) -> None:
    async def other(visit: ScriptedConnection) -> None:
        await visit.read_request()
        await visit.send(said)

    async with scripted_server(other) as server:
        odd = await open_error(server.url)
    assert (odd.status, odd.payload.code) == (502, "upstream_unreachable")
    assert str(odd).startswith("The server: opened no WebSocket (Invalid")


@pytest.mark.parametrize("url", ["http://[topsecret", "ftp://x", "http://", "http://h:x/topsecret"])
async def test_an_invalid_url_is_an_error(url: str) -> None:
    odd = await open_error(url)
    assert (odd.status, odd.payload.code) == (502, "upstream_unreachable")


async def test_a_proxy_is_used_except_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def proxy(visit: ScriptedConnection) -> None:
        heard.append(await visit.read_request())
        await visit.send(b"HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n")

    async with scripted_server(proxy) as way, serve_websocket(answer_turns) as url:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, way.url.replace("://", "://user:topsecret@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with Session(url) as session:
            await session.stream(model="m").final()
        assert heard == []
        odd = await open_error("http://antiphon.invalid/v1/responses")
    assert odd.payload.code == "upstream_unreachable"
    assert [line.split(b"\r\n")[0] for line in heard] == [b"CONNECT antiphon.invalid:80 HTTP/1.1"]


async def test_opening_can_be_cancelled_and_repeated() -> None:
    waiting = asyncio.Event()

    async def slow(connection: ServerConnection, request: Request) -> None:
        if not waiting.is_set():
            waiting.set()
            await asyncio.sleep(0.2)

    async with serve_websocket(answer_turns, process_request=slow) as url:
        session = Session(url)
        opening = asyncio.create_task(session.open())
        await waiting.wait()
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        async with session:
            assert (await session.stream(model="m").final()).status == "completed"


async def test_a_session_closed_while_opening_leaves_no_connection() -> None:
    async def slow(connection: ServerConnection, request: Request) -> None:
        await session.close()

    async def wait(peer: ServerSide) -> None:
        await peer.socket.wait_closed()
        left.set()

    left = asyncio.Event()
    async with serve_websocket(wait, process_request=slow) as url:
        session = Session(url)
        with pytest.raises(UpstreamError, match="this side closed it"):
            await session.open()
        await asyncio.wait_for(left.wait(), 5)
