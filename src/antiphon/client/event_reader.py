"""One server's stream, heard: frames in, events out, and the response as far as it is known.

Streams are mostly deltas, so a delta of the text that grew last takes a short way. Everything else
is read leniently (`reading.py`), what was never opened is opened (`openings.py`), and in strict
mode nothing is mended: the first broken rule is raised (`letter.py`).
"""

from contextlib import suppress
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.adapters.json_access import as_object
from antiphon.client.errors import stream_cut_error, stream_error
from antiphon.client.lenient_events import DELTA_CLASSES, read_event, unreadable_event
from antiphon.client.lenient_values import parse_json
from antiphon.client.missing_events import OpenItems
from antiphon.protocol.errors import ErrorPayload, RemoteProtocolError
from antiphon.protocol.events import (
    TERMINAL_EVENTS,
    DeltaEvent,
    ErrorEvent,
    Event,
    FunctionCallArgumentsDelta,
    LifecycleEvent,
    ReasoningSummaryTextDelta,
    ResponseCreated,
    ResponseFailed,
)
from antiphon.protocol.fold import Fold
from antiphon.protocol.items import FunctionCall, Item, Message
from antiphon.protocol.response import Response, ResponseError
from antiphon.protocol.surrogates import SurrogateJoiner

if TYPE_CHECKING:
    from antiphon.client.strict_checker import StrictChecker

EMPTY_RESPONSE = Response(id="", created_at=0, model="")
FAST_PATH_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, KeyError)
"""What the short way raises for anything that is not as plain as most deltas are."""

_read = msgspec.json.Decoder().decode


