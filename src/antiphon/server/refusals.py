"""What a client is told when its HTTP is refused, before any app has seen the request."""

import logging
import secrets
from collections.abc import Sequence
from http import HTTPStatus

from antiphon.core import value
from antiphon.core.errors import RequestError

_http_log = logging.getLogger(__name__)


def invalid_http_error(message: str) -> RequestError:
    """Refuse HTTP that is wrong, or that can be read in two ways."""
    return RequestError(message, code="invalid_http", status=HTTPStatus.BAD_REQUEST)


def request_timeout_error(reason: str) -> RequestError:
    """Refuse to wait any longer."""
    message = f"The request's {reason}. Send it again, without pauses."
    return RequestError(message, code="request_timeout", status=HTTPStatus.REQUEST_TIMEOUT)


def headers_too_large_error(size: int, count: int) -> RequestError:
    """Refuse to hold so much of a head."""
    message = (
        f"The request line and headers exceed {size} bytes or {count} headers. "
        "Send fewer or shorter ones."
    )
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return RequestError(message, code="headers_too_large", status=status)


def encode_error_response(error: RequestError, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Write a refusal as the last answer on its connection, after the server's own headers."""
    request_id = f"req_{secrets.token_hex(16)}"
    _http_log.info("%s refused with %d: %s", request_id, error.status, error)
    body = value.encode({"error": error.payload})
    lines = [
        b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode()),
        *(b"%b: %b" % header for header in headers),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
        b"x-request-id: %b" % request_id.encode(),
    ]
    return b"\r\n".join([*lines, b"", body])
