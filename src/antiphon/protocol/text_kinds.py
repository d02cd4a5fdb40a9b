"""The table of streamed texts: which events carry each kind of text, and where.

The synthesizer, the fold, the rules and the reader of foreign streams all use this one table, so a
new kind of text is one new entry here (and its event classes in `events`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
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
from antiphon.protocol.items import Content, OutputText, ReasoningText, RefusalContent, SummaryText, content_text

EventFactory = Callable[..., Event]


@dataclass(frozen=True, slots=True)
class TextKind:
    """One kind of streamed text: the item and part it belongs to, and its events."""

    item_type: str
    content_type: str
    """The type of its content part; empty for arguments, which are a field of the item."""
    index_field: str
    """The event field with the part's index; empty for arguments."""
    text_field: str
    """The field of the done event that holds the whole text."""
    delta_event: EventFactory
    text_done_event: EventFactory
    part_added_event: EventFactory | None = None
    part_done_event: EventFactory | None = None
    empty_part: Callable[[], Content] = lambda: OutputText(text="")
    # The specification gives every delta but a refusal's an `obfuscation` field.
    obfuscatable: bool = True

    def done_fields(self, part: Content) -> dict[str, object]:
        """Return the fields of the text's done event for a finished part."""
        if isinstance(part, OutputText):
            return {"text": part.text, "logprobs": part.logprobs}
        return {self.text_field: content_text(part)}


OUTPUT_TEXT = TextKind(
    "message",
    "output_text",
    "content_index",
    "text",
    OutputTextDelta,
    OutputTextDone,
    ContentPartAdded,
    ContentPartDone,
)
REFUSAL = TextKind(
    "message",
    "refusal",
    "content_index",
    "refusal",
    RefusalDelta,
    RefusalDone,
    ContentPartAdded,
    ContentPartDone,
    lambda: RefusalContent(refusal=""),
    obfuscatable=False,
)
REASONING_TEXT = TextKind(
    "reasoning",
    "reasoning_text",
    "content_index",
    "text",
    ReasoningDelta,
    ReasoningDone,
    ContentPartAdded,
    ContentPartDone,
    lambda: ReasoningText(text=""),
)
SUMMARY_TEXT = TextKind(
    "reasoning",
    "summary_text",
    "summary_index",
    "text",
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    lambda: SummaryText(text=""),
)
CALL_ARGUMENTS = TextKind("function_call", "", "", "arguments", FunctionCallArgumentsDelta, FunctionCallArgumentsDone)

# Everything below is derived: the fold and the checker build their dispatch tables from it.
_ALL = (OUTPUT_TEXT, REFUSAL, REASONING_TEXT, SUMMARY_TEXT, CALL_ARGUMENTS)

TEXT_KINDS = {kind.content_type: kind for kind in _ALL if kind.content_type}
"""The kind of text in each type of content part."""

DELTA_EVENTS: dict[object, TextKind] = {kind.delta_event: kind for kind in _ALL}
TEXT_DONE_EVENTS: dict[object, TextKind] = {kind.text_done_event: kind for kind in _ALL}
PART_ADDED_EVENTS: list[object] = [kind.part_added_event for kind in _ALL if kind.part_added_event]
PART_DONE_EVENTS: list[object] = [kind.part_done_event for kind in _ALL if kind.part_done_event]

# Annotations belong to output text only.
TEXT_EVENTS = DELTA_EVENTS | TEXT_DONE_EVENTS | {OutputTextAnnotationAdded: OUTPUT_TEXT}
"""The kind of text that each event inside a text belongs to."""
