"""The protocol's events, told as an agent's: what the model says, thinks and calls.

Text is told in chunks at an even pace, thinking sentence by sentence. Whatever still waits is told
at once when a call begins and when the answer ends, so that nobody waits for the pace.
"""

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.client.agent.calling import Calls, Tell
from antiphon.client.agent.events import (
    AgentMessage,
    MessageUpdate,
    ReasoningUpdate,
    Thinking,
    Token,
    ToolCall,
    now,
)
from antiphon.client.agent.options import AgentOptions
from antiphon.client.agent.pacing import Pacing
from antiphon.client.agent.smooth import Smoother
from antiphon.core.content import Refusal
from antiphon.core.events import (
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
from antiphon.core.items import FunctionCall, Message, Reasoning
from antiphon.core.response import Response

THINKING_DELAY = 0.25
"""Seconds between two updates of what the model thinks."""

PARAGRAPH = "\n\n"


class Teller:
    """Tells one run: `hear` takes the server's events, round after round."""

    def __init__(self, tell: Tell, options: AgentOptions, model: str) -> None:
        self.model = model
        self.message = ""
        """Everything that has been told of the message."""
        self.refusal = ""
        self.thought = ""
        self.signature: str | None = None
        self.pacing = Pacing()
        self._tell = tell
        self._delay = options.smoothing_delay / 1000
        self._mark = ("", "", "")
        """What stood when the round began."""
        self.calls = Calls(tell, self._delay)
        """The calls of the round."""
        self._begun = ""
        """What the update of the thinking in hand has told."""
        self._apart = False
        """Whether the next words begin a paragraph."""
        self._heard = False
        """Whether any words came in this round."""
        smooth = options.smoothing_enabled
        self._words = Smoother(
            self._said, options.chunking_strategy, delay=self._delay, enabled=smooth
        )
        self._thoughts = Smoother(self._thinks, "sentence", THINKING_DELAY, together=True)

    # --- rounds ---

    def begin(self) -> None:
        """Begin a round."""
        self._mark = (self.message, self.refusal, self.thought)
        self.calls = Calls(self._tell, self._delay)
        self._apart = bool(self.message)
        self._heard = False

    async def rewind(self) -> None:
        """Forget the round: it is asked again. What was shown of it is set back."""
        await self.close()
        shown = (self.message, self.refusal, self.thought)
        self.message, self.refusal, self.thought = self._mark
        self._begun = ""
        if shown != self._mark or self.calls.begun:
            await self._tell(self._update(is_streaming=False))
        self.begin()

    async def end(self, response: Response) -> None:
        """End a round: tell what still waits, and what came without a word before."""
        if not self._heard and (text := response.output_text):
            await self._text(text)
        await self._words.flush()
        await self._thought_through()
        if self.refusal == self._mark[1] and (refusal := _refusal(response)):
            await self._refused(refusal)
        await self.calls.end(response)

    async def close(self) -> None:
        """Tell nothing more."""
        await self._words.discard()
        await self._thoughts.discard()

    # --- events ---

    async def hear(self, event: Event) -> None:
        """Tell what an event of the server means to whoever watches."""
        match event:
            case OutputTextDelta(delta=delta):
                await self._text(delta)
            case FunctionCallArgumentsDelta(output_index=index, delta=delta):
                await self.calls.grow(index, delta)
            case ReasoningDelta(delta=delta) | ReasoningSummaryTextDelta(delta=delta):
                await self._thoughts.feed(delta)
            case ReasoningSummaryPartAdded(summary_index=index) if index:
                await self._thoughts.feed(PARAGRAPH)
            case RefusalDelta(delta=delta):
                await self._refused(delta)
            case OutputItemAdded(item=Message()):
                self._apart = bool(self.message)
            case OutputItemAdded(item=FunctionCall() as call, output_index=index):
                await self._words.flush()
                await self._thought_through()
                await self.calls.add(index, call)
            case OutputItemDone(item=FunctionCall() as call, output_index=index):
                await self.calls.done(index, call)
            case OutputItemDone(item=Reasoning() as item):
                if item.encrypted_content is not UNSET:
                    self.signature = item.encrypted_content
                await self._thought_through()
            case _:
                pass

    # --- words ---

    async def _text(self, delta: str) -> None:
        if not delta:
            return
        self._heard = True
        await self._tell(Token(token=delta))
        self.pacing.count(delta)
        await self._words.feed(PARAGRAPH + delta if self._apart else delta)
        self._apart = False

    async def _said(self, chunk: str) -> None:
        self.message += chunk
        await self._tell(self._update(is_streaming=True))

    async def _refused(self, delta: str) -> None:
        self.refusal += delta
        await self._tell(self._update(is_streaming=True))

    def _update(self, *, is_streaming: bool) -> MessageUpdate:
        return MessageUpdate(
            message=self.so_far(),
            is_streaming=is_streaming,
            reasoning=self.thinking(),
            metrics=self.pacing.metrics(),
        )

    def so_far(self) -> AgentMessage:
        """Return the message as far as it has been told."""
        seconds = self.pacing.elapsed / 1000
        return AgentMessage(
            message=self.message,
            timestamp=now(),
            model=self.model,
            refusal=self.refusal or None,
            throughput=round(len(self.message) / seconds, 1) if seconds else None,
            completion_time=round(seconds, 3),
        )

    # --- thinking ---

    async def _thinks(self, chunk: str) -> None:
        if not self._begun and self.thought:
            self.thought += PARAGRAPH
        self._begun += chunk
        self.thought += chunk
        await self._tell(ReasoningUpdate(content=self._begun, is_complete=False))

    async def _thought_through(self) -> None:
        await self._thoughts.flush()
        if self._begun:
            await self._tell(ReasoningUpdate(content=self._begun, is_complete=True))
        self._begun = ""

    def thinking(self) -> Thinking | None:
        """Return what the model has thought."""
        return Thinking(content=self.thought, signature=self.signature) if self.thought else None

    def final(self, tokens: int, calls: list[ToolCall]) -> AgentMessage:
        """Return the message as it stands at the end."""
        return replace(self.so_far(), tokens=tokens, tool_calls=calls)


def _refusal(response: Response) -> str:
    messages = [item for item in response.output if isinstance(item, Message)]
    parts = [part for message in messages for part in message.content]
    return "".join(part.refusal for part in parts if isinstance(part, Refusal))
