"""An HTTP/1.1 client that pushes: the reader's callback gets bytes as soon as the socket has them.

A stream of tokens is many small reads. A client that passes each one through a task costs more than
all our other work with it (docs/decisions/0008-own-client.md). Here the socket's data goes straight
to a callback; the caller waits only for the end.

TLS is always verified. Idle connections are kept per address. Releasing an unfinished response
closes its connection at once, so that nobody pays for tokens that nobody reads.
"""

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Mapping
from functools import cached_property, partial
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct, field

from antiphon.transport.connection import HttpConnection, StaleConnectionError, Timeouts
from antiphon.transport.proxy import Proxy, find_proxy, open_tunnel, proxy_refused_error
from antiphon.transport.response import HttpResponse, connect_error, timeout_error, unreachable_error

IDLE_CONNECTIONS = 256
"""The most idle connections per address."""

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that are safe to repeat: "the intended effect on the server of multiple identical
requests with that method is the same as the effect for a single such request" (RFC 9110, 9.2.2)."""

PROXY_AUTHENTICATION_REQUIRED = 407

DEFAULT_PORTS = {"http": 80, "https": 443}

INVALID_URL = "cannot be reached: its address is not an http(s) URL."

URL_CHARACTERS = re.compile(r"[\x21-\x7e]+")
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request as it is sent; `peer_name` is the server's name in error messages."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    timeouts: Timeouts | None = None
    peer_name: str = "The upstream"


class Address(NamedTuple):
    """The server and proxy of a connection."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None

    def __str__(self) -> str:
        through = f" through the proxy {self.proxy.host}:{self.proxy.port}" if self.proxy else ""
        return f"at {self.host}:{self.port}{through}"


class Transport(Protocol):
    """The interface of `HttpClient`, for test doubles."""

    async def open(self, request: HttpRequest) -> HttpResponse: ...
    def close(self) -> None: ...


class HttpClient:
    """An HTTP client with a pool of idle connections."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._idle: dict[Address, deque[HttpConnection]] = {}
        self._addresses: dict[tuple[str, str], Address] = {}
        self._closed = False

    async def open(self, request: HttpRequest) -> HttpResponse:
        """Send a request; return its response once the head has arrived; raises UpstreamError.

        The caller must release the response; before its end, that closes the connection.
        """
        parts = split_url(request.url, request.peer_name)
        origin = (parts.scheme, parts.netloc)
        address = self._addresses.get(origin)
        if address is None:  # the environment's proxies are looked up once
            address = self._addresses[origin] = parse_address(parts, request.peer_name)
        data = encode_request(request, parts, address)
        timeouts = request.timeouts or self.timeouts
        idempotent = request.method in IDEMPOTENT_METHODS
        while True:
            connection = self._take_idle(address)
            connection = connection or await self._connect(address, timeouts.connect, request.peer_name)
            response = connection.send(data, timeouts, request.peer_name, idempotent=idempotent)
            try:
                await response.wait_for_head()
                break
            except StaleConnectionError:
                # The server had closed it, before it read the request: sending it again is safe.
                # It may have closed the other idle connections, too.
                self._close_idle(address)
        if response.status == PROXY_AUTHENTICATION_REQUIRED and address.proxy and address.scheme == "http":
            response.release()
            raise proxy_refused_error(address.proxy, str(response.status), request.peer_name)
        return response

    def close(self) -> None:
        """Close every idle connection, and keep none from now on."""
        self._closed = True
        for address in list(self._idle):
            self._close_idle(address)

    def _take_idle(self, address: Address) -> HttpConnection | None:
        """Return the idle connection that was used last, which is the least likely to be closed."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
        return None

    def _put_idle(self, address: Address, connection: HttpConnection) -> None:
        if self._closed:
            connection.close()
            return
        idle = self._idle.setdefault(address, deque())
        idle.append(connection)
        if len(idle) > IDLE_CONNECTIONS:
            idle.popleft().close()

    def _close_idle(self, address: Address) -> None:
        for connection in self._idle.pop(address, ()):
            connection.close()

    async def _connect(self, address: Address, seconds: float, peer_name: str) -> HttpConnection:
        loop = asyncio.get_running_loop()
        # Created only with a transport: a connection refers to itself until its transport is closed.
        create = partial(HttpConnection, partial(self._put_idle, address))
        try:
            tls = self._tls if address.scheme == "https" else None
            async with asyncio.timeout(seconds):
                if address.proxy and tls:
                    raw = await open_tunnel(address.proxy, address.host, address.port, peer_name)
                    connection = create()
                    transport = await loop.start_tls(raw, connection, tls, server_hostname=address.host)
                    if transport is None:
                        raise OSError("the connection was lost")
                    connection.connection_made(transport)
                else:
                    peer = address.proxy or address
                    _, connection = await loop.create_connection(create, peer.host, peer.port, ssl=tls)
        except TimeoutError:
            raise timeout_error(peer_name, f"could not be reached {address} within {seconds:g} seconds.") from None
        except (OSError, UnicodeError) as error:
            raise connect_error(peer_name, error, f" {address}") from None
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context


def split_url(url: str, peer_name: str) -> SplitResult:
    """Split a URL; raises UpstreamError for characters that are not allowed in one."""
    if not URL_CHARACTERS.fullmatch(url):
        raise unreachable_error(peer_name, "cannot be reached: its address contains a character that is not allowed.")
    try:
        return urlsplit(url)
    except ValueError:
        raise unreachable_error(peer_name, INVALID_URL) from None


def parse_address(url: SplitResult, peer_name: str) -> Address:
    """Return the address of a URL; raises UpstreamError."""
    try:
        port = DEFAULT_PORTS.get(url.scheme) if url.port is None else url.port
    except ValueError:
        port = None
    if url.scheme not in DEFAULT_PORTS or not url.hostname or not port:
        raise unreachable_error(peer_name, INVALID_URL)
    proxy = find_proxy(url.scheme, url.hostname, port, peer_name)
    return Address(url.scheme, url.hostname, port, proxy)


def encode_request(request: HttpRequest, url: SplitResult, address: Address) -> bytes:
    """Return a request as HTTP/1.1; raises UpstreamError for an illegal header."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers: dict[str, str] = {"host": url.netloc.rpartition("@")[2]}
    if address.proxy and address.scheme == "http":
        target = f"http://{headers['host']}{target}"
        if address.proxy.authorization:
            headers["proxy-authorization"] = address.proxy.authorization
    headers |= {"accept-encoding": "identity", "user-agent": "antiphon"}
    headers |= {name.lower(): value for name, value in request.headers.items()}
    if request.body or request.method == "POST":
        headers["content-length"] = str(len(request.body))
    check_headers(headers, request.peer_name)
    head = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def check_headers(headers: Mapping[str, str], peer_name: str) -> None:
    """Check that no header can inject another line; raises UpstreamError."""
    # Nearly always all are legal, and one match of everything joined finds that out.
    names, values = "".join(headers), "".join(headers.values())
    if "" not in headers and HEADER_NAME.fullmatch(names) and HEADER_VALUE.fullmatch(values):
        return
    for name, value in headers.items():
        if not (HEADER_NAME.fullmatch(name) and HEADER_VALUE.fullmatch(value)):
            reason = f"the header {name!r} contains a line break or another illegal character"
            raise unreachable_error(peer_name, f"cannot be called: {reason}.")
