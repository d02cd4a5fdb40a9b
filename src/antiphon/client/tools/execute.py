"""The calls of one round, answered: in parallel, in order, each failure told to the model.

What a tool does wrong is an output like any other, so that the model can do something about it;
only the end of the whole run stops the others.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from antiphon.client.tools.arguments import ToolError
from antiphon.client.tools.context import ToolContext
from antiphon.client.tools.output import ToolOutput, build_output
from antiphon.client.tools.tool import Tool
from antiphon.engine.run import is_cancelled
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.surrogates import repair_surrogates

CallStatus = Literal["executing", "progress", "completed", "failed"]


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended, and what the model is told of it; times are in seconds."""

    call: FunctionCall
    output: ToolOutput
    error: str | None = None
    started_at: float
    ended_at: float

    @property
    def failed(self) -> bool:
        """Whether the output is an error."""
        return self.error is not None

    @property
    def duration_ms(self) -> int:
        """How long it took."""
        return round((self.ended_at - self.started_at) * 1000)


class CallProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one call is."""

    call: FunctionCall
    status: CallStatus
    started_at: float
    value: object = None
    """What the tool told on the way, if the status is `progress`."""
    outcome: CallOutcome | None = None
    """How it ended, if it has."""


Clock = Callable[[], float]
OnProgress = Callable[[CallProgress], Awaitable[None] | None]
_ProgressQueue = asyncio.Queue[CallProgress | None]


async def execute_calls(
    calls: Sequence[FunctionCall],
    tools: Mapping[str, Tool],
    *,
    limit: int = 4,
    on_progress: OnProgress | None = None,
    clock: Clock = time.time,
) -> list[CallOutcome]:
    """Answer calls, at most `limit` at a time, and return the outcomes in the calls' order.

    `tell` hears of every step in turn, and is awaited if it returns an awaitable. Cancelling this
    cancels the tools and waits for them; a function in a thread cannot be stopped, so its result
    is dropped.
    """
    if limit < 1:
        raise RequestError("At least one tool must be allowed to run.", param="parallel_tools")
    steps, places = _ProgressQueue(), asyncio.Semaphore(limit)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_report_progress(steps, on_progress))
            answers = [_CallExecution(call, tools.get(call.name), steps, clock) for call in calls]
            tasks = [group.create_task(answer.run(places)) for answer in answers]
            if tasks:  # awaited one by one, a tool that returns when cancelled would hide that
                await asyncio.wait(tasks)
            steps.put_nowait(None)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # it is what `tell` raised: tools cannot
    return [task.result() for task in tasks]


async def _report_progress(queue: _ProgressQueue, on_progress: OnProgress | None) -> None:
    while (progress := await queue.get()) is not None:
        if on_progress is not None and inspect.isawaitable(heard := on_progress(progress)):
            await heard


class _CallExecution:
    """One call being answered."""

    def __init__(
        self, call: FunctionCall, tool: Tool | None, queue: _ProgressQueue, clock: Clock
    ) -> None:
        self._call = call
        self._tool = tool
        self._queue = queue
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = ToolContext(call.call_id, call.name, self._report)
        self._started = 0.0
        self._outcome: CallOutcome | None = None

    async def run(self, slots: asyncio.Semaphore) -> CallOutcome:
        """Wait for a place, run the tool, and tell how it ended."""
        async with slots:
            self._started = self._clock()
            self._put_progress("executing")
            try:
                # A task of its own, so that a tool which cancels itself cancels nothing else.
                outcome = self._build_outcome(
                    build_output(await asyncio.create_task(self._run_tool()))
                )
            except asyncio.CancelledError:
                self._context.cancelled.set()
                if is_cancelled():
                    raise
                outcome = self._failure_outcome("The tool cancelled itself.")
            except Exception as error:  # noqa: BLE001 - a process boundary: tools raise anything
                outcome = self._failure_outcome(
                    repair_surrogates(str(error)) or type(error).__name__
                )
            self._put_progress("failed" if outcome.failed else "completed", outcome=outcome)
            self._outcome = outcome
            return outcome

    async def _run_tool(self) -> object:
        if self._tool is None or self._tool.function is None:
            raise ToolError(f"No handler for tool: {self._call.name}")
        return await self._tool.call(self._tool.validate(self._call.arguments), self._context)

    def _failure_outcome(self, message: str) -> CallOutcome:
        return self._build_outcome(f"Error: {message}", message)

    def _build_outcome(self, output: ToolOutput, error: str | None = None) -> CallOutcome:
        return CallOutcome(
            call=self._call,
            output=output,
            error=error,
            started_at=self._started,
            ended_at=self._clock(),
        )

    def _put_progress(
        self, status: CallStatus, value: object = None, outcome: CallOutcome | None = None
    ) -> None:
        if self._outcome is None:  # what comes late goes unheard
            step = CallProgress(
                call=self._call,
                status=status,
                started_at=self._started,
                value=value,
                outcome=outcome,
            )
            self._queue.put_nowait(step)

    def _report(self, value: object) -> None:
        """Take progress from whatever thread it comes; the loop keeps it before the tool's end."""
        with suppress(RuntimeError):  # the loop may be closed while a dropped thread goes on
            self._loop.call_soon_threadsafe(self._put_progress, "progress", value)
