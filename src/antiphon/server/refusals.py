"""What a client is told when its HTTP is refused, before any app has seen the request."""

import logging
import secrets
from collections.abc import Sequence
from http import HTTPStatus

from antiphon.core import value
from antiphon.core.errors import RequestError

_log = logging.getLogger(__name__)


def malformed(message: str) -> RequestError:
    """Refuse HTTP that is wrong, or that can be read in two ways."""
    return RequestError(message, code="invalid_http", status=HTTPStatus.BAD_REQUEST)


def too_slow(what: str) -> RequestError:
    """Refuse to wait any longer."""
    message = f"The request's {what}. Send it again, without pauses."
    return RequestError(message, code="request_timeout", status=HTTPStatus.REQUEST_TIMEOUT)


def too_large(size: int, count: int) -> RequestError:
    """Refuse to hold so much of a head."""
    message = (
        f"The request line and headers exceed {size} bytes or {count} headers. "
        "Send fewer or shorter ones."
    )
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return RequestError(message, code="headers_too_large", status=status)


def encode(refusal: RequestError, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Write a refusal as the last answer on its connection, after the server's own headers."""
    request_id = f"req_{secrets.token_hex(16)}"
    _log.info("%s refused with %d: %s", request_id, refusal.status, refusal)
    body = value.encode({"error": refusal.payload})
    lines = [
        b"HTTP/1.1 %d %b" % (refusal.status, HTTPStatus(refusal.status).phrase.encode()),
        *(b"%b: %b" % header for header in headers),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
        b"x-request-id: %b" % request_id.encode(),
    ]
    return b"\r\n".join([*lines, b"", body])
