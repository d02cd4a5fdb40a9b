"""Python functions of every kind as models."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from antiphon.agents.agent import Agent, Function, agent
from antiphon.agents.part_reader import PartReader
from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, Message, OutputText
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request

pytestmark = pytest.mark.anyio

GREETING = [parts.Text("You said: "), parts.Text("hello")]
NOTE = Message(role="assistant", status="completed", content=[OutputText(text="whole")])


async def run_agent(function: Function, entry: str = "") -> list[Part]:
    """Return the parts with which a function answers `hello`."""
    return [part async for part in Agent("a", function).stream(make_turn(entry))]


def make_turn(entry: str = "") -> Turn:
    """Return a turn with the message `hello`."""
    request = Request.from_message("a", "hello")
    return Turn(request=request, input=request.input, entry=entry)


async def test_an_async_generator_answers_with_what_it_yields() -> None:
    async def function(turn: Turn) -> AsyncIterator[str]:
        yield "You said: "
        yield turn.text

    assert await run_agent(function) == GREETING


async def test_a_coroutine_answers_with_one_value() -> None:
    async def function(turn: Turn) -> str:
        await asyncio.sleep(0)
        return f"You said: {turn.text}"

    assert await run_agent(function) == [parts.Text("You said: hello")]


async def test_a_coroutine_answers_with_each_value_of_a_list() -> None:
    async def function(turn: Turn) -> list[object]:
        return ["You said: ", parts.Text(turn.text)]

    assert await run_agent(function) == GREETING


async def test_a_plain_function_answers_from_a_thread() -> None:
    def function(turn: Turn) -> list[str]:
        return [turn.text, str(threading.current_thread() is threading.main_thread())]

    assert await run_agent(function) == [parts.Text("hello"), parts.Text("False")]


async def test_a_plain_generator_answers_from_a_thread() -> None:
    def function(turn: Turn) -> Iterator[str]:
        yield "You said: "
        yield turn.text
        assert threading.current_thread() is not threading.main_thread()

    assert await run_agent(function) == GREETING


async def test_a_blocking_function_does_not_block_others() -> None:
    released = threading.Event()

    def blocking() -> str:
        assert released.wait(20)
        return "at last"

    async def quick() -> str:
        released.set()
        return "at once"

    slow, fast = await asyncio.gather(run_agent(blocking), run_agent(quick))
    assert (slow, fast) == ([parts.Text("at last")], [parts.Text("at once")])


async def test_a_blocking_generator_does_not_block_others() -> None:
    released = threading.Event()

    def blocking() -> Iterator[str]:
        yield "first"
        assert released.wait(20)
        yield "second"

    async def quick() -> str:
        released.set()
        return "at once"

    slow, fast = await asyncio.gather(run_agent(blocking), run_agent(quick))
    assert slow == [parts.Text("first"), parts.Text("second")]
    assert fast == [parts.Text("at once")]


async def test_a_plain_function_may_return_an_awaitable() -> None:
    async def later() -> str:
        return "later"

    assert await run_agent(lambda turn: later()) == [parts.Text("later")]


async def test_a_plain_function_may_return_an_async_generator() -> None:
    async def words(turn: Turn) -> AsyncIterator[str]:
        yield "You said: "
        yield turn.text

    assert await run_agent(lambda turn: words(turn)) == GREETING


async def test_a_callable_object_may_be_an_agent() -> None:
    class Greeter:
        """Repeats the message."""

        async def __call__(self, turn: Turn) -> AsyncIterator[str]:
            yield "You said: "
            yield turn.text

    assert await run_agent(Greeter()) == GREETING


async def test_a_partial_function_may_be_an_agent() -> None:
    async def function(greeting: str, turn: Turn) -> AsyncIterator[str]:
        yield greeting
        yield turn.text

    assert await run_agent(partial(function, "You said: ")) == GREETING


async def test_a_function_without_parameters_gets_no_turn() -> None:
    async def generator() -> AsyncIterator[str]:
        yield "alone"

    async def coroutine() -> str:
        return "alone"

    def plain_generator() -> Iterator[str]:
        yield "alone"

    def plain() -> str:
        return "alone"

    for function in (generator, coroutine, plain_generator, plain):
        assert await run_agent(function) == [parts.Text("alone")]


async def test_parts_pass_items_become_wholes_and_none_is_skipped() -> None:
    async def function() -> AsyncIterator[object]:
        yield "text"
        yield parts.Usage(1, 2)
        yield None
        yield NOTE
        yield parts.Finish("stop")

    assert await run_agent(function) == [parts.Text("text"), parts.Usage(1, 2), parts.Whole(NOTE), parts.Finish("stop")]


async def test_a_function_that_returns_none_yields_no_part() -> None:
    async def coroutine() -> None: ...

    def plain() -> None: ...

    assert [await run_agent(function) for function in (coroutine, plain)] == [[], []]


@pytest.mark.parametrize("value", [1, b"bytes", {"type": "message"}, object, ["a"]])
def test_a_value_of_any_other_type_is_an_error_that_names_the_type(value: object) -> None:
    with pytest.raises(TypeError) as caught:
        PartReader(make_turn()).read(value)
    kind = type(value).__name__
    assert str(caught.value) == f"an agent yields strings, parts or items, not {kind}"


@pytest.mark.parametrize("result", [1, b"bytes", {"role": "assistant"}])
async def test_a_result_of_any_other_type_is_an_error(result: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(result).__name__}$"):
        await run_agent(lambda: result)


async def test_a_function_that_runs_out_of_its_own_iterator_fails() -> None:
    empty: Iterator[str] = iter(())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(run_agent(lambda: next(empty)), 20)


async def test_an_exception_of_the_function_is_raised() -> None:
    def function() -> str:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await run_agent(function)


async def test_closing_the_answer_closes_an_async_generator_at_once() -> None:
    closed: list[str] = []

    async def function() -> AsyncIterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    answer = Agent("a", function).stream(make_turn())
    assert await anext(answer) == parts.Text("one")
    await answer.aclose()
    assert closed == ["closed"]


async def test_closing_the_answer_closes_a_plain_generator() -> None:
    closed = threading.Event()

    def function() -> Iterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            closed.set()

    answer = Agent("a", function).stream(make_turn())
    assert await anext(answer) == parts.Text("one")
    await answer.aclose()
    assert await asyncio.to_thread(closed.wait, 20)


async def test_cancelling_the_answer_cancels_what_an_async_generator_waits_for() -> None:
    seen: list[str] = []

    async def function() -> AsyncIterator[str]:
        try:
            yield "one"
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(run_agent(function))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_a_plain_generator_is_closed_when_the_step_it_was_cancelled_in_is_over() -> None:
    inside, released, closed = threading.Event(), threading.Event(), threading.Event()

    def function() -> Iterator[str]:
        try:
            inside.set()
            assert released.wait(20)
            yield "late"
        finally:
            closed.set()

    task = asyncio.create_task(run_agent(function))
    assert await asyncio.to_thread(inside.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    released.set()
    assert await asyncio.to_thread(closed.wait, 20)


async def test_a_thread_sees_the_cancellation() -> None:
    turn = make_turn()
    seen = threading.Event()

    def function(turn: Turn) -> None:
        deadline = time.monotonic() + 20
        while not turn.cancelled.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        if turn.cancelled.is_set():
            seen.set()

    answer = Agent("a", function).stream(turn)
    task = asyncio.ensure_future(anext(answer, None))
    await asyncio.sleep(0.05)
    turn.cancelled.set()
    assert await task is None
    assert seen.is_set()


def test_the_decorator_makes_an_agent_and_keeps_the_docstring() -> None:
    @agent("my-agent", window=1000)
    async def my_agent(turn: Turn) -> str:
        """Repeats the message."""
        return turn.text

    assert isinstance(my_agent, Agent)
    assert (my_agent.name, my_agent.window) == ("my-agent", 1000)
    assert my_agent.models == ["my-agent"]
    assert my_agent.__doc__ == "Repeats the message."
    assert repr(my_agent) == "<Agent my-agent: my-agent>"


def test_an_agent_can_be_called_like_its_function() -> None:
    @agent("adder")
    def add(first: int, second: int) -> int:
        return first + second

    assert add(1, 2) == 3


async def test_each_entry_is_a_model_of_its_own() -> None:
    @agent("my-agent")
    async def my_agent(turn: Turn) -> str:
        return turn.text

    @my_agent.entry("loud")
    async def loud(turn: Turn) -> str:
        return turn.text.upper()

    assert my_agent.models == ["my-agent", "my-agent/loud"]
    said = [[part async for part in my_agent.stream(make_turn(entry))] for entry in ("", "__entry__", "loud")]
    assert said == [[parts.Text("hello")], [parts.Text("hello")], [parts.Text("HELLO")]]
    assert await loud(make_turn()) == "HELLO"


@pytest.mark.parametrize("name", ["", "a/b", "two words", "line\nbreak", "tab\t", " "])
def test_a_name_is_one_word_without_slashes(name: str) -> None:
    with pytest.raises(ValueError, match="one word without slashes") as caught:
        agent(name)(lambda: "never")
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["gpt-4.1", "agent_1", "Ünïcode", "a:b"])
def test_a_name_may_be_any_other_word(name: str) -> None:
    assert agent(name)(lambda: "hello").models == [name]


def read_calls(*calls: parts.Call) -> list[Part | None]:
    reader = PartReader(make_turn())
    return [reader.read(call) for call in calls]


def test_each_call_without_a_key_is_a_call_of_its_own() -> None:
    first, more, second = read_calls(
        parts.Call(name="f", arguments="{"), parts.Call(arguments="}"), parts.Call(name="f", arguments="{}")
    )
    assert isinstance(first, parts.Call)
    assert isinstance(second, parts.Call)
    assert isinstance(more, parts.Call)
    assert first.key == more.key != second.key
    assert parts.NO_KEY not in {first.key, second.key}


def test_pieces_of_a_call_share_its_call_id_or_its_key() -> None:
    pieces = [parts.Call(name="f", call_id="a"), parts.Call(name="g", call_id="b"), parts.Call(call_id="a")]
    keys = [part.key for part in read_calls(*pieces) if isinstance(part, parts.Call)]
    assert keys[0] == keys[2] != keys[1]
    keyed = parts.Call(7, "f", "{}")
    assert read_calls(keyed) == [keyed]


def test_the_arguments_of_a_call_may_be_an_object() -> None:
    arguments: object = {"city": "Paris", "days": [1, 2]}
    text = '{"city":"Paris","days":[1,2]}'
    assert PartReader(make_turn()).read(parts.Call(1, "f", arguments)) == parts.Call(1, "f", text)  # pyright: ignore[reportArgumentType]
    item = FunctionCall(name="f", call_id="c", arguments=arguments)  # pyright: ignore[reportArgumentType]
    assert PartReader(make_turn()).read(item) == parts.Whole(FunctionCall(name="f", call_id="c", arguments=text))


async def test_an_async_iterator_that_is_no_generator_answers() -> None:
    class Words:
        def __init__(self) -> None:
            self.words = ["You said: ", "hello"]

        def __aiter__(self) -> "Words":
            return self

        async def __anext__(self) -> str:
            if not self.words:
                raise StopAsyncIteration
            return self.words.pop(0)

    assert await run_agent(lambda: Words()) == GREETING
