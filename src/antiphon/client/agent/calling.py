"""The calls of one round, told: from the first word of their arguments to their results."""

import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from antiphon.client.agent.events import (
    AgentEvent,
    ToolCall,
    ToolCallDelta,
    ToolCallParsed,
    ToolCallStart,
    ToolStatus,
    ToolUpdate,
    now,
)
from antiphon.client.agent.pacing import moment
from antiphon.client.tools.calls import Progress
from antiphon.core.content import text_of
from antiphon.core.items import FunctionCall
from antiphon.core.response import Response

Tell = Callable[[AgentEvent], Awaitable[None]]


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


class Calls:
    """The calls of one round, by their place in it."""

    def __init__(self, tell: Tell, delay: float) -> None:
        self._tell = tell
        self._delay = delay
        self._drafts: dict[int, CallDraft] = {}

    @property
    def begun(self) -> bool:
        """Whether anything has been called."""
        return bool(self._drafts)

    async def add(self, index: int, call: FunctionCall) -> CallDraft:
        """Tell that a call has begun."""
        draft = self._drafts[index] = CallDraft(call)
        await self._tell(ToolCallStart(id=call.call_id, name=call.name))
        await self._tell(draft.status("preparing"))
        return draft

    async def grow(self, index: int, delta: str) -> None:
        """Tell more of a call's arguments, and from time to time all of them."""
        draft = self._drafts.get(index)
        if draft is None:
            return
        draft.pieces.append(delta)
        await self._tell(ToolCallDelta(tool_call_id=draft.told.id, argument_delta=delta))
        if (moment := time.monotonic()) - draft.shown >= self._delay:
            draft.shown = moment
            await self._tell(draft.status("preparing"))

    async def done(self, index: int, call: FunctionCall) -> None:
        """Tell that a call is whole."""
        if call.status == "incomplete":
            return  # it will never be whole, and nobody will run it
        draft = self._drafts.get(index) or await self.add(index, call)
        if draft.told.status == "ready":
            return
        draft.told = replace(draft.told, id=call.call_id, name=call.name)
        draft.pieces = [call.arguments]
        await self._tell(ToolCallParsed(id=call.call_id, name=call.name, arguments=call.arguments))
        await self._tell(draft.status("ready"))

    async def end(self, response: Response) -> None:
        """Tell of calls that came without a word before; the round ends with these."""
        for index, item in enumerate(response.output):
            if isinstance(item, FunctionCall) and item.status != "incomplete":
                place = self._place(index, item.call_id)
                await self.done(place, item)
                self._drafts[place].call = item

    def _place(self, index: int, call_id: str) -> int:
        """Find where a call was told, which need not be where the response has it."""
        for place in (index, *sorted(self._drafts)):
            draft = self._drafts.get(place)
            if draft and draft.call is None and draft.told.id == call_id:
                return place
        draft = self._drafts.get(index)
        is_free = draft is None or (draft.call is None and draft.told.status != "ready")
        return index if is_free else max(self._drafts) + 1

    def progress(self, progress: Progress) -> ToolUpdate:
        """Say how far the running of a call is."""
        draft = next(draft for draft in self._drafts.values() if draft.call is progress.call)
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

    @property
    def told(self) -> list[ToolCall]:
        """The calls that the round ended with."""
        return [draft.told for _, draft in sorted(self._drafts.items()) if draft.call]
