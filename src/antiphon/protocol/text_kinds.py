"""The five streams of text an item can have, as a table of the events that carry each."""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.protocol.content import (
    Content,
    OutputText,
    ReasoningText,
    RefusalContent,
    SummaryText,
    content_text,
)
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
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

EventFactory = Callable[..., Event]


@dataclass(frozen=True, slots=True)
class TextKind:
    """One kind of text: its index, and the events that open it, grow it, end it and close it."""

    index_field: str
    delta_event: EventFactory
    part_added_event: EventFactory | None = None
    text_done_event: EventFactory | None = None
    part_done_event: EventFactory | None = None
    empty_part: Callable[[], Content] = lambda: OutputText(text="")
    obfuscatable: bool = True

    def done_fields(self, part: Content) -> dict[str, object]:
        """Return what the done event says of a finished part."""
        if isinstance(part, OutputText):
            return {"text": part.text, "logprobs": part.logprobs}
        return {"refusal" if isinstance(part, RefusalContent) else "text": content_text(part)}


OUTPUT_TEXT = TextKind(
    "content_index", OutputTextDelta, ContentPartAdded, OutputTextDone, ContentPartDone
)
REFUSAL = TextKind(
    "content_index",
    RefusalDelta,
    ContentPartAdded,
    RefusalDone,
    ContentPartDone,
    lambda: RefusalContent(refusal=""),
    obfuscatable=False,
)
REASONING_TEXT = TextKind(
    "content_index",
    ReasoningDelta,
    ContentPartAdded,
    ReasoningDone,
    ContentPartDone,
    lambda: ReasoningText(text=""),
)
SUMMARY_TEXT = TextKind(
    "summary_index",
    ReasoningSummaryTextDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDone,
    ReasoningSummaryPartDone,
    lambda: SummaryText(text=""),
)
CALL_ARGUMENTS = TextKind("", FunctionCallArgumentsDelta)

TEXT_KINDS = {
    "output_text": OUTPUT_TEXT,
    "refusal": REFUSAL,
    "reasoning_text": REASONING_TEXT,
    "summary_text": SUMMARY_TEXT,
}
"""The face of each type of content part."""
