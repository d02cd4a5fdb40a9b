"""A run, whatever its model does."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.agents.agent import Agent, Function, Turn
from antiphon.agents.threads import AgentThreads
from antiphon.engine import run
from antiphon.engine.engine import Engine
from antiphon.engine.models import AgentLimits, Models
from antiphon.engine.run import EventSink, Run
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.events import Event, ResponseFailed, ResponseIncomplete
from antiphon.protocol.fold import fold
from antiphon.protocol.items import ExtensionItem, FunctionCall, Message, OutputText, Reasoning
from antiphon.protocol.request import Request
from antiphon.protocol.response import IncompleteDetails, Response, ResponseError, ResponseUsage, ResponseWarning
from antiphon.protocol.struct import encode
from antiphon.protocol.tools import FunctionTool
from tests.engine.recording_sink import RecordingSink
from tests.protocol.builders import counting_ids

pytestmark = pytest.mark.anyio

NOW = 1_700_000_000
BROKEN = ResponseError(code="server_error", message="The model 'm' failed while answering.", type="server_error")
ESTIMATED = ResponseWarning(
    code="usage_estimated", message="The model did not count its tokens; these are estimates.", param="usage"
)


async def open_run(function: Function, sink: EventSink | None = None, **options: Any) -> Run:
    """Begin a response of a model that is one function."""
    engine = Engine(Models([Agent("m", function)]), ids=counting_ids(), clock=lambda: NOW)
    return await engine.create_run(Request.from_message("m", "hello", **options), sink)


async def run_model(function: Function) -> tuple[Response, list[Event]]:
    """Return the response of a function, and its events, which are valid."""
    sink = RecordingSink()
    response = await (await open_run(function, sink)).execute()
    assert find_violations(sink.events) == []
    assert fold(sink.events) == response
    return response, sink.events


def ended_response(*output: Message, **changes: Any) -> Response:
    """Return the response that a test expects."""
    fields = {"status": "completed", "warnings": [ESTIMATED], **changes}
    return Response(id="resp_0", created_at=NOW, completed_at=NOW, model="m", output=list(output), **fields)


def make_message(text: str, status: str = "completed") -> Message:
    """Return the output message of a model; `msg_0` is the input."""
    return Message(id="msg_1", status=status, role="assistant", content=[OutputText(text=text)])


async def test_the_parts_of_a_model_become_a_response() -> None:
    async def model() -> AsyncIterator[object]:
        yield "Hello"
        yield parts.Usage(3, 1)

    response, events = await run_model(model)
    assert response == ended_response(make_message("Hello"), usage=ResponseUsage.of(3, 1), warnings=UNSET)
    assert events[0].type == "response.created"


async def test_missing_usage_is_estimated_with_a_warning() -> None:
    async def model() -> str:
        return "Four tokens, or so"

    response, _ = await run_model(model)
    assert response == ended_response(make_message("Four tokens, or so"), usage=ResponseUsage.of(6, 9))


async def test_reported_usage_is_kept_beside_the_estimate() -> None:
    async def model() -> list[object]:
        return ["Hello", parts.Usage(output_tokens=100)]

    response, _ = await run_model(model)
    assert response == ended_response(make_message("Hello"), usage=ResponseUsage.of(6, 100))


async def test_a_model_without_output_gives_an_empty_message() -> None:
    response, _ = await run_model(lambda: None)
    assert response == ended_response(make_message(""), usage=ResponseUsage.of(6, 0))


async def test_parts_after_a_failure_are_ignored() -> None:
    async def model() -> AsyncIterator[object]:
        yield "Hel"
        yield parts.Failure(ErrorPayload(message="No more.", type="model_error", code="gone"))
        yield "lo"

    response, _ = await run_model(model)
    assert response.error == ResponseError(code="gone", message="No more.", type="model_error")
    assert response.output == [make_message("Hel", "incomplete")]


def raising_model(error: BaseException, *words: str) -> Function:
    """Return a model that yields text and then raises."""

    async def model() -> AsyncIterator[str]:
        for word in words:
            yield word
        raise error

    return model


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("secret"),
        KeyError("secret"),
        TimeoutError("secret"),
        StopAsyncIteration("secret"),
        asyncio.CancelledError("secret"),
        SystemExit("secret"),
        KeyboardInterrupt("secret"),
        GeneratorExit("secret"),
        BaseExceptionGroup("secret", [KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("words", [(), ("Hel", "lo")])
async def test_any_exception_of_a_model_becomes_a_failed_response_and_a_log_entry(
    error: BaseException, words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "antiphon.engine"):
        response, _ = await run_model(raising_model(error, *words))
    assert response.status == "failed"
    assert response.error == BROKEN
    assert response.output == ([make_message("Hello", "incomplete")] if words else [])
    assert response.warnings == [ESTIMATED]
    [record] = caplog.records
    assert record.getMessage() == "-: model m failed in resp_0"
    assert record.exc_info


async def test_a_value_that_is_not_a_part_fails_the_response() -> None:
    async def model() -> AsyncIterator[object]:
        yield "Hello"
        yield 42

    response, _ = await run_model(model)
    assert (response.status, response.error) == ("failed", BROKEN)
    assert response.output == [make_message("Hello", "incomplete")]


async def test_a_model_that_raises_system_exit_does_not_stop_the_process() -> None:
    def model() -> None:
        sys.exit(1)

    response, _ = await run_model(model)
    assert (response.status, response.error) == ("failed", BROKEN)


REFUSALS = [
    RequestError("Not that.", param="input", code="nope"),
    UpstreamError("Slow down.", status=429, type="too_many_requests", code="rate_limit_exceeded"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_an_error_with_a_status_is_raised_before_the_first_part(error: RequestError | UpstreamError) -> None:
    run = await open_run(raising_model(error))
    with pytest.raises(type(error)) as caught:
        await run.execute()
    assert caught.value is error
    assert run.started.is_set()
    assert not run.answering


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_an_error_with_a_status_fails_the_response_after_the_first_part(
    error: RequestError | UpstreamError,
) -> None:
    response, _ = await run_model(raising_model(error, "Hello"))
    payload = error.payload
    assert response.error == ResponseError(code=payload.code or "", message=payload.message, type=payload.type)
    assert response.output == [make_message("Hello", "incomplete")]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_an_error_with_a_status_fails_a_response_whose_stream_has_started(
    error: RequestError | UpstreamError,
) -> None:
    sink = RecordingSink()
    run = await open_run(raising_model(error), sink)
    run.answering = True
    response = await run.execute()
    assert response.status == "failed"
    assert fold(sink.events) == response


async def test_warnings_and_usage_are_not_output() -> None:
    async def model() -> AsyncIterator[object]:
        yield parts.Warn("odd", "Something is odd.")
        yield parts.Usage(1)
        raise UpstreamError("Slow down.", status=429)

    with pytest.raises(UpstreamError, match="Slow down"):
        await (await open_run(model)).execute()


async def test_a_cancelled_response_keeps_its_output_and_estimates_its_usage() -> None:
    seen: list[str] = []
    turns: list[Turn] = []
    sink = RecordingSink()

    async def model(turn: Turn) -> AsyncIterator[str]:
        turns.append(turn)
        try:
            yield "Hello"
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    run = await open_run(model, sink)
    task = asyncio.create_task(run.execute())
    await run.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert run.response == ended_response(
        make_message("Hello", "incomplete"),
        status="cancelled",
        incomplete_details=IncompleteDetails(reason="cancelled"),
        usage=ResponseUsage.of(6, 6),
    )
    assert isinstance(sink.events[-1], ResponseIncomplete)
    assert find_violations(sink.events) == []
    assert seen == ["closed"]
    assert turns[0].cancelled.is_set()


async def test_a_response_can_be_cancelled_before_any_output() -> None:
    async def model() -> None:
        await asyncio.sleep(60)

    run = await open_run(model)
    task = asyncio.create_task(run.execute())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (run.response.status, run.response.output) == ("cancelled", [])
    assert run.started.is_set()


async def test_a_response_that_has_failed_stays_failed_when_it_is_cancelled() -> None:
    async def model() -> AsyncIterator[object]:
        try:
            yield parts.Failure(ErrorPayload(message="No more.", type="model_error"))
        finally:
            await asyncio.sleep(60)

    run = await open_run(model)
    task = asyncio.create_task(run.execute())
    await run.started.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.response.status == "failed"


async def test_a_model_that_never_awaits_does_not_block_others() -> None:
    answered = asyncio.Event()

    async def greedy() -> AsyncIterator[str]:
        for _ in range(1_000_000):
            if answered.is_set():
                return
            yield "more "
        raise AssertionError("nobody else had a turn")

    async def modest() -> AsyncIterator[str]:
        yield "Hello"
        answered.set()

    runs = [await open_run(greedy), await open_run(modest)]
    first, second = await asyncio.gather(*(run.execute() for run in runs))
    assert (first.status, second.status) == ("completed", "completed")


async def test_a_model_waits_while_its_sink_is_full() -> None:
    class Narrow(RecordingSink):
        """Is full after a few events, until `room` is set."""

        def __init__(self) -> None:
            super().__init__()
            self.room = asyncio.Event()

        @property
        def full(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Whether it is full."""
            return len(self.events) > 10 and not self.room.is_set()

        async def drain(self) -> None:
            """Wait for room."""
            await self.room.wait()

    yielded: list[int] = []

    async def model() -> AsyncIterator[str]:
        for number in range(1000):
            yielded.append(number)
            yield f"{number} "

    sink = Narrow()
    run = await open_run(model, sink)
    task = asyncio.create_task(run.execute())
    await asyncio.sleep(0.05)
    assert (len(yielded), len(sink.events)) == (7, 11)
    sink.room.set()
    assert (await task).status == "completed"
    assert len(yielded) == 1000


