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
from antiphon.client.tools.result import Output, output
from antiphon.client.tools.tool import Tool
from antiphon.core.errors import RequestError
from antiphon.core.items import FunctionCall
from antiphon.core.surrogates import mend
from antiphon.engine.run import is_cancelled

Status = Literal["executing", "progress", "completed", "failed"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended, and what the model is told of it; times are in seconds."""

    call: FunctionCall
    output: Output
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


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one call is."""

    call: FunctionCall
    status: Status
    started_at: float
    value: object = None
    """What the tool told on the way, if the status is `progress`."""
    outcome: Outcome | None = None
    """How it ended, if it has."""


Clock = Callable[[], float]
Tell = Callable[[Progress], Awaitable[None] | None]
_Steps = asyncio.Queue[Progress | None]


async def run_calls(
    calls: Sequence[FunctionCall],
    tools: Mapping[str, Tool],
    *,
    limit: int = 4,
    tell: Tell | None = None,
    clock: Clock = time.time,
) -> list[Outcome]:
    """Answer calls, at most `limit` at a time, and return the outcomes in the calls' order.

    `tell` hears of every step in turn, and is awaited if it returns an awaitable. Cancelling this
    cancels the tools and waits for them; a function in a thread cannot be stopped, so its result
    is dropped.
    """
    if limit < 1:
        raise RequestError("At least one tool must be allowed to run.", param="parallel_tools")
    steps, places = _Steps(), asyncio.Semaphore(limit)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_tell_all(steps, tell))
            answers = [_Answer(call, tools.get(call.name), steps, clock) for call in calls]
            tasks = [group.create_task(answer.run(places)) for answer in answers]
            if tasks:  # awaited one by one, a tool that returns when cancelled would hide that
                await asyncio.wait(tasks)
            steps.put_nowait(None)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # it is what `tell` raised: tools cannot
    return [task.result() for task in tasks]


async def _tell_all(steps: _Steps, tell: Tell | None) -> None:
    while (progress := await steps.get()) is not None:
        if tell is not None and inspect.isawaitable(heard := tell(progress)):
            await heard


class _Answer:
    """One call being answered."""

    def __init__(self, call: FunctionCall, tool: Tool | None, steps: _Steps, clock: Clock) -> None:
        self._call = call
        self._tool = tool
        self._steps = steps
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = ToolContext(call.call_id, call.name, self._heard)
        self._started = 0.0
        self._outcome: Outcome | None = None

    async def run(self, places: asyncio.Semaphore) -> Outcome:
        """Wait for a place, run the tool, and tell how it ended."""
        async with places:
            self._started = self._clock()
            self._step("executing")
            try:
                # A task of its own, so that a tool which cancels itself cancels nothing else.
                outcome = self._ended(output(await asyncio.create_task(self._result())))
            except asyncio.CancelledError:
                self._context.cancelled.set()
                if is_cancelled():
                    raise
                outcome = self._failed("The tool cancelled itself.")
            except Exception as error:  # noqa: BLE001 - a process boundary: tools raise anything
                outcome = self._failed(mend(str(error)) or type(error).__name__)
            self._step("failed" if outcome.failed else "completed", outcome=outcome)
            self._outcome = outcome
            return outcome

    async def _result(self) -> object:
        if self._tool is None or self._tool.function is None:
            raise ToolError(f"No handler for tool: {self._call.name}")
        return await self._tool.call(self._tool.validate(self._call.arguments), self._context)

    def _failed(self, message: str) -> Outcome:
        return self._ended(f"Error: {message}", message)

    def _ended(self, output: Output, error: str | None = None) -> Outcome:
        return Outcome(
            call=self._call,
            output=output,
            error=error,
            started_at=self._started,
            ended_at=self._clock(),
        )

    def _step(self, status: Status, value: object = None, outcome: Outcome | None = None) -> None:
        if self._outcome is None:  # what comes late goes unheard
            step = Progress(
                call=self._call,
                status=status,
                started_at=self._started,
                value=value,
                outcome=outcome,
            )
            self._steps.put_nowait(step)

    def _heard(self, value: object) -> None:
        """Take progress from whatever thread it comes; the loop keeps it before the tool's end."""
        with suppress(RuntimeError):  # the loop may be closed while a dropped thread goes on
            self._loop.call_soon_threadsafe(self._step, "progress", value)
