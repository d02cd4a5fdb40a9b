"""Tracks the items of a foreign stream and makes the opening events that the server left out.

Items are identified by their ids where these stay the same, and by their index otherwise. An empty
id is no id. Of items that share an id, the index says which one is meant; items that share an
`output_index` get one each. An event that is made here has the number of the event that needs it.
"""

from typing import cast

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from antiphon.protocol import events
from antiphon.protocol.events import (
    ContentEvent,
    Event,
    ItemEvent,
    OutputItemAdded,
    OutputItemDone,
    SummaryEvent,
    part_of,
)
from antiphon.protocol.items import Content, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.struct import JsonObject, as_string

STREAMED_TYPES = frozenset(kind.item_type for kind in events.TEXT_EVENTS.values())
"""The types of items that stream text. All others count as one kind, the empty one."""

# Tuples: `isinstance` is slow for a union, and slower for one that is made on the spot.
ITEM_EVENTS = (OutputItemAdded, OutputItemDone)
PART_EVENTS = (ContentEvent, SummaryEvent)
PART_ADDED = (events.ContentPartAdded, events.ReasoningSummaryPartAdded)
MAX_INDEX = 2**31


class TrackedItem(Struct):
    """One item of a stream; `output_index` is the one that its events get."""

    kind: str
    type: str
    output_index: int
    id: str
    sent_index: int | None = None
    announced: bool = False
    """Whether the server has added it."""
    opened: bool = False
    """Whether it was added, by the server or here."""
    done: bool = False
    parts: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """The content and summary parts that were added."""

    def assign(self, event: Event) -> Event:
        """Return an event with the item's index, and with its id if the event has none."""
        if isinstance(event, ItemEvent) and not event.item_id and self.id:
            event = replace(event, item_id=self.id)
        place = cast("ItemEvent", event).output_index
        return event if place == self.output_index else replace(event, output_index=self.output_index)

    def is_elsewhere(self, index: int | None) -> bool:
        """Return whether an index differs from the item's, as far as both are known."""
        return None not in (index, self.sent_index) and index != self.sent_index

    def has(self, event: Event) -> bool:
        """Return whether what an event adds was added before."""
        if isinstance(event, PART_ADDED):
            return part_of(event) in self.parts
        return isinstance(event, OutputItemAdded) and self.opened

    def open(self, event: Event) -> list[Event]:
        """Return the opening events that are missing before an event, and record them and it."""
        missing: list[Event] = []
        # Clients, and the fold, look up the item and the part of every event inside them.
        if not self.opened and not isinstance(event, OutputItemAdded):
            missing.append(_item_added(self, event))
        self.opened = True
        if isinstance(event, OutputItemDone):
            self.done = True
        elif isinstance(event, PART_EVENTS) and not self.done:
            if part_of(event) not in self.parts and not isinstance(event, PART_ADDED):
                missing.append(_part_added(event))
            self.parts.add(part_of(event))
        return missing


