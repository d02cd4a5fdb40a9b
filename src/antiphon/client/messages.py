"""Messages on a socket: how a response is asked for, and whose each answer is."""

from collections.abc import Mapping

import msgspec

from antiphon.adapters.fields import as_object, as_string, omit
from antiphon.client.fields import ResponseParams, encode_body
from antiphon.client.lenient import parse_json
from antiphon.client.reading import EVENT_CLASSES
from antiphon.core.events import TERMINAL_EVENTS
from antiphon.wire.socket import IMPLIED_FIELDS, check_foreground

CREATE_TYPE = "response.create"
ERROR_TYPE = "error"
TERMINAL_TYPES = frozenset(name for name, kind in EVENT_CLASSES.items() if kind in TERMINAL_EVENTS)
"""The types of messages that a response ends with."""

RESERVED_FIELDS = IMPLIED_FIELDS | {"type", "stream_id"}
"""The fields of a message that are not the caller's."""


class TurnParams(ResponseParams, total=False):
    """The fields of a request for a response on a socket."""

    generate: bool
    """False only has the server read; the response can be continued."""


class MessageLabel(msgspec.Struct):
    """What must be known of a message to pass it on."""

    type: str = ""
    stream_id: str | None = None


_decode_label_strictly = msgspec.json.Decoder(MessageLabel).decode


def encode_create(body: Mapping[str, object], lane: str) -> bytes:
    """Write the message that asks for a response; raises RequestError for what cannot be asked."""
    check_foreground(body)
    named = {"stream_id": lane} if lane else {}
    return encode_body({"type": CREATE_TYPE} | omit(body, RESERVED_FIELDS) | named)


def decode_label(message: bytes) -> MessageLabel:
    """Read what must be known of a message, whatever it is."""
    try:
        return _decode_label_strictly(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = as_object(parse_json(message))
        return MessageLabel(as_string(fields.get("type")), as_string(fields.get("stream_id")))


def decode_response_id(message: bytes) -> object:
    """Return the id of the response that a message tells of, if it does."""
    return as_object(as_object(parse_json(message)).get("response")).get("id")
