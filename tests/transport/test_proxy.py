"""Proxies from the environment."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from antiphon.transport.proxy import Proxy, find_proxy, is_in_no_proxy, is_loopback
from tests.transport.buffered_response import BufferedResponse, fetch_response
from tests.transport.certificates import make_certificate, server_context
from tests.transport.leak_check import check_no_leaks
from tests.transport.scripted_server import (
    Script,
    ScriptedConnection,
    chunked_response,
    ok_response,
    respond_with,
    scripted_server,
)

pytestmark = pytest.mark.anyio

Environment = Callable[..., None]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run on both event loops, in debug mode."""
    return "asyncio", {"use_uvloop": request.param, "debug": True}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return a function that sets the proxy variables."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)

    def set_proxies(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_proxies


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    """Return a client, and check at the end that it leaks nothing."""
    client = HttpClient(Timeouts(connect=3))
    async with check_no_leaks():
        yield client
        client.close()


async def fetch(client: HttpClient, url: str) -> BufferedResponse:
    """Send a request and return the whole response."""
    return await fetch_response(client, HttpRequest(url=url, peer_name="p", body=b"{}"))


async def fetch_error(client: HttpClient, url: str) -> UpstreamError:
    """Return the error of a request."""
    with pytest.raises(UpstreamError) as caught:
        await fetch(client, url)
    return caught.value


WHICH: list[tuple[dict[str, str], str, str, Proxy | None]] = [
    ({}, "https", "api.example", None),
    ({"HTTPS_PROXY": "http://proxy:3128"}, "https", "api.example", Proxy("proxy", 3128)),
    ({"HTTPS_PROXY": "http://proxy:3128"}, "http", "api.example", None),
    ({"https_proxy": "proxy:3128"}, "https", "api.example", Proxy("proxy", 3128)),
    ({"HTTP_PROXY": "http://proxy"}, "http", "api.example", Proxy("proxy", 80)),
    ({"ALL_PROXY": "http://proxy:1"}, "http", "api.example", Proxy("proxy", 1)),
    ({"ALL_PROXY": "http://all:1", "HTTP_PROXY": "http://p:2"}, "http", "h", Proxy("p", 2)),
    ({"HTTP_PROXY": "http://[::5]:1"}, "http", "h", Proxy("::5", 1)),
    ({"HTTP_PROXY": "http://me:s%40cret@p:1"}, "http", "h", Proxy("p", 1, "Basic bWU6c0BjcmV0")),
    ({"HTTP_PROXY": "http://me@p:1"}, "http", "h", Proxy("p", 1, "Basic bWU6")),
    ({"HTTP_PROXY": "http://p:1"}, "http", "localhost", None),
    ({"HTTP_PROXY": "http://p:1"}, "http", "127.0.0.1", None),
    ({"HTTP_PROXY": "http://p:1"}, "http", "::1", None),
    ({"HTTP_PROXY": "socks5://p:1"}, "http", "127.0.0.1", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "h"}, "http", "h", None),
    ({"HTTP_PROXY": "http://p:1", "no_proxy": "*"}, "http", "h", None),
]


@pytest.mark.parametrize(("variables", "scheme", "host", "proxy"), WHICH)
def test_the_proxy_comes_from_the_environment(
    environment: Environment, variables: dict[str, str], scheme: str, host: str, proxy: Proxy | None
) -> None:
    environment(**variables)
    assert find_proxy(scheme, host, 443, "p") == proxy


@pytest.mark.parametrize(
    "url", ["socks5://p:1", "https://p:1", "http://", "http://p:99999", "http://p:x", "http://:1", "http://[::1"]
)
def test_a_proxy_that_is_not_http_is_rejected(environment: Environment, url: str) -> None:
    environment(ALL_PROXY=url)
    with pytest.raises(UpstreamError) as caught:
        find_proxy("https", "api.example", 443, "p")
    assert str(caught.value) == ("p: cannot be reached: the proxy in the environment must be http://host:port.")
    assert not caught.value.retryable


