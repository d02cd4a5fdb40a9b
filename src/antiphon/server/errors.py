"""What a caller is told of an exception, whichever way it asked."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from antiphon.protocol import struct
from antiphon.protocol.errors import (
    ErrorPayload,
    RequestError,
    StoreError,
    UpstreamError,
)
from antiphon.wire.openresponses import Dialect

logger = logging.getLogger("antiphon.server")

STORE_UNAVAILABLE = ErrorPayload(
    message="Responses cannot be stored at the moment. Try again, or set store to false.",
    type="server_error",
    code="store_unavailable",
)


class ReportedError(NamedTuple):
    """An error as the protocol says it, its HTTP status and headers."""

    payload: ErrorPayload
    status: int
    headers: Mapping[str, str]


def report_error(error: Exception, dialect: Dialect, request_id: str) -> ReportedError:
    """Say what a caller may know of an error; what is our fault is logged, traceback and all."""
    match error:
        case RequestError():
            return ReportedError(error.payload, dialect.error_status(error), error.headers)
        case UpstreamError():
            return ReportedError(error.payload, error.status, error.headers)
        case StoreError():
            logger.error("%s found the store failing", request_id, exc_info=error)
            return ReportedError(STORE_UNAVAILABLE, 503, {"retry-after": "1"})
        case _:
            logger.error("%s failed", request_id, exc_info=error)
            message = f"Something broke on our side. The log knows it as {request_id}."
            broken = ErrorPayload(message=message, type="server_error", code="internal_error")
            return ReportedError(broken, 500, {})


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


def encode_error_response(
    error: RequestError, headers: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    """Write a refusal as the last answer on its connection, after the server's own headers."""
    request_id = f"req_{secrets.token_hex(16)}"
    _http_log.info("%s refused with %d: %s", request_id, error.status, error)
    body = struct.encode({"error": error.payload})
    lines = [
        b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode()),
        *(b"%b: %b" % header for header in headers),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
        b"x-request-id: %b" % request_id.encode(),
    ]
    return b"\r\n".join([*lines, b"", body])
