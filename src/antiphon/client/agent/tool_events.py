"""The calls of one round, told: from the first word of their arguments to their results."""

import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from antiphon.client.agent.events import (
    AgentEvent,
    AgentToolCall,
    ToolCallDelta,
    ToolCallParsed,
    ToolCallStart,
    ToolStatus,
    ToolUpdate,
    utc_now,
)
from antiphon.client.agent.metrics import to_datetime
from antiphon.client.tools.execute import CallProgress
from antiphon.protocol.content import content_text
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.response import Response

EmitEvent = Callable[[AgentEvent], Awaitable[None]]


class ToolCallDraft:
    """A call while its arguments come."""

    def __init__(self, call: FunctionCall) -> None:
        self.tool_call = AgentToolCall(id=call.call_id, name=call.name, first_status_at=utc_now())
        self.argument_pieces = [call.arguments]
        self.last_update = 0.0
        self.call: FunctionCall | None = None
        """The call as the round ended with it; None of one that it did not end with."""

    def update_status(self, status: ToolStatus) -> ToolUpdate:
        """Say how far the call is."""
        self.argument_pieces = ["".join(self.argument_pieces)]
        self.tool_call = replace(self.tool_call, arguments=self.argument_pieces[0], status=status)
        return ToolUpdate(tool_call=self.tool_call, status=status)


class ToolCallTracker:
    """The calls of one round, by their place in it."""

    def __init__(self, emit: EmitEvent, update_interval: float) -> None:
        self._emit = emit
        self._update_interval = update_interval
        self._drafts: dict[int, ToolCallDraft] = {}

    @property
    def has_calls(self) -> bool:
        """Whether anything has been called."""
        return bool(self._drafts)

    async def start(self, index: int, call: FunctionCall) -> ToolCallDraft:
        """Tell that a call has begun."""
        draft = self._drafts[index] = ToolCallDraft(call)
        await self._emit(ToolCallStart(id=call.call_id, name=call.name))
        await self._emit(draft.update_status("preparing"))
        return draft

    async def add_arguments(self, index: int, delta: str) -> None:
        """Tell more of a call's arguments, and from time to time all of them."""
        draft = self._drafts.get(index)
        if draft is None:
            return
        draft.argument_pieces.append(delta)
        await self._emit(ToolCallDelta(tool_call_id=draft.tool_call.id, argument_delta=delta))
        if (moment := time.monotonic()) - draft.last_update >= self._update_interval:
            draft.last_update = moment
            await self._emit(draft.update_status("preparing"))

    async def finish(self, index: int, call: FunctionCall) -> None:
        """Tell that a call is whole."""
        if call.status == "incomplete":
            return  # it will never be whole, and nobody will run it
        draft = self._drafts.get(index) or await self.start(index, call)
        if draft.tool_call.status == "ready":
            return
        draft.tool_call = replace(draft.tool_call, id=call.call_id, name=call.name)
        draft.argument_pieces = [call.arguments]
        await self._emit(ToolCallParsed(id=call.call_id, name=call.name, arguments=call.arguments))
        await self._emit(draft.update_status("ready"))

    async def finish_round(self, response: Response) -> None:
        """Tell of calls that came without a word before; the round ends with these."""
        for index, item in enumerate(response.output):
            if isinstance(item, FunctionCall) and item.status != "incomplete":
                place = self._find_index(index, item.call_id)
                await self.finish(place, item)
                self._drafts[place].call = item

    def _find_index(self, index: int, call_id: str) -> int:
        """Find where a call was told, which need not be where the response has it."""
        for place in (index, *sorted(self._drafts)):
            draft = self._drafts.get(place)
            if draft and draft.call is None and draft.tool_call.id == call_id:
                return place
        draft = self._drafts.get(index)
        is_free = draft is None or (draft.call is None and draft.tool_call.status != "ready")
        return index if is_free else max(self._drafts) + 1

    def map_progress(self, progress: CallProgress) -> ToolUpdate:
        """Say how far the running of a call is."""
        draft = next(draft for draft in self._drafts.values() if draft.call is progress.call)
        status: ToolStatus = "executing" if progress.status == "progress" else progress.status
        outcome = progress.outcome
        failed = outcome is not None and outcome.failed
        ended = to_datetime(outcome.ended_at) if outcome else None
        told = draft.tool_call = replace(
            draft.tool_call,
            status=status,
            started_at=to_datetime(progress.started_at),
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
            result="".join(map(content_text, result)) if isinstance(result, list) else result,
            error=outcome.error if outcome else None,
            progress=progress.value,
        )

    @property
    def finished_calls(self) -> list[AgentToolCall]:
        """The calls that the round ended with."""
        return [draft.tool_call for _, draft in sorted(self._drafts.items()) if draft.call]
