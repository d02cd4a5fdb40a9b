"""The five streams of text an item can have, as a table of the events that carry each."""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.core.content import Content, OutputText, ReasoningText, Refusal, SummaryText, text_of
from antiphon.core.events import (
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

Maker = Callable[..., Event]


@dataclass(frozen=True, slots=True)
class Face:
    """One kind of text: its index, and the events that open it, grow it, end it and close it."""

    index: str
    delta: Maker
    added: Maker | None = None
    done: Maker | None = None
    closed: Maker | None = None
    empty: Callable[[], Content] = lambda: OutputText(text="")
    padded: bool = True

    def whole(self, part: Content) -> dict[str, object]:
        """Return what the done event says of a finished part."""
        if isinstance(part, OutputText):
            return {"text": part.text, "logprobs": part.logprobs}
        return {"refusal" if isinstance(part, Refusal) else "text": text_of(part)}


TEXT = Face("content_index", OutputTextDelta, ContentPartAdded, OutputTextDone, ContentPartDone)
REFUSAL = Face(
    "content_index",
    RefusalDelta,
    ContentPartAdded,
    RefusalDone,
    ContentPartDone,
    lambda: Refusal(refusal=""),
    padded=False,
)
RAW = Face(
    "content_index",
    ReasoningDelta,
    ContentPartAdded,
    ReasoningDone,
    ContentPartDone,
    lambda: ReasoningText(text=""),
)
SUMMARY = Face(
    "summary_index",
    ReasoningSummaryTextDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDone,
    ReasoningSummaryPartDone,
    lambda: SummaryText(text=""),
)
ARGUMENTS = Face("", FunctionCallArgumentsDelta)

FACES = {"output_text": TEXT, "refusal": REFUSAL, "reasoning_text": RAW, "summary_text": SUMMARY}
"""The face of each type of content part."""
