"""What is open while a response is made: its stream, its items, their strands of text."""

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec.structs import replace

from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    ItemEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDone,
    ReasoningDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDone,
    RefusalDone,
)
from antiphon.protocol.fold import Fold
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Key
from antiphon.protocol.surrogates import SurrogateJoiner
from antiphon.protocol.text_kinds import CALL_ARGUMENTS, TEXT_KINDS, TextKind

ItemKind = Literal["message", "reasoning", "call", "whole"]

ITEM_KINDS: dict[str, ItemKind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
}


class EventEmitter:
    """Where events get their number and are folded."""

    __slots__ = ("flow", "fold", "next_number", "said")

    def __init__(self) -> None:
        self.next_number = 0
        self.fold = Fold()
        self.said: list[Event] = []
        self.flow: TextFastPath | None = None
        """What adds to the text that was said last, until anything else is said."""

    def emit(self, kind: Callable[..., Event], **fields: object) -> None:
        """Append an event, with the next number."""
        self.flow = None
        event = kind(sequence_number=self.next_number, **fields)
        self.next_number += 1
        self.fold.feed(event)
        self.said.append(event)

    def emit_delta(self, open_text: "OpenText", text: str) -> None:
        """Append a plain delta: the hot path, where all deltas are made of one."""
        self.said.append(
            replace(open_text.delta_template, sequence_number=self.next_number, delta=text)
        )
        self.next_number += 1
        open_text.pieces.append(text)

    def take(self) -> list[Event]:
        """Return what was said since the last time."""
        said, self.said = self.said, []
        return said


class OpenText:
    """One piece of an item's text while it is open."""

    __slots__ = (
        "annotations",
        "delta_template",
        "done_emitted",
        "flow",
        "index",
        "joiner",
        "kind",
        "location",
        "part",
        "pieces",
    )

    def __init__(self, kind: TextKind, part: int, index: int, location: dict[str, object]) -> None:
        self.kind = kind
        self.part = part
        self.index = index
        self.location = location
        self.delta_template = kind.delta_event(sequence_number=0, delta="", **location)
        """What its deltas are made of."""
        self.joiner = SurrogateJoiner()
        self.annotations = 0
        self.done_emitted = False
        """Whether the whole of it has been said; only a resumed strand can be open and told."""
        self.pieces: list[str] = []
        """Where its deltas are folded; the fold's own list."""
        self.flow: TextFastPath | None = None
        """What adds to it past the parts, once that was asked for."""


class TextFastPath:
    """Adds words to a text, past the parts, as long as nothing else is said."""

    __slots__ = ("_emitter", "_pieces", "delta_template")

    def __init__(self, emitter: EventEmitter, open_text: OpenText) -> None:
        self.delta_template = open_text.delta_template
        """What every delta of the text is like, but for its number and its words."""
        self._pieces = open_text.pieces
        self._emitter = emitter

    def append(self, texts: list[str]) -> int:
        """Fold words, a delta each; return the number of the first.

        None of them may be empty, or hold half a character.
        """
        stream = self._emitter
        if stream.flow is not self:
            raise LocalProtocolError("more words for a text after something else was said")
        number = stream.next_number
        stream.next_number = number + len(texts)
        self._pieces += texts
        return number


class OpenItem:
    """An item that has been added and is not done."""

    __slots__ = ("counts", "finished", "id", "index", "key", "kind", "source_id", "strand", "value")

    def __init__(self, kind: ItemKind, key: Key, index: int, item: Item) -> None:
        self.kind: ItemKind = kind
        self.key = key
        self.index = index
        self.value = item
        self.id = str(item.id)
        self.source_id = ""
        self.strand: OpenText | None = None
        self.counts: dict[str, int] = {}
        self.finished = False


def find_open_items(events: Iterable[Event]) -> tuple[list[OpenItem], int]:
    """Return the items that a stream has left open, and how many it has begun."""
    items: dict[int, OpenItem] = {}
    count = 0
    for event in events:
        match event:
            case OutputItemAdded(output_index=index, item=item):
                items[index] = OpenItem(
                    ITEM_KINDS.get(item.type, "whole"), f"item {index}", index, item
                )
                count = index + 1
            case OutputItemDone(output_index=index):
                del items[index]
            case ContentPartAdded() | ReasoningSummaryPartAdded():
                summary = isinstance(event, ReasoningSummaryPartAdded)
                part = event.summary_index if summary else event.content_index
                items[event.output_index].strand = _reopen_text(
                    event, TEXT_KINDS[event.part.type], part
                )
            case ContentPartDone(output_index=index) | ReasoningSummaryPartDone(output_index=index):
                items[index].strand = None
            case FunctionCallArgumentsDelta(output_index=index):
                items[index].strand = _reopen_text(event, CALL_ARGUMENTS, 0)
            case FunctionCallArgumentsDone(output_index=index):
                items[index].strand = _reopen_text(event, CALL_ARGUMENTS, 0)
                _mark_text_done(items[index])
            case OutputTextDone() | RefusalDone() | ReasoningDone() | ReasoningSummaryTextDone():
                _mark_text_done(items[event.output_index])
            case _:
                pass
    return list(items.values()), count


def _mark_text_done(item: OpenItem) -> None:
    if item.strand:
        item.strand.done_emitted = True


def _reopen_text(event: ItemEvent, kind: TextKind, index: int) -> OpenText:
    place: dict[str, object] = {"item_id": event.item_id, "output_index": event.output_index}
    if kind.part_added_event:
        place[kind.index_field] = index
    return OpenText(kind, 0, index, place)
