"""The judge: walks a stream of events along the rules.

A broken rule is a `Violation`, never an exception, so that one stream can be judged whole.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar

from antiphon.core.content import Content, OutputText, text_of
from antiphon.core.errors import RemoteProtocolError
from antiphon.core.events import (
    ContentPartAdded,
    ContentPartDone,
    Error,
    Event,
    ExtensionEvent,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    InContent,
    InItem,
    InSummary,
    Lifecycle,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    RefusalDelta,
    RefusalDone,
)
from antiphon.core.items import FunctionCall, Item, Message, Reasoning
from antiphon.core.response import Response
from antiphon.core.rules import HOLDS, PART, RESPONSE, STATUSES, STREAMS, Violation
from antiphon.core.value import is_extension_type


def judge(events: Iterable[Event]) -> list[Violation]:
    """Return every rule that a whole stream breaks."""
    book = Rulebook()
    for event in events:
        book.feed(event)
    book.close()
    return book.violations


def check(events: Iterable[Event]) -> None:
    """Raise RemoteProtocolError for the first rule that a whole stream breaks."""
    if violations := judge(events):
        raise RemoteProtocolError(str(violations[0]))


class PartState:
    """A content part as the rulebook has seen it."""

    __slots__ = ("annotations", "part", "pieces", "state", "text")

    def __init__(self, part: Content) -> None:
        self.part = part
        self.state = "open"
        self.text = ""
        self.pieces: list[str] = [text_of(part)]
        self.annotations = len(part.annotations) if isinstance(part, OutputText) else 0


class ItemState:
    """An item as the rulebook has seen it."""

    __slots__ = ("arguments", "content", "done", "item", "pieces", "summary")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done: Item | None = None
        self.content: list[PartState] = []
        self.summary: list[PartState] = []
        self.pieces: list[str] = [item.arguments] if isinstance(item, FunctionCall) else []
        self.arguments: str | None = None


class Rulebook:
    """Judges one stream, event by event."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._position = -1
        self._number = -1
        self._life = ""
        self._id = ""
        self._error = False
        self._items: list[ItemState] = []
        self._ids: set[object] = set()

    def feed(self, event: Event) -> list[Violation]:
        """Judge one event; return the rules it breaks."""
        before = len(self.violations)
        self._position += 1
        self._stream_rules(event)
        if isinstance(event, Lifecycle):
            self._lifecycle(event)
        elif isinstance(event, Error):
            self._error = True
        elif not isinstance(event, ExtensionEvent):
            if self._life != "response.in_progress":
                self._break("in-progress-first", f"{event.type} came too early.")
            self.STEPS[type(event)](self, event)
        return self.violations[before:]

    def close(self) -> list[Violation]:
        """Judge the end of the stream."""
        before = len(self.violations)
        if not self._life or RESPONSE[self._life]:
            self._break("response-order", "The stream stopped before the response ended.")
        return self.violations[before:]

    def whole(self, response: Response) -> list[Violation]:
        """Judge a response that came in one piece; return the rules it breaks."""
        before = len(self.violations)
        if response.status in ("queued", "in_progress"):
            self._break("response-status", f"It has ended with status {response.status}.")
        for index, item in enumerate(response.output):
            self._own_id(item)
            self._ended_status(item, index)
        self._final(response)
        return self.violations[before:]

    def _break(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(rule, detail, self._position))

    # --- the stream and the response ---

    def _stream_rules(self, event: Event) -> None:
        number = event.sequence_number
        if number <= self._number:
            self._break("sequence-increases", f"{number} follows {self._number}.")
        elif number != self._number + 1:
            self._break("sequence-gapless", f"{number} follows {self._number}.")
        self._number = max(number, self._number)
        if self._life and not RESPONSE[self._life]:
            self._break("nothing-after-end", f"{event.type} follows {self._life}.")
        elif self._error and event.type != "response.failed":
            self._break("error-then-failed", f"{event.type} follows error.")
        if self._position == 0 and event.type != "response.created":
            self._break("created-first", f"The first event is {event.type}.")
        if isinstance(event, ExtensionEvent) and not is_extension_type(event.type):
            self._break("event-type", f"'{event.type}' is neither.")

    def _lifecycle(self, event: Lifecycle) -> None:
        response = event.response
        if event.type not in RESPONSE[self._life] and RESPONSE[self._life] and self._life:
            self._break("response-order", f"{event.type} follows {self._life}.")
        self._life = event.type
        if response.status not in STATUSES[event.type]:
            self._break("response-status", f"{event.type} carries status {response.status}.")
        if response.id != (self._id or response.id):
            self._break("response-id", f"{response.id} was {self._id}.")
        self._id = self._id or response.id
        if not RESPONSE[event.type]:
            self._ending(response)

    def _ending(self, response: Response) -> None:
        for index, state in enumerate(self._items):
            if state.done is None:
                self._break("item-done", f"Item {index} ({state.item.type}) is still open.")
        if response.output != [state.done or state.item for state in self._items]:
            said, seen = len(response.output), len(self._items)
            self._break("output-matches", f"It has {said} items where the stream had {seen}.")
        self._final(response)

    def _final(self, response: Response) -> None:
        statuses = [getattr(item, "status", None) for item in response.output]
        if response.status == "completed" and "incomplete" in statuses:
            place = statuses.index("incomplete")
            self._break("no-incomplete-in-completed", f"Item {place} is incomplete.")
        if (response.error is not None) != (response.status == "failed"):
            self._break("error-told", f"Status {response.status}, error {response.error}.")
        reasons = {"incomplete": {True}, "cancelled": {True, False}}
        if (response.incomplete_details is not None) not in reasons.get(response.status, {False}):
            self._break("reason-told", f"Status {response.status}.")
        usage = response.usage
        if usage and usage.total_tokens != usage.input_tokens + usage.output_tokens:
            self._break("usage-adds-up", f"{usage.total_tokens} is not the sum.")

    # --- items ---

    def _item_added(self, event: OutputItemAdded) -> None:
        item = event.item
        if event.output_index != len(self._items):
            self._break("index-gapless", f"{event.output_index} instead of {len(self._items)}.")
        self._own_id(item)
        if not isinstance(item, Reasoning) and _status(item) not in ("in_progress", None):
            self._break("item-status", f"Item {event.output_index} is added as {_status(item)}.")
        self._items.append(ItemState(item))

    def _item_done(self, event: OutputItemDone) -> None:
        state = self._item(event.output_index, event.type)
        if state is None:
            return
        item = event.item
        if _identity(item) != _identity(state.item):
            self._break("item-identity", f"{_identity(item)} was {_identity(state.item)}.")
        self._ended_status(item, event.output_index)
        if any(earlier.done is None for earlier in self._items[: event.output_index]):
            self._break("done-in-order", f"Item {event.output_index} is done too early.")
        for part in [*state.content, *state.summary]:
            if part.state != "closed":
                self._break("part-done", f"A part of item {event.output_index} is still open.")
        self._item_content(state, item)
        state.done = item

    def _own_id(self, item: Item) -> None:
        if not item.id or item.id in self._ids:
            self._break("item-id", f"'{item.id}' is missing or taken.")
        self._ids.add(item.id)

    def _ended_status(self, item: Item, index: int) -> None:
        if _status(item) not in ("completed", "incomplete", "failed", None):
            self._break("item-status", f"Item {index} is done as {_status(item)}.")

    def _item_content(self, state: ItemState, item: Item) -> None:
        match item:
            case Message():
                if item.content != [part.part for part in state.content]:
                    self._break("item-content", "Its content is not what the parts were.")
            case Reasoning():
                content = item.content or []
                if content != [part.part for part in state.content]:
                    self._break("item-content", "Its content is not what the parts were.")
                if item.summary != [part.part for part in state.summary]:
                    self._break("item-content", "Its summary is not what the parts were.")
            case FunctionCall():
                if state.arguments is None:
                    self._break("arguments-done", "They never were.")
                elif item.arguments != state.arguments:
                    self._break("item-content", "Its arguments are not what the events said.")
            case _:
                pass

    def _item(self, index: int, type: str) -> ItemState | None:
        if not 0 <= index < len(self._items):
            self._break("item-added", f"{type} names item {index}, which was never added.")
            return None
        state = self._items[index]
        if state.done is not None:
            self._break("item-open", f"{type} names item {index}, which is done.")
            return None
        return state

    def _inside(self, event: InItem) -> ItemState | None:
        state = self._item(event.output_index, event.type)
        if state and event.item_id != state.item.id:
            self._break("id-stable", f"{event.type} names {event.item_id}, not {state.item.id}.")
        return state

    # --- parts ---

    def _part_added(self, event: ContentPartAdded | ReasoningSummaryPartAdded) -> None:
        if (state := self._inside(event)) is None:
            return
        if isinstance(event, ContentPartAdded):
            parts, index, kinds = state.content, event.content_index, HOLDS.get(state.item.type)
        else:
            parts, index, kinds = state.summary, event.summary_index, frozenset({"summary_text"})
        if index != len(parts):
            self._break("part-index", f"{index} instead of {len(parts)}.")
        if event.part.type not in (kinds or ()) and not is_extension_type(event.part.type):
            self._break("part-kind", f"A {state.item.type} item cannot hold {event.part.type}.")
        parts.append(PartState(event.part))

    def _step(self, event: InContent | InSummary, step: str) -> PartState | None:
        """Find an event's part, and move it along its table."""
        if (state := self._inside(event)) is None:
            return None
        parts, index = (
            (state.content, event.content_index)
            if isinstance(event, InContent)
            else (state.summary, event.summary_index)
        )
        if not 0 <= index < len(parts):
            self._break("part-added", f"{event.type} names part {index}, which was never added.")
            return None
        part = parts[index]
        if part.part.type != STREAMS.get(event.type, part.part.type):
            self._break("part-kind", f"{event.type} belongs in no {part.part.type} part.")
            return None
        if step not in PART[part.state]:
            self._break("part-order", f"{event.type} comes when the part is {part.state}.")
            return None
        part.state = PART[part.state][step]
        return part

    def _delta(
        self, event: OutputTextDelta | RefusalDelta | ReasoningDelta | ReasoningSummaryTextDelta
    ) -> None:
        if part := self._step(event, "delta"):
            part.pieces.append(event.delta)

    def _text_done(
        self, event: OutputTextDone | RefusalDone | ReasoningDone | ReasoningSummaryTextDone
    ) -> None:
        if part := self._step(event, "text"):
            part.text = event.refusal if isinstance(event, RefusalDone) else event.text
            if part.text != "".join(part.pieces):
                self._break("deltas-add-up", f"{event.type} says another text.")

    def _part_done(self, event: ContentPartDone | ReasoningSummaryPartDone) -> None:
        if part := self._step(event, "part"):
            if event.part.type != part.part.type:
                self._break("part-kind", f"{part.part.type} became {event.part.type}.")
            elif text_of(event.part) != part.text:
                self._break("deltas-add-up", f"{event.type} holds another text.")
            part.part = event.part

    def _annotation(self, event: OutputTextAnnotationAdded) -> None:
        if part := self._step(event, "annotation"):
            if event.annotation_index != part.annotations:
                self._break(
                    "annotation-index", f"{event.annotation_index} instead of {part.annotations}."
                )
            part.annotations += 1

    # --- calls ---

    def _arguments(self, event: FunctionCallArgumentsDelta | FunctionCallArgumentsDone) -> None:
        if (state := self._inside(event)) is None:
            return
        if not isinstance(state.item, FunctionCall):
            self._break("part-kind", f"{event.type} belongs in no {state.item.type} item.")
        elif state.arguments is not None:
            self._break("arguments-done", f"{event.type} comes after they were.")
        elif isinstance(event, FunctionCallArgumentsDelta):
            state.pieces.append(event.delta)
        else:
            state.arguments = event.arguments
            if event.arguments != "".join(state.pieces):
                self._break("deltas-add-up", "The arguments are not what the deltas were.")

    STEPS: ClassVar[dict[type, Callable[..., None]]] = {
        OutputItemAdded: _item_added,
        OutputItemDone: _item_done,
        ContentPartAdded: _part_added,
        ContentPartDone: _part_done,
        OutputTextDelta: _delta,
        OutputTextDone: _text_done,
        OutputTextAnnotationAdded: _annotation,
        RefusalDelta: _delta,
        RefusalDone: _text_done,
        ReasoningDelta: _delta,
        ReasoningDone: _text_done,
        ReasoningSummaryPartAdded: _part_added,
        ReasoningSummaryPartDone: _part_done,
        ReasoningSummaryTextDelta: _delta,
        ReasoningSummaryTextDone: _text_done,
        FunctionCallArgumentsDelta: _arguments,
        FunctionCallArgumentsDone: _arguments,
    }


def _status(item: Item) -> str | None:
    status = getattr(item, "status", None)
    return status if isinstance(status, str) else None


def _identity(item: Item) -> tuple[object, ...]:
    called = (item.call_id, item.name) if isinstance(item, FunctionCall) else ()
    return (item.type, item.id, *called)
