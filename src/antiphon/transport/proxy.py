"""Proxies from the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), and tunnels."""

import asyncio
import base64
import ipaddress
import re
from contextlib import suppress
from functools import lru_cache, partial
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.response import unreachable_error

MAX_PROXY_HEAD = 64 * 1024
STATUS_LINE = re.compile(rb"HTTP/\S* +(\S+)")


class Proxy(NamedTuple):
    """An HTTP proxy; `authorization` is the value of its header, or empty."""

    host: str
    port: int
    authorization: str = ""

    def __repr__(self) -> str:
        return f"<Proxy {self.host}:{self.port}>"


def find_proxy(scheme: str, host: str, port: int, peer_name: str) -> Proxy | None:
    """Return the proxy that the environment names for an address, None for loopback addresses.

    Raises UpstreamError for a proxy that is not http://.
    """
    # As in curl and requests: the scheme's own variable, then ALL_PROXY.
    proxies = getproxies_environment()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or is_loopback(host) or is_in_no_proxy(host, port, proxies.get("no", "")):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        proxy_port = parts.port or 80
    except ValueError:
        parts, proxy_port = None, 0
    if parts is None or parts.scheme != "http" or not parts.hostname or not proxy_port:
        raise unreachable_error(peer_name, "cannot be reached: the proxy in the environment must be http://host:port.")
    secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    authorization = f"Basic {base64.b64encode(secret.encode()).decode()}" if secret else ""
    return Proxy(parts.hostname, proxy_port, authorization)


@lru_cache(maxsize=64)  # the server checks its own address at every request
def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_in_no_proxy(host: str, port: int, rules: str) -> bool:
    """Return whether NO_PROXY matches: `*`, a domain, an address, a network, or one port."""
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


async def open_tunnel(proxy: Proxy, host: str, port: int, peer_name: str) -> asyncio.Transport:
    """Open a tunnel through a proxy; raises OSError or UpstreamError."""
    # A server that is not a proxy may send anything, for ever: hence the limit.
    reader = asyncio.StreamReader(limit=MAX_PROXY_HEAD)
    make_protocol = partial(asyncio.StreamReaderProtocol, reader)
    transport, _ = await asyncio.get_running_loop().create_connection(make_protocol, proxy.host, proxy.port)
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    transport.write("\r\n".join([*lines, "", ""]).encode())
    try:
        head = b""
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            head = await reader.readuntil(b"\r\n\r\n")
        status = found[1].decode("latin-1") if (found := STATUS_LINE.match(head)) else ""
        if not status.startswith("2"):
            raise proxy_refused_error(proxy, status, peer_name)
    # On cancellation, too: the connection would otherwise stay open.
    except BaseException:
        transport.abort()
        raise
    return transport


def proxy_refused_error(proxy: Proxy, status: str, peer_name: str) -> UpstreamError:
    """Return the error for a proxy that refuses the connection."""
    outcome = f"answered {status[:40]}" if status else "gave no answer"
    message = f"cannot be reached: the proxy {proxy.host}:{proxy.port} {outcome}."
    return unreachable_error(peer_name, message, retryable=not status.startswith("4"))
