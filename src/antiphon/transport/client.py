"""A small HTTP/1.1 client that pushes: bytes reach their reader in the turn of the loop they came.

Streams of tokens are many small reads. A client that hands each of them over through a task costs
more than everything else we do with it (docs/decisions/0008-own-client.md). Here the answer's bytes
go straight from the socket to a function; whoever asked waits only for the end.

TLS is always verified. Connections are kept by where they lead. A request that is given up closes
its connection at once, so that nobody pays for tokens that nobody reads.
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
from antiphon.transport.errors import connect_error, timeout_error, unreachable_error
from antiphon.transport.proxy import (
    Proxy,
    find_proxy,
    open_tunnel,
    proxy_refused_error,
)
from antiphon.transport.response import HttpResponse

IDLE_CONNECTIONS = 256
"""How many connections may wait for each address."""

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""What may be asked twice: "the intended effect on the server of multiple identical requests with
that method is the same as the effect for a single such request" (RFC 9110, 9.2.2)."""

PROXY_AUTHENTICATION_REQUIRED = 407
"""What a proxy answers that wants to know who asks."""

DEFAULT_PORTS = {"http": 80, "https": 443}

INVALID_URL = "cannot be reached: its address is no http(s) URL."

URL_CHARACTERS = re.compile(r"[\x21-\x7e]+")
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")


class BufferedResponse(NamedTuple):
    """An answer that was read whole; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request as it is sent; `who` is the name to blame."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    timeouts: Timeouts | None = None
    peer_name: str = "The upstream"


class Address(NamedTuple):
    """Where a connection leads."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None

    def __str__(self) -> str:
        through = f" through the proxy {self.proxy.host}:{self.proxy.port}" if self.proxy else ""
        return f"at {self.host}:{self.port}{through}"


class Transport(Protocol):
    """What carries requests: a `Client`, or what stands in for one."""

    async def open(self, request: HttpRequest) -> HttpResponse:
        """Send a request; return its answer once the head is there. Raises UpstreamError."""
        ...

    def close(self) -> None:
        """Close what is kept."""
        ...