class RaisingSink(RecordingSink):
    """A sink that raises at one text, in whichever event."""

    def write(self, events: list[Event]) -> None:
        """Keep events that can be written."""
        if any(b"unspeakable" in encode(event) for event in events):
            raise TypeError("No words.")
        super().write(events)


LOST = ResponseError(code="server_error", message=run.INTERNAL_ERROR.message, type="server_error")


@pytest.mark.parametrize("error", [None, RuntimeError("secret")])
async def test_an_end_that_cannot_be_sent_becomes_a_failure_without_output(error: Exception | None) -> None:
    async def model() -> AsyncIterator[str]:
        yield "Hello, "
        yield "unspeakable"
        if error:
            raise error

    sink = RaisingSink()
    response = await (await open_run(model, sink)).execute()
    assert response == ended_response(status="failed", error=LOST, warnings=UNSET)
    assert sink.events[-1] == ResponseFailed(sequence_number=sink.events[-1].sequence_number, response=response)


async def test_a_cancelled_run_stays_cancelled_when_its_end_cannot_be_sent() -> None:
    async def model() -> AsyncIterator[str]:
        yield "Hello"
        await asyncio.sleep(10)

    class Silenced(RecordingSink):
        def write(self, events: list[Event]) -> None:
            if any(isinstance(event, ResponseIncomplete) for event in events):
                raise TypeError("No words.")
            super().write(events)

    sink = Silenced()
    task = asyncio.create_task((await open_run(model, sink)).execute())
    while not any(event.type == "response.output_text.delta" for event in sink.events):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.events[-1].type == "response.failed"