class EventReader:
    """Reads one stream: frames in, events out, the response as far as it is known beside them.

    In strict mode every event goes before the rulebook, and the first that breaks a rule raises
    RemoteProtocolError. Otherwise whatever can be mended is, and the rest comes through as it is.
    `after` is the number of the last event that is known already: up to it nothing is told again.
    """

    def __init__(self, *, strict: bool = False, after: int = -1) -> None:
        self.ended = False
        """Whether the event has come that ends the response."""
        self.last_number = after
        """The last sequence number that has come, -1 before any."""
        self.strict = strict
        self._after = after
        self._from_start = after < 0
        self._checker = _make_checker() if strict and self._from_start else None
        self._fold = Fold()
        self._has_response = False
        self._openings = OpenItems()
        self._joiners: dict[str, SurrogateJoiner] = {}
        self._error: ErrorPayload | None = None
        self._final: Response | None = None
        self._delta_key: tuple[object, ...] | None = None
        self._pieces: list[str] = []

    def __repr__(self) -> str:
        return f"<Listener at {self.last_number}{', ended' if self.ended else ''}>"

    @property
    def response(self) -> Response | None:
        """The response as far as it is known; None before anything is."""
        if self._final is not None:
            return self._final
        return self._fold.response if self._has_response else None

    def feed(self, data: bytes) -> list[Event]:
        """Hear one frame, the JSON of one event; raises RemoteProtocolError in strict mode."""
        try:
            raw = _read(data)
            kind, raw["type"] = DELTA_CLASSES[raw["type"]]
            if "stream_id" in raw:
                del raw["stream_id"]
            event = cast("DeltaEvent", kind(**raw))
        except FAST_PATH_ERRORS:
            return self._read(data)
        text, number = event.delta, event.sequence_number
        if (
            self._delta_key != _delta_key(raw)
            or number != self.last_number + 1
            or type(text) is not str
            or raw.get("logprobs")
        ):
            return self._read(data)
        if self._checker is not None:
            self._checker.check_delta(event)
        self.last_number = number
        self._pieces.append(text)
        return [event]

    def feed_event(self, event: Event) -> list[Event]:
        """Take in an event that has been read already; return it mended, with what it lacked."""
        if isinstance(event, ErrorEvent):
            self._error = event.error
        elif isinstance(event, TERMINAL_EVENTS):
            event = self._complete_response(event)
        event = self._openings.assign_index(event)
        known = self._openings.is_open(event)
        missed = self._openings.missing_events(event)
        for one in missed if known else (*missed, event):
            self._fold_event(one)
        if isinstance(event, DeltaEvent) and not self._joiners:
            self._remember_delta(event)
        return [*missed, event] if self._from_start else [event]

    def reconnect(self) -> None:
        """Go on with another connection: what has been told may come again, and is not told."""
        self._after = self.last_number

    def close(self) -> None:
        """Hear that the stream is over; raises what was wrong if that is too early."""
        if self.ended:
            return
        if self._error is not None:
            raise stream_error(self._error)
        if self._checker is not None:
            self._checker.close()
        raise stream_cut_error()

    # --- the long way ---

    def _read(self, data: bytes) -> list[Event]:
        self._delta_key = None
        raw = parse_json(data)
        number = as_object(raw).get("sequence_number")
        if type(number) is int and 0 <= number <= self._after:
            return []
        raw = self._join_surrogates(raw)
        if self._checker is not None:
            self._checker.check(raw)
        elif self.ended:
            return []
        next = self.last_number + 1
        event = read_event(raw, next) if raw is not None else unreadable_event(data, next)
        if self.strict and not self._from_start:
            self._check_number(event)
        self.last_number = max(self.last_number, event.sequence_number)
        return self.feed_event(event)

    def _check_number(self, event: Event) -> None:
        """Judge what can be judged of the rest of a stream."""
        if event.sequence_number != self.last_number + 1:
            raise RemoteProtocolError(
                f"event {event.sequence_number} follows {self.last_number}. [sequence-gapless]"
            )

    def _fold_event(self, event: Event) -> None:
        if not self._has_response and not isinstance(event, LifecycleEvent):
            self._fold.feed(ResponseCreated(sequence_number=0, response=EMPTY_RESPONSE))
        self._has_response = True
        with suppress(RemoteProtocolError):  # it is about an item that is done
            self._fold.feed(event)

    def _remember_delta(self, event: DeltaEvent) -> None:
        """Remember the text that grows, for the deltas that follow."""
        match event:
            case ReasoningSummaryTextDelta():
                kind, index = "summary_index", event.summary_index
            case FunctionCallArgumentsDelta():
                kind, index = "", 0
            case _:
                kind, index = "content_index", event.content_index
        with suppress(LookupError):  # its item may be done
            self._pieces = self._fold.open_text_pieces(event.output_index, kind, index)
            self._delta_key = _delta_key(msgspec.structs.asdict(event))

    def _join_surrogates(self, raw: object) -> object:
        """Hold back half a character of a delta until its other half comes."""
        fields = as_object(raw)
        delta = fields.get("delta")
        if not isinstance(delta, str) or not (self._joiners or _has_surrogate(delta)):
            return raw
        place = repr(_delta_key(fields))
        joiner = self._joiners.setdefault(place, SurrogateJoiner())
        whole = joiner.feed(delta)
        if not joiner.pending:
            del self._joiners[place]
        return fields | {"delta": whole}

    # --- the end ---

    def _complete_response(self, event: Event) -> Event:
        """Mend the last event: all that was told is in it, and why it failed."""
        response = cast("ResponseFailed", event).response
        known = self._fold.response if self._has_response else EMPTY_RESPONSE
        if not response.id:
            response = replace(
                response, id=known.id, model=known.model, created_at=known.created_at
            )
        if not response.output and known.output:
            finished = [_finish_item(item, response.status) for item in known.output]
            response = replace(response, output=finished)
        if response.status == "failed" and response.error is None and self._error is not None:
            code = self._error.code or self._error.type
            error = ResponseError(code=code, message=self._error.message)
            response = replace(response, error=error)
        self.ended = True
        self._final = response
        return replace(event, response=response)


def _make_checker() -> "StrictChecker":
    from antiphon.client.strict_checker import StrictChecker

    return StrictChecker()


def _delta_key(raw: dict[str, object]) -> tuple[object, ...]:
    get = raw.get
    return (
        get("type"),
        get("item_id"),
        get("output_index"),
        get("content_index"),
        get("summary_index"),
    )


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _finish_item(item: Item, status: str) -> Item:
    if not isinstance(item, Message | FunctionCall) or item.status not in ("in_progress", UNSET):
        return item
    return replace(item, status="completed" if status == "completed" else "incomplete")
