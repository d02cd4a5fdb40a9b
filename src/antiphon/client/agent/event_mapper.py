"""Maps the protocol's events to agent events: messages, reasoning, tool calls and metrics.

Text is emitted in chunks at an even pace, reasoning sentence by sentence. When a call begins and
when the response ends, all pending text is emitted at once.
"""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.client.agent import events
from antiphon.client.agent.smoothing import Smoother
from antiphon.client.tools.execute import CallProgress
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
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Message, Reasoning, RefusalContent, content_text
from antiphon.protocol.response import Response

if TYPE_CHECKING:
    from antiphon.client.agent.run import AgentOptions

REASONING_DELAY = 0.25
"""Seconds between two reasoning updates."""

PARAGRAPH = "\n\n"


class EventMapper:
    """Maps the events of one run, round after round."""

    def __init__(self, emit: events.EmitEvent, options: "AgentOptions", model: str) -> None:
        self.model = model
        self.message = ""
        """The text emitted so far, of all rounds."""
        self.refusal = ""
        self.reasoning_text = ""
        self.signature: str | None = None
        self.metrics = MetricsRecorder()
        self._emit = emit
        self._delay = options.smoothing_delay / 1000
        self._open_reasoning = ""
        """The content of the reasoning update that is not complete yet."""
        self._text_smoother = Smoother(
            self._emit_text, options.chunking_strategy, delay=self._delay, enabled=options.smoothing_enabled
        )
        self._reasoning_smoother = Smoother(self._emit_reasoning, "sentence", REASONING_DELAY, coalesce=True)
        self.start_round()

    def start_round(self) -> None:
        """Reset what belongs to one round."""
        self._round_start: tuple[str, str, str] = (self.message, self.refusal, self.reasoning_text)
        """Message, refusal and reasoning at the start of the round."""
        self.calls = ToolCallTracker(self._emit, self._delay)
        self._starts_paragraph = bool(self.message)
        """Whether the next text starts a new paragraph."""
        self._has_text = False

    async def reset_round(self) -> None:
        """Discard the round, because it is repeated; emit the message as it was before."""
        await self.close()
        current = (self.message, self.refusal, self.reasoning_text)
        self.message, self.refusal, self.reasoning_text = self._round_start
        self._open_reasoning = ""
        # If nothing was shown, there is nothing to withdraw.
        if current != self._round_start or self.calls.drafts:
            await self._emit(self._build_update(is_streaming=False))
        self.start_round()

    async def finish_round(self, response: Response) -> None:
        """End a round: emit what is pending, and what came without deltas."""
        if not self._has_text and (text := response.output_text):
            await self._add_text(text)
        await self._text_smoother.flush()
        await self._finish_reasoning()
        if self.refusal == self._round_start[1] and (refusal := _refusal_text(response)):
            await self._add_refusal(refusal)
        await self.calls.finish_round(response)

    async def close(self) -> None:
        """Discard pending text."""
        await self._text_smoother.discard()
        await self._reasoning_smoother.discard()

    async def feed(self, event: Event) -> None:
        """Emit the agent events of one protocol event."""
        match event:
            case OutputTextDelta(delta=delta):
                await self._add_text(delta)
            case FunctionCallArgumentsDelta(output_index=index, delta=delta):
                await self.calls.add_arguments(index, delta)
            case ReasoningDelta(delta=delta) | ReasoningSummaryTextDelta(delta=delta):
                await self._reasoning_smoother.feed(delta)
            # Summary parts are paragraphs without any separator in the deltas.
            case ReasoningSummaryPartAdded(summary_index=index) if index:
                await self._reasoning_smoother.feed(PARAGRAPH)
            case RefusalDelta(delta=delta):
                await self._add_refusal(delta)
            case OutputItemAdded(item=Message()):
                self._starts_paragraph = bool(self.message)
            case OutputItemAdded(item=FunctionCall() as call, output_index=index):
                # Text that came before a call is shown before it.
                await self._text_smoother.flush()
                await self._finish_reasoning()
                await self.calls.start(index, call)
            case OutputItemDone(item=FunctionCall() as call, output_index=index):
                await self.calls.finish(index, call)
            case OutputItemDone(item=FunctionCallOutput() as output):
                await self.calls.complete(output)
            case OutputItemDone(item=Reasoning() as item):
                if item.encrypted_content is not UNSET:
                    self.signature = item.encrypted_content
                await self._finish_reasoning()
            case _:
                pass

    async def _add_text(self, delta: str) -> None:
        if not delta:
            return
        self._has_text = True
        # Unsmoothed: `token` is for programs, `message_update` for people.
        await self._emit(events.TokenReceived(token=delta))
        self.metrics.record(delta)
        await self._text_smoother.feed(PARAGRAPH + delta if self._starts_paragraph else delta)
        self._starts_paragraph = False

    async def _emit_text(self, chunk: str) -> None:
        self.message += chunk
        await self._emit(self._build_update(is_streaming=True))

    async def _add_refusal(self, delta: str) -> None:
        self.refusal += delta
        await self._emit(self._build_update(is_streaming=True))

    def _build_update(self, *, is_streaming: bool) -> events.MessageUpdate:
        return events.MessageUpdate(
            message=self.build_message(),
            is_streaming=is_streaming,
            reasoning=self.build_reasoning(),
            metrics=self.metrics.snapshot(),
        )

    def build_message(
        self, tokens: int | None = None, tool_calls: list[events.AgentToolCall] | None = None
    ) -> events.AgentMessage:
        """Return the message as far as it was emitted; tokens and calls are known at the end of the run."""
        seconds = self.metrics.duration_ms / 1000
        return events.AgentMessage(
            message=self.message,
            timestamp=events.utc_now(),
            model=self.model,
            refusal=self.refusal or None,
            tokens=tokens,
            tool_calls=tool_calls,
            throughput=round(len(self.message) / seconds, 1) if seconds else None,
            completion_time=round(seconds, 3),
        )

    async def _emit_reasoning(self, chunk: str) -> None:
        # Each reasoning item starts a paragraph; its updates contain only itself.
        if not self._open_reasoning and self.reasoning_text:
            self.reasoning_text += PARAGRAPH
        self._open_reasoning += chunk
        self.reasoning_text += chunk
        await self._emit(events.ReasoningUpdate(content=self._open_reasoning, is_complete=False))

    async def _finish_reasoning(self) -> None:
        await self._reasoning_smoother.flush()
        if self._open_reasoning:
            await self._emit(events.ReasoningUpdate(content=self._open_reasoning, is_complete=True))
        self._open_reasoning = ""

    def build_reasoning(self) -> events.AgentReasoning | None:
        """Return the reasoning as far as it was emitted."""
        if not self.reasoning_text:
            return None
        return events.AgentReasoning(content=self.reasoning_text, signature=self.signature)


