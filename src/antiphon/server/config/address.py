"""What an address says about itself: whether it is one, and who can listen on the way."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


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
