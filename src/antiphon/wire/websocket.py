"""WebSocket messages: the client's requests, and error messages.

A client sends `{"type": "response.create", …}` with the fields of a request. `stream_id` names a
lane of the connection; without one the message belongs to the default lane, whose name is empty.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import WebSocketError
from antiphon.protocol.request import WebSocketCreate
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire import json
from antiphon.wire.openresponses import decode_create

# A lane's name is copied into every message, so it may hold only characters without escapes.
LANE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
IMPLIED_FIELDS = frozenset({"stream", "stream_options", "background"})
"""Fields that the specification forbids here. Clients send them all the same, with values that
are true of every WebSocket response, so they are ignored."""


class ClientMessage(NamedTuple):
    """A client's message: its lane, the response it continues, and the request or what is wrong."""

    lane: str
    previous_response_id: str | None
    create: WebSocketCreate | RequestError


def decode_message(data: str | bytes, limit: int) -> ClientMessage:
    """Decode a message; an error takes the place of the request."""
    # The lane is decoded first, so that even an error goes to the lane of its message.
    lane, previous = "", None
    try:
        fields = _decode_object(data, limit)
        lane = check_lane(fields.get("stream_id"))
        parent = fields.get("previous_response_id")
        previous = parent if isinstance(parent, str) else None
        if (kind := fields.get("type")) != "response.create":
            message = f"Messages of type '{str(kind)[:64]}' are not supported. Send 'response.create'."
            raise RequestError(message, param="type", code="unsupported_message")
        check_foreground(fields)
        create = decode_create({name: fields[name] for name in fields if name not in IMPLIED_FIELDS})
        return ClientMessage(lane, previous, create)
    except InvalidValueError as error:
        return ClientMessage(lane, previous, RequestError.from_invalid_value(error))
    except RequestError as error:
        return ClientMessage(lane, previous, error)


def websocket_error(payload: ErrorPayload, status: int, headers: Mapping[str, str]) -> WebSocketError:
    """Return the error message for a failed request; `code` and `headers` are never null in it."""
    code = payload.code or payload.type
    error = replace(payload, code=code, headers=dict(headers) or UNSET)
    return WebSocketError(status=status, error=error)


def add_lane(message: bytes, lane: str) -> bytes:
    """Add a lane's name to an encoded message; lane names need no JSON escapes."""
    return message[:-1] + b',"stream_id":"%b"}' % lane.encode() if lane else message


def _decode_object(data: str | bytes, limit: int) -> dict[str, object]:
    # The protocol is JSON in text messages; a binary one is a mistake of the client.
    if not isinstance(data, str):
        raise RequestError("This message is binary. Send JSON in a text message.", code="unsupported_message")
    text = data.encode()
    if len(text) > limit:
        message = f"The message is larger than {limit} bytes. Send less, or files by URL."
        raise RequestError(message, code="request_too_large", status=413)
    try:
        value = json.decode_unique(text)
    except json.JSONError as error:
        raise RequestError(f"The message is not valid JSON: {error}", param=error.key, code="invalid_json") from None
    if not isinstance(value, dict):
        message = "The message is not a JSON object. Send {'type': 'response.create', …}."
        raise RequestError(message, code="invalid_message")
    return cast("dict[str, object]", value)


def check_lane(name: object) -> str:
    """Return a lane's name; raises RequestError for an invalid one."""
    if name is None:
        return ""
    if isinstance(name, str) and LANE_NAME.fullmatch(name):
        return name
    message = "A 'stream_id' is 1 to 256 letters, digits, underscores, hyphens and periods. "
    message += "Leave it out for the default lane."
    raise RequestError(message, param="stream_id", code="invalid_stream_id")


def check_foreground(fields: Mapping[str, object]) -> None:
    """Check that a request is not for a background response; raises RequestError."""
    if fields.get("background"):
        message = "Background responses are not available on a WebSocket. Use HTTP for that."
        raise RequestError(message, param="background", code="unsupported_parameter")
