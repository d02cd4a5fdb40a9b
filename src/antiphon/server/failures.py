"""What a caller is told of an exception, whichever way it asked."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from antiphon.core.errors import ErrorPayload, RequestError, StoreError, UpstreamError
from antiphon.wire.dialects import Dialect

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