def test_a_proxys_repr_has_no_password() -> None:
    assert repr(Proxy("p", 1, "Basic secret")) == "<Proxy p:1>"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("api.localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("notlocalhost", False),
    ],
)
def test_loopback_addresses_are_recognized(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("host", "rules", "exempt"),
    [
        ("api.example", "", False),
        ("api.example", "*", True),
        ("api.example", "api.example", True),
        ("api.example", "API.EXAMPLE", True),
        ("api.example", "other, example", True),
        ("api.example", ".example", True),
        ("api.example", "*.example", True),
        ("api.example", "pi.example", False),
        ("api.example", "api.example:443", True),
        ("api.example", "api.example:80", False),
        ("api.example", ".", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:80", False),
        ("10.1.2.3", "192.168.0.0/16", False),
        ("api.example", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "fd00::1", True),
        ("fd00::1", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]:443", True),
        ("fd00::1", "[fd00::1]:80", False),
        ("fd00::1", "10.0.0.0/8", False),
    ],
)
def test_no_proxy_matches_hosts_domains_networks_and_ports(host: str, rules: str, exempt: bool) -> None:
    assert is_in_no_proxy(host, 443, rules) is exempt


async def test_http_requests_through_a_proxy_have_an_absolute_url(client: HttpClient, environment: Environment) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as proxy:
        environment(HTTP_PROXY=f"http://me:secret@127.0.0.1:{proxy.port}")
        for _ in range(2):
            assert (await fetch(client, "http://upstream.test:8080/v1?a=b")).body == b"a"
    assert len(proxy.connections) == 1
    assert proxy.requests[0] == (
        b"POST http://upstream.test:8080/v1?a=b HTTP/1.1\r\n"
        b"host: upstream.test:8080\r\n"
        b"proxy-authorization: Basic bWU6c2VjcmV0\r\n"
        b"accept-encoding: identity\r\n"
        b"user-agent: antiphon\r\n"
        b"content-length: 2\r\n\r\n{}"
    )


async def test_loopback_requests_use_no_proxy(client: HttpClient, environment: Environment) -> None:
    async with scripted_server(respond_with(ok_response(b"a"))) as server:
        environment(HTTP_PROXY="http://127.0.0.1:9")
        assert (await fetch(client, server.url)).body == b"a"


def run_tunnel(port: int, answer: bytes = b"HTTP/1.1 200 Connection Established\r\n\r\n") -> Script:
    """Tunnel every CONNECT to one port of this machine."""

    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await peer.send(answer)

        async def back() -> None:
            while data := await reader.read(65536):
                await peer.send(data)

        task = asyncio.ensure_future(back())
        try:
            while data := await peer.reader.read(65536):
                writer.write(data)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            writer.transport.abort()

    return script


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 Connection Established\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nVia: somebody\r\n\r\n",
        b"HTTP/1.1 201 OK\r\n\r\n",
    ],
)
async def test_https_uses_a_tunnel(
    client: HttpClient, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    path_to_certificate = make_certificate(tmp_path, "upstream.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(path_to_certificate))
    async with (
        scripted_server(
            respond_with(ok_response(b"a"), chunked_response(b"b")), tls=server_context(path_to_certificate)
        ) as server,
        scripted_server(run_tunnel(server.port, answer)) as proxy,
    ):
        environment(HTTPS_PROXY=f"http://me:secret@127.0.0.1:{proxy.port}")
        assert (await fetch(client, "https://upstream.test/v1")).body == b"a"
        assert (await fetch(client, "https://upstream.test/v1")).body == b"b"
        client.close()
        await server.wait_closed()
        await proxy.wait_closed()
    assert proxy.requests == [
        b"CONNECT upstream.test:443 HTTP/1.1\r\n"
        b"Host: upstream.test:443\r\n"
        b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
    ]
    assert [request.split(b"\r\n")[0] for request in server.requests] == [b"POST /v1 HTTP/1.1", b"POST /v1 HTTP/1.1"]
    assert b"proxy-authorization" not in server.requests[0]


async def test_a_certificate_is_checked_inside_the_tunnel(
    client: HttpClient, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_to_certificate = make_certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(path_to_certificate))
    async with (
        scripted_server(respond_with(ok_response(b"a")), tls=server_context(path_to_certificate)) as server,
        scripted_server(run_tunnel(server.port)) as proxy,
    ):
        environment(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
        error = await fetch_error(client, "https://upstream.test/v1")
        await proxy.wait_closed()
    assert str(error).startswith(
        f"p: cannot be trusted at upstream.test:443 through the proxy 127.0.0.1:{proxy.port}: "
    )
    assert server.requests == []


async def test_an_ipv6_address_is_written_in_brackets(client: HttpClient, environment: Environment) -> None:
    async with scripted_server(respond_with(b"HTTP/1.1 403 No\r\n\r\n")) as proxy:
        environment(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
        await fetch_error(client, "https://[fd00::1]/")
    assert proxy.requests[0].startswith(b"CONNECT [fd00::1]:443 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "said", "retryable"),
    [
        (b"HTTP/1.1 407 Who Are You\r\ncontent-length: 0\r\n\r\n", "answered 407", False),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "answered 403", False),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "answered 502", True),
        (b"HTTP/1.1 200 OK\r\n", "gave no answer", True),
        (b"", "gave no answer", True),
        (b"SSH-2.0-x\r\n\r\n", "gave no answer", True),
        (b"\r\n\r\n", "gave no answer", True),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, "gave no answer", True),
    ],
)
async def test_a_refused_tunnel_is_an_error(
    client: HttpClient, environment: Environment, answer: bytes, said: str, retryable: bool
) -> None:
    async with scripted_server(respond_with(answer, close=True)) as proxy:
        environment(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
        error = await fetch_error(client, "https://upstream.test/")
        await proxy.wait_closed()
    assert str(error) == f"p: cannot be reached: the proxy 127.0.0.1:{proxy.port} {said}."
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_unreachable", retryable)


async def test_a_407_of_the_proxy_is_an_error_for_http(client: HttpClient, environment: Environment) -> None:
    answer = b"HTTP/1.1 407 Who Are You\r\ncontent-length: 2\r\n\r\nNo"
    async with scripted_server(respond_with(answer)) as proxy:
        environment(HTTP_PROXY=f"http://127.0.0.1:{proxy.port}")
        errors = [await fetch_error(client, "http://upstream.test/") for _ in range(2)]
    for error in errors:
        assert str(error) == f"p: cannot be reached: the proxy 127.0.0.1:{proxy.port} answered 407."
        assert (error.status, error.payload.code, error.retryable) == (502, "upstream_unreachable", False)


async def test_a_407_of_the_server_itself_is_a_response(client: HttpClient) -> None:
    async with scripted_server(respond_with(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")) as server:
        assert (await fetch(client, server.url)).status == 407


async def test_an_unreachable_proxy_is_named(client: HttpClient, environment: Environment) -> None:
    async with scripted_server(respond_with(b"")) as proxy:
        pass
    environment(ALL_PROXY=f"http://127.0.0.1:{proxy.port}")
    where = f"through the proxy 127.0.0.1:{proxy.port}: connection refused."
    for scheme, port in (("http", 80), ("https", 443)):
        error = await fetch_error(client, f"{scheme}://upstream.test/")
        assert str(error) == f"p: cannot be reached at upstream.test:{port} {where}"
        assert error.retryable


@pytest.mark.parametrize("shaking", [False, True])
async def test_a_silent_proxy_is_a_timeout(client: HttpClient, environment: Environment, shaking: bool) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        if shaking:
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await peer.wait_closed(30)

    async with scripted_server(script) as proxy:
        environment(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
        client.timeouts = Timeouts(connect=0.5)
        error = await fetch_error(client, "https://upstream.test/")
        await proxy.wait_closed()
    assert (error.status, error.payload.code) == (504, "timeout")


async def test_cancelling_closes_the_connection_to_the_proxy(client: HttpClient, environment: Environment) -> None:
    async def script(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await peer.wait_closed(30)

    async with scripted_server(script) as proxy:
        environment(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
        task = asyncio.ensure_future(fetch(client, "https://upstream.test/"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await proxy.wait_closed(0, seconds=1.0)
