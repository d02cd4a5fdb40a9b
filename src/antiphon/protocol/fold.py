"""Events in, response out: the only place where a response is built.

Non-streaming answers, stored responses, terminal events and the client's snapshot all come from
this fold, so they cannot disagree.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, get_args

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import (
    ContentEvent,
    ContentPartAdded,
    ContentPartDone,
    DeltaEvent,
    Event,
    ItemEvent,
    LifecycleEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    SummaryEvent,
    TextDoneEvent,
)
from antiphon.protocol.items import (
    Content,
    FunctionCall,
    Item,
    LogProb,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    RefusalContent,
    SummaryText,
    TextAnnotation,
    TextContent,
    content_text,
)
from antiphon.protocol.response import Response
from antiphon.protocol.text_kinds import DELTA_EVENTS, PART_ADDED_EVENTS, PART_DONE_EVENTS, TEXT_DONE_EVENTS


def fold(events: Iterable[Event]) -> Response:
    """Return the response that a stream of events describes."""
    state = Fold()
    for event in events:
        state.feed(event)
    return state.response


class PartDraft:
    """A content part that is still streamed."""

    __slots__ = ("annotations", "logprobs", "part", "pieces")

    def __init__(self, part: Content) -> None:
        self.part = part
        # Concatenating a string per delta would be quadratic: collect pieces, join on demand.
        self.pieces = [text] if (text := content_text(part)) else []
        self.annotations: list[TextAnnotation] = []
        self.logprobs: list[LogProb] = []

    def build(self) -> Content:
        """Return the part with everything that has arrived for it."""
        if not (self.pieces or self.annotations):
            return self.part
        text = "".join(self.pieces)
        match self.part:
            case OutputText():
                logprobs: list[LogProb] | UnsetType = self.logprobs or self.part.logprobs
                annotations = [*self.part.annotations, *self.annotations]
                return replace(self.part, text=text, annotations=annotations, logprobs=logprobs)
            case RefusalContent():
                return replace(self.part, refusal=text)
            case TextContent() | SummaryText() | ReasoningText():
                return replace(self.part, text=text)
            case _:
                return self.part


class ItemDraft:
    """An item that is still streamed; `pieces` are the deltas of a call's arguments."""

    __slots__ = ("content", "done", "item", "pieces", "summary")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = False
        self.pieces: list[str] = []
        self.content: dict[int, PartDraft] = {}
        self.summary: dict[int, PartDraft] = {}

    def build(self) -> Item:
        """Return the item with everything that has arrived for it."""
        if self.done:
            return self.item
        content = _build_parts(self.content)
        match self.item:
            case Message() if content:
                return replace(self.item, content=content)
            case FunctionCall() if self.pieces:
                return replace(self.item, arguments="".join(self.pieces))
            case Reasoning():
                summary = _build_parts(self.summary) or self.item.summary
                return replace(self.item, summary=summary, content=content or self.item.content)
            case _:
                return self.item


def _build_parts(drafts: dict[int, PartDraft]) -> list[Content]:
    return [drafts[index].build() for index in sorted(drafts)]


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

    def item(self, output_index: int) -> Item:
        """Return one item as far as it is known."""
        return self._drafts[output_index].build()

    def part(self, output_index: int, index_field: str, index: int) -> Content:
        """Return one part of an item's content or summary as far as it is known."""
        draft = self._drafts[output_index]
        parts = draft.content if index_field == "content_index" else draft.summary
        return parts[index].build()

    def open_text_pieces(self, output_index: int, index_field: str, index: int) -> list[str]:
        """Return the list that collects the deltas of an open text.

        The synthesizer appends to it directly, which is what `feed` does for a plain delta.
        """
        draft = self._drafts[output_index]
        if index_field == "content_index":
            return draft.content[index].pieces
        return draft.summary[index].pieces if index_field == "summary_index" else draft.pieces

    def _set_response(self, event: LifecycleEvent) -> None:
        self._response = event.response

    def _add_item(self, event: OutputItemAdded) -> None:
        self._drafts[event.output_index] = ItemDraft(event.item)

    def _finish_item(self, event: OutputItemDone) -> None:
        draft = self._drafts.setdefault(event.output_index, ItemDraft(event.item))
        draft.item, draft.done = event.item, True
        # Free the pieces: the finished item holds the text itself.
        draft.pieces, draft.content, draft.summary = [], {}, {}

    def _set_part(
        self, event: ContentPartAdded | ContentPartDone | ReasoningSummaryPartAdded | ReasoningSummaryPartDone
    ) -> None:
        draft = self._drafts[event.output_index]
        if isinstance(event, ContentEvent):
            draft.content[event.content_index] = PartDraft(event.part)
        else:
            draft.summary[event.summary_index] = PartDraft(event.part)

    def _text_draft(self, event: ItemEvent) -> PartDraft | ItemDraft:
        """Return the draft that collects the text an event belongs to."""
        draft = self._drafts[event.output_index]
        match event:
            case ContentEvent():
                return draft.content[event.content_index]
            case SummaryEvent():
                return draft.summary[event.summary_index]
            case _:
                return draft

    def _add_delta(self, event: DeltaEvent) -> None:
        # Looked up in place, not by `_text_draft`: a client folds every delta of a stream.
        draft = self._drafts[event.output_index]
        if isinstance(event, ContentEvent):
            draft.content[event.content_index].pieces.append(event.delta)
        elif isinstance(event, SummaryEvent):
            draft.summary[event.summary_index].pieces.append(event.delta)
        else:
            draft.pieces.append(event.delta)

    def _add_text_delta(self, event: OutputTextDelta) -> None:
        draft = self._drafts[event.output_index].content[event.content_index]
        draft.pieces.append(event.delta)
        if event.logprobs is not UNSET:
            draft.logprobs += event.logprobs

    def _set_text(self, event: TextDoneEvent) -> None:
        text: str = getattr(event, TEXT_DONE_EVENTS[type(event)].text_field)
        self._text_draft(event).pieces = [text]

    def _add_annotation(self, event: OutputTextAnnotationAdded) -> None:
        draft = self._drafts[event.output_index].content[event.content_index]
        draft.annotations.append(event.annotation)

    HANDLERS: ClassVar[dict[object, Callable[..., None]]] = {
        **dict.fromkeys(get_args(LifecycleEvent), _set_response),
        OutputItemAdded: _add_item,
        OutputItemDone: _finish_item,
        **dict.fromkeys(PART_ADDED_EVENTS, _set_part),
        **dict.fromkeys(DELTA_EVENTS, _add_delta),
        **dict.fromkeys(TEXT_DONE_EVENTS, _set_text),
        **dict.fromkeys(PART_DONE_EVENTS, _set_part),
        OutputTextDelta: _add_text_delta,
        OutputTextAnnotationAdded: _add_annotation,
    }
