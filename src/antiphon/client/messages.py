"""Messages on a socket: how a response is asked for, and whose each answer is."""

from collections.abc import Mapping

import msgspec

from antiphon.adapters.fields import fields_of, string, without
from antiphon.client.fields import Fields, encoded
from antiphon.client.lenient import decoded
from antiphon.client.reading import KINDS
from antiphon.core.events import TERMINAL
from antiphon.wire.socket import IMPLIED, check_foreground

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
    check_foreground(body)
    named = {"stream_id": lane} if lane else {}
    return encoded({"type": CREATE} | without(body, OURS) | named)


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
