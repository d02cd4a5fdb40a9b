"""Events in, response out: the only place where a response is made.

Non-streaming answers, stored responses, terminal events and a client's snapshot all come from this
fold, so they cannot disagree. Text is kept in pieces and joined when it is asked for, which makes
the fold linear in the number of events.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.protocol.content import (
    Content,
    LogProb,
    OutputText,
    ReasoningText,
    RefusalContent,
    SummaryText,
    TextAnnotation,
    TextContent,
    content_text,
)
from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    LifecycleEvent,
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
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
)
from antiphon.protocol.items import (
    FunctionCall,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.response import Response


def fold(events: Iterable[Event]) -> Response:
    """Return the response that a stream of events tells of."""
    state = Fold()
    for event in events:
        state.feed(event)
    return state.response


class PartDraft:
    """A content part while it grows."""

    __slots__ = ("annotations", "logprobs", "part", "pieces")

    def __init__(self, part: Content) -> None:
        self.part = part
        self.pieces = [text] if (text := content_text(part)) else []
        self.annotations: list[TextAnnotation] = []
        self.logprobs: list[LogProb] = []

    def build(self) -> Content:
        """Return the part with all that has come for it."""
        if not (self.pieces or self.annotations):
            return self.part
        text = "".join(self.pieces)
        match self.part:
            case OutputText():
                logprobs: list[LogProb] | UnsetType = self.logprobs or self.part.logprobs
                notes = [*self.part.annotations, *self.annotations]
                return replace(self.part, text=text, annotations=notes, logprobs=logprobs)
            case RefusalContent():
                return replace(self.part, refusal=text)
            case TextContent() | SummaryText() | ReasoningText():
                return replace(self.part, text=text)
            case _:
                return self.part


class ItemDraft:
    """An item while it grows."""

    __slots__ = ("content", "done", "item", "pieces", "summary")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = False
        self.pieces: list[str] = []
        self.content: dict[int, PartDraft] = {}
        self.summary: dict[int, PartDraft] = {}

    def build(self) -> Item:
        """Return the item with all that has come for it."""
        if self.done:
            return self.item
        content = _build_parts(self.content)
        match self.item:
            case Message():
                return replace(self.item, content=content) if content else self.item
            case FunctionCall():
                return (
                    replace(self.item, arguments="".join(self.pieces)) if self.pieces else self.item
                )
            case Reasoning():
                summary = _build_parts(self.summary) or self.item.summary
                seen = content or self.item.content
                return replace(self.item, summary=summary, content=seen)
            case _:
                return self.item


def _build_parts(drafts: dict[int, PartDraft]) -> list[Content]:
    return [drafts[index].build() for index in sorted(drafts)]


class Fold:
    """The state of one stream."""

    def __init__(self) -> None:
        self._response: Response | None = None
        self._drafts: dict[int, ItemDraft] = {}

    def feed(self, event: Event) -> None:
        """Take in one event; events that say nothing about the response are passed over."""
        if step := self.HANDLERS.get(type(event)):
            try:
                step(self, event)
            except LookupError:
                raise RemoteProtocolError(
                    f"{event.type} names a part that was never added"
                ) from None

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        if self._response is None:
            raise RemoteProtocolError("the stream has not told of a response yet")
        if not self._drafts:
            return self._response
        output = [self._drafts[index].build() for index in sorted(self._drafts)]
        return replace(self._response, output=output)

    def item(self, output_index: int) -> Item:
        """Return one item as far as it is known."""
        return self._drafts[output_index].build()

    def content(self, output_index: int, index: int) -> Content:
        """Return one content part as far as it is known."""
        return self._drafts[output_index].content[index].build()

    def summary(self, output_index: int, index: int) -> Content:
        """Return one part of a summary as far as it is known."""
        return self._drafts[output_index].summary[index].build()

    def open_text_pieces(self, output_index: int, kind: str, index: int) -> list[str]:
        """Return the list that the deltas of an open text go to.

        The synthesizer appends to it directly: what `feed` would do for each of them.
        """
        draft = self._drafts[output_index]
        if kind == "content_index":
            return draft.content[index].pieces
        return draft.summary[index].pieces if kind == "summary_index" else draft.pieces

    # --- one step per kind of event ---

    def _set_response(self, event: LifecycleEvent) -> None:
        self._response = event.response

    def _add_item(self, event: OutputItemAdded) -> None:
        self._drafts[event.output_index] = ItemDraft(event.item)

    def _finish_item(self, event: OutputItemDone) -> None:
        draft = self._drafts.get(event.output_index) or ItemDraft(event.item)
        self._drafts[event.output_index] = draft
        draft.item, draft.done = event.item, True
        draft.pieces, draft.content, draft.summary = [], {}, {}

    def _set_content_part(self, event: ContentPartAdded | ContentPartDone) -> None:
        self._drafts[event.output_index].content[event.content_index] = PartDraft(event.part)

    def _add_text_delta(self, event: OutputTextDelta) -> None:
        draft = self._drafts[event.output_index].content[event.content_index]
        draft.pieces.append(event.delta)
        if event.logprobs is not UNSET:
            draft.logprobs += event.logprobs

    def _add_delta(self, event: RefusalDelta | ReasoningDelta) -> None:
        self._drafts[event.output_index].content[event.content_index].pieces.append(event.delta)

    def _set_text(self, event: OutputTextDone | ReasoningDone | RefusalDone) -> None:
        text = event.refusal if isinstance(event, RefusalDone) else event.text
        self._drafts[event.output_index].content[event.content_index].pieces = [text]

    def _add_annotation(self, event: OutputTextAnnotationAdded) -> None:
        draft = self._drafts[event.output_index].content[event.content_index]
        draft.annotations.append(event.annotation)

    def _set_summary_part(
        self, event: ReasoningSummaryPartAdded | ReasoningSummaryPartDone
    ) -> None:
        self._drafts[event.output_index].summary[event.summary_index] = PartDraft(event.part)

    def _add_summary_delta(self, event: ReasoningSummaryTextDelta) -> None:
        self._drafts[event.output_index].summary[event.summary_index].pieces.append(event.delta)

    def _set_summary_text(self, event: ReasoningSummaryTextDone) -> None:
        self._drafts[event.output_index].summary[event.summary_index].pieces = [event.text]

    def _add_arguments_delta(self, event: FunctionCallArgumentsDelta) -> None:
        self._drafts[event.output_index].pieces.append(event.delta)

    def _set_arguments(self, event: FunctionCallArgumentsDone) -> None:
        self._drafts[event.output_index].pieces = [event.arguments]

    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        ResponseCreated: _set_response,
        ResponseQueued: _set_response,
        ResponseInProgress: _set_response,
        ResponseCompleted: _set_response,
        ResponseFailed: _set_response,
        ResponseIncomplete: _set_response,
        OutputItemAdded: _add_item,
        OutputItemDone: _finish_item,
        ContentPartAdded: _set_content_part,
        ContentPartDone: _set_content_part,
        OutputTextDelta: _add_text_delta,
        OutputTextDone: _set_text,
        OutputTextAnnotationAdded: _add_annotation,
        RefusalDelta: _add_delta,
        RefusalDone: _set_text,
        ReasoningDelta: _add_delta,
        ReasoningDone: _set_text,
        ReasoningSummaryPartAdded: _set_summary_part,
        ReasoningSummaryPartDone: _set_summary_part,
        ReasoningSummaryTextDelta: _add_summary_delta,
        ReasoningSummaryTextDone: _set_summary_text,
        FunctionCallArgumentsDelta: _add_arguments_delta,
        FunctionCallArgumentsDone: _set_arguments,
    }
