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

from antiphon.adapters.fields import fields_of
from antiphon.client.errors import broken, cut
from antiphon.client.lenient import decoded
from antiphon.client.openings import Openings
from antiphon.client.reading import DELTAS, read_event, unreadable
from antiphon.core.errors import ErrorPayload, RemoteProtocolError
from antiphon.core.events import (
    TERMINAL,
    Delta,
    Error,
    Event,
    FunctionCallArgumentsDelta,
    Lifecycle,
    ReasoningSummaryTextDelta,
    ResponseCreated,
    ResponseFailed,
)
from antiphon.core.fold import Fold
from antiphon.core.items import FunctionCall, Item, Message
from antiphon.core.response import Response, ResponseError
from antiphon.core.surrogates import Joiner

if TYPE_CHECKING:
    from antiphon.client.letter import Letter

BLANK = Response(id="", created_at=0, model="")
SHORT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, KeyError)
"""What the short way raises for anything that is not as plain as most deltas are."""

_read = msgspec.json.Decoder().decode


class Listener:
    """Reads one stream: frames in, events out, the response as far as it is known beside them.

    In strict mode every event goes before the rulebook, and the first that breaks a rule raises
    RemoteProtocolError. Otherwise whatever can be mended is, and the rest comes through as it is.
    `after` is the number of the last event that is known already: up to it nothing is told again.
    """

    def __init__(self, *, strict: bool = False, after: int = -1) -> None:
        self.ended = False
        """Whether the event has come that ends the response."""
        self.number = after
        """The last sequence number that has come, -1 before any."""
        self.strict = strict
        self._after = after
        self._whole = after < 0
        self._letter = _letter() if strict and self._whole else None
        self._fold = Fold()
        self._begun = False
        self._openings = Openings()
        self._halves: dict[str, Joiner] = {}
        self._error: ErrorPayload | None = None
        self._final: Response | None = None
        self._place: tuple[object, ...] | None = None
        self._pieces: list[str] = []

    def __repr__(self) -> str:
        return f"<Listener at {self.number}{', ended' if self.ended else ''}>"

    @property
    def response(self) -> Response | None:
        """The response as far as it is known; None before anything is."""
        if self._final is not None:
            return self._final
        return self._fold.response if self._begun else None

    def feed(self, data: bytes) -> list[Event]:
        """Hear one frame, the JSON of one event; raises RemoteProtocolError in strict mode."""
        try:
            raw = _read(data)
            kind, raw["type"] = DELTAS[raw["type"]]
            if "stream_id" in raw:
                del raw["stream_id"]
            event = cast("Delta", kind(**raw))
        except SHORT:
            return self._hear(data)
        text, number = event.delta, event.sequence_number
        if (
            self._place != _place(raw)
            or number != self.number + 1
            or type(text) is not str
            or raw.get("logprobs")
        ):
            return self._hear(data)
        if self._letter is not None:
            self._letter.delta(event)
        self.number = number
        self._pieces.append(text)
        return [event]

    def take(self, event: Event) -> list[Event]:
        """Take in an event that has been read already; return it mended, with what it lacked."""
        if isinstance(event, Error):
            self._error = event.error
        elif isinstance(event, TERMINAL):
            event = self._ended(event)
        event = self._openings.placed(event)
        known = self._openings.has(event)
        missed = self._openings.before(event)
        for one in missed if known else (*missed, event):
            self._learn(one)
        if isinstance(event, Delta) and not self._halves:
            self._remember(event)
        return [*missed, event] if self._whole else [event]

    def again(self) -> None:
        """Go on with another connection: what has been told may come again, and is not told."""
        self._after = self.number

    def close(self) -> None:
        """Hear that the stream is over; raises what was wrong if that is too early."""
        if self.ended:
            return
        if self._error is not None:
            raise broken(self._error)
        if self._letter is not None:
            self._letter.close()
        raise cut()

    # --- the long way ---

    def _hear(self, data: bytes) -> list[Event]:
        self._place = None
        raw = decoded(data)
        number = fields_of(raw).get("sequence_number")
        if type(number) is int and 0 <= number <= self._after:
            return []
        raw = self._joined(raw)
        if self._letter is not None:
            self._letter.event(raw)
        elif self.ended:
            return []
        next = self.number + 1
        event = read_event(raw, next) if raw is not None else unreadable(data, next)
        if self.strict and not self._whole:
            self._check_number(event)
        self.number = max(self.number, event.sequence_number)
        return self.take(event)

    def _check_number(self, event: Event) -> None:
        """Judge what can be judged of the rest of a stream."""
        if event.sequence_number != self.number + 1:
            raise RemoteProtocolError(
                f"event {event.sequence_number} follows {self.number}. [sequence-gapless]"
            )

    def _learn(self, event: Event) -> None:
        if not self._begun and not isinstance(event, Lifecycle):
            self._fold.feed(ResponseCreated(sequence_number=0, response=BLANK))
        self._begun = True
        with suppress(RemoteProtocolError):  # it is about an item that is done
            self._fold.feed(event)

    def _remember(self, event: Delta) -> None:
        """Remember the text that grows, for the deltas that follow."""
        match event:
            case ReasoningSummaryTextDelta():
                kind, index = "summary_index", event.summary_index
            case FunctionCallArgumentsDelta():
                kind, index = "", 0
            case _:
                kind, index = "content_index", event.content_index
        with suppress(LookupError):  # its item may be done
            self._pieces = self._fold.pieces(event.output_index, kind, index)
            self._place = _place(msgspec.structs.asdict(event))

    def _joined(self, raw: object) -> object:
        """Hold back half a character of a delta until its other half comes."""
        fields = fields_of(raw)
        delta = fields.get("delta")
        if not isinstance(delta, str) or not (self._halves or _is_half(delta)):
            return raw
        place = repr(_place(fields))
        joiner = self._halves.setdefault(place, Joiner())
        whole = joiner.feed(delta)
        if not joiner.held:
            del self._halves[place]
        return fields | {"delta": whole}

    # --- the end ---

    def _ended(self, event: Event) -> Event:
        """Mend the last event: all that was told is in it, and why it failed."""
        response = cast("ResponseFailed", event).response
        known = self._fold.response if self._begun else BLANK
        if not response.id:
            response = replace(
                response, id=known.id, model=known.model, created_at=known.created_at
            )
        if not response.output and known.output:
            finished = [_finished(item, response.status) for item in known.output]
            response = replace(response, output=finished)
        if response.status == "failed" and response.error is None and self._error is not None:
            code = self._error.code or self._error.type
            error = ResponseError(code=code, message=self._error.message)
            response = replace(response, error=error)
        self.ended = True
        self._final = response
        return replace(event, response=response)


def _letter() -> "Letter":
    from antiphon.client.letter import Letter  # start-up time

    return Letter()


def _place(raw: dict[str, object]) -> tuple[object, ...]:
    get = raw.get
    return (
        get("type"),
        get("item_id"),
        get("output_index"),
        get("content_index"),
        get("summary_index"),
    )


def _is_half(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _finished(item: Item, status: str) -> Item:
    if not isinstance(item, Message | FunctionCall) or item.status not in ("in_progress", UNSET):
        return item
    return replace(item, status="completed" if status == "completed" else "incomplete")
