"""Which proxy leads to an address, as the environment says; and the way through it."""

import asyncio
import base64
import ipaddress
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.errors import unreachable_error

MAX_PROXY_HEAD = 64 * 1024


class Proxy(NamedTuple):
    """A proxy that speaks HTTP; `authorization` is a header's value, or empty."""

    host: str
    port: int
    authorization: str = ""

    def __repr__(self) -> str:
        return f"<Proxy {self.host}:{self.port}>"


def find_proxy(scheme: str, host: str, port: int, peer_name: str) -> Proxy | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY ask for.

    This machine itself is never behind one. Raises UpstreamError for a proxy of another kind.
    """
    proxies = getproxies_environment()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or is_loopback(host) or is_in_no_proxy(host, port, proxies.get("no", "")):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        near = parts.port or 80
    except ValueError:
        parts, near = None, 0
    if parts is None or parts.scheme != "http" or not parts.hostname or not near:
        raise unreachable_error(
            peer_name, "cannot be reached: the proxy in the environment must be http://host:port."
        )
    secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    authorization = f"Basic {base64.b64encode(secret.encode()).decode()}" if secret else ""
    return Proxy(parts.hostname, near, authorization)


def is_loopback(host: str) -> bool:
    """Tell whether an address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_in_no_proxy(host: str, port: int, rules: str) -> bool:
    """Tell whether NO_PROXY names an address: `*`, a domain, an address, a network, or one port."""
    return any(_matches_rule(host, port, rule) for rule in rules.lower().replace(",", " ").split())


def _matches_rule(host: str, port: int, rule: str) -> bool:
    if rule == "*":
        return True
    name, _, digits = rule.rpartition(":")
    if digits.isdecimal() and (":" not in name or name.endswith("]")):
        if int(digits) != port:
            return False
        rule = name
    rule = rule.removeprefix("*").lstrip(".")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule.strip("[]"), strict=False)
    except ValueError:
        return bool(rule) and (host == rule or host.endswith(f".{rule}"))


class ConnectProtocol(asyncio.Protocol):
    """Asks a proxy for a way through, and waits for its answer."""

    def __init__(self) -> None:
        self._head: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._received = b""

    async def status(self) -> str:
        """Wait for the head of the answer; return its status, or nothing if it is no answer."""
        line = (await self._head).partition(b"\r\n")[0].split()
        return line[1].decode("latin-1") if len(line) > 1 and line[0].startswith(b"HTTP/") else ""

    def data_received(self, data: bytes) -> None:
        """Gather the head of the answer."""
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._resolve(self._received)
        elif len(self._received) > MAX_PROXY_HEAD:
            self._resolve(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Take silence for an answer."""
        del exc
        self._resolve(b"")

    def _resolve(self, head: bytes) -> None:
        if not self._head.done():
            self._head.set_result(head)


async def open_tunnel(proxy: Proxy, host: str, port: int, peer_name: str) -> asyncio.Transport:
    """Open a way through a proxy; raises OSError or UpstreamError."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(ConnectProtocol, proxy.host, proxy.port)
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    transport.write("\r\n".join([*lines, "", ""]).encode())
    try:
        status = await protocol.status()
        if not status.startswith("2"):
            raise proxy_refused_error(proxy, status, peer_name)
    except BaseException:
        transport.abort()
        raise
    return transport


def proxy_refused_error(proxy: Proxy, status: str, peer_name: str) -> UpstreamError:
    """Make the error for a proxy that does not let us through."""
    said = f"answered {status[:40]}" if status else "gave no answer"
    return unreachable_error(
        peer_name,
        f"cannot be reached: the proxy {proxy.host}:{proxy.port} {said}.",
        retryable=not status.startswith("4"),
    )
