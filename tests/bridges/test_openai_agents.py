"""Agents of the OpenAI Agents SDK, served: what only this bridge has to get right."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pydantic import BaseModel

from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunContextWrapper,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.models.interface import Model
from antiphon import Client
from antiphon.agents.agent import Agent as Served
from antiphon.bridges.openai_agents import wrap_agent
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, user_message
from antiphon.protocol.tools import FunctionTool
from tests.bridges.scripted_rounds import ScriptedRounds, ask, openai_client, serve_agent, summarize

PLACE = FunctionTool(name="get_place", parameters={"type": "object", "properties": {}})


@function_tool
async def get_weather(city: str) -> str:
    """Look out of a window."""
    return f"snow in {city}"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedRounds]:
    rounds = ScriptedRounds()
    with rounds.serve():
        yield rounds


@pytest.fixture(params=["responses", "chat"])
def sdk_model(request: pytest.FixtureRequest, model: ScriptedRounds) -> Model:
    """Return the model class of each of OpenAI's APIs in turn."""
    client = openai_client(model.address)
    kind = OpenAIResponsesModel if request.param == "responses" else OpenAIChatCompletionsModel
    return kind(model="scripted", openai_client=client)


def call(name: str, arguments: str = "{}") -> parts.Call:
    return parts.Call(name=name, arguments=arguments)


WEATHER_CALL = call("get_weather", '{"city":"Oslo"}')


def test_text_and_own_tools(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(["One moment.", WEATHER_CALL], ["It is ", "snow."])
    served = wrap_agent(Agent(name="Weather bot", model=sdk_model, tools=[get_weather], instructions="Be kind."))
    with serve_agent(served) as client:
        response = ask(client, served, "Hi!", instructions="Be brief.")
    assert served.name == "Weather-bot"
    assert summarize(response.output) == [
        ("assistant", "One moment."),
        ("call", "get_weather", '{"city":"Oslo"}'),
        ("output", "snow in Oslo"),
        ("assistant", "It is snow."),
    ]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 10)
    assert not response.warnings