async def run_limited(function: Function, **options: Any) -> Response:
    return await (await open_run(function, **options)).execute()


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["word " * 20], ("word " * 20)[:64]),
        (["word "] * 20, ("word " * 20)[:64]),
        (["é" * 20], "é" * 16),
        (["abcd" * 15, "日本"], "abcd" * 15 + "日"),
    ],
)
async def test_max_output_tokens_ends_the_answer_of_an_agent_that_does_not_count(pieces: list[str], text: str) -> None:
    closed: list[bool] = []

    async def model() -> AsyncIterator[str]:
        try:
            for piece in pieces:
                yield piece
            yield "more than fits"
        finally:
            closed.append(True)

    response = await run_limited(model, max_output_tokens=16)
    assert (response.status, response.incomplete_details) == (
        "incomplete",
        IncompleteDetails(reason="max_output_tokens"),
    )
    assert response.output_text == text
    assert response.usage is not None
    assert response.usage.output_tokens == 16
    assert closed == [True]


async def test_max_output_tokens_truncates_reasoning_and_the_arguments_of_a_call() -> None:
    async def model() -> AsyncIterator[object]:
        yield parts.Reasoning("abcd" * 10, summary="abcd")
        yield parts.Call(name="f", arguments='{"a": "' + 40 * "x" + '"}')

    response = await run_limited(model, max_output_tokens=16)
    reasoning, call = response.output
    assert response.status == "incomplete"
    assert isinstance(call, FunctionCall)
    assert (call.status, call.arguments) == ("incomplete", '{"a": "' + 13 * "x")
    assert isinstance(reasoning, Reasoning)


