"""An address that leads elsewhere: somebody has moved, or what is there is for people.

No redirect is followed: whoever is there would be shown our key.
"""

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from antiphon.adapters.faults import redact
from antiphon.core.errors import UpstreamError

INVALID_CODE = "upstream_invalid"

HTTP_SCHEMES = {"ws": "http", "wss": "https"}
"""What a base URL begins with where a WebSocket's address begins otherwise."""

MAX_URL_LENGTH = 300
"""How much of an address is told."""


def redirect_target(status: int, headers: Mapping[str, str], url: str, base_url: str) -> str | None:
    """Return where somebody says that they are: a base URL if the rest is as it was asked for."""
    location = headers.get("location")
    if not (location and 300 <= status < 400):
        return None
    try:
        there = urlsplit(urljoin(url, location))
        host = there.netloc.rpartition("@")[2]
    except ValueError:
        return None
    path = url.partition("?")[0].removeprefix(base_url)
    scheme = HTTP_SCHEMES.get(there.scheme, there.scheme)
    return f"{scheme}://{host}{there.path.removesuffix(path)}" if host else None


def redirect_advice(url: str) -> str:
    """Say where somebody has moved, and what to do."""
    return f"it has moved to {redact(url, MAX_URL_LENGTH)}. Its base_url should lead there."


def redirect_error(provider: str, status: int, url: str) -> UpstreamError:
    """Make the error for an address that leads to another one."""
    return UpstreamError(f"{provider}: answered {status}: {redirect_advice(url)}", code=INVALID_CODE)


def html_page_error(provider: str) -> UpstreamError:
    """Make the error for an address that leads to something for people."""
    message = f"{provider}: answered with a web page. Its base_url probably leads elsewhere."
    return UpstreamError(message, code=INVALID_CODE)
