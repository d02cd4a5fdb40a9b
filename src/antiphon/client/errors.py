"""What a server says went wrong, and what becomes of a connection to it, as errors of ours."""

from collections.abc import Mapping

from antiphon.adapters.errors import (
    STATUS_BY_CODE,
    ErrorInfo,
    error_type,
    html_page_error,
    infer_status,
    is_retryable,
    parse_error,
    redact,
    redact_key,
    redirect_advice,
    retry_headers,
)
from antiphon.adapters.json_access import JsonObject, as_object, omit, parse_json
from antiphon.protocol.errors import ErrorPayload, UpstreamError
from antiphon.transport.response import CUT, INVALID, UNREACHABLE

SERVER = "The server"
"""Its name on a WebSocket."""

TRANSIENT_CODES = frozenset({CUT, UNREACHABLE, INVALID})
"""What a gateway says of trouble behind it; other codes that nobody knows are final."""

TOO_MANY_REQUESTS = 429


def redact_credentials(text: str, headers: Mapping[str, str]) -> str:
    """Return a server's words without the key that it was shown."""
    return redact_key(text, headers.get("authorization", "").rpartition(" ")[2])


def http_status_error(
    server_name: str, status: int, headers: Mapping[str, str], body: bytes
) -> UpstreamError:
    """Read the answer of a server that refuses."""
    from antiphon.adapters.base import Provider
    from antiphon.adapters.open_responses.adapter import OpenResponses

    return OpenResponses(Provider(name=server_name, adapter="responses")).decode_error(
        status, headers, body
    )


def websocket_refused_error(
    status: int, headers: Mapping[str, str], body: bytes, location: str | None
) -> UpstreamError:
    """Read the answer of a server that opens no WebSocket; `place` is where it has moved."""
    fault = parse_error(parse_json(body))
    reason = (
        redirect_advice(location) if location else redact(fault.message) or "It did not say why."
    )
    message = f"{SERVER} answered {status} instead of opening a WebSocket: {reason}"
    return _upstream_error(message, fault, status, headers, "websocket_refused")


def websocket_message_error(message: bytes) -> UpstreamError:
    """Read the error that answers a message on a WebSocket."""
    fields = as_object(parse_json(message))
    fault = parse_error(omit(fields, ["type"]))
    said = fields.get("status")
    status = said if isinstance(said, int) and 400 <= said < 600 else infer_status(fault, 500)
    headers = as_object(as_object(fields.get("error")).get("headers"))
    reason = redact(fault.message) or f"{SERVER} answered {status} and did not say why."
    named = {name.lower(): str(value) for name, value in headers.items()}
    return _upstream_error(reason, fault, status, named, fault.code)


def _upstream_error(
    message: str, fault: ErrorInfo, status: int, headers: Mapping[str, str], code: str | None
) -> UpstreamError:
    return UpstreamError(
        message,
        status=status,
        type=fault.type or error_type(status),
        code=code,
        param=fault.param,
        retryable=is_retryable(status, headers, fault),
        headers=retry_headers(headers),
    )


def decode_error_payload(fields: JsonObject) -> ErrorPayload:
    """Read the error of an `error` event, nested or flat."""
    from antiphon.adapters.open_responses.decode import read_error

    fault = read_error(fields)
    return ErrorPayload(
        message=redact(fault.message) or "The server broke off and did not say why.",
        type=fault.type if fault.type not in (None, "error") else "server_error",
        code=fault.code,
        param=fault.param,
    )


def stream_error(payload: ErrorPayload) -> UpstreamError:
    """Make the exception of an error that a server told inside a stream."""
    fault = ErrorInfo(payload.message, payload.type, payload.code, payload.param)
    status = infer_status(fault)
    final = payload.code not in STATUS_BY_CODE.keys() | TRANSIENT_CODES | {None}
    return UpstreamError(
        payload.message,
        status=status,
        type=payload.type,
        code=payload.code,
        param=payload.param,
        retryable=is_retryable(status, {}, fault) and (status == TOO_MANY_REQUESTS or not final),
    )


def invalid_response_error(server_name: str, message: str) -> UpstreamError:
    """Make the error for an answer that is none."""
    return UpstreamError(f"{server_name}: {message}", code=INVALID)


def unexpected_body_error(server_name: str, body: bytes, expected: str) -> UpstreamError:
    """Make the error for a good answer that is not what was asked for."""
    body = body.strip()
    if body.startswith(b"<"):
        return html_page_error(server_name)
    what = "something else" if body else "nothing"
    return invalid_response_error(server_name, f"answered with {what} instead of {expected}.")


def stream_cut_error() -> UpstreamError:
    """Make the error for a stream that ended before its response did."""
    return UpstreamError("The stream ended before the response did.", code=CUT, retryable=True)


def websocket_closed_error(reason: str) -> UpstreamError:
    """Make the error for a socket that is no more."""
    message = f"The WebSocket is closed: {reason}"
    return UpstreamError(message, status=502, code="websocket_closed", retryable=True)
