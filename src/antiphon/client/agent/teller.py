"""The protocol's events, told as an agent's: what the model says, thinks and calls.

Text is told in chunks at an even pace, thinking sentence by sentence. Whatever still waits is told
at once when a call begins and when the answer ends, so that nobody waits for the pace.
"""

import time
from collections.abc import Awaitable, Callable

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.client.agent.events import (
    AgentEvent,
    AgentMessage,
    MessageUpdate,
    ReasoningUpdate,
    Thinking,
    Token,
    ToolCall,
    ToolCallDelta,
    ToolCallParsed,
    ToolCallStart,
    ToolStatus,
    ToolUpdate,
    now,
)
from antiphon.client.agent.options import AgentOptions
from antiphon.client.agent.pacing import Pacing, moment
from antiphon.client.agent.smooth import Smoother
from antiphon.client.tools.calls import Progress
from antiphon.core.content import Refusal, text_of
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

Tell = Callable[[AgentEvent], Awaitable[None]]

THINKING_DELAY = 0.25
"""Seconds between two updates of what the model thinks."""

PARAGRAPH = "\n\n"


class CallDraft:
    """A call while its arguments come."""

    def __init__(self, call: FunctionCall) -> None:
        self.told = ToolCall(id=call.call_id, name=call.name, first_status_at=now())
        self.pieces = [call.arguments]
        self.shown = 0.0
        self.call: FunctionCall | None = None
        """The call as the round ended with it; None of one that it did not end with."""

    def status(self, status: ToolStatus) -> ToolUpdate:
        """Say how far the call is."""
        self.pieces = ["".join(self.pieces)]
        self.told = replace(self.told, arguments=self.pieces[0], status=status)
        return ToolUpdate(tool_call=self.told, status=status)


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
        self._calls: dict[int, CallDraft] = {}
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
        self._calls = {}
        self._apart = bool(self.message)
        self._heard = False

    async def rewind(self) -> None:
        """Forget the round: it is asked again. What was shown of it is set back."""
        await self.close()
        shown = (self.message, self.refusal, self.thought)
        self.message, self.refusal, self.thought = self._mark
        self._begun = ""
        if shown != self._mark or self._calls:
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
        for index, item in enumerate(response.output):
            if isinstance(item, FunctionCall) and item.status != "incomplete":
                place = self._place(index, item.call_id)
                await self._call_done(place, item)
                self._calls[place].call = item

    def _place(self, index: int, call_id: str) -> int:
        """Find where a call was told, which need not be where the response has it."""
        for place in (index, *sorted(self._calls)):
            draft = self._calls.get(place)
            if draft and draft.call is None and draft.told.id == call_id:
                return place
        draft = self._calls.get(index)
        is_free = draft is None or (draft.call is None and draft.told.status != "ready")
        return index if is_free else max(self._calls) + 1

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
            case FunctionCallArgumentsDelta():
                await self._arguments(event)
            case ReasoningDelta(delta=delta) | ReasoningSummaryTextDelta(delta=delta):
                await self._thoughts.feed(delta)
            case ReasoningSummaryPartAdded(summary_index=index) if index:
                await self._thoughts.feed(PARAGRAPH)
            case RefusalDelta(delta=delta):
                await self._refused(delta)
            case OutputItemAdded(item=Message()):
                self._apart = bool(self.message)
            case OutputItemAdded(item=FunctionCall() as call, output_index=index):
                await self._call_added(index, call)
            case OutputItemDone(item=FunctionCall() as call, output_index=index):
                await self._call_done(index, call)
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

    # --- calls ---

    async def _call_added(self, index: int, call: FunctionCall) -> CallDraft:
        await self._words.flush()
        await self._thought_through()
        draft = self._calls[index] = CallDraft(call)
        await self._tell(ToolCallStart(id=call.call_id, name=call.name))
        await self._tell(draft.status("preparing"))
        return draft

    async def _arguments(self, event: FunctionCallArgumentsDelta) -> None:
        draft = self._calls.get(event.output_index)
        if draft is None:
            return
        draft.pieces.append(event.delta)
        await self._tell(ToolCallDelta(tool_call_id=draft.told.id, argument_delta=event.delta))
        if (moment := time.monotonic()) - draft.shown >= self._delay:
            draft.shown = moment
            await self._tell(draft.status("preparing"))

    async def _call_done(self, index: int, call: FunctionCall) -> None:
        if call.status == "incomplete":
            return  # it will never be whole, and nobody will run it
        draft = self._calls.get(index) or await self._call_added(index, call)
        if draft.told.status == "ready":
            return
        draft.told = replace(draft.told, id=call.call_id, name=call.name)
        draft.pieces = [call.arguments]
        await self._tell(ToolCallParsed(id=call.call_id, name=call.name, arguments=call.arguments))
        await self._tell(draft.status("ready"))

    def progress(self, progress: Progress) -> ToolUpdate:
        """Say how far the running of a call is."""
        draft = next(draft for draft in self._calls.values() if draft.call is progress.call)
        status: ToolStatus = "executing" if progress.status == "progress" else progress.status
        outcome = progress.outcome
        failed = outcome is not None and outcome.failed
        ended = moment(outcome.ended_at) if outcome else None
        told = draft.told = replace(
            draft.told,
            status=status,
            started_at=moment(progress.started_at),
            completed_at=None if failed else ended,
            failed_at=ended if failed else None,
            duration_ms=outcome.duration_ms if outcome else None,
        )
        result = outcome.output if outcome and not failed else None
        return ToolUpdate(
            tool_call=told,
            status=status,
            started_at=told.started_at,
            completed_at=told.completed_at,
            failed_at=told.failed_at,
            duration_ms=told.duration_ms,
            result="".join(map(text_of, result)) if isinstance(result, list) else result,
            error=outcome.error if outcome else None,
            progress=progress.value,
        )

    def calls(self) -> list[ToolCall]:
        """Return the calls that this round ended with."""
        return [self._calls[index].told for index in sorted(self._calls) if self._calls[index].call]

    def final(self, tokens: int, calls: list[ToolCall]) -> AgentMessage:
        """Return the message as it stands at the end."""
        return replace(self.so_far(), tokens=tokens, tool_calls=calls)


def _refusal(response: Response) -> str:
    messages = [item for item in response.output if isinstance(item, Message)]
    parts = [part for message in messages for part in message.content]
    return "".join(part.refusal for part in parts if isinstance(part, Refusal))
