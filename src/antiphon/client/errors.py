"""Build exceptions from the error bodies, events and connection failures of a server."""

from collections.abc import Mapping

from antiphon.adapters import errors
from antiphon.adapters.json_access import parse_json
from antiphon.protocol.errors import ErrorPayload, UpstreamError
from antiphon.protocol.struct import JsonObject, as_object, omit
from antiphon.transport.response import CUT, INVALID, UNREACHABLE

SERVER = "The server"
"""Name of the server in errors on a WebSocket, where no address is at hand."""

TRANSIENT_CODES = frozenset({CUT, UNREACHABLE, INVALID})
"""Codes with which a gateway reports a failure behind it. Unknown codes are not retried."""

TOO_MANY_REQUESTS = 429


def redact_credentials(text: str, headers: Mapping[str, str]) -> str:
    """Remove the bearer token of the request from text that the server sent.

    Callers do this before they build an error: the functions below do not know the token.
    """
    return errors.redact_key(text, headers.get("authorization", "").rpartition(" ")[2])


def http_status_error(server_name: str, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
    # Imported here: the adapter takes long to import, and most programs see no error.
    from antiphon.adapters.base import Provider
    from antiphon.adapters.open_responses.adapter import OpenResponses

    return OpenResponses(Provider(name=server_name, adapter="responses")).decode_error(status, headers, body)


def websocket_refused_error(
    status: int, headers: Mapping[str, str], body: bytes, location: str | None
) -> UpstreamError:
    """Build the error for a refused WebSocket handshake; `location` is a redirect's target."""
    info = errors.parse_error(parse_json(body))
    reason = errors.redact(info.message) or "It did not say why."
    if location:
        reason = errors.redirect_advice(location)
    message = f"{SERVER} answered {status} instead of opening a WebSocket: {reason}"
    return _upstream_error(message, info, status, headers, "websocket_refused")


def websocket_message_error(message: bytes) -> UpstreamError:
    """Build the error for an `error` message on a WebSocket."""
    fields = as_object(parse_json(message))
    # Without its "type": that is the message's own, "error", not the error's.
    info = errors.parse_error(omit(fields, ["type"]))
    status = fields.get("status")
    if not isinstance(status, int) or not 400 <= status < 600:
        status = errors.infer_status(info, 500)
    # OpenAI puts the HTTP headers of the failure, Retry-After among them, into the error.
    sent = as_object(as_object(fields.get("error")).get("headers"))
    headers = {name.lower(): str(value) for name, value in sent.items()}
    reason = errors.redact(info.message) or f"{SERVER} answered {status} and did not say why."
    return _upstream_error(reason, info, status, headers, info.code)


def _upstream_error(
    message: str, info: errors.ErrorInfo, status: int, headers: Mapping[str, str], code: str | None
) -> UpstreamError:
    return UpstreamError(
        message,
        status=status,
        type=info.type or errors.error_type(status),
        code=code,
        param=info.param,
        retryable=errors.is_retryable(status, headers, info),
        headers=errors.retry_headers(headers),
    )


def decode_error_payload(fields: JsonObject) -> ErrorPayload:
    """Decode the error of an `error` event, nested or flat."""
    # Imported here: start-up time.
    from antiphon.adapters.open_responses.decode import read_error

    info = read_error(fields)
    return ErrorPayload(
        message=errors.redact(info.message) or "The server broke off and did not say why.",
        type=info.type if info.type not in (None, "error") else "server_error",
        code=info.code,
        param=info.param,
    )


def stream_error(payload: ErrorPayload) -> UpstreamError:
    """Build the error for a failure that the server reported inside a stream."""
    info = errors.ErrorInfo(payload.message, payload.type, payload.code, payload.param)
    status = errors.infer_status(info)
    # errors.infer_status gives 5xx to unknown codes; a retry would only repeat them.
    is_known = payload.code in errors.STATUS_BY_CODE.keys() | TRANSIENT_CODES | {None}
    return UpstreamError(
        payload.message,
        status=status,
        type=payload.type,
        code=payload.code,
        param=payload.param,
        retryable=errors.is_retryable(status, {}, info) and (is_known or status == TOO_MANY_REQUESTS),
    )


def invalid_response_error(server_name: str, message: str) -> UpstreamError:
    return UpstreamError(f"{server_name}: {message}", code=INVALID)


def wrong_body_error(server_name: str, body: bytes, expected: str) -> UpstreamError:
    """Build the error for a successful response with an unusable body; `expected` names what should have come."""
    body = body.strip()
    if body.startswith(b"<"):
        return errors.html_page_error(server_name)
    what = "something else" if body else "nothing"
    return invalid_response_error(server_name, f"answered with {what} instead of {expected}.")


def stream_cut_error() -> UpstreamError:
    return UpstreamError("The stream ended before the response did.", code=CUT, retryable=True)


def websocket_closed_error(reason: str) -> UpstreamError:
    return UpstreamError(f"The WebSocket is closed: {reason}", code="websocket_closed", retryable=True)
