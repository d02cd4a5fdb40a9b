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

from antiphon.transport.connection import Connection, Stale, Timeouts
from antiphon.transport.errors import late, unreachable, unreached
from antiphon.transport.exchange import Exchange
from antiphon.transport.proxy import Proxy, proxy_for, refused, tunnel

IDLE_CONNECTIONS = 256
"""How many connections may wait for each address."""

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""What may be asked twice: "the intended effect on the server of multiple identical requests with
that method is the same as the effect for a single such request" (RFC 9110, 9.2.2)."""

PROXY_REFUSES = 407
"""What a proxy answers that wants to know who asks."""

PORTS = {"http": 80, "https": 443}

NO_ADDRESS = "cannot be reached: its address is no http(s) URL."

URL = re.compile(r"[\x21-\x7e]+")
NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")


class Answer(NamedTuple):
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
    who: str = "The upstream"


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

    async def open(self, request: HttpRequest) -> Exchange:
        """Send a request; return its answer once the head is there. Raises UpstreamError."""
        ...

    def close(self) -> None:
        """Close what is kept."""
        ...


class Client:
    """Sends requests over connections that it keeps."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._kept: dict[Address, deque[Connection]] = {}
        self._addresses: dict[tuple[str, str], Address] = {}
        self._closed = False

    async def open(self, request: HttpRequest) -> Exchange:
        """Send a request; return its answer once the head is there. Raises UpstreamError.

        The answer must be released; before it is over, that closes the connection.
        """
        parts = split(request.url, request.who)
        address = self._address(parts, request.who)
        data = written(request, parts, address)
        timeouts = request.timeouts or self.timeouts
        repeatable = request.method in IDEMPOTENT
        if kept := self._waiting(address):
            exchange = kept.ask(data, timeouts, request.who, repeatable=repeatable)
            try:
                await exchange.begun()
            except Stale:
                self._forget(address)  # it was closed while it waited, and so may others be
            else:
                return theirs(exchange, address)
        connection = await self._connected(address, timeouts.connect, request.who)
        exchange = connection.ask(data, timeouts, request.who, repeatable=repeatable)
        await exchange.begun()
        return theirs(exchange, address)

    async def fetch(self, request: HttpRequest) -> Answer:
        """Send a request and read its whole answer; raises UpstreamError."""
        exchange = await self.open(request)
        return Answer(exchange.status, exchange.headers, await exchange.taken())

    def close(self) -> None:
        """Close every connection that waits; keep none from now on."""
        self._closed = True
        for address in list(self._kept):
            self._forget(address)

    def _address(self, url: SplitResult, who: str) -> Address:
        """Return where a URL leads; the environment is asked once."""
        key = (url.scheme, url.netloc)
        if key not in self._addresses:
            self._addresses[key] = address_of(url, who)
        return self._addresses[key]

    def _waiting(self, address: Address) -> Connection | None:
        """Return the connection that was used last, and still can be."""
        kept = self._kept.get(address)
        while kept:
            connection = kept.pop()
            if connection.is_usable:
                return connection
        return None

    def _keep(self, address: Address, connection: Connection) -> None:
        if self._closed:
            connection.close()
            return
        kept = self._kept.setdefault(address, deque())
        kept.append(connection)
        if len(kept) > IDLE_CONNECTIONS:
            kept.popleft().close()

    def _forget(self, address: Address) -> None:
        for connection in self._kept.pop(address, ()):
            connection.close()

    async def _connected(self, address: Address, seconds: float, who: str) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                return await self._connect(address, who)
        except TimeoutError:
            raise late(who, f"could not be reached {address} within {seconds:g} seconds.") from None
        except (OSError, UnicodeError) as error:
            raise unreached(who, error, f" {address}") from None

    async def _connect(self, address: Address, who: str) -> Connection:
        loop = asyncio.get_running_loop()
        make = partial(Connection, partial(self._keep, address))
        secure = address.scheme == "https"
        if address.proxy and secure:
            raw = await tunnel(address.proxy, address.host, address.port, who)
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


def theirs(exchange: Exchange, address: Address) -> Exchange:
    """Return an answer of the upstream's own; raises UpstreamError for one of the proxy's."""
    if exchange.status == PROXY_REFUSES and address.proxy and address.scheme == "http":
        exchange.release()
        raise refused(address.proxy, str(exchange.status), exchange.who)
    return exchange


def split(url: str, who: str) -> SplitResult:
    """Take a URL apart; raises UpstreamError for what has no place in one."""
    if not URL.fullmatch(url):
        raise unreachable(who, "cannot be reached: its address holds a character that none may.")
    try:
        return urlsplit(url)
    except ValueError:
        raise unreachable(who, NO_ADDRESS) from None


def address_of(url: SplitResult, who: str) -> Address:
    """Return where a URL leads; raises UpstreamError."""
    try:
        port = PORTS.get(url.scheme) if url.port is None else url.port
    except ValueError:
        port = None
    if url.scheme not in PORTS or not url.hostname or not port:
        raise unreachable(who, NO_ADDRESS)
    proxy = proxy_for(url.scheme, url.hostname, port, who)
    return Address(url.scheme, url.hostname, port, proxy)


def written(request: HttpRequest, url: SplitResult, address: Address) -> bytes:
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
    check(lines, request.who)
    head = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def check(lines: Mapping[str, str], who: str) -> None:
    """Refuse headers that would be other lines than they seem; raises UpstreamError."""
    names, values = "".join(lines), "".join(lines.values())  # nearly always all are legal
    if "" not in lines and NAME.fullmatch(names) and VALUE.fullmatch(values):
        return
    for name, value in lines.items():
        if not (NAME.fullmatch(name) and VALUE.fullmatch(value)):
            reason = f"the header {name!r} holds a line break or the like"
            raise unreachable(who, f"cannot be asked: {reason}.")
