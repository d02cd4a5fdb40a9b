"""Errors as clients see them: over HTTP, in a WebSocket message, and below ASGI."""

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
    """An error in the protocol's format, with its HTTP status and headers."""

    payload: ErrorPayload
    status: int
    headers: Mapping[str, str]


def report_error(error: Exception, dialect: Dialect, request_id: str) -> ReportedError:
    """Return what a client may know of an error; our own failures are logged with traceback."""
    match error:
        case RequestError():
            return ReportedError(error.payload, dialect.error_status(error), error.headers)
        case UpstreamError():
            return ReportedError(error.payload, error.status, error.headers)
        case StoreError():
            # Mostly a full disk or a locked database, which may be over in a second.
            logger.error("%s: the store failed", request_id, exc_info=error)
            return ReportedError(STORE_UNAVAILABLE, 503, {"retry-after": "1"})
        case _:
            # The exception's own message may contain prompts, keys or paths: only the log has it.
            logger.error("%s failed", request_id, exc_info=error)
            message = f"Internal error. The server's log has it under the id {request_id}."
            payload = ErrorPayload(message=message, type="server_error", code="internal_error")
            return ReportedError(payload, 500, {})


def invalid_http_error(message: str) -> RequestError:
    """Return the 400 for invalid or ambiguous HTTP."""
    return RequestError(message, code="invalid_http", status=HTTPStatus.BAD_REQUEST)


def request_timeout_error(reason: str) -> RequestError:
    """Return the 408 for a request that arrives too slowly."""
    message = f"The request's {reason}. Send it again, without pauses."
    return RequestError(message, code="request_timeout", status=HTTPStatus.REQUEST_TIMEOUT)


def headers_too_large_error(size: int, count: int) -> RequestError:
    """Return the 431 for a head over the limits."""
    message = (
        f"The request line and headers exceed {size} bytes or {count} headers. "
        "Send fewer or shorter ones."
    )
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return RequestError(message, code="headers_too_large", status=status)


def encode_error_response(
    error: RequestError, headers: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    """Encode an error as an HTTP response that closes its connection; `headers` come first."""
    # Below ASGI: no middleware has given the request an id, and its door is not known yet, so the
    # error has the specification's format.
    request_id = f"req_{secrets.token_hex(16)}"
    logger.info("%s rejected with %d: %s", request_id, error.status, error)
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
