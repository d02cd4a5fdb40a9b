"""What a stream forgot to open: items and parts that were never announced, announced after all.

A made-up event has the number of the event that it makes way for. Two items that share one
`output_index` are told apart by their ids: the second is moved to an index of its own.
"""

from collections.abc import Callable
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.content import Content
from antiphon.core.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    InContent,
    InItem,
    InSummary,
    OutputItemAdded,
    OutputItemDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    RefusalDelta,
    RefusalDone,
)
from antiphon.core.faces import FACES, RAW, REFUSAL, SUMMARY, TEXT
from antiphon.core.items import FunctionCall, Item, Message, Reasoning

THINKING = (ReasoningDelta, ReasoningDone, InSummary)
CALLING = (FunctionCallArgumentsDelta, FunctionCallArgumentsDone)
PARTS = (ContentPartAdded, ContentPartDone, ReasoningSummaryPartAdded, ReasoningSummaryPartDone)


class Openings:
    """The items and parts of one stream that have been opened."""

    def __init__(self) -> None:
        self._items: dict[int, object] = {}
        self._next = 0
        """The index after all that items have."""
        self._places: dict[object, int] = {}
        self._done: set[int] = set()
        self._parts: set[tuple[int, str, int]] = set()

    def placed(self, event: Event) -> Event:
        """Return an event at the index of its own item."""
        match event:
            case OutputItemAdded():
                index = self._free(event.output_index, event.item.id)
            case OutputItemDone():
                index = self._index(event.output_index, event.item.id)
            case InItem():
                index = self._index(event.output_index, event.item_id)
            case _:
                return event
        return event if index == event.output_index else replace(event, output_index=index)

    def has(self, event: Event) -> bool:
        """Tell whether what an event opens is open already."""
        match event:
            case OutputItemAdded():
                return event.output_index in self._items
            case ContentPartAdded() | ReasoningSummaryPartAdded():
                return _place(event) in self._parts
            case _:
                return False

    def before(self, event: Event) -> list[Event]:
        """Return the events that should have come before this one; take it for told."""
        match event:
            case OutputItemAdded():
                self._begin(event)
                return []
            case OutputItemDone():
                missed = self._announced(event, lambda: hollow(event.item))
                self._done.add(event.output_index)
                return missed
            case InItem():
                return self._inside(event)
            case _:
                return []

    def _free(self, index: int, id: object) -> int:
        """Return the index of a new item: its own, unless another item has it."""
        taken = id is not UNSET and self._items.get(index, id) != id
        return self._next if taken else index

    def _index(self, index: int, id: object) -> int:
        """Return the index that an item of an id was added at, if it was."""
        return index if self._items.get(index) == id else self._places.get(id, index)

    def _begin(self, event: OutputItemAdded) -> OutputItemAdded:
        self._items[event.output_index] = id = event.item.id
        self._next = max(self._next, event.output_index + 1)
        if id is not UNSET:
            self._places[id] = event.output_index
        return event

    def _announced(self, event: OutputItemDone | InItem, item: Callable[[], Item]) -> list[Event]:
        """Announce the item of an event, unless that has happened."""
        number, index = event.sequence_number, event.output_index
        if index in self._items:
            return []
        added = OutputItemAdded(sequence_number=number, output_index=index, item=item())
        return [self._begin(added)]

    def _inside(self, event: InItem) -> list[Event]:
        missed = self._announced(event, lambda: item_for(event))
        if event.output_index not in self._done and isinstance(event, InContent | InSummary):
            missed += self._part(event)
        return missed

    def _part(self, event: InContent | InSummary) -> list[Event]:
        place = _place(event)
        if place in self._parts:
            return []
        self._parts.add(place)
        if isinstance(event, ContentPartAdded | ReasoningSummaryPartAdded):
            return []
        index, kind, part = place
        face = SUMMARY if isinstance(event, InSummary) else TEXT
        made = cast("Callable[..., Event]", face.added)
        return [
            made(
                sequence_number=event.sequence_number,
                item_id=event.item_id,
                output_index=index,
                part=part_for(event),
                **{kind: part},
            )
        ]


def _place(event: InContent | InSummary) -> tuple[int, str, int]:
    if isinstance(event, InSummary):
        return event.output_index, SUMMARY.index, event.summary_index
    return event.output_index, TEXT.index, event.content_index


def item_for(event: InItem) -> Item:
    """Make the item that an event must be about."""
    id = event.item_id or UNSET
    if isinstance(event, CALLING):
        return FunctionCall(
            id=id, call_id=event.item_id, name="", arguments="", status="in_progress"
        )
    part = event.part.type if isinstance(event, PARTS) else ""
    if isinstance(event, THINKING) or part == "reasoning_text":
        return Reasoning(id=id)
    return Message(id=id, role="assistant", content=[], status="in_progress")


def part_for(event: InContent | InSummary) -> Content:
    """Make the part that an event must be about, with nothing in it yet."""
    match event:
        case ContentPartDone() | ReasoningSummaryPartDone():
            face = FACES.get(event.part.type)
            return face.empty() if face else event.part
        case RefusalDelta() | RefusalDone():
            return REFUSAL.empty()
        case ReasoningDelta() | ReasoningDone():
            return RAW.empty()
        case InSummary():
            return SUMMARY.empty()
        case _:
            return TEXT.empty()


def hollow(item: Item) -> Item:
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
