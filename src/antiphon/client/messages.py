"""Messages on a socket: how a response is asked for, whose each answer is, and how it refuses."""

from collections.abc import Mapping

import msgspec

from antiphon.adapters.faults import fault_in, is_retryable, redacted, status_of, type_of
from antiphon.adapters.fields import fields_of, string, without
from antiphon.client.fields import Fields
from antiphon.client.reading import KINDS, decoded
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.core.events import TERMINAL
from antiphon.wire import json
from antiphon.wire.socket import IMPLIED

WHO = "The server"
CREATE = "response.create"
ERROR = "error"
LAST = frozenset(name for name, kind in KINDS.items() if kind in TERMINAL)
"""The types of messages that a response ends with."""

OURS = IMPLIED | {"type", "stream_id"}
"""The fields of a message that are not the caller's."""


class TurnFields(Fields, total=False):
    """The fields of a request for a response on a socket."""

    generate: bool
    """False only has the server read; the response can be continued."""


class Label(msgspec.Struct):
    """What must be known of a message to pass it on."""

    type: str = ""
    stream_id: str | None = None


_read = msgspec.json.Decoder(Label).decode


def asked(body: Mapping[str, object], lane: str) -> bytes:
    """Write the message that asks for a response; raises RequestError for what cannot be asked."""
    if body.get("background"):
        raise RequestError(
            "A response on a WebSocket cannot be made in the background. Use HTTP for that.",
            param="background",
            code="unsupported_parameter",
        )
    named = {"stream_id": lane} if lane else {}
    try:
        return json.encode({"type": CREATE} | without(body, OURS) | named)
    except json.JSONError as error:
        raise RequestError(str(error), code="invalid_json") from None


def labelled(message: bytes) -> Label:
    """Read what must be known of a message, whatever it is."""
    try:
        return _read(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = fields_of(decoded(message))
        return Label(string(fields.get("type")), string(fields.get("stream_id")))


def response_id(message: bytes) -> object:
    """Return the id of the response that a message tells of, if it does."""
    return fields_of(fields_of(decoded(message)).get("response")).get("id")


def refusal(message: bytes) -> UpstreamError:
    """Read an error envelope."""
    fields = fields_of(decoded(message))
    fault = fault_in(without(fields, ["type"]))
    told = fields.get("status")
    status = told if isinstance(told, int) and 400 <= told < 600 else status_of(fault, 500)
    said = fields_of(fields_of(fields.get("error")).get("headers"))
    headers = {name.lower(): str(value) for name, value in said.items()}
    return UpstreamError(
        redacted(fault.message) or f"{WHO} answered {status} and did not say why.",
        status=status,
        type=fault.type or type_of(status),
        code=fault.code,
        param=fault.param,
        retryable=is_retryable(status, headers, fault),
        headers=headers,
    )


def closed(reason: str) -> UpstreamError:
    """Make the error for a socket that is no more."""
    message = f"The WebSocket is closed: {reason}"
    return UpstreamError(message, status=502, code="websocket_closed", retryable=True)