class ItemTracker:
    """The items of one stream."""

    def __init__(self) -> None:
        self._items: list[TrackedItem] = []
        self._taken: set[int] = set()
        self._next = 0
        """The index after all that are taken."""
        self._by_id: dict[tuple[str, str, int | None], TrackedItem] = {}
        """By id and index. Without an index: the last item that has the id."""
        self._by_index: dict[tuple[str, int | None], TrackedItem] = {}

    # Neither ids nor indexes can be relied on: some servers use one index for all items, a new id
    # in every event, or no id at all.
    def locate(self, event: Event, sent: JsonObject) -> TrackedItem | None:
        """Find the item that an event is about, by the index and the id that were sent."""
        index = sent.get("output_index")
        index = index if type(index) is int and 0 <= index < MAX_INDEX else None
        if isinstance(event, ITEM_EVENTS):
            find = self._announce if isinstance(event, OutputItemAdded) else self._find
            return find(_kind_of(event.item), event.item.id or "", index, event.item.type)
        if isinstance(event, ItemEvent):
            return self._find(_text_kind(event).item_type, as_string(sent.get("item_id")), index)
        return None

    def match_output(self, output: list[Item]) -> list[TrackedItem]:
        """Find each item of the final output among the stream's items; add those that are new."""
        left = list(self._items)
        found: dict[int, TrackedItem] = {}
        # Ids first, for all items: a look-alike must not take the place of the item itself.
        for place, item in enumerate(output):
            known = self._find_by_id(_kind_of(item), item.id or "", place)
            if known in left:
                left.remove(known)
                found[place] = known
        for place, item in enumerate(output):
            if place not in found:
                kind = _kind_of(item)
                # It may be an item of the stream under another id.
                alike = (other for other in left if other.kind == kind and (kind or other.type == item.type))
                like = next(alike, None) or self._begin(kind, "", None, item.type)
                left = [other for other in left if other is not like]
                found[place] = like
        return [found[place] for place in range(len(output))]

    def _find(self, kind: str, id: str, index: int | None, type: str = "") -> TrackedItem:
        known = self._find_by_id(kind, id, index)
        if known and not (known.done and known.is_elsewhere(index)):
            return known
        # An id that nobody has used may be a new one for the item at the event's index.
        there = self._by_index.get((kind, index)) if index is not None or not id else None
        return there if there and not there.done else self._begin(kind, id, index, type)

    def _announce(self, kind: str, id: str, index: int | None, type: str) -> TrackedItem:
        item = self._find_by_id(kind, id, index)
        # Some servers give all their calls one id: a call that is done elsewhere is another one.
        is_over = item and item.done and (index is None or index != item.sent_index)
        if item is None or is_over or (item.announced and item.is_elsewhere(index)):
            item = self._by_index.get((kind, index))
            if item is None or item.announced or item.done:
                item = self._begin(kind, id, index, type)
        self._record(item, id, index)
        item.announced = True
        return item

    def _find_by_id(self, kind: str, id: str, index: int | None) -> TrackedItem | None:
        known = self._by_id.get((kind, id, index)) or self._by_id.get((kind, id, None))
        return known if id else None

    def _begin(self, kind: str, id: str, index: int | None, type: str) -> TrackedItem:
        # Other items keep their index: clients may have seen it.
        own = self._next if index is None or index in self._taken else index
        tracked = TrackedItem(kind, type, own, id)
        self._taken.add(own)
        self._next = max(self._next, own + 1)
        self._items.append(tracked)
        self._by_index[kind, index] = tracked
        self._record(tracked, id, index)
        return tracked

    def _record(self, item: TrackedItem, id: str, index: int | None) -> None:
        item.sent_index = item.sent_index if index is None else index
        if id:
            item.id = item.id or id
            self._by_id[item.kind, id, index] = self._by_id[item.kind, id, None] = item


def _kind_of(item: Item) -> str:
    return item.type if item.type in STREAMED_TYPES else ""


def _text_kind(event: ItemEvent) -> events.TextKind:
    if isinstance(event, SummaryEvent):
        return events.SUMMARY_TEXT
    part = cast("Content | None", getattr(event, "part", None))
    return events.TEXT_EVENTS.get(type(event)) or events.TEXT_KINDS.get(part.type if part else "", events.OUTPUT_TEXT)


def _item_added(tracked: TrackedItem, event: Event) -> Event:
    """Make the event that should have added an item, which is empty at that time."""
    match event:
        case OutputItemDone():
            item = event.item
        case ItemEvent(item_id=id) if tracked.kind == "function_call":
            item = FunctionCall(id=id or UNSET, call_id=id, name="", arguments="")
        case ItemEvent(item_id=id) if tracked.kind == "reasoning":
            item = Reasoning(id=id or UNSET)
        case _:
            item = Message(id=cast("ItemEvent", event).item_id or UNSET, role="assistant", content=[])
    match item:
        case Message():
            item = replace(item, content=[], status="in_progress")
        case FunctionCall():
            item = replace(item, arguments="", status="in_progress")
        case Reasoning():
            item = Reasoning(id=item.id)
        case _:
            pass
    return OutputItemAdded(sequence_number=event.sequence_number, output_index=tracked.output_index, item=item)


def _part_added(event: ContentEvent | SummaryEvent) -> Event:
    """Make the event that should have added a part, which is empty at that time."""
    kind = _text_kind(event)
    index_field, index = part_of(event)
    return cast("events.EventFactory", kind.part_added_event)(
        sequence_number=event.sequence_number,
        item_id=event.item_id,
        output_index=event.output_index,
        part=kind.empty_part(),
        **{index_field: index},
    )
