"""Checks of URLs: validity and encryption."""

from urllib.parse import urlsplit

from antiphon.transport.proxy import is_loopback


def is_unencrypted(url: str) -> bool:
    """Return whether a URL is plain HTTP to another machine."""
    parts = urlsplit(url)
    return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")


def invalid_url_problem(url: str) -> str | None:
    """Return why a URL is invalid, or None."""
    try:
        parts = urlsplit(url)
        host = parts.port != 0 and parts.hostname
    except ValueError:
        host = None
    else:
        # Checked first: the message for any other problem repeats the URL.
        if parts.username is not None or parts.password is not None:
            return "contains a user name or password"
        if parts.scheme.lower() in ("http", "https") and ("?" in url or "#" in url):
            return "has a query or a fragment"
        if parts.scheme.lower() not in ("http", "https"):
            host = None
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        return "is not an http(s) URL"
    return None