async def test_an_item_that_does_not_fit_is_left_out() -> None:
    async def model() -> AsyncIterator[object]:
        yield make_message("x" * 200)

    response = await run_limited(model, max_output_tokens=16)
    assert (response.status, response.output) == ("incomplete", [])


@pytest.mark.parametrize(("outputs", "status"), [(["x" * 40] * 9, "completed"), (["x", "x" * 200], "incomplete")])
async def test_an_item_that_changes_counts_as_it_is_last_shown(outputs: list[str], status: str) -> None:
    async def model() -> AsyncIterator[object]:
        for output in outputs:
            yield parts.ItemState(ExtensionItem(type="acme:command", extra={"output": output}), "command")

    assert (await run_limited(model, max_output_tokens=32)).status == status


async def test_an_answer_that_fits_exactly_is_complete() -> None:
    async def model() -> AsyncIterator[str]:
        yield "abcd" * 16

    assert (await run_limited(model, max_output_tokens=16)).status == "completed"


async def test_an_agent_may_count_its_tokens_itself() -> None:
    async def model() -> AsyncIterator[str]:
        yield "abcd" * 100

    engine = Engine(Models([Agent("m", model, counts_tokens=True)]))
    run = await engine.create_run(Request.from_message("m", "hello", max_output_tokens=16))
    assert (await run.execute()).status == "completed"


async def test_a_silent_agent_fails_after_the_chunk_timeout() -> None:
    async def model() -> AsyncIterator[str]:
        yield "so far"
        await asyncio.sleep(60)

    sink = RecordingSink()
    engine = Engine(Models([Agent("m", model)], limits=AgentLimits(AgentThreads(), chunk_timeout=0.05)))
    response = await (await engine.create_run(Request.from_message("m", "hello"), sink)).execute()
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "agent_timeout"
    assert response.error.message == "The agent 'm' sent nothing for 0.05 seconds."
    assert response.output_text == "so far"


async def test_an_agent_that_is_silent_from_the_start_is_a_504() -> None:
    async def model() -> None:
        await asyncio.sleep(60)

    engine = Engine(Models([Agent("m", model)], limits=AgentLimits(AgentThreads(), chunk_timeout=0.05)))
    with pytest.raises(UpstreamError) as caught:
        await (await engine.create_run(Request.from_message("m", "hello"))).execute()
    assert (caught.value.status, caught.value.payload.code) == (504, "agent_timeout")


async def test_an_agent_may_take_longer_than_the_chunk_timeout_if_it_is_never_silent() -> None:
    async def model() -> AsyncIterator[str]:
        for _ in range(24):
            await asyncio.sleep(0.05)
            yield "more "

    engine = Engine(Models([Agent("m", model)], limits=AgentLimits(AgentThreads(), chunk_timeout=1)))
    assert (await (await engine.create_run(Request.from_message("m", "hello"))).execute()).status == "completed"


TOOL = FunctionTool(name="f")


async def test_an_agents_function_call_item_obeys_tool_choice() -> None:
    async def model() -> AsyncIterator[object]:
        yield FunctionCall(name="f", call_id="c", arguments="{}")

    response = await run_limited(model, tools=[TOOL], tool_choice="none")
    assert not any(isinstance(item, FunctionCall) for item in response.output)
    assert warning_codes(response) == ["tool_not_allowed", "usage_estimated"]
    allowed = await run_limited(model, tools=[TOOL], tool_choice="required")
    assert [type(item) for item in allowed.output] == [FunctionCall]
    assert warning_codes(allowed) == ["usage_estimated"]


async def test_an_agent_that_makes_no_required_call_is_reported() -> None:
    async def model() -> str:
        return "no call"

    response = await run_limited(model, tools=[TOOL], tool_choice="required")
    assert warning_codes(response) == ["tool_not_called", "usage_estimated"]


async def test_two_calls_without_keys_are_two_calls() -> None:
    async def model() -> AsyncIterator[object]:
        yield parts.Call(name="f", arguments='{"a": 1}')
        yield parts.Call(name="f", arguments='{"a": 2}')

    response = await run_limited(model, tools=[TOOL])
    assert [item.arguments for item in response.output if isinstance(item, FunctionCall)] == ['{"a": 1}', '{"a": 2}']


def warning_codes(response: Response) -> list[str]:
    return [warning.code for warning in response.warnings or []]
