"""The threads of plain functions and generators."""

import asyncio
import contextvars
import sqlite3
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import pytest

from antiphon.agents.agent import Agent, Turn
from antiphon.agents.threads import AgentThreads
from antiphon.protocol.parts import Part, Text
from antiphon.protocol.request import Request

pytestmark = pytest.mark.anyio

WAIT = 20


def stream(function: object, threads: AgentThreads) -> AsyncGenerator[Part]:
    request = Request.from_message("a", "hello")
    agent = Agent("a", function)  # pyright: ignore[reportArgumentType]
    return agent.stream(Turn(request=request, input=request.input), threads)


async def test_a_generator_stays_on_one_thread() -> None:
    def query() -> Iterator[str]:
        connection = sqlite3.connect(":memory:")
        for number in range(20):
            yield str(connection.execute("SELECT ?", (number,)).fetchone()[0])
        connection.close()

    async def read() -> list[Part]:
        return [part async for part in stream(query, threads)]

    threads = AgentThreads()
    # At the same time: a pool of threads would share them out.
    answers = await asyncio.gather(*(read() for _ in range(5)))
    assert answers == [[Text(str(number)) for number in range(20)]] * 5


async def test_leaving_a_generator_runs_its_finally_in_its_thread() -> None:
    closed = threading.Event()
    names: list[str] = []

    def endless() -> Iterator[str]:
        names.append(threading.current_thread().name)
        try:
            while True:
                yield "more"
        finally:
            names.append(threading.current_thread().name)
            closed.set()

    async with aclosing(stream(endless, AgentThreads())) as answer:
        assert await anext(answer) == Text("more")
    assert await asyncio.to_thread(closed.wait, WAIT)
    assert names == ["antiphon-agent", "antiphon-agent"]


async def test_cancelling_in_the_middle_of_a_step_closes_the_generator_after_it() -> None:
    entered, released, closed = threading.Event(), threading.Event(), threading.Event()

    def blocking() -> Iterator[str]:
        try:
            entered.set()
            released.wait(WAIT)
            yield "too late"
        finally:
            closed.set()

    task = asyncio.ensure_future(anext(stream(blocking, AgentThreads())))
    assert await asyncio.to_thread(entered.wait, WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not closed.is_set()
    released.set()
    assert await asyncio.to_thread(closed.wait, WAIT)


async def test_an_abandoned_function_keeps_its_thread_until_it_returns() -> None:
    released = threading.Event()
    threads = AgentThreads(2)
    abandoned = [asyncio.ensure_future(anext(stream(lambda: released.wait(WAIT), threads))) for _ in range(2)]
    await asyncio.sleep(0.05)
    for task in abandoned:
        task.cancel()
    waiting = asyncio.ensure_future(anext(stream(lambda: "free", threads)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    # Other threads are not affected.
    assert await anext(stream(lambda: "other", AgentThreads())) == Text("other")
    released.set()
    assert await asyncio.wait_for(waiting, WAIT) == Text("free")


async def test_a_function_sees_the_context_variables_of_its_run() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def words() -> Iterator[str]:
        yield variable.get()
        yield variable.get()

    assert [part async for part in stream(words, AgentThreads())] == [Text("set"), Text("set")]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
async def test_whatever_a_function_raises_reaches_its_caller(error: BaseException) -> None:
    def broken() -> str:
        raise error

    with pytest.raises(type(error)):
        await anext(stream(broken, AgentThreads()))
