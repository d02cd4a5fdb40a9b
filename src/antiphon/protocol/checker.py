"""The checker: applies the rules to a stream of events.

A broken rule is a `RuleViolation`, not an exception, so that a whole stream can be checked at once.
`foreign.strict` applies it to the streams of other servers, and the tests to our own.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import ClassVar, get_args

from msgspec import UNSET, Struct, field

from antiphon.protocol import events, rules
from antiphon.protocol.events import ContentEvent, Event, ExtensionEvent, ItemEvent, part_of
from antiphon.protocol.items import Content, FunctionCall, FunctionCallOutput, Item, OutputText, Reasoning, content_text
from antiphon.protocol.response import Response
from antiphon.protocol.rules import PART_TRANSITIONS, RESPONSE_TRANSITIONS, RuleViolation
from antiphon.protocol.struct import is_extension_type


def find_violations(events: Iterable[Event]) -> list[RuleViolation]:
    """Return every rule that a whole stream breaks."""
    checker = StreamChecker()
    for event in events:
        checker.feed(event)
    checker.close()
    return checker.violations


# A status is optional: reasoning and compaction items have none.
START = rules.ITEM_START_STATUSES | {UNSET}
FINAL = rules.ITEM_FINAL_STATUSES | {UNSET}


class CheckedPart(Struct):
    """A content part as its events have described it."""

    part: Content
    pieces: list[str]
    annotations: int
    state: str = "open"
    text: str = ""


class CheckedItem(Struct):
    """An item as its events have described it."""

    item: Item
    pieces: list[str]
    """The arguments of a call, as far as they have arrived."""
    arguments: str | None = None
    parts: dict[str, list[CheckedPart]] = field(default_factory=lambda: {"content_index": [], "summary_index": []})
    done: Item | None = None


class StreamChecker:
    """Checks one stream, event by event."""

    def __init__(self) -> None:
        self.violations: list[RuleViolation] = []
        self._position: int = -1
        self._last_number = -1
        self._is_first = True
        self._last_lifecycle_type = ""
        self._response_id = ""
        self._error_seen = False
        self._items: list[CheckedItem] = []
        self._item_ids: set[object] = set()

    def feed(self, event: Event) -> None:
        """Check one event."""
        self._position += 1
        self._check_number(event.sequence_number)
        self._check_event(event)

    def _check_event(self, event: Event) -> None:
        if self._last_lifecycle_type and not RESPONSE_TRANSITIONS[self._last_lifecycle_type]:
            self._report("nothing-after-end", f"{event.type} follows {self._last_lifecycle_type}.")
        elif self._error_seen and event.type != "response.failed":
            self._report("error-then-failed", f"{event.type} follows error.")
        if self._is_first and event.type != "response.created":
            self._report("created-first", f"The first event is {event.type}.")
        self._is_first = False
        if isinstance(event, events.LifecycleEvent):
            self._check_lifecycle(event)
        elif isinstance(event, events.ErrorEvent):
            self._error_seen = True
        elif isinstance(event, ExtensionEvent):
            if not is_extension_type(event.type):
                self._report("event-type", f"'{event.type}' is neither.")
        else:
            if self._last_lifecycle_type != "response.in_progress":
                self._report("in-progress-first", f"{event.type} came too early.")
            self.HANDLERS[type(event)](self, event)

    def close(self) -> None:
        """Check that the stream may end here."""
        if not self._last_lifecycle_type or RESPONSE_TRANSITIONS[self._last_lifecycle_type]:
            self._report("response-order", "The stream stopped before the response ended.")

    def check_whole(self, response: Response) -> None:
        """Check a response that was not streamed."""
        if response.status in ("queued", "in_progress"):
            self._report("response-status", f"It has ended with status {response.status}.")
        for index, item in enumerate(response.output):
            self._check_item_id(item)
            self._check_final_status(item, index)
        self._check_final_response(response)

    def _report(self, rule: str, detail: str) -> None:
        self.violations.append(RuleViolation(rule, detail, self._position))

    def _check_number(self, number: int) -> None:
        if number <= self._last_number:
            self._report("sequence-increases", f"{number} follows {self._last_number}.")
        elif number != self._last_number + 1:
            self._report("sequence-gapless", f"{number} follows {self._last_number}.")
        # The maximum, so that one number that goes back is one violation and not many.
        self._last_number = max(number, self._last_number)

    def _check_lifecycle(self, event: events.LifecycleEvent) -> None:
        response = event.response
        following = RESPONSE_TRANSITIONS[self._last_lifecycle_type]
        # At the start and after the end, `created-first` and `nothing-after-end` report instead.
        if self._last_lifecycle_type and following and event.type not in following:
            self._report("response-order", f"{event.type} follows {self._last_lifecycle_type}.")
        self._last_lifecycle_type = event.type
        if response.status not in rules.RESPONSE_STATUSES_BY_EVENT[event.type]:
            self._report("response-status", f"{event.type} carries status {response.status}.")
        if response.id != (self._response_id or response.id):
            self._report("response-id", f"{response.id} was {self._response_id}.")
        self._response_id = self._response_id or response.id
        if not RESPONSE_TRANSITIONS[event.type]:
            self._check_ending(response)

    def _check_ending(self, response: Response) -> None:
        for index, state in enumerate(self._items):
            if state.done is None:
                self._report("item-done", f"Item {index} ({state.item.type}) is still open.")
        # Compared as whole values, so one field that differs from the stream is a violation.
        if response.output != [state.done or state.item for state in self._items]:
            final, streamed = len(response.output), len(self._items)
            self._report("output-matches", f"It has {final} items where the stream had {streamed}.")
        self._check_final_response(response)

    def _check_final_response(self, response: Response) -> None:
        statuses = [getattr(item, "status", None) for item in response.output]
        if response.status == "completed" and "incomplete" in statuses:
            place = statuses.index("incomplete")
            self._report("no-incomplete-in-completed", f"Item {place} is incomplete.")
        if (response.error is not None) != (response.status == "failed"):
            self._report("error-told", f"Status {response.status}, error {response.error}.")
        # A cancelled response may have a reason or not.
        reasons = {"incomplete": {True}, "cancelled": {True, False}}
        if (response.incomplete_details is not None) not in reasons.get(response.status, {False}):
            self._report("reason-told", f"Status {response.status}.")
        usage = response.usage
        if usage and usage.total_tokens != usage.input_tokens + usage.output_tokens:
            self._report("usage-adds-up", f"{usage.total_tokens} is not the sum.")

    def _check_item_added(self, event: events.OutputItemAdded) -> None:
        item = event.item
        if event.output_index != len(self._items):
            self._report("index-gapless", f"{event.output_index} instead of {len(self._items)}.")
        self._check_item_id(item)
        status = getattr(item, "status", UNSET)
        # A reasoning item has no status of its own; some servers send one anyway.
        if not isinstance(item, Reasoning) and status not in START:
            self._report("item-status", f"Item {event.output_index} is added as {status}.")
        self._items.append(CheckedItem(item, [item.arguments] if isinstance(item, FunctionCall) else []))

    def _check_item_done(self, event: events.OutputItemDone) -> None:
        if (state := self._find_item(event)) is None:
            return
        item = event.item
        if _item_identity(item) != _item_identity(state.item):
            self._report("item-identity", f"{_item_identity(item)} was {_item_identity(state.item)}.")
        self._check_final_status(item, event.output_index)
        if any(earlier.done is None for earlier in self._items[: event.output_index]):
            self._report("done-in-order", f"Item {event.output_index} is done too early.")
        for part in itertools.chain(*state.parts.values()):
            if PART_TRANSITIONS[part.state]:
                self._report("part-done", f"A part of item {event.output_index} is still open.")
        self._check_item_content(state, item)
        state.done = item

    def _check_item_id(self, item: Item) -> None:
        if not item.id or item.id in self._item_ids:
            self._report("item-id", f"'{item.id}' is missing or taken.")
        self._item_ids.add(item.id)

    def _check_final_status(self, item: Item, index: int) -> None:
        if (status := getattr(item, "status", UNSET)) not in FINAL:
            self._report("item-status", f"Item {index} is done as {status}.")

    def _check_item_content(self, state: CheckedItem, item: Item) -> None:
        if isinstance(item, FunctionCall):
            if state.arguments is None:
                self._report("arguments-done", "They were never done.")
            elif item.arguments != state.arguments:
                self._report("item-content", "Its arguments are not what the events carried.")
        for index_field, parts in state.parts.items():
            # Only messages and reasoning have these fields; an extension item has no events of its own.
            field = index_field.removesuffix("_index")
            if hasattr(item, field) and (getattr(item, field) or []) != [part.part for part in parts]:
                self._report("item-content", f"Its {field} is not what the parts were.")

    def _find_item(self, event: events.OutputItemDone | ItemEvent) -> CheckedItem | None:
        index = event.output_index
        if not 0 <= index < len(self._items):
            self._report("item-added", f"{event.type} names item {index}, which was never added.")
            return None
        state = self._items[index]
        if state.done is not None:
            self._report("item-open", f"{event.type} names item {index}, which is done.")
            return None
        if isinstance(event, ItemEvent) and event.item_id != state.item.id:
            self._report("id-stable", f"{event.type} names {event.item_id}, not {state.item.id}.")
        return state

    def _check_part_added(self, event: events.PartAddedEvent) -> None:
        if (state := self._find_item(event)) is None:
            return
        index_field, index = part_of(event)
        parts = state.parts[index_field]
        if index != len(parts):
            self._report("part-index", f"{index} instead of {len(parts)}.")
        allowed = rules.PART_TYPES.get((state.item.type, index_field), ())
        if event.part.type not in allowed and not is_extension_type(event.part.type):
            self._report("part-kind", f"A {state.item.type} item cannot hold {event.part.type}.")
        annotations = event.part.annotations if isinstance(event.part, OutputText) else []
        parts.append(CheckedPart(event.part, [content_text(event.part)], len(annotations)))

    def _advance_part(self, event: ContentEvent | events.SummaryEvent, step: str) -> CheckedPart | None:
        """Find the part of an event and move it to its next state."""
        if (state := self._find_item(event)) is None:
            return None
        index_field, index = part_of(event)
        parts = state.parts[index_field]
        if not 0 <= index < len(parts):
            self._report("part-added", f"{event.type} names part {index}, which was never added.")
            return None
        part = parts[index]
        kind = events.TEXT_EVENTS.get(type(event))
        # A summary has one type of part only, so a wrong one was reported when it was added.
        if kind and isinstance(event, ContentEvent) and part.part.type != kind.content_type:
            self._report("part-kind", f"{event.type} belongs in no {part.part.type} part.")
            return None
        if step not in PART_TRANSITIONS[part.state]:
            self._report("part-order", f"{event.type} comes when the part is {part.state}.")
            return None
        part.state = PART_TRANSITIONS[part.state][step]
        return part

    def _check_delta(self, event: events.DeltaEvent) -> None:
        if isinstance(event, events.FunctionCallArgumentsDelta):
            if state := self._find_open_call(event):
                state.pieces.append(event.delta)
        elif part := self._advance_part(event, "delta"):
            part.pieces.append(event.delta)

    def _check_text_done(self, event: events.TextDoneEvent) -> None:
        text: str = getattr(event, events.TEXT_DONE_EVENTS[type(event)].text_field)
        if isinstance(event, events.FunctionCallArgumentsDone):
            if (state := self._find_open_call(event)) is None:
                return
            state.arguments, pieces = text, state.pieces
        elif part := self._advance_part(event, "text_done"):
            part.text, pieces = text, part.pieces
        else:
            return
        if text != "".join(pieces):
            self._report("deltas-add-up", f"{event.type} has another text than the deltas.")

    def _check_part_done(self, event: events.PartDoneEvent) -> None:
        if part := self._advance_part(event, "part_done"):
            if event.part.type != part.part.type:
                self._report("part-kind", f"{part.part.type} became {event.part.type}.")
            elif content_text(event.part) != part.text:
                self._report("deltas-add-up", f"{event.type} has another text than the deltas.")
            part.part = event.part

    def _check_annotation(self, event: events.OutputTextAnnotationAdded) -> None:
        if part := self._advance_part(event, "annotation"):
            if event.annotation_index != part.annotations:
                self._report("annotation-index", f"{event.annotation_index} instead of {part.annotations}.")
            part.annotations += 1

    def _find_open_call(self, event: ItemEvent) -> CheckedItem | None:
        if (state := self._find_item(event)) is None:
            return None
        if not isinstance(state.item, FunctionCall):
            self._report("part-kind", f"{event.type} belongs in no {state.item.type} item.")
            return None
        if state.arguments is not None:
            self._report("arguments-done", f"{event.type} comes after the arguments were done.")
            return None
        return state

    HANDLERS: ClassVar[dict[object, Callable[..., None]]] = {
        events.OutputItemAdded: _check_item_added,
        events.OutputItemDone: _check_item_done,
        **dict.fromkeys(get_args(events.PartAddedEvent), _check_part_added),
        **dict.fromkeys(events.DELTA_EVENTS, _check_delta),
        **dict.fromkeys(events.TEXT_DONE_EVENTS, _check_text_done),
        **dict.fromkeys(get_args(events.PartDoneEvent), _check_part_done),
        events.OutputTextAnnotationAdded: _check_annotation,
    }


def _item_identity(item: Item) -> tuple[object, ...]:
    match item:
        case FunctionCall():
            return (item.type, item.id, item.call_id, item.name)
        case FunctionCallOutput():
            return (item.type, item.id, item.call_id)
        case _:
            return (item.type, item.id)
