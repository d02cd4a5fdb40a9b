"""Execute the tool calls of one round: in parallel, with progress, results in the calls' order.

An error of a tool becomes an output, so that the model can react to it, and does not stop the other
calls. Cancelling `execute_calls` stops them; so does an exception of `on_progress`, which is raised again.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum
from typing import Literal, cast

import msgspec

from antiphon.client.tools.signature import ToolContext, encode_model, is_pydantic_model
from antiphon.client.tools.tool import Tool, no_handler_error
from antiphon.engine.run import is_cancelled
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Content, FunctionCall, InputFile, InputImage, InputText, InputVideo
from antiphon.protocol.struct import ProtocolStruct, encode
from antiphon.protocol.surrogates import repair_surrogates

CallStatus = Literal["executing", "progress", "completed", "failed"]
ToolOutput = str | list[Content]
CONTENT_TYPES = InputText | InputImage | InputFile | InputVideo
DATA_TYPES: tuple[type, ...] = (bool, int, float, dict, list, tuple, Set, msgspec.Struct)


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a call and its output for the model; times are in seconds."""

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
        return round((self.ended_at - self.started_at) * 1000)


class CallProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the execution of a call."""

    call: FunctionCall
    status: CallStatus
    started_at: float
    value: object = None
    """The value that the tool reported, if the status is `progress`."""
    outcome: CallOutcome | None = None
    """The outcome, if the call has ended."""


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
    """Execute calls, at most `limit` at a time; return the outcomes in the calls' order.

    `on_progress` gets every step in order and may be async. Cancelling this function cancels the
    tools and waits for them. A function in a thread cannot be stopped; its result is dropped.
    """
    if limit < 1:
        raise RequestError("At least one tool must be allowed to run.", param="parallel_tools")
    queue, slots = _ProgressQueue(), asyncio.Semaphore(limit)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_report_progress(queue, on_progress))
            executions = [_CallExecution(c, tools.get(c.name), queue, clock) for c in calls]
            tasks = [group.create_task(execution.run(slots)) for execution in executions]
            # Awaited together: awaited one by one, a tool that returns a result when it is
            # cancelled would swallow the cancellation of this function.
            if tasks:
                await asyncio.wait(tasks)
            queue.put_nowait(None)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # raised by on_progress: tools cannot raise
    return [task.result() for task in tasks]


async def _report_progress(queue: _ProgressQueue, on_progress: OnProgress | None) -> None:
    while (progress := await queue.get()) is not None:
        if on_progress is not None and inspect.isawaitable(called := on_progress(progress)):
            await called


class _CallExecution:
    """The execution of one call."""

    def __init__(self, call: FunctionCall, tool: Tool | None, queue: _ProgressQueue, clock: Clock) -> None:
        self._call = call
        self._tool = tool
        self._queue = queue
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = ToolContext(call.call_id, call.name, self._report)
        self._started = 0.0
        self._outcome: CallOutcome | None = None

    async def run(self, slots: asyncio.Semaphore) -> CallOutcome:
        """Wait for a slot, run the tool and report the outcome."""
        async with slots:
            self._started = self._clock()
            self._put_progress("executing")
            failure = output = None
            try:
                if self._tool is None:
                    raise no_handler_error(self._call.name)
                # In a task of its own, so that a tool that cancels its task cancels no other.
                call = asyncio.create_task(self._tool.call(self._call.arguments, self._context))
                output = build_output(await call)
            except asyncio.CancelledError:
                self._context.cancelled.set()
                if is_cancelled():
                    raise
                failure = "The tool cancelled itself."
            except Exception as error:  # noqa: BLE001 - a process boundary: tools raise anything
                failure = repair_surrogates(str(error)) or type(error).__name__
            output = f"Error: {failure}" if output is None else output
            outcome = CallOutcome(
                call=self._call, output=output, error=failure, started_at=self._started, ended_at=self._clock()
            )
            self._put_progress("failed" if outcome.failed else "completed", outcome=outcome)
            self._outcome = outcome
            return outcome

    def _put_progress(self, status: CallStatus, value: object = None, outcome: CallOutcome | None = None) -> None:
        # A thread of the tool may report after the call has ended; nobody expects that.
        if self._outcome is None:
            step = CallProgress(call=self._call, status=status, started_at=self._started, value=value, outcome=outcome)
            self._queue.put_nowait(step)

    def _report(self, value: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the tool's thread still runs
            self._loop.call_soon_threadsafe(self._put_progress, "progress", value)


def build_output(value: object) -> ToolOutput:
    """Convert a result to output for the model: text, content parts, or data as JSON."""
    match value:
        case None:
            return ""
        case Enum():
            return build_output(cast("object", value.value))
        case InputText() | InputImage() | InputFile() | InputVideo():
            return [value]
        case list() | tuple() if content := _as_content(cast("Sequence[object]", value)):
            return content
        case _:
            return _to_text(value)


def _as_content(values: Sequence[object]) -> list[Content]:
    """Return the values if all are content parts, or an empty list."""
    content: list[Content] = [value for value in values if isinstance(value, CONTENT_TYPES)]
    return content if len(content) == len(values) else []


def _to_text(value: object) -> str:
    """Return data as JSON, and any other value as `str` does."""
    is_data = isinstance(value, DATA_TYPES) or is_dataclass(value) or is_pydantic_model(value)
    # Raised by keys that are not strings, lone surrogates, and a value that contains itself.
    with suppress(TypeError, ValueError, RecursionError):
        if isinstance(value, ProtocolStruct):
            return encode(value).decode()
        if is_data:
            return msgspec.json.encode(value, enc_hook=_encode_other).decode()
    return repair_surrogates(str(value))


def _encode_other(value: object) -> object:
    return encode_model(value) if is_pydantic_model(value) else str(value)
