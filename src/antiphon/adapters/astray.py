"""An address that leads elsewhere: somebody has moved, or what is there is for people.

No redirect is followed: whoever is there would be shown our key.
"""

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from antiphon.adapters.faults import redacted
from antiphon.core.errors import UpstreamError

INVALID = "upstream_invalid"

SCHEMES = {"ws": "http", "wss": "https"}
"""What a base URL begins with where a WebSocket's address begins otherwise."""

MAX_PLACE = 300
"""How much of an address is told."""


def moved_to(status: int, headers: Mapping[str, str], asked: str, base: str) -> str | None:
    """Return where somebody says that they are: a base URL if the rest is as it was asked for."""
    location = headers.get("location")
    if not (location and 300 <= status < 400):
        return None
    try:
        there = urlsplit(urljoin(asked, location))
        host = there.netloc.rpartition("@")[2]
    except ValueError:
        return None
    path = asked.partition("?")[0].removeprefix(base)
    scheme = SCHEMES.get(there.scheme, there.scheme)
    return f"{scheme}://{host}{there.path.removesuffix(path)}" if host else None


def directions(place: str) -> str:
    """Say where somebody has moved, and what to do."""
    return f"it has moved to {redacted(place, MAX_PLACE)}. Its base_url should lead there."


def moved(who: str, status: int, place: str) -> UpstreamError:
    """Make the error for an address that leads to another one."""
    return UpstreamError(f"{who}: answered {status}: {directions(place)}", code=INVALID)


def astray(who: str) -> UpstreamError:
    """Make the error for an address that leads to something for people."""
    message = f"{who}: answered with a web page. Its base_url probably leads elsewhere."
    return UpstreamError(message, code=INVALID)