class HttpClient:
    """Sends requests over connections that it keeps."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._idle: dict[Address, deque[HttpConnection]] = {}
        self._addresses: dict[tuple[str, str], Address] = {}
        self._closed = False

    async def open(self, request: HttpRequest) -> HttpResponse:
        """Send a request; return its answer once the head is there. Raises UpstreamError.

        The answer must be released; before it is over, that closes the connection.
        """
        parts = split_url(request.url, request.peer_name)
        address = self._find_address(parts, request.peer_name)
        data = encode_request(request, parts, address)
        timeouts = request.timeouts or self.timeouts
        repeatable = request.method in IDEMPOTENT_METHODS
        if kept := self._take_idle(address):
            exchange = kept.send(data, timeouts, request.peer_name, idempotent=repeatable)
            try:
                await exchange.wait_for_head()
            except StaleConnectionError:
                self._close_idle(address)  # it was closed while it waited, and so may others be
            else:
                return check_proxy_response(exchange, address)
        connection = await self._connect_in_time(address, timeouts.connect, request.peer_name)
        exchange = connection.send(data, timeouts, request.peer_name, idempotent=repeatable)
        await exchange.wait_for_head()
        return check_proxy_response(exchange, address)

    async def fetch(self, request: HttpRequest) -> BufferedResponse:
        """Send a request and read its whole answer; raises UpstreamError."""
        exchange = await self.open(request)
        return BufferedResponse(
            exchange.status, exchange.headers, await exchange.read_and_release()
        )

    def close(self) -> None:
        """Close every connection that waits; keep none from now on."""
        self._closed = True
        for address in list(self._idle):
            self._close_idle(address)

    def _find_address(self, url: SplitResult, peer_name: str) -> Address:
        """Return where a URL leads; the environment is asked once."""
        key = (url.scheme, url.netloc)
        if key not in self._addresses:
            self._addresses[key] = parse_address(url, peer_name)
        return self._addresses[key]

    def _take_idle(self, address: Address) -> HttpConnection | None:
        """Return the connection that was used last, and still can be."""
        kept = self._idle.get(address)
        while kept:
            connection = kept.pop()
            if connection.is_usable:
                return connection
        return None

    def _put_idle(self, address: Address, connection: HttpConnection) -> None:
        if self._closed:
            connection.close()
            return
        kept = self._idle.setdefault(address, deque())
        kept.append(connection)
        if len(kept) > IDLE_CONNECTIONS:
            kept.popleft().close()

    def _close_idle(self, address: Address) -> None:
        for connection in self._idle.pop(address, ()):
            connection.close()

    async def _connect_in_time(
        self, address: Address, seconds: float, peer_name: str
    ) -> HttpConnection:
        try:
            async with asyncio.timeout(seconds):
                return await self._connect(address, peer_name)
        except TimeoutError:
            raise timeout_error(
                peer_name, f"could not be reached {address} within {seconds:g} seconds."
            ) from None
        except (OSError, UnicodeError) as error:
            raise connect_error(peer_name, error, f" {address}") from None

    async def _connect(self, address: Address, peer_name: str) -> HttpConnection:
        loop = asyncio.get_running_loop()
        make = partial(HttpConnection, partial(self._put_idle, address))
        secure = address.scheme == "https"
        if address.proxy and secure:
            raw = await open_tunnel(address.proxy, address.host, address.port, peer_name)
            connection = make()
            transport = await loop.start_tls(
                raw, connection, self._tls, server_hostname=address.host
            )
            if transport is None:
                raise OSError("the connection was lost")
            connection.connection_made(transport)
            return connection
        near = address.proxy or address
        _, connection = await loop.create_connection(
            make, near.host, near.port, ssl=self._tls if secure else None
        )
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context


def check_proxy_response(response: HttpResponse, address: Address) -> HttpResponse:
    """Return an answer of the upstream's own; raises UpstreamError for one of the proxy's."""
    if (
        response.status == PROXY_AUTHENTICATION_REQUIRED
        and address.proxy
        and address.scheme == "http"
    ):
        response.release()
        raise proxy_refused_error(address.proxy, str(response.status), response.peer_name)
    return response


def split_url(url: str, peer_name: str) -> SplitResult:
    """Take a URL apart; raises UpstreamError for what has no place in one."""
    if not URL_CHARACTERS.fullmatch(url):
        raise unreachable_error(
            peer_name, "cannot be reached: its address holds a character that none may."
        )
    try:
        return urlsplit(url)
    except ValueError:
        raise unreachable_error(peer_name, INVALID_URL) from None


def parse_address(url: SplitResult, peer_name: str) -> Address:
    """Return where a URL leads; raises UpstreamError."""
    try:
        port = DEFAULT_PORTS.get(url.scheme) if url.port is None else url.port
    except ValueError:
        port = None
    if url.scheme not in DEFAULT_PORTS or not url.hostname or not port:
        raise unreachable_error(peer_name, INVALID_URL)
    proxy = find_proxy(url.scheme, url.hostname, port, peer_name)
    return Address(url.scheme, url.hostname, port, proxy)


def encode_request(request: HttpRequest, url: SplitResult, address: Address) -> bytes:
    """Write a request."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines: dict[str, str] = {"host": url.netloc.rpartition("@")[2]}
    if address.proxy and address.scheme == "http":
        target = f"http://{lines['host']}{target}"
        if address.proxy.authorization:
            lines["proxy-authorization"] = address.proxy.authorization
    lines |= {"accept-encoding": "identity", "user-agent": "antiphon"}
    lines |= {name.lower(): value for name, value in request.headers.items()}
    if request.body or request.method == "POST":
        lines["content-length"] = str(len(request.body))
    check_headers(lines, request.peer_name)
    head = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def check_headers(headers: Mapping[str, str], peer_name: str) -> None:
    """Refuse headers that would be other lines than they seem; raises UpstreamError."""
    names, values = "".join(headers), "".join(headers.values())  # nearly always all are legal
    if "" not in headers and HEADER_NAME.fullmatch(names) and HEADER_VALUE.fullmatch(values):
        return
    for name, value in headers.items():
        if not (HEADER_NAME.fullmatch(name) and HEADER_VALUE.fullmatch(value)):
            reason = f"the header {name!r} holds a line break or the like"
            raise unreachable_error(peer_name, f"cannot be asked: {reason}.")
