"""What an address says about itself: whether it is one, and who can listen on the way."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

OLLAMA_PORT = 11434


@lru_cache(maxsize=64)  # a server asks it of itself at every request
def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_unencrypted(url: str) -> bool:
    """Tell whether others could read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")


def invalid_url_problem(url: str) -> str | None:
    """Say why requests cannot be sent to an address; None if they can."""
    try:
        parts = urlsplit(url)
        host = parts.port != 0 and parts.hostname
    except ValueError:
        host = None
    else:
        if parts.username is not None or parts.password is not None:
            return "holds a user's name or password"
        if parts.scheme.lower() in ("http", "https") and ("?" in url or "#" in url):
            return "has a query or a fragment"
        if parts.scheme.lower() not in ("http", "https"):
            host = None
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        return "is not an http(s) URL"
    return None


def ollama_url(host: str) -> str:
    """Return the address that OLLAMA_HOST means, read as Ollama does.

    >>> ollama_url("0.0.0.0"), ollama_url("gpu:80"), ollama_url("https://ollama.com/")
    ('http://127.0.0.1:11434', 'http://gpu:80', 'https://ollama.com')
    """
    scheme, sign, rest = host.strip().rpartition("://")
    place, slash, path = rest.partition("/")
    if place.count(":") > 1 and not place.startswith("["):
        place = f"[{place}]"
    name, bracket, port = place.rpartition(":")
    if not bracket or "]" in port:
        name, port = place, ""
    # What a server listens on everywhere, a client finds here.
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(name, name)  # noqa: S104
    if not sign and not port:
        port = str(OLLAMA_PORT)
    return f"{scheme or 'http'}://{name}{':' if port else ''}{port}{slash}{path}".rstrip("/")
