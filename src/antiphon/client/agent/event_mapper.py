"""The protocol's events, told as an agent's: what the model says, thinks and calls.

Text is told in chunks at an even pace, thinking sentence by sentence. Whatever still waits is told
at once when a call begins and when the answer ends, so that nobody waits for the pace.
"""

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.client.agent.events import (
    AgentMessage,
    AgentReasoning,
    AgentToolCall,
    MessageUpdate,
    ReasoningUpdate,
    TokenReceived,
    utc_now,
)
from antiphon.client.agent.metrics import MetricsRecorder
from antiphon.client.agent.options import AgentOptions
from antiphon.client.agent.smoothing import Smoother
from antiphon.client.agent.tool_events import EmitEvent, ToolCallTracker
from antiphon.protocol.content import RefusalContent
from antiphon.protocol.events import (
    Event,
    FunctionCallArgumentsDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDelta,
    RefusalDelta,
)
from antiphon.protocol.items import FunctionCall, Message, Reasoning
from antiphon.protocol.response import Response

REASONING_DELAY = 0.25
"""Seconds between two updates of what the model thinks."""

PARAGRAPH = "\n\n"


class EventMapper:
    """Tells one run: `hear` takes the server's events, round after round."""

    def __init__(self, emit: EmitEvent, options: AgentOptions, model: str) -> None:
        self.model = model
        self.message = ""
        """Everything that has been told of the message."""
        self.refusal = ""
        self.reasoning_text = ""
        self.signature: str | None = None
        self.metrics = MetricsRecorder()
        self._emit = emit
        self._delay = options.smoothing_delay / 1000
        self._round_start = ("", "", "")
        """What stood when the round began."""
        self.calls = ToolCallTracker(emit, self._delay)
        """The calls of the round."""
        self._open_reasoning = ""
        """What the update of the thinking in hand has told."""
        self._starts_paragraph = False
        """Whether the next words begin a paragraph."""
        self._has_text = False
        """Whether any words came in this round."""
        smooth = options.smoothing_enabled
        self._text_smoother = Smoother(
            self._emit_text, options.chunking_strategy, delay=self._delay, enabled=smooth
        )
        self._reasoning_smoother = Smoother(
            self._emit_reasoning, "sentence", REASONING_DELAY, coalesce=True
        )

    # --- rounds ---

    def start_round(self) -> None:
        """Begin a round."""
        self._round_start = (self.message, self.refusal, self.reasoning_text)
        self.calls = ToolCallTracker(self._emit, self._delay)
        self._starts_paragraph = bool(self.message)
        self._has_text = False

    async def reset_round(self) -> None:
        """Forget the round: it is asked again. What was shown of it is set back."""
        await self.close()
        shown = (self.message, self.refusal, self.reasoning_text)
        self.message, self.refusal, self.reasoning_text = self._round_start
        self._open_reasoning = ""
        if shown != self._round_start or self.calls.has_calls:
            await self._emit(self._build_update(is_streaming=False))
        self.start_round()

    async def finish_round(self, response: Response) -> None:
        """End a round: tell what still waits, and what came without a word before."""
        if not self._has_text and (text := response.output_text):
            await self._add_text(text)
        await self._text_smoother.flush()
        await self._finish_reasoning()
        if self.refusal == self._round_start[1] and (refusal := _refusal_text(response)):
            await self._add_refusal(refusal)
        await self.calls.finish_round(response)

    async def close(self) -> None:
        """Tell nothing more."""
        await self._text_smoother.discard()
        await self._reasoning_smoother.discard()

    # --- events ---

    async def feed(self, event: Event) -> None:
        """Tell what an event of the server means to whoever watches."""
        match event:
            case OutputTextDelta(delta=delta):
                await self._add_text(delta)
            case FunctionCallArgumentsDelta(output_index=index, delta=delta):
                await self.calls.add_arguments(index, delta)
            case ReasoningDelta(delta=delta) | ReasoningSummaryTextDelta(delta=delta):
                await self._reasoning_smoother.feed(delta)
            case ReasoningSummaryPartAdded(summary_index=index) if index:
                await self._reasoning_smoother.feed(PARAGRAPH)
            case RefusalDelta(delta=delta):
                await self._add_refusal(delta)
            case OutputItemAdded(item=Message()):
                self._starts_paragraph = bool(self.message)
            case OutputItemAdded(item=FunctionCall() as call, output_index=index):
                await self._text_smoother.flush()
                await self._finish_reasoning()
                await self.calls.start(index, call)
            case OutputItemDone(item=FunctionCall() as call, output_index=index):
                await self.calls.finish(index, call)
            case OutputItemDone(item=Reasoning() as item):
                if item.encrypted_content is not UNSET:
                    self.signature = item.encrypted_content
                await self._finish_reasoning()
            case _:
                pass

    # --- words ---

    async def _add_text(self, delta: str) -> None:
        if not delta:
            return
        self._has_text = True
        await self._emit(TokenReceived(token=delta))
        self.metrics.record(delta)
        await self._text_smoother.feed(PARAGRAPH + delta if self._starts_paragraph else delta)
        self._starts_paragraph = False

    async def _emit_text(self, chunk: str) -> None:
        self.message += chunk
        await self._emit(self._build_update(is_streaming=True))

    async def _add_refusal(self, delta: str) -> None:
        self.refusal += delta
        await self._emit(self._build_update(is_streaming=True))

    def _build_update(self, *, is_streaming: bool) -> MessageUpdate:
        return MessageUpdate(
            message=self.build_message(),
            is_streaming=is_streaming,
            reasoning=self.build_reasoning(),
            metrics=self.metrics.snapshot(),
        )

    def build_message(self) -> AgentMessage:
        """Return the message as far as it has been told."""
        seconds = self.metrics.elapsed_ms / 1000
        return AgentMessage(
            message=self.message,
            timestamp=utc_now(),
            model=self.model,
            refusal=self.refusal or None,
            throughput=round(len(self.message) / seconds, 1) if seconds else None,
            completion_time=round(seconds, 3),
        )

    # --- thinking ---

    async def _emit_reasoning(self, chunk: str) -> None:
        if not self._open_reasoning and self.reasoning_text:
            self.reasoning_text += PARAGRAPH
        self._open_reasoning += chunk
        self.reasoning_text += chunk
        await self._emit(ReasoningUpdate(content=self._open_reasoning, is_complete=False))

    async def _finish_reasoning(self) -> None:
        await self._reasoning_smoother.flush()
        if self._open_reasoning:
            await self._emit(ReasoningUpdate(content=self._open_reasoning, is_complete=True))
        self._open_reasoning = ""

    def build_reasoning(self) -> AgentReasoning | None:
        """Return what the model has thought."""
        return (
            AgentReasoning(content=self.reasoning_text, signature=self.signature)
            if self.reasoning_text
            else None
        )

    def build_final_message(self, tokens: int, calls: list[AgentToolCall]) -> AgentMessage:
        """Return the message as it stands at the end."""
        return replace(self.build_message(), tokens=tokens, tool_calls=calls)


def _refusal_text(response: Response) -> str:
    messages = [item for item in response.output if isinstance(item, Message)]
    parts = [part for message in messages for part in message.content]
    return "".join(part.refusal for part in parts if isinstance(part, RefusalContent))
