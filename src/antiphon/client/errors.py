"""What a server says went wrong, and what becomes of a connection to it, as errors of ours."""

from collections.abc import Mapping

from antiphon.adapters.astray import astray, directions
from antiphon.adapters.faults import (
    STATUSES,
    Fault,
    advice,
    fault_in,
    is_retryable,
    redacted,
    status_of,
    type_of,
    without_key,
)
from antiphon.adapters.fields import Fields, fields_of, without
from antiphon.client.lenient import decoded
from antiphon.core.errors import ErrorPayload, UpstreamError
from antiphon.transport.errors import CUT, INVALID, UNREACHABLE

WHO = "The server"
"""Its name on a WebSocket."""

PASSING = frozenset({CUT, UNREACHABLE, INVALID})
"""What a gateway says of trouble behind it; other codes that nobody knows are final."""

TOO_MANY = 429


def hushed(said: str, headers: Mapping[str, str]) -> str:
    """Return a server's words without the key that it was shown."""
    return without_key(said, headers.get("authorization", "").rpartition(" ")[2])


def refused(who: str, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
    """Read the answer of a server that refuses."""
    from antiphon.adapters.base import Provider  # start-up time
    from antiphon.adapters.responses import Responses

    return Responses(Provider(name=who, adapter="responses")).error(status, headers, body)


def unopened(
    status: int, headers: Mapping[str, str], body: bytes, place: str | None
) -> UpstreamError:
    """Read the answer of a server that opens no WebSocket; `place` is where it has moved."""
    fault = fault_in(decoded(body))
    reason = directions(place) if place else redacted(fault.message) or "It did not say why."
    message = f"{WHO} answered {status} instead of opening a WebSocket: {reason}"
    return _error(message, fault, status, headers, "websocket_refused")


def enveloped(message: bytes) -> UpstreamError:
    """Read the error that answers a message on a WebSocket."""
    fields = fields_of(decoded(message))
    fault = fault_in(without(fields, ["type"]))
    said = fields.get("status")
    status = said if isinstance(said, int) and 400 <= said < 600 else status_of(fault, 500)
    headers = fields_of(fields_of(fields.get("error")).get("headers"))
    reason = redacted(fault.message) or f"{WHO} answered {status} and did not say why."
    named = {name.lower(): str(value) for name, value in headers.items()}
    return _error(reason, fault, status, named, fault.code)


def _error(
    message: str, fault: Fault, status: int, headers: Mapping[str, str], code: str | None
) -> UpstreamError:
    return UpstreamError(
        message,
        status=status,
        type=fault.type or type_of(status),
        code=code,
        param=fault.param,
        retryable=is_retryable(status, headers, fault),
        headers=advice(headers),
    )


def payload_of(fields: Fields) -> ErrorPayload:
    """Read the error of an `error` event, nested or flat."""
    from antiphon.adapters.responses.answer import error_in  # start-up time

    fault = error_in(fields)
    return ErrorPayload(
        message=redacted(fault.message) or "The server broke off and did not say why.",
        type=fault.type if fault.type not in (None, "error") else "server_error",
        code=fault.code,
        param=fault.param,
    )


def broken(payload: ErrorPayload) -> UpstreamError:
    """Make the exception of an error that a server told inside a stream."""
    fault = Fault(payload.message, payload.type, payload.code, payload.param)
    status = status_of(fault)
    final = payload.code not in STATUSES.keys() | PASSING | {None}
    return UpstreamError(
        payload.message,
        status=status,
        type=payload.type,
        code=payload.code,
        param=payload.param,
        retryable=is_retryable(status, {}, fault) and (status == TOO_MANY or not final),
    )


def invalid(who: str, message: str) -> UpstreamError:
    """Make the error for an answer that is none."""
    return UpstreamError(f"{who}: {message}", code=INVALID)


def unlike(who: str, said: bytes, wanted: str) -> UpstreamError:
    """Make the error for a good answer that is not what was asked for."""
    said = said.strip()
    if said.startswith(b"<"):
        return astray(who)
    what = "something else" if said else "nothing"
    return invalid(who, f"answered with {what} instead of {wanted}.")


def cut() -> UpstreamError:
    """Make the error for a stream that ended before its response did."""
    return UpstreamError("The stream ended before the response did.", code=CUT, retryable=True)


def closed(reason: str) -> UpstreamError:
    """Make the error for a socket that is no more."""
    message = f"The WebSocket is closed: {reason}"
    return UpstreamError(message, status=502, code="websocket_closed", retryable=True)
