"""Reads streams of other servers, in any dialect: parsed JSON in, typed events out.

Values are read leniently (`lenient.py`), every event is assigned to its item and missing opening events are made
(`repair.py`), and a checker sees the events as they were sent (`strict.py`). Ids and numbers stay the server's own.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol import events
from antiphon.protocol.errors import ErrorPayload, RemoteProtocolError
from antiphon.protocol.events import DeltaEvent, Event, part_of
from antiphon.protocol.fold import Fold
from antiphon.protocol.foreign.lenient import LenientReader
from antiphon.protocol.foreign.repair import ItemTracker, TrackedItem
from antiphon.protocol.foreign.strict import ForeignChecker
from antiphon.protocol.items import FunctionCall, Item, Message
from antiphon.protocol.response import Response, ResponseError
from antiphon.protocol.struct import InvalidValueError, JsonObject, as_object, omit
from antiphon.protocol.surrogates import SurrogateJoiner, repair_surrogates

UNREADABLE = "antiphon:unreadable"
EMPTY_RESPONSE = Response(id="", created_at=0, model="")


class ForeignReader:
    """Reads one stream: JSON in, events out, and the response as far as it is known.

    `after` is the number of the last event that is known already: events up to it are skipped.
    `read_error` reads the error of an `error` event, whose fields are nested or flat.
    """

    def __init__(
        self,
        *,
        read_error: Callable[[JsonObject], ErrorPayload],
        checker: ForeignChecker | None = None,
        slug: str | None = None,
        after: int = -1,
    ) -> None:
        self.ended = False
        """Whether the event that ends the response was read."""
        self.error: ErrorPayload | None = None
        """The error of the last `error` event."""
        self.last_number = after
        """The highest sequence number so far, -1 at the start."""
        self.items = ItemTracker()
        self._checker = checker
        self._misfits: list[InvalidValueError] = []
        """What does not fit in the event that is read."""
        self._lenient = LenientReader(slug, self._misfits)
        self._read_error = read_error
        self._after = after
        self._from_start = after < 0
        self._fold = Fold()
        # The stream may have no event that carries a response.
        self._fold.feed(events.ResponseCreated(sequence_number=0, response=EMPTY_RESPONSE))
        self._has_events = False
        self._final: Response | None = None
        self._joiners: dict[str, SurrogateJoiner] = {}
        self._last_delta: DeltaEvent | None = None
        self._delta_key: tuple[object, ...] | None = None
        """Identifies the text that grew last, while nothing else has come."""
        self._pieces: list[str] = []
        """The pieces of that text: the fold's own list."""
        self._checked_pieces = 0

    @property
    def response(self) -> Response | None:
        """The response as far as it is known; None before the first event."""
        return self._final or (self._fold.response if self._has_events else None)

    def feed(self, raw: object) -> list[Event]:
        """Read one event; raises RemoteProtocolError if the checker does."""
        fields = as_object(raw)
        return [self._delta_event(fields)] if self.extend_text(fields) else self.feed_event(raw)

    def feed_event(self, raw: object) -> list[Event]:
        """Read one event that is no delta of the text that grew last."""
        self._check_deltas()
        sent = as_object(raw)
        # The `stream_id` of a WebSocket message belongs to the connection, not to the event.
        if "stream_id" in sent:
            sent = omit(sent, ("stream_id",))
        number = sent.get("sequence_number")
        if type(number) is int and 0 <= number <= self._after:
            return []
        sent = self._join_surrogates(sent)
        if type(number) is not int or number < 0:
            number = self.last_number + 1
        self._misfits.clear()
        name = sent.get("type")
        if name == "error":
            event = events.ErrorEvent(sequence_number=number, error=self._read_error(sent))
        elif isinstance(name, str):
            event = self._lenient.read_event(sent, number)
        else:
            event = events.ExtensionEvent(type=UNREADABLE, sequence_number=number, extra={"data": raw})
        if self._checker is not None:
            self._checker.check(sent, event, self._misfits)
        # A strict checker has raised by now; a client that sees a second end may count it twice.
        if self.ended:
            return []
        self.last_number = max(self.last_number, event.sequence_number)
        tracked = self.items.locate(event, sent)
        event = tracked.assign(event) if tracked else event
        read = self._accept(event, tracked)
        if "delta" in sent and isinstance(event, DeltaEvent) and not self._joiners:
            self._remember_delta(event, sent)
        return read

    def extend_text(self, raw: JsonObject) -> bool:
        """Take a delta of the text that grew last; return False for anything else, to be fed.

        Most events of a stream are such deltas: this is the hot path.
        """
        number, text = self.last_number + 1, raw.get("delta")
        if (
            self._delta_key is None
            or self._delta_key != _delta_key(raw)
            or raw.get("sequence_number", number) != number
            or type(text) is not str
            or raw.get("logprobs")
        ):
            return False
        self.last_number = number
        self._pieces.append(text)
        return True

    def feed_response(self, response: Response) -> list[Event]:
        """Take a whole response for the end of the stream."""
        kind = events.TERMINAL_EVENT_BY_STATUS.get(response.status, events.ResponseCompleted)
        return self._accept(kind(sequence_number=self.last_number + 1, response=response), None)

    def reconnect(self) -> None:
        """Continue on another connection, which may repeat events: skip those already read."""
        self._after = self.last_number

    def close(self) -> None:
        """Check that the stream may end here; raises RemoteProtocolError if the checker does."""
        self._check_deltas()
        if self._checker is not None:
            self._checker.close()

    def _delta_event(self, raw: dict[str, Any]) -> Event:
        assert self._last_delta is not None  # noqa: S101 - `extend_text` has compared with it
        raw["type"], raw["sequence_number"] = self._last_delta.type, self.last_number
        raw.pop("stream_id", None)
        try:
            return type(self._last_delta)(**raw)
        except TypeError:  # it has an unknown field
            return self._lenient.read(type(self._last_delta), raw)

    def _join_surrogates(self, sent: JsonObject) -> JsonObject:
        """Hold back half of a surrogate pair until the next delta brings the other half."""
        delta = sent.get("delta")
        if not isinstance(delta, str) or not (self._joiners or delta != repair_surrogates(delta)):
            return sent
        key = repr(_delta_key(sent))
        joiner = self._joiners.setdefault(key, SurrogateJoiner())
        text = joiner.feed(delta)
        if not joiner.pending:
            del self._joiners[key]
        return sent | {"delta": text}

    def _accept(self, event: Event, tracked: TrackedItem | None) -> list[Event]:
        """Fold an event; return it after the opening events that are missing before it."""
        if isinstance(event, events.ErrorEvent):
            self.error = event.error
        elif isinstance(event, events.TERMINAL_EVENTS):
            event = self._complete_response(event)
        is_known = tracked is not None and tracked.has(event)
        missing = tracked.open(event) if tracked else []
        # Folding an item or a part that was added before would empty it.
        for one in missing if is_known else (*missing, event):
            with suppress(RemoteProtocolError):  # the event's item is done already
                self._fold.feed(one)
        self._has_events = True
        # What is missing at the start of a resumed stream came before it.
        return [*missing, event] if self._from_start else [event]

    def _remember_delta(self, event: DeltaEvent, sent: JsonObject) -> None:
        # Deltas that have to be assigned to another item take the long way, each of them.
        if (sent.get("item_id"), sent.get("output_index")) != (event.item_id, event.output_index):
            return
        with suppress(LookupError):  # the event's item is done already
            self._pieces = self._fold.open_text_pieces(event.output_index, *part_of(event))
            self._checked_pieces = len(self._pieces)
            self._last_delta, self._delta_key = event, _delta_key(sent)

    def _check_deltas(self) -> None:
        """Have the deltas checked that took the hot path, and leave it."""
        texts = self._pieces[self._checked_pieces :] if self._delta_key else []
        if texts and self._checker is not None and self._last_delta is not None:
            self._checker.check_deltas(self._last_delta, texts)
        self._delta_key = None

    def _complete_response(self, event: Event) -> Event:
        """Add to the last event what it lacks and the stream has: the id, the items, the error."""
        response, known = cast("events.ResponseFailed", event).response, self._fold.response
        if not response.id:
            response = replace(response, id=known.id, model=known.model, created_at=known.created_at)
        # Some servers end their streams with an empty `output`.
        if not response.output:
            response = replace(response, output=[_finish_item(item, response.status) for item in known.output])
        if response.status == "failed" and response.error is None and self.error is not None:
            error = ResponseError(code=self.error.code or self.error.type, message=self.error.message)
            response = replace(response, error=error)
        self.ended = True
        self._final = response
        return replace(event, response=response)


def _delta_key(fields: JsonObject) -> tuple[object, ...]:
    get = fields.get
    return (get("type"), get("item_id"), get("output_index"), get("content_index"), get("summary_index"))


def _finish_item(item: Item, status: str) -> Item:
    if not isinstance(item, Message | FunctionCall) or item.status not in ("in_progress", UNSET):
        return item
    return replace(item, status="completed" if status == "completed" else "incomplete")
