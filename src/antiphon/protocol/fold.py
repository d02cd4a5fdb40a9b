"""Events in, response out: the only place where a response is built.

Non-streaming answers, stored responses, terminal events and the client's snapshot all come from
this fold, so they cannot disagree.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, get_args

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from antiphon.protocol import events, items
from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import ContentEvent, Event, SummaryEvent, part_of
from antiphon.protocol.items import Content, Item, LogProb, TextAnnotation
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode

BYTES_PER_DELTA = 50
"""What a delta takes in memory beside its characters; a logprob takes four times as much."""


def fold(events: Iterable[Event]) -> Response:
    """Return the response that a stream of events describes."""
    state = Fold()
    for event in events:
        state.feed(event)
    return state.response


class PartDraft(Struct):
    """A content part that is still streamed."""

    part: Content
    # Concatenating a string per delta would be quadratic: collect pieces, join on demand.
    pieces: list[str]
    annotations: list[TextAnnotation] = []
    logprobs: list[LogProb] = []

    def build(self) -> Content:
        """Return the part with everything that has arrived for it."""
        if not (self.pieces or self.annotations):
            return self.part
        text = "".join(self.pieces)
        match self.part:
            case items.OutputText():
                annotations = [*self.part.annotations, *self.annotations]
                logprobs = self.logprobs or self.part.logprobs
                return replace(self.part, text=text, annotations=annotations, logprobs=logprobs)
            case items.RefusalContent():
                return replace(self.part, refusal=text)
            case items.TextContent() | items.SummaryText() | items.ReasoningText():
                return replace(self.part, text=text)
            case _:
                return self.part


def _measure_text(pieces: list[str]) -> int:
    return BYTES_PER_DELTA * len(pieces) + sum(map(len, pieces))


class ItemDraft(Struct):
    """An item that is still streamed."""

    item: Item
    done: bool = False
    pieces: list[str] = []
    """The deltas of a call's arguments."""
    parts: dict[str, dict[int, PartDraft]] = field(default_factory=lambda: {"content_index": {}, "summary_index": {}})
    """Its content and its summary, by index field and index."""
    size: int = 0
    """About how many bytes the item takes, once it is done and was measured."""

    def measure(self) -> int:
        """Return about how many bytes the item takes."""
        if self.done:
            self.size = self.size or len(encode(self.item))
            return self.size
        size = _measure_text(self.pieces)
        for drafts in self.parts.values():
            for draft in drafts.values():
                size += _measure_text(draft.pieces)
                if draft.logprobs:
                    size += 4 * BYTES_PER_DELTA * sum(1 + len(one.top_logprobs) for one in draft.logprobs)
        return size

    def build(self) -> Item:
        """Return the item with everything that has arrived for it."""
        if self.done:
            return self.item
        content = self._build_parts("content_index")
        match self.item:
            case items.Message() if content:
                return replace(self.item, content=content)
            case items.FunctionCall() if self.pieces:
                return replace(self.item, arguments="".join(self.pieces))
            case items.Reasoning():
                summary = self._build_parts("summary_index") or self.item.summary
                return replace(self.item, summary=summary, content=content or self.item.content)
            case _:
                return self.item

    def _build_parts(self, index_field: str) -> list[Content]:
        return [part.build() for _, part in sorted(self.parts[index_field].items())]


class Fold:
    """The response that the events fed so far describe."""

    def __init__(self) -> None:
        self._response: Response | None = None
        self._drafts: dict[int, ItemDraft] = {}

    def feed(self, event: Event) -> None:
        """Apply one event; ignore events that do not change the response."""
        if handle := self.HANDLERS.get(type(event)):
            try:
                handle(self, event)
            except LookupError:
                raise RemoteProtocolError(f"{event.type} names a part that was never added") from None

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        if self._response is None:
            raise RemoteProtocolError("no event has carried a response yet")
        # Without item events, the output of the last lifecycle event is all there is.
        if not self._drafts:
            return self._response
        output = [self._drafts[index].build() for index in sorted(self._drafts)]
        return replace(self._response, output=output)

    def measure_output(self) -> int:
        """Return about how many bytes the output takes."""
        return sum(draft.measure() for draft in self._drafts.values())

    def item(self, output_index: int) -> Item:
        """Return one item as far as it is known."""
        return self._drafts[output_index].build()

    def part(self, output_index: int, index_field: str, index: int) -> Content:
        """Return one part of an item's content or summary as far as it is known."""
        return self._drafts[output_index].parts[index_field][index].build()

    def open_text_pieces(self, output_index: int, index_field: str, index: int) -> list[str]:
        """Return the list that collects the deltas of an open text.

        The synthesizer appends to it directly, which is what `feed` does for a plain delta.
        """
        draft = self._drafts[output_index]
        return draft.parts[index_field][index].pieces if index_field else draft.pieces

    def _set_response(self, event: events.LifecycleEvent) -> None:
        self._response = event.response

    def _add_item(self, event: events.OutputItemAdded) -> None:
        self._drafts[event.output_index] = ItemDraft(event.item)

    def _finish_item(self, event: events.OutputItemDone) -> None:
        # A new draft, without the pieces: the finished item holds the text itself.
        self._drafts[event.output_index] = ItemDraft(event.item, done=True)

    def _set_part(self, event: events.PartEvent) -> None:
        index_field, index = part_of(event)
        text = items.content_text(event.part)
        self._drafts[event.output_index].parts[index_field][index] = PartDraft(event.part, [text] if text else [])

    def _add_delta(self, event: events.DeltaEvent) -> None:
        # Looked up in place, not by `open_text_pieces`: a client folds every delta of a stream.
        draft = self._drafts[event.output_index]
        if isinstance(event, ContentEvent):
            draft.parts["content_index"][event.content_index].pieces.append(event.delta)
        elif isinstance(event, SummaryEvent):
            draft.parts["summary_index"][event.summary_index].pieces.append(event.delta)
        else:
            draft.pieces.append(event.delta)

    def _add_text_delta(self, event: events.OutputTextDelta) -> None:
        draft = self._drafts[event.output_index].parts["content_index"][event.content_index]
        draft.pieces.append(event.delta)
        if event.logprobs is not UNSET:
            draft.logprobs += event.logprobs

    def _set_text(self, event: events.TextDoneEvent) -> None:
        text: str = getattr(event, events.TEXT_DONE_EVENTS[type(event)].text_field)
        self.open_text_pieces(event.output_index, *part_of(event))[:] = [text]

    def _add_annotation(self, event: events.OutputTextAnnotationAdded) -> None:
        draft = self._drafts[event.output_index].parts["content_index"][event.content_index]
        draft.annotations.append(event.annotation)

    HANDLERS: ClassVar[dict[object, Callable[..., None]]] = {
        **dict.fromkeys(get_args(events.LifecycleEvent), _set_response),
        events.OutputItemAdded: _add_item,
        events.OutputItemDone: _finish_item,
        **dict.fromkeys(get_args(events.PartEvent), _set_part),
        **dict.fromkeys(events.DELTA_EVENTS, _add_delta),
        **dict.fromkeys(events.TEXT_DONE_EVENTS, _set_text),
        events.OutputTextDelta: _add_text_delta,
        events.OutputTextAnnotationAdded: _add_annotation,
    }
