"""Reads a server's stream for the client: frames in, events out, errors if it ends too early."""

from antiphon.adapters.json_access import parse_json
from antiphon.client.errors import (
    decode_error_payload,
    stream_cut_error,
    stream_error,
    wrong_body_error,
)
from antiphon.protocol.events import Event
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.foreign.reader import ForeignReader
from antiphon.protocol.foreign.strict import ForeignChecker
from antiphon.protocol.json_values import as_object
from antiphon.protocol.response import Response
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.wire import json


class EventReader(ForeignReader):
    """Reads one stream: frames in, events out, and the response as far as it is known.

    In strict mode the first event that breaks a rule raises RemoteProtocolError. Otherwise the
    stream is repaired as far as possible, and the rest comes as it is.
    """

    def __init__(self, *, strict: bool = False, after: int = -1) -> None:
        checker = ForeignChecker(strict=True, after=after) if strict else None
        super().__init__(read_error=decode_error_payload, checker=checker, after=after)
        self.strict = strict

    def __repr__(self) -> str:
        return f"<EventReader at {self.last_number}{', ended' if self.ended else ''}>"

    def feed_frame(self, data: bytes) -> list[Event]:
        """Read one frame, the JSON of one event; raises RemoteProtocolError in strict mode."""
        try:
            raw = json.decode_foreign(data)
        except (json.JSONError, RecursionError):
            # A text is no event either: it comes out as `antiphon:unreadable`.
            raw = repair_surrogates(data.decode(errors="replace"))
        return self.feed(raw)

    def close(self) -> None:
        """End the stream; raises the reason if the response has not ended."""
        if self.ended:
            return
        # The error event says more than that the stream was cut.
        if self.error is not None:
            raise stream_error(self.error)
        super().close()
        raise stream_cut_error()


def parse_response(body: bytes, server_name: str) -> Response:
    """Read a whole response; raises UpstreamError for anything else."""
    fields = as_object(parse_json(body))
    if not {"id", "output"} & fields.keys():
        if "error" in fields:
            raise stream_error(decode_error_payload(fields))
        raise wrong_body_error(server_name, body, "a response")
    return LENIENT.read_response(fields)
