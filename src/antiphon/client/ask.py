"""One request to a server, as it is meant and not yet sent."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from msgspec import Struct, field

from antiphon.core.errors import RequestError


class Ask(Struct, frozen=True, kw_only=True):
    """One request, as it is meant: `path` is below the server's address."""

    path: str
    method: str = "POST"
    body: object = None
    query: Iterable[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def path(*steps: str) -> str:
    """Write a path; ids may hold anything but nothing."""
    if not all(steps):
        raise RequestError("An id is empty. Give the id of what you mean.", param="id")
    return "/".join(quote(step, safe="") for step in steps)
