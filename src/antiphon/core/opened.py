"""What is open while a response is made: its stream, its items, their strands of text."""

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec.structs import replace

from antiphon.core.errors import LocalProtocolError
from antiphon.core.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    InItem,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDone,
    ReasoningDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDone,
    RefusalDone,
)
from antiphon.core.faces import ARGUMENTS, FACES, Face
from antiphon.core.fold import Fold
from antiphon.core.items import Item
from antiphon.core.parts import Key
from antiphon.core.surrogates import Joiner

Kind = Literal["message", "reasoning", "call", "whole"]

KINDS: dict[str, Kind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
}


class Stream:
    """Where events get their number and are folded."""

    __slots__ = ("flow", "fold", "number", "said")

    def __init__(self) -> None:
        self.number = 0
        self.fold = Fold()
        self.said: list[Event] = []
        self.flow: Flow | None = None
        """What adds to the text that was said last, until anything else is said."""

    def say(self, kind: Callable[..., Event], **fields: object) -> None:
        """Append an event, with the next number."""
        self.flow = None
        event = kind(sequence_number=self.number, **fields)
        self.number += 1
        self.fold.feed(event)
        self.said.append(event)

    def grow(self, strand: "Strand", text: str) -> None:
        """Append a plain delta: the hot path, where all deltas are made of one."""
        self.said.append(replace(strand.delta, sequence_number=self.number, delta=text))
        self.number += 1
        strand.pieces.append(text)

    def take(self) -> list[Event]:
        """Return what was said since the last time."""
        said, self.said = self.said, []
        return said


class Strand:
    """One piece of an item's text while it is open."""

    __slots__ = (
        "annotations",
        "delta",
        "face",
        "flow",
        "index",
        "joiner",
        "part",
        "pieces",
        "place",
        "told",
    )

    def __init__(self, face: Face, part: int, index: int, place: dict[str, object]) -> None:
        self.face = face
        self.part = part
        self.index = index
        self.place = place
        self.delta = face.delta(sequence_number=0, delta="", **place)
        """What its deltas are made of."""
        self.joiner = Joiner()
        self.annotations = 0
        self.told = False
        """Whether the whole of it has been said; only a resumed strand can be open and told."""
        self.pieces: list[str] = []
        """Where its deltas are folded; the fold's own list."""
        self.flow: Flow | None = None
        """What adds to it past the parts, once that was asked for."""


class Flow:
    """Adds words to a text, past the parts, as long as nothing else is said."""

    __slots__ = ("_pieces", "_stream", "delta")

    def __init__(self, stream: Stream, strand: Strand) -> None:
        self.delta = strand.delta
        """What every delta of the text is like, but for its number and its words."""
        self._pieces = strand.pieces
        self._stream = stream

    def add(self, said: list[str]) -> int:
        """Fold words, a delta each; return the number of the first.

        None of them may be empty, or hold half a character.
        """
        stream = self._stream
        if stream.flow is not self:
            raise LocalProtocolError("more words for a text after something else was said")
        number = stream.number
        stream.number = number + len(said)
        self._pieces += said
        return number


class Open:
    """An item that has been added and is not done."""

    __slots__ = ("counts", "id", "index", "key", "kind", "sealed", "source_id", "strand", "value")

    def __init__(self, kind: Kind, key: Key, index: int, item: Item) -> None:
        self.kind: Kind = kind
        self.key = key
        self.index = index
        self.value = item
        self.id = str(item.id)
        self.source_id = ""
        self.strand: Strand | None = None
        self.counts: dict[str, int] = {}
        self.sealed = False


def still_open(events: Iterable[Event]) -> tuple[list[Open], int]:
    """Return the items that a stream has left open, and how many it has begun."""
    items: dict[int, Open] = {}
    count = 0
    for event in events:
        match event:
            case OutputItemAdded(output_index=index, item=item):
                items[index] = Open(KINDS.get(item.type, "whole"), f"item {index}", index, item)
                count = index + 1
            case OutputItemDone(output_index=index):
                del items[index]
            case ContentPartAdded() | ReasoningSummaryPartAdded():
                summary = isinstance(event, ReasoningSummaryPartAdded)
                part = event.summary_index if summary else event.content_index
                items[event.output_index].strand = _strand(event, FACES[event.part.type], part)
            case ContentPartDone(output_index=index) | ReasoningSummaryPartDone(output_index=index):
                items[index].strand = None
            case FunctionCallArgumentsDelta(output_index=index):
                items[index].strand = _strand(event, ARGUMENTS, 0)
            case FunctionCallArgumentsDone(output_index=index):
                items[index].strand = _strand(event, ARGUMENTS, 0)
                _tell(items[index])
            case OutputTextDone() | RefusalDone() | ReasoningDone() | ReasoningSummaryTextDone():
                _tell(items[event.output_index])
            case _:
                pass
    return list(items.values()), count


def _tell(item: Open) -> None:
    if item.strand:
        item.strand.told = True


def _strand(event: InItem, face: Face, index: int) -> Strand:
    place: dict[str, object] = {"item_id": event.item_id, "output_index": event.output_index}
    if face.added:
        place[face.index] = index
    return Strand(face, 0, index, place)
