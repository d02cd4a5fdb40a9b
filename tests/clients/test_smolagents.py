"""smolagents, which knows only chats, finishes a task with a tool: against models of ours."""

from collections.abc import AsyncIterator, Iterator

import pytest
from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool

from antiphon.agents.agent import Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import encode
from antiphon.server.settings import Settings
from tests.run_server import run_server

looked: list[str] = []


@tool
def get_weather(city: str) -> str:
    """Look out of a window somewhere.

    Args:
        city: Where to look.
    """
    looked.append(city)
    return f"Rain in {city}"


@agent("planner")
async def planner(turn: Turn) -> AsyncIterator[Part]:
    """Looks first, then gives its final answer; both are calls, as smolagents wants it."""
    names = [function.name for function in turn.functions]
    assert names == ["get_weather", "final_answer"]
    assert turn.request.stop == ["Observation:", "Calling tools:"]
    observed = next((item for item in turn.items if "Rain in Oslo" in encode(item).decode()), None)
    if observed is None:
        yield parts.Text("I will look.")
        yield parts.Call(0, "get_weather", '{"city":', "call_1")
        yield parts.Call(0, arguments='"Oslo"}')
    else:
        yield parts.Call(0, "final_answer", '{"answer": "Take an umbrella."}', "call_2")
    yield parts.Usage(10, 5)


@planner.entry("coder")
async def coder(turn: Turn) -> str:
    """Answers with Python, as a CodeAgent wants it."""
    return "I will look.\n<code>\nfinal_answer(get_weather(city='Rome'))\n</code>"


@pytest.fixture(scope="module")
def house() -> Iterator[str]:
    """Serve both."""
    with run_server(Settings(agents=(planner,))) as address:
        yield address


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("door", ["/v1", "/openai/v1"])
def test_a_tool_calling_agent_finishes(house: str, door: str, stream: bool) -> None:
    looked.clear()
    model = OpenAIModel("planner", api_base=house + door, api_key="none")
    solver = ToolCallingAgent(tools=[get_weather], model=model, stream_outputs=stream, verbosity_level=LogLevel.OFF)
    assert solver.run("Do I need an umbrella in Oslo?") == "Take an umbrella."
    assert looked == ["Oslo"]
    assert solver.monitor.total_output_token_count == 10


def test_a_code_agent_finishes(house: str) -> None:
    looked.clear()
    model = OpenAIModel("planner/coder", api_base=f"{house}/v1", api_key="none")
    solver = CodeAgent(tools=[get_weather], model=model, verbosity_level=LogLevel.OFF)
    assert solver.run("How is the weather in Rome?") == "Rain in Rome"
    assert looked == ["Rome"]


def test_the_demo_model_calls_one_tool(server: str) -> None:
    """The scripted model calls what it must, with arguments that the schema accepts."""
    model = OpenAIModel("demo", api_base=f"{server}/v1", api_key="none")
    answer = model.generate(
        [{"role": "user", "content": [{"type": "text", "text": "The weather?"}]}],  # pyright: ignore[reportArgumentType]
        tools_to_call_from=[get_weather],
    )
    (call,) = answer.tool_calls or []
    assert call.function.name == "get_weather"
    assert answer.token_usage
