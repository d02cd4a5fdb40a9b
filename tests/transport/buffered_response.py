"""A whole response, for tests that do not read it in pieces."""

from collections.abc import Mapping
from typing import NamedTuple

from antiphon.transport.client import HttpClient, HttpRequest


class BufferedResponse(NamedTuple):
    """A response with its whole body; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def fetch_response(client: HttpClient, request: HttpRequest) -> BufferedResponse:
    """Send a request and read its whole response; raises UpstreamError."""
    response = await client.open(request)
    body = await response.read_and_release()
    return BufferedResponse(response.status, response.headers, body)
