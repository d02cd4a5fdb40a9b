"""What a stream forgot to open: items and parts that were never announced, announced after all.

A made-up event has the number of the event that it makes way for. Two items that share one
`output_index` are told apart by their ids: the second is moved to an index of its own.
"""

from collections.abc import Callable
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.content import Content
from antiphon.protocol.events import (
    ContentEvent,
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    ItemEvent,
    OutputItemAdded,
    OutputItemDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    RefusalDelta,
    RefusalDone,
    SummaryEvent,
)
from antiphon.protocol.items import (
    FunctionCall,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.text_kinds import (
    OUTPUT_TEXT,
    REASONING_TEXT,
    REFUSAL,
    SUMMARY_TEXT,
    TEXT_KINDS,
)

REASONING_EVENTS = (ReasoningDelta, ReasoningDone, SummaryEvent)
CALL_EVENTS = (FunctionCallArgumentsDelta, FunctionCallArgumentsDone)
PART_EVENTS = (
    ContentPartAdded,
    ContentPartDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
)


class OpenItems:
    """The items and parts of one stream that have been opened."""

    def __init__(self) -> None:
        self._items: dict[int, object] = {}
        self._next = 0
        """The index after all that items have."""
        self._index_by_id: dict[object, int] = {}
        self._done: set[int] = set()
        self._parts: set[tuple[int, str, int]] = set()

    def assign_index(self, event: Event) -> Event:
        """Return an event at the index of its own item."""
        match event:
            case OutputItemAdded():
                index = self._free_index(event.output_index, event.item.id)
            case OutputItemDone():
                index = self._known_index(event.output_index, event.item.id)
            case ItemEvent():
                index = self._known_index(event.output_index, event.item_id)
            case _:
                return event
        return event if index == event.output_index else replace(event, output_index=index)

    def is_open(self, event: Event) -> bool:
        """Tell whether what an event opens is open already."""
        match event:
            case OutputItemAdded():
                return event.output_index in self._items
            case ContentPartAdded() | ReasoningSummaryPartAdded():
                return _part_key(event) in self._parts
            case _:
                return False

    def missing_events(self, event: Event) -> list[Event]:
        """Return the events that should have come before this one; take it for told."""
        match event:
            case OutputItemAdded():
                self._open(event)
                return []
            case OutputItemDone():
                missed = self._missing_item(event, lambda: empty_item(event.item))
                self._done.add(event.output_index)
                return missed
            case ItemEvent():
                return self._missing_inside(event)
            case _:
                return []

    def _free_index(self, index: int, id: object) -> int:
        """Return the index of a new item: its own, unless another item has it."""
        taken = id is not UNSET and self._items.get(index, id) != id
        return self._next if taken else index

    def _known_index(self, index: int, id: object) -> int:
        """Return the index that an item of an id was added at, if it was."""
        return index if self._items.get(index) == id else self._index_by_id.get(id, index)

    def _open(self, event: OutputItemAdded) -> OutputItemAdded:
        self._items[event.output_index] = id = event.item.id
        self._next = max(self._next, event.output_index + 1)
        if id is not UNSET:
            self._index_by_id[id] = event.output_index
        return event

    def _missing_item(
        self, event: OutputItemDone | ItemEvent, item: Callable[[], Item]
    ) -> list[Event]:
        """Announce the item of an event, unless that has happened."""
        number, index = event.sequence_number, event.output_index
        if index in self._items:
            return []
        added = OutputItemAdded(sequence_number=number, output_index=index, item=item())
        return [self._open(added)]

    def _missing_inside(self, event: ItemEvent) -> list[Event]:
        missed = self._missing_item(event, lambda: make_item(event))
        if event.output_index not in self._done and isinstance(event, ContentEvent | SummaryEvent):
            missed += self._missing_part(event)
        return missed

    def _missing_part(self, event: ContentEvent | SummaryEvent) -> list[Event]:
        place = _part_key(event)
        if place in self._parts:
            return []
        self._parts.add(place)
        if isinstance(event, ContentPartAdded | ReasoningSummaryPartAdded):
            return []
        index, kind, part = place
        face = SUMMARY_TEXT if isinstance(event, SummaryEvent) else OUTPUT_TEXT
        made = cast("Callable[..., Event]", face.part_added_event)
        return [
            made(
                sequence_number=event.sequence_number,
                item_id=event.item_id,
                output_index=index,
                part=make_part(event),
                **{kind: part},
            )
        ]


def _part_key(event: ContentEvent | SummaryEvent) -> tuple[int, str, int]:
    if isinstance(event, SummaryEvent):
        return event.output_index, SUMMARY_TEXT.index_field, event.summary_index
    return event.output_index, OUTPUT_TEXT.index_field, event.content_index


def make_item(event: ItemEvent) -> Item:
    """Make the item that an event must be about."""
    id = event.item_id or UNSET
    if isinstance(event, CALL_EVENTS):
        return FunctionCall(
            id=id, call_id=event.item_id, name="", arguments="", status="in_progress"
        )
    part = event.part.type if isinstance(event, PART_EVENTS) else ""
    if isinstance(event, REASONING_EVENTS) or part == "reasoning_text":
        return Reasoning(id=id)
    return Message(id=id, role="assistant", content=[], status="in_progress")


def make_part(event: ContentEvent | SummaryEvent) -> Content:
    """Make the part that an event must be about, with nothing in it yet."""
    match event:
        case ContentPartDone() | ReasoningSummaryPartDone():
            face = TEXT_KINDS.get(event.part.type)
            return face.empty_part() if face else event.part
        case RefusalDelta() | RefusalDone():
            return REFUSAL.empty_part()
        case ReasoningDelta() | ReasoningDone():
            return REASONING_TEXT.empty_part()
        case SummaryEvent():
            return SUMMARY_TEXT.empty_part()
        case _:
            return OUTPUT_TEXT.empty_part()


def empty_item(item: Item) -> Item:
    """Return an item as it was before anything was said in it."""
    match item:
        case Message():
            return replace(item, content=[], status="in_progress")
        case FunctionCall():
            return replace(item, arguments="", status="in_progress")
        case Reasoning():
            return Reasoning(id=item.id)
        case _:
            return item
