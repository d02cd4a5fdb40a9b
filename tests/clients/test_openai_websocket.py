"""The real openai-python and openai-agents over WebSockets, against `demo`."""

import json

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.resources.responses.responses import ResponsesConnection
from openai.types.responses import Response, ResponsesServerEvent
from openai.types.websocket_reconnection import ReconnectingEvent

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool, set_tracing_disabled
from antiphon.server.settings import Settings
from tests.clients.openai_events import BEGIN_EVENTS, HELLO, WORDS, text_events
from tests.run_server import run_server

set_tracing_disabled(True)

ENDS = {"response.completed", "response.failed", "response.incomplete", "error"}


def read_turns(connection: ResponsesConnection, turns: int = 1) -> list[ResponsesServerEvent]:
    """Return the events of some turns, to their ends."""
    events: list[ResponsesServerEvent] = []
    while sum(event.type in ENDS for event in events) < turns:
        events.append(connection.recv())
    return events


def read_response(connection: ResponsesConnection) -> Response:
    """Return the response that a turn ends with."""
    last = read_turns(connection)[-1]
    assert last.type == "response.completed", last
    return last.response


def test_a_turn_has_the_events_of_a_stream(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="demo", input="Hello!")
        events = read_turns(connection)
    assert [event.type for event in events] == [*BEGIN_EVENTS, *text_events(len(WORDS)), "response.completed"]
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == HELLO


def test_turns_continue_without_being_stored(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="demo", input="I am Ada.", store=False)
        first = read_response(connection)
        connection.response.create(model="demo", input="Who am I?", store=False, previous_response_id=first.id)
        text = read_response(connection).output_text
    assert text.endswith("You said: Who am I? This conversation has 3 messages.")


def test_a_warm_up_request_can_be_continued(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="demo", input="I am Ada.", store=False, generate=False)
        warm = read_response(connection)
        assert warm.output == []
        connection.response.create(model="demo", input="Who am I?", store=False, previous_response_id=warm.id)
        assert read_response(connection).output_text.endswith("This conversation has 2 messages.")


def test_lanes_run_concurrently(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        for lane in ("left", "right"):
            connection.response.create(model="demo", input=lane, stream_id=lane)
        events = read_turns(connection, turns=2)
    for lane in ("left", "right"):
        own = [event for event in events if getattr(event, "stream_id", None) == lane]
        last = own[-1]
        assert last.type == "response.completed"
        assert last.response.output_text.endswith(f"You said: {lane}")
        assert [getattr(event, "sequence_number", None) for event in own] == list(range(len(own)))


def test_an_unknown_id_is_an_error_and_the_connection_continues(openai: OpenAI) -> None:
    with openai.responses.connect() as connection:
        connection.response.create(model="demo", input="Go on.", store=False, previous_response_id="resp_nobody")
        (lost,) = read_turns(connection)
        assert lost.type == "error"
        error = json.loads(lost.to_json())
        assert (error["status"], error["error"]["type"], error["error"]["code"]) == (
            400,
            "invalid_request_error",
            "previous_response_not_found",
        )
        connection.response.create(model="demo", input="Hello!")
        assert read_response(connection).output_text == HELLO


def test_steering_is_rejected(openai: OpenAI) -> None:
    with openai.responses.connect() as connection:
        connection.response.steer(input="Faster!", previous_response_id="resp_nobody")
        (refused,) = read_turns(connection)
        assert refused.type == "error"
        assert json.loads(refused.to_json())["error"]["code"] == "unsupported_message"


def test_a_client_reconnects_after_the_connection_limit() -> None:
    codes: list[int] = []
    ends: list[str] = []

    def reconnecting(event: ReconnectingEvent) -> None:
        codes.append(event.close_code)
        connection.response.create(model="demo", input="Hello!")  # kept until it is connected

    with (
        run_server(Settings(socket_seconds=0.5)) as address,
        OpenAI(base_url=f"{address}/openai/v1", api_key="none") as client,
        client.responses.connect(on_reconnecting=reconnecting, initial_delay=0.01) as connection,
    ):
        connection.response.create(model="demo", input="Hello!")
        for event in connection:
            ends += [event.type] if event.type in ENDS else []
            if len(ends) == 3:
                break
    assert ends == ["response.completed", "error", "response.completed"]
    assert codes == [1001]


@pytest.mark.anyio
async def test_the_async_client_connects(async_client: AsyncOpenAI) -> None:
    async with async_client.responses.connect() as connection:
        await connection.response.create(model="demo", input="Hello!")
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == HELLO
                break


@function_tool
def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return f"It snows in {city}."


@pytest.fixture
def provider(async_client: AsyncOpenAI) -> OpenAIProvider:
    """Give the models of a server over WebSockets, at each door in turn."""
    return OpenAIProvider(openai_client=async_client, use_responses_websocket=True)


@pytest.mark.anyio
@pytest.mark.parametrize("store", [True, False])
async def test_an_agent_runs_its_tools_over_one_connection(provider: OpenAIProvider, store: bool) -> None:
    settings = ModelSettings(store=store)
    agent = Agent(name="Reporter", model="demo", tools=[get_weather], model_settings=settings)
    config = RunConfig(model_provider=provider)
    result = await Runner.run(agent, "How is the weather in Oslo?", run_config=config, auto_previous_response_id=True)
    assert result.final_output == "get_weather says: It snows in Oslo."
    assert len(result.raw_responses) == 2
    await provider.aclose()


@pytest.mark.anyio
async def test_an_agent_streams_over_a_connection(provider: OpenAIProvider) -> None:
    agent = Agent(name="Reporter", model="demo", tools=[get_weather])
    config = RunConfig(model_provider=provider)
    result = Runner.run_streamed(agent, "How is the weather in Oslo?", run_config=config)
    steps = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert steps == ["tool_called", "tool_output", "message_output_created"]
    assert result.final_output == "get_weather says: It snows in Oslo."
    await provider.aclose()


@pytest.mark.anyio
async def test_an_agent_gets_the_error(provider: OpenAIProvider) -> None:
    agent = Agent(name="Lost", model="nobody")
    with pytest.raises(Exception, match="The model 'nobody' does not exist"):
        await Runner.run(agent, "Hello?", run_config=RunConfig(model_provider=provider))
    await provider.aclose()