def _refusal_text(response: Response) -> str:
    parts = (part for item in response.output if isinstance(item, Message) for part in item.content)
    return "".join(part.refusal for part in parts if isinstance(part, RefusalContent))


class ToolCallDraft:
    """A call whose arguments are still arriving."""

    def __init__(self, call: FunctionCall) -> None:
        self.tool_call = events.AgentToolCall(id=call.call_id, name=call.name, first_status_at=events.utc_now())
        self.argument_pieces = [call.arguments]
        self.last_update = 0.0
        self.call: FunctionCall | None = None
        """The call in the final response; None if it is not in there."""

    def update_status(self, status: events.ToolStatus) -> events.ToolUpdate:
        """Set the status, and return the event that announces it."""
        # Joined here and not per delta, which would be quadratic.
        self.argument_pieces = ["".join(self.argument_pieces)]
        self.tool_call = replace(self.tool_call, arguments=self.argument_pieces[0], status=status)
        return events.ToolUpdate(tool_call=self.tool_call, status=status)


class ToolCallTracker:
    """The calls of one round by their output index; emits their events."""

    def __init__(self, emit: events.EmitEvent, update_interval: float) -> None:
        self._emit = emit
        self._update_interval = update_interval
        self.drafts: dict[int, ToolCallDraft] = {}

    async def start(self, index: int, call: FunctionCall) -> ToolCallDraft:
        """Emit the start of a call."""
        draft = self.drafts[index] = ToolCallDraft(call)
        await self._emit(events.ToolCallStart(id=call.call_id, name=call.name))
        await self._emit(draft.update_status("preparing"))
        return draft

    async def add_arguments(self, index: int, delta: str) -> None:
        """Emit a delta of the arguments, and at intervals all of them."""
        draft = self.drafts.get(index)
        if draft is None:
            return
        draft.argument_pieces.append(delta)
        await self._emit(events.ToolCallDelta(tool_call_id=draft.tool_call.id, argument_delta=delta))
        if (now := time.monotonic()) - draft.last_update >= self._update_interval:
            draft.last_update = now
            await self._emit(draft.update_status("preparing"))

    async def finish(self, index: int, call: FunctionCall) -> None:
        """Emit that the arguments of a call are complete."""
        if call.status == "incomplete":
            return  # cut off by a token limit: it is never executed
        draft = self.drafts.get(index) or await self.start(index, call)
        if draft.tool_call.status != "preparing":
            return
        # Some servers send the name or the id only with the complete call.
        draft.tool_call = replace(draft.tool_call, id=call.call_id, name=call.name)
        draft.argument_pieces = [call.arguments]
        await self._emit(events.ToolCallParsed(id=call.call_id, name=call.name, arguments=call.arguments))
        await self._emit(draft.update_status("ready"))

    async def complete(self, output: FunctionCallOutput) -> None:
        """Emit the result of a call that the server has run itself."""
        for draft in self.drafts.values():
            if draft.tool_call.id == output.call_id and draft.tool_call.status == "ready":
                now = events.utc_now()
                draft.tool_call = replace(draft.tool_call, status="completed", completed_at=now)
                update = events.ToolUpdate(
                    tool_call=draft.tool_call, status="completed", completed_at=now, result=output.text
                )
                await self._emit(update)
                return

    async def finish_round(self, response: Response) -> None:
        """Match the calls of the final response; emit what came without events."""
        for index, item in enumerate(response.output):
            if isinstance(item, FunctionCall) and item.status != "incomplete":
                place = self._find_index(index, item.call_id)
                await self.finish(place, item)
                self.drafts[place].call = item
        for item in response.output:
            if isinstance(item, FunctionCallOutput):
                await self.complete(item)

    def _find_index(self, index: int, call_id: str) -> int:
        # Foreign servers stream a call at one index and list it at another in the response, or
        # use one id for two calls: prefer the same index, then the same id.
        for place in (index, *sorted(self.drafts)):
            draft = self.drafts.get(place)
            if draft and draft.call is None and draft.tool_call.id == call_id:
                return place
        draft = self.drafts.get(index)
        is_free = draft is None or (draft.call is None and draft.tool_call.status == "preparing")
        return index if is_free else max(self.drafts) + 1

    def map_progress(self, progress: CallProgress) -> events.ToolUpdate:
        """Return the event for a step in the execution of a call."""
        draft = next(draft for draft in self.drafts.values() if draft.call is progress.call)
        status: events.ToolStatus = "executing" if progress.status == "progress" else progress.status
        outcome = progress.outcome
        failed = outcome is not None and outcome.failed
        ended = datetime.fromtimestamp(outcome.ended_at, UTC) if outcome else None
        tool_call = draft.tool_call = replace(
            draft.tool_call,
            status=status,
            started_at=datetime.fromtimestamp(progress.started_at, UTC),
            completed_at=None if failed else ended,
            failed_at=ended if failed else None,
            duration_ms=outcome.duration_ms if outcome else None,
        )
        result = outcome.output if outcome and not failed else None
        return events.ToolUpdate(
            tool_call=tool_call,
            status=status,
            started_at=tool_call.started_at,
            completed_at=tool_call.completed_at,
            failed_at=tool_call.failed_at,
            duration_ms=tool_call.duration_ms,
            result="".join(map(content_text, result)) if isinstance(result, list) else result,
            error=outcome.error if outcome else None,
            progress=progress.value,
        )

    @property
    def final_calls(self) -> list[events.AgentToolCall]:
        """The calls that are in the final response."""
        return [draft.tool_call for _, draft in sorted(self.drafts.items()) if draft.call]


class MetricsRecorder:
    """Measures how fast the text of one run arrives."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self._first = self._last = 0.0
        self._deltas = 0
        self._characters = 0

    def record(self, text: str) -> None:
        self._last = time.monotonic()
        self._first = self._first or self._last
        self._deltas += 1
        self._characters += len(text)

    @property
    def duration_ms(self) -> float:
        """Milliseconds since the run started."""
        return round((time.monotonic() - self.start) * 1000, 3)

    def snapshot(self, llm_tokens: int | None = None) -> events.Metrics:
        """Return the metrics; `llm_tokens`, counted by the server, marks the end of the run."""
        elapsed = self.duration_ms
        duration = self._last - self._first
        gaps = self._deltas - 1
        return events.Metrics(
            elapsed_time=elapsed,
            total_time=None if llm_tokens is None else elapsed,
            conversation_duration=elapsed,
            ttft=round((self._first - self.start) * 1000, 3) if self._deltas else None,
            token_count=self._deltas,
            llm_tokens=llm_tokens,
            avg_token_delay=round(duration * 1000 / gaps, 3) if gaps > 0 else None,
            streaming_throughput=round(self._characters / duration, 1) if duration else None,
        )
