"""The real openai-agents against `demo`, streamed and not."""

import pytest
from openai import AsyncOpenAI, InternalServerError
from pydantic import BaseModel

from agents import Agent, ModelBehaviorError, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

pytestmark = pytest.mark.anyio

set_tracing_disabled(True)


class City(BaseModel):
    """A place that many people live in."""

    name: str
    population: int


@function_tool
def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return f"It snows in {city}."


@function_tool
def read_clock() -> str:
    """Tell the time."""
    return "It is noon."


@pytest.fixture
def model(async_client: AsyncOpenAI) -> OpenAIResponsesModel:
    """Return `demo` as a model, at each door in turn."""
    return OpenAIResponsesModel(model="demo", openai_client=async_client)


async def test_an_agent_answers(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Greeter", instructions="Be brief.", model=model)
    result = await Runner.run(agent, "Hello!")
    assert result.final_output == "Hello from Antiphon's demo model. You said: Hello!"
    assert result.context_wrapper.usage.output_tokens == 8


async def test_an_agent_calls_a_tool_and_then_answers(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Reporter", model=model, tools=[get_weather])
    result = await Runner.run(agent, "How is the weather in Oslo?")
    assert result.final_output == "get_weather says: It snows in Oslo."
    assert len(result.raw_responses) == 2
    assert [item.type for item in result.new_items] == [
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]


async def test_an_agent_calls_tools_in_parallel(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Reporter", model=model, tools=[get_weather, read_clock])
    result = await Runner.run(agent, "USE_TOOLS for Oslo")
    assert len(result.raw_responses) == 2
    weather, clock = result.final_output.splitlines()
    assert weather.startswith("get_weather says: It snows in ")
    assert clock == "read_clock says: It is noon."


async def test_an_agent_continues_a_conversation(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Reporter", model=model, tools=[get_weather])
    first = await Runner.run(agent, "How is the weather in Oslo?")
    again = [*first.to_input_list(), {"role": "user", "content": "Thank you!"}]
    second = await Runner.run(agent, again)  # pyright: ignore[reportArgumentType] - a plain dict
    assert "You said: Thank you!" in second.final_output


async def test_an_agent_streams(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Reporter", model=model, tools=[get_weather])
    result = Runner.run_streamed(agent, "How is the weather in Oslo?")
    texts: list[str] = []
    steps: list[str] = []
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            steps.append(event.name)
        elif event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            texts.append(event.data.delta)
    assert steps == ["tool_called", "tool_output", "message_output_created"]
    assert "".join(texts) == result.final_output == "get_weather says: It snows in Oslo."
    assert len(texts) > 1


async def test_an_agent_returns_a_typed_answer(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Geographer", model=model, output_type=City)
    result = await Runner.run(agent, "Tell me of Oslo.")
    assert isinstance(result.final_output, City)


async def test_a_failure_has_its_reason(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Unlucky", model=model)
    with pytest.raises(InternalServerError, match="failed while answering"):
        await Runner.run(agent, "FAIL")


async def test_a_failing_stream_has_its_reason(server: str) -> None:
    async with AsyncOpenAI(base_url=f"{server}/openai/v1", api_key="none") as client:
        model = OpenAIResponsesModel(model="demo", openai_client=client)
        result = Runner.run_streamed(Agent(name="Unlucky", model=model), "FAIL")
        with pytest.raises(ModelBehaviorError, match="failed while answering"):
            async for _ in result.stream_events():
                pass
