"""Rejects request heads that two servers could read differently (request smuggling).

httptools already rejects the rest: Content-Length together with chunks, folded lines, bare line
feeds, NULs.
"""

import re
from collections.abc import Sequence

from antiphon.server.errors import invalid_http_error

Headers = Sequence[tuple[bytes, bytes]]

_TARGET_PATTERN = re.compile(rb"(?:[a-z][a-z0-9+.-]*://([^/?#]*))?/|\*$", re.IGNORECASE)
_HOST_PATTERN = re.compile(rb"[a-z0-9._~!$&'()*+,;=%:\[\]-]*", re.IGNORECASE)
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")


def check_request_head(version: str, target: bytes, headers: Headers) -> None:
    """Raise RequestError if a head is ambiguous; header names are in lower case."""
    if version not in ("1.0", "1.1"):
        raise invalid_http_error(f"HTTP/{version} is not supported. Use HTTP/1.1.")
    if version == "1.0" and any(name == b"transfer-encoding" for name, _ in headers):
        raise invalid_http_error("HTTP/1.0 has no Transfer-Encoding. Use HTTP/1.1.")
    form = _TARGET_PATTERN.match(target)
    if form is None:
        raise invalid_http_error("The request target is not a path. Use one, as /v1/responses.")
    # RFC 9112, 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1
    # request message that lacks a Host header field and to any request message that contains
    # more than one Host header field line or a Host header field with an invalid field value."
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise invalid_http_error(f"The request has {len(hosts)} Host headers. Send exactly one.")
    if not all(_HOST_PATTERN.fullmatch(host) for host in hosts):
        raise invalid_http_error(
            "The Host header is not a host. Send only the URL's host and port."
        )
    if hosts and form[1] is not None and form[1].lower() != hosts[0].lower():
        raise invalid_http_error("The request target and Host differ. Send only a path as target.")


def check_upgrade_request(headers: Headers) -> None:
    """Raise RequestError if an upgrade has a body."""
    # httptools would parse that body as the next request.
    if any(name in _FRAMING_HEADERS and value != b"0" for name, value in headers):
        raise invalid_http_error("A request with a body cannot upgrade. Send it without Upgrade.")
