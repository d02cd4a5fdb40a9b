"""One request to a server, as it is meant and not yet sent."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from msgspec import Struct, field

from antiphon.core.errors import RequestError

DOT_SEGMENTS = frozenset({".", ".."})
"""Steps of a path that lead elsewhere, also when they are quoted."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """One request, as it is meant: `path` is below the server's address."""

    path: str
    method: str = "POST"
    body: object = None
    query: Iterable[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def build_path(*segments: str) -> str:
    """Write a path; ids may hold anything, but lead nowhere else."""
    if not all(segments):
        raise RequestError("An id is empty. Give the id of what you mean.", param="id")
    if DOT_SEGMENTS & {*segments}:
        raise RequestError("'.' and '..' are no ids: they would name something else.", param="id")
    return "/".join(quote(step, safe="") for step in segments)
