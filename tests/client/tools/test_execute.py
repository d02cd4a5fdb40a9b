"""Executing the calls of a round."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from itertools import count
from typing import Any

import pytest

from antiphon.client.tools.execute import CallOutcome, CallProgress, execute_calls
from antiphon.client.tools.signature import ToolContext
from antiphon.client.tools.tool import Tool, resolve_tools, tool
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, InputText

pytestmark = pytest.mark.anyio


def call(name: str, arguments: str = "{}", call_id: str = "call_1") -> FunctionCall:
    return FunctionCall(call_id=call_id, name=name, arguments=arguments)


def resolve_by_name(*tools: Any, **handlers: Any) -> dict[str, Tool]:
    return {made.name: made for made in resolve_tools(tools, handlers)}


def clock() -> Callable[[], float]:
    """A clock that advances by half a second with each reading."""
    ticks = count()
    return lambda: next(ticks) / 2


async def execute_one(function: Any, arguments: str = "{}") -> CallOutcome:
    """Return the outcome of one call."""
    [outcome] = await execute_calls([call(name_of(function), arguments)], resolve_by_name(function))
    return outcome


def name_of(function: Any) -> str:
    [name] = resolve_by_name(function)
    return name


class ProgressLog(list[str]):
    """Records the status of every step."""

    def __call__(self, step: CallProgress) -> None:
        self.append(step.status)


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


async def test_a_call_is_executed_and_every_step_reported():
    steps: list[CallProgress] = []
    asked = call("add", '{"a": 1}')
    outcomes = await execute_calls([asked], resolve_by_name(add), on_progress=steps.append, clock=clock())
    assert outcomes == [CallOutcome(call=asked, output="2", started_at=0.0, ended_at=0.5)]
    assert steps == [
        CallProgress(call=asked, status="executing", started_at=0.0),
        CallProgress(call=asked, status="completed", started_at=0.0, outcome=outcomes[0]),
    ]
    assert (outcomes[0].failed, outcomes[0].duration_ms) == (False, 500)


async def test_a_failure_is_reported_and_becomes_an_output():
    @tool
    def broken() -> None:
        raise ValueError("no such city")

    steps: list[CallProgress] = []
    asked = call("broken")
    [outcome] = await execute_calls([asked], resolve_by_name(broken), on_progress=steps.append, clock=clock())
    assert outcome == CallOutcome(
        call=asked, output="Error: no such city", error="no such city", started_at=0.0, ended_at=0.5
    )
    assert outcome.failed
    assert steps[-1] == CallProgress(call=asked, status="failed", started_at=0.0, outcome=outcome)


class Strange(Exception):
    """An exception without a message."""


async def raise_strange() -> None:
    raise Strange


async def cancel_itself() -> None:
    raise asyncio.CancelledError


async def cancel_its_task() -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(1)


async def time_out() -> None:
    async with asyncio.timeout(0):
        await asyncio.sleep(1)


def stop_iteration() -> object:
    return next(iter([]))


async def half_a_character() -> None:
    raise ValueError("\ud83d")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (raise_strange, "Error: Strange"),
        (cancel_itself, "Error: The tool cancelled itself."),
        (cancel_its_task, "Error: The tool cancelled itself."),
        (time_out, "Error: TimeoutError"),
        (stop_iteration, "Error: the tool raised StopIteration"),
        (half_a_character, "Error: \N{REPLACEMENT CHARACTER}"),
    ],
)
async def test_every_exception_becomes_an_output(function: Any, expected: str):
    outcome = await execute_one(function)
    assert (outcome.output, outcome.failed) == (expected, True)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("nobody", "{}", "Error: No handler for tool: nobody"),
        ("declared", "not json", "Error: No handler for tool: declared"),
        ("add", '{"a": "x"}', 'Error: Tool add failed: Invalid arguments: a: "x" is not of type "integer"'),
        (
            "add",
            "{a}",
            "Error: Tool add failed: Invalid JSON arguments: object keys must be strings (byte 1). "
            "Send exactly one JSON value in UTF-8. You sent: {a}",
        ),
    ],
)
async def test_an_invalid_call_becomes_an_output(name: str, arguments: str, expected: str):
    [outcome] = await execute_calls([call(name, arguments)], resolve_by_name(add, {"name": "declared"}))
    assert (outcome.output, outcome.failed) == (expected, True)


async def test_a_missing_brace_is_repaired():
    assert (await execute_one(add, '{"a": 1, "b": 2')).output == "3"


async def test_content_parts_stay_content():
    outcome = await execute_one(tool(name="look")(lambda: InputText(text="seen")))
    assert outcome.output == [InputText(text="seen")]


async def test_no_calls_have_no_outcomes():
    assert await execute_calls([], {}) == []


async def test_a_failure_does_not_affect_other_calls():
    calls = [call("add", '{"a": 1}'), call("nobody"), call("add", '{"a": 2}')]
    outcomes = await execute_calls(calls, resolve_by_name(add))
    assert [o.output for o in outcomes] == ["2", "Error: No handler for tool: nobody", "3"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("in_thread", [True, False])
def test_system_exit_and_keyboard_interrupt_are_raised(error: type[BaseException], in_thread: bool):
    def quit() -> None:
        raise error

    async def quit_later() -> None:
        raise error

    made = resolve_by_name(tool(name="quit")(quit if in_thread else quit_later))
    with pytest.raises(error):
        asyncio.run(execute_calls([call("quit")], made))


async def test_calls_run_in_parallel_and_outcomes_keep_the_order():
    events = [asyncio.Event() for _ in range(4)]

    @tool
    async def turn(index: int) -> int:
        """Wait for the next call, so that the calls end in reverse order."""
        if index < 3:
            await events[index + 1].wait()
        events[index].set()
        return index

    calls = [call("turn", f'{{"index": {i}}}') for i in range(4)]
    outcomes = await asyncio.wait_for(execute_calls(calls, resolve_by_name(turn)), 5)
    assert [outcome.output for outcome in outcomes] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_the_limit_of_parallel_calls_is_kept(limit: int):
    running, most = 0, 0

    @tool
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    steps = ProgressLog()
    await execute_calls([call("work")] * 6, resolve_by_name(work), limit=limit, on_progress=steps)
    assert most == limit
    assert steps[:limit] == ["executing"] * limit
    assert steps.count("completed") == 6


async def test_sync_functions_run_in_parallel_too():
    together = threading.Barrier(3, timeout=5)

    @tool
    def meet() -> None:
        together.wait()

    outcomes = await execute_calls([call("meet")] * 3, resolve_by_name(meet))
    assert [outcome.failed for outcome in outcomes] == [False] * 3


async def test_a_limit_below_one_is_rejected():
    with pytest.raises(RequestError, match="At least one tool"):
        await execute_calls([], {}, limit=0)


variable: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.mark.parametrize("in_thread", [True, False])
async def test_context_variables_reach_the_tool(in_thread: bool):
    async def later() -> str:
        return variable.get()

    token = variable.set("set")
    outcome = await execute_one(tool(name="f")((lambda: variable.get()) if in_thread else later))
    variable.reset(token)
    assert outcome.output == "set"


async def in_loop(context: ToolContext) -> str:
    context.progress(1)
    context.progress({"done": 2})
    return "end"


def in_thread(context: ToolContext) -> str:
    context.progress(1)
    context.progress({"done": 2})
    return "end"


async def streamed() -> AsyncIterator[object]:
    yield 1
    yield {"done": 2}
    yield "end"


def yielded() -> Iterator[object]:
    yield 1
    yield {"done": 2}
    yield "end"


@pytest.mark.parametrize("function", [in_loop, in_thread, streamed, yielded])
async def test_progress_is_reported_before_the_end(function: Any):
    steps: list[tuple[str, object]] = []

    def tell(step: CallProgress) -> None:
        steps.append((step.status, step.value or (step.outcome and step.outcome.output)))

    [outcome] = await execute_calls([call(name_of(function))], resolve_by_name(function), on_progress=tell)
    last = [("progress", "end")] if function in (streamed, yielded) else []
    assert steps == [("executing", None), ("progress", 1), ("progress", {"done": 2}), *last, ("completed", "end")]
    assert outcome.output == "end"


async def test_progress_is_reported_while_the_tool_runs():
    reported = asyncio.Event()

    @tool
    async def patient() -> AsyncIterator[str]:
        yield "first"
        await asyncio.wait_for(reported.wait(), 5)
        yield "last"

    def tell(step: CallProgress) -> None:
        if step.value == "first":
            reported.set()

    [outcome] = await execute_calls([call("patient")], resolve_by_name(patient), on_progress=tell)
    assert outcome.output == "last"


async def test_on_progress_can_be_async_and_gets_all_steps_in_order():
    steps: list[object] = []

    async def tell(step: CallProgress) -> None:
        await asyncio.sleep(0)
        steps.append(step.value or step.status)

    @tool
    def busy(context: ToolContext) -> None:
        for number in range(1, 50):
            context.progress(number)

    await execute_calls([call("busy")], resolve_by_name(busy), on_progress=tell)
    assert steps == ["executing", *range(1, 50), "completed"]


async def test_progress_after_the_end_is_ignored():
    contexts: list[ToolContext] = []
    steps: list[str] = []

    @tool
    async def quick(context: ToolContext) -> None:
        contexts.append(context)

    @tool
    async def slow() -> None:
        while not contexts:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        contexts[0].progress("late")

    def tell(step: CallProgress) -> None:
        steps.append(f"{step.call.name} {step.status}")

    await execute_calls([call("quick"), call("slow")], resolve_by_name(quick, slow), on_progress=tell)
    assert steps == ["quick executing", "slow executing", "quick completed", "slow completed"]


async def test_an_exception_of_on_progress_is_raised():
    stopped: list[str] = []

    @tool
    async def endless(context: ToolContext) -> None:
        context.progress("begun")
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(context.call_id)

    def tell(step: CallProgress) -> None:
        if step.status == "progress":
            raise ValueError(step.value)

    calls = [call("endless", call_id="a"), call("endless", call_id="b")]
    with pytest.raises(ValueError, match="begun"):
        await execute_calls(calls, resolve_by_name(endless), on_progress=tell)
    assert sorted(stopped) == ["a", "b"]


async def test_cancelling_the_round_cancels_the_tools_and_waits_for_them():
    started, ended = asyncio.Event(), list[str]()

    @tool
    async def endless(name: str) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(name)

    @tool
    async def streaming() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            ended.append("stream")

    calls = [call("endless", '{"name": "a"}'), call("endless", '{"name": "b"}'), call("streaming")]
    steps = ProgressLog()
    run = asyncio.create_task(execute_calls(calls, resolve_by_name(endless, streaming), on_progress=steps))
    await started.wait()
    await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert sorted(ended) == ["a", "b", "stream"]
    assert sorted(steps) == ["executing", "executing", "executing", "progress"]


async def test_a_queued_call_is_never_started_after_cancellation():
    started: list[int] = []

    @tool
    async def endless(number: int) -> None:
        started.append(number)
        await asyncio.sleep(60)

    calls = [call("endless", f'{{"number": {i}}}') for i in range(3)]
    run = asyncio.create_task(execute_calls(calls, resolve_by_name(endless), limit=2))
    await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert started == [0, 1]


async def test_a_function_in_a_thread_is_notified_and_abandoned():
    started, abandoned, noticed = threading.Event(), threading.Event(), threading.Event()

    @tool
    def blocking(context: ToolContext) -> str:
        started.set()
        if context.cancelled.wait(5) and abandoned.wait(5):
            context.progress("ignored")
            noticed.set()
        return "dropped"

    steps = ProgressLog()
    run = asyncio.create_task(execute_calls([call("blocking")], resolve_by_name(blocking), on_progress=steps))
    while not started.is_set():
        await asyncio.sleep(0.001)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    abandoned.set()  # the function still runs here: nobody waits for it
    assert await asyncio.to_thread(noticed.wait, 5)
    assert steps == ["executing"]
