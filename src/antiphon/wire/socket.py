"""WebSocket messages: what a client asks for, and the envelope of what came to nothing.

A client sends `{"type": "response.create", …}` with the fields of a request. `stream_id` names a
lane of the connection; without one the message belongs to the default lane, whose name is empty.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.errors import ErrorPayload, RequestError
from antiphon.core.events import WebSocketError
from antiphon.core.request import WebSocketCreate
from antiphon.core.value import ShapeError
from antiphon.wire import json
from antiphon.wire.dialects import read_create

LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
IMPLIED = frozenset({"stream", "stream_options", "background"})
"""What the specification forbids here; clients send it all the same, meaning what is so anyway."""


class Asked(NamedTuple):
    """One message of a client: its lane, what it continues, and what it asks for."""

    lane: str
    previous: str | None
    create: WebSocketCreate | RequestError


def read(data: str | bytes, limit: int) -> Asked:
    """Read a message; what is wrong with it takes the place of what it asks for."""
    lane, previous = "", None
    try:
        fields = _object(data, limit)
        lane = lane_of(fields.get("stream_id"))
        parent = fields.get("previous_response_id")
        previous = parent if isinstance(parent, str) else None
        return Asked(lane, previous, _create(fields))
    except RequestError as error:
        return Asked(lane, previous, error)


def envelope(payload: ErrorPayload, status: int, headers: Mapping[str, str]) -> WebSocketError:
    """Return the error that answers a message; its code is never null here, nor are headers."""
    code = payload.code or payload.type
    error = replace(payload, code=code, headers=dict(headers) or UNSET)
    return WebSocketError(status=status, error=error)


def stamped(message: bytes, lane: str) -> bytes:
    """Write a lane's name into a message of it; such a name needs no escapes."""
    return message[:-1] + b',"stream_id":"%b"}' % lane.encode() if lane else message


def _object(data: str | bytes, limit: int) -> dict[str, object]:
    if isinstance(data, bytes):
        message = "This message is binary. Send JSON in a text message."
        raise RequestError(message, code="unsupported_message")
    text = data.encode()
    if len(text) > limit:
        message = f"The message is larger than {limit} bytes. Send less, or files by URL."
        raise RequestError(message, code="request_too_large", status=413)
    try:
        value = json.decode(text)
    except json.JSONError as error:
        message = f"The message is not valid JSON: {error}"
        raise RequestError(message, code="invalid_json") from None
    if not isinstance(value, dict):
        message = "The message is not a JSON object. Send {'type': 'response.create', …}."
        raise RequestError(message, code="invalid_message")
    return cast("dict[str, object]", value)


def lane_of(name: object) -> str:
    """Return the name of a lane; raises RequestError for what is none."""
    if name is None:
        return ""
    if isinstance(name, str) and LANE.fullmatch(name):
        return name
    raise RequestError(
        "A 'stream_id' is 1 to 256 letters, digits, underscores, hyphens and periods. "
        "Leave it out for the default lane.",
        param="stream_id",
        code="invalid_stream_id",
    )


def _create(fields: dict[str, object]) -> WebSocketCreate:
    if fields.get("type") != "response.create":
        raise RequestError(
            f"Messages of type '{str(fields.get('type'))[:64]}' are not answered here. "
            "Send 'response.create'.",
            param="type",
            code="unsupported_message",
        )
    check_foreground(fields)
    try:
        return read_create({name: fields[name] for name in fields if name not in IMPLIED})
    except ShapeError as error:
        raise RequestError.of_shape(error) from None


def check_foreground(fields: Mapping[str, object]) -> None:
    """Refuse a request for a response in the background; raises RequestError."""
    if fields.get("background"):
        raise RequestError(
            "A response on a WebSocket cannot be made in the background. Use HTTP for that.",
            param="background",
            code="unsupported_parameter",
        )
