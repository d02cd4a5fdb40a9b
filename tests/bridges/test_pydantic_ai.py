"""Agents of pydantic-ai, served: what only this bridge has to get right."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, NativeOutput, RunContext, WebSearchTool
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from antiphon.agents.agent import Agent as Served
from antiphon.bridges.pydantic_ai import wrap_agent
from antiphon.protocol import parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import ExtensionItem, FunctionCall, FunctionCallOutput, InputImage
from antiphon.protocol.tools import FunctionTool
from tests.bridges.scripted_rounds import (
    ScriptedRounds,
    ask,
    ask_for_error,
    leave_at_first_call,
    openai_client,
    serve_agent,
    summarize,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PLACE = FunctionTool(name="get_place", parameters={"type": "object", "properties": {}})
OpenAIModel = OpenAIResponsesModel | OpenAIChatModel


async def get_weather(city: str) -> str:
    """Look out of a window."""
    return f"snow in {city}"


class City(BaseModel):
    name: str


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedRounds]:
    rounds = ScriptedRounds()
    with rounds.serve():
        yield rounds


@pytest.fixture(params=["responses", "chat"])
def own_model(request: pytest.FixtureRequest, model: ScriptedRounds) -> OpenAIModel:
    """Return the model class of each of OpenAI's APIs in turn."""
    kind = OpenAIResponsesModel if request.param == "responses" else OpenAIChatModel
    return make_model(model, kind)


def make_model(model: ScriptedRounds, kind: type[OpenAIModel] = OpenAIResponsesModel) -> OpenAIModel:
    return kind("scripted", provider=OpenAIProvider(openai_client=openai_client(model.address)))


ONE_API = pytest.mark.parametrize("own_model", ["responses"], indirect=True)
"""Marks what has nothing to do with the API of the model."""


def call(name: str, arguments: str = "{}") -> parts.Call:
    return parts.Call(name=name, arguments=arguments)


WEATHER_CALL = call("get_weather", '{"city":"Oslo"}')


def wrap(own_model: OpenAIModel, **fields: Any) -> Served:
    return wrap_agent(Agent(own_model, **{"name": "bot", "tools": [get_weather], **fields}))


def test_text_and_own_tools(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare(["One moment.", WEATHER_CALL], ["It is ", "snow."])
    served = wrap(own_model, name="Weather bot", instructions="Be kind.", system_prompt="Be wise.")
    with serve_agent(served) as client:
        response = ask(client, served, "Hi!", instructions="Be brief.")
    assert served.name == "weather-bot"
    assert summarize(response.output) == [
        ("assistant", "One moment."),
        ("call", "get_weather", '{"city":"Oslo"}'),
        ("output", "snow in Oslo"),
        ("assistant", "It is snow."),
    ]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 10)
    assert (response.usage.input_tokens_details.cached_tokens) == 4
    assert not response.warnings
    told = [model.turns[0].instructions or "", *(text for role, text, *_ in summarize(model.turns[0].items))]
    assert sorted("\n".join(told).split()) == sorted("Be wise. Be kind. Be brief. Hi!".split())


def test_a_call_of_each_side_in_one_round(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare([WEATHER_CALL, call("get_place")], ["You see snow."])
    served = wrap(own_model)
    with serve_agent(served) as client:
        first = ask(client, served, "Where am I?", tools=[PLACE])
        assert summarize(first.output) == [
            ("call", "get_weather", '{"city":"Oslo"}'),
            ("call", "get_place", "{}"),
            ("output", "snow in Oslo"),
        ]
        assert first.usage is not None
        assert first.usage.input_tokens == 10
        [place] = [item for item in first.output if isinstance(item, FunctionCall) and item.name == "get_place"]
        output = FunctionCallOutput(call_id=place.call_id, output="Oslo")
        second = ask(client, served, [output], tools=[PLACE], previous_response_id=first.id)
    assert summarize(second.output) == [("assistant", "You see snow.")]
    assert sorted(summarize(model.turns[1].items)[1:]) == sorted([*summarize(first.output), ("output", "Oslo")])


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_place"}])
def test_a_tool_choice_reaches_the_model(model: ScriptedRounds, own_model: OpenAIModel, choice: object) -> None:
    model.prepare([call("get_place")])
    served = wrap(own_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Where am I?", tools=[PLACE], tool_choice=choice)
    assert summarize(response.output) == [("call", "get_place", "{}")]
    assert model.turns[0].tool_choice != "auto"


@ONE_API
def test_a_function_that_the_agent_has_too_is_rejected(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    served = wrap(own_model)
    with serve_agent(served) as client:
        status, code, _ = ask_for_error(client, served, "Hi!", tools=[FunctionTool(name="get_weather")])
    assert (status, code) == (400, "duplicate_tool")


def test_the_answer_of_an_agent_with_an_output_tool_is_json(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare([WEATHER_CALL], [call("final_result", '{"nom":"Oslo"}')], [call("final_result", '{"name":"Oslo"}')])
    served = wrap(own_model, output_type=City)
    with serve_agent(served) as client:
        response = ask(client, served, "Where?")
    assert summarize(response.output)[2:] == [("assistant", '{"name":"Oslo"}')]


def test_native_output_is_streamed(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare(['{"name":', '"Oslo"}'])
    served = wrap(own_model, output_type=NativeOutput(City))
    with serve_agent(served) as client:
        response = ask(client, served, "Where?")
    assert response.output_text == '{"name":"Oslo"}'
    assert model.turns[0].request.text.format.type == "json_schema"


def test_the_format_of_the_request_is_that_of_an_agent_without_its_own(
    model: ScriptedRounds, own_model: OpenAIModel
) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    model.prepare([call("final_result", '{"name":"Oslo"}')])
    served = wrap(own_model)
    with serve_agent(served) as client:
        response = ask(
            client, served, "Where?", text={"format": {"type": "json_schema", "name": "city", "schema": schema}}
        )
    assert response.output_text == '{"name":"Oslo"}'
    assert not response.warnings


def test_what_the_client_sets_reaches_the_model(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare(["Hi."])
    served = wrap(own_model, model_settings={"temperature": 1.5, "top_p": 0.5})
    settings = {"temperature": 0.25, "max_output_tokens": 100, "parallel_tool_calls": False, "user": "ada"}
    with serve_agent(served) as client:
        response = ask(client, served, "Hi!", **settings, text={"verbosity": "low"})
    request = model.turns[0].request
    assert {name: getattr(request, name) for name in settings} == settings
    assert (request.top_p, request.text.verbosity) == (0.5, "low")
    assert not response.warnings


def test_what_the_model_ignores_is_a_warning(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare(["Hi."])
    served = wrap(own_model, output_type=[str, City])
    tools = [{"type": "openai:web_search"}]
    format = {"format": {"type": "json_object"}}
    with serve_agent(served) as client:
        response = ask(client, served, "Hi!", seed=1, stop=["."], max_tool_calls=3, tools=tools, text=format)
    names = [warning.param for warning in response.warnings or []]
    in_chat = isinstance(own_model, OpenAIChatModel)
    assert names == ["max_tool_calls", "text.format", *([] if in_chat else ["stop", "seed"]), "tools[0]"]
    assert model.turns[0].request.seed == (1 if in_chat else None)


def test_an_answer_at_the_limit_of_tokens_is_incomplete(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare(["One two", parts.Usage(input_tokens=1, output_tokens=16), parts.Finish("length")])
    served = wrap(own_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Count!", max_output_tokens=16)
    assert (response.status, response.output_text) == ("incomplete", "One two")


def test_no_round_begins_after_the_limit_of_tokens(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare([WEATHER_CALL, parts.Usage(output_tokens=20)], ["too much"])
    served = wrap(own_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Count!", max_output_tokens=16)
    assert response.status == "incomplete"
    assert len(model.turns) == 1


def test_a_refusal_is_an_answer(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare([parts.Refusal("I may not.")])
    served = wrap(own_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Where?")
    assert response.status == "completed"
    assert summarize(response.output) == [("assistant", "I may not.")]


def test_reasoning_comes_back_to_the_model_that_made_it(model: ScriptedRounds) -> None:
    model.prepare([parts.Reasoning(summary="Hm."), parts.Reasoning(encrypted_content="secret"), "Hi."], ["Ho."])
    profile = OpenAIModelProfile(openai_supports_encrypted_reasoning_content=True)
    provider = OpenAIProvider(openai_client=openai_client(model.address))
    served = wrap(OpenAIResponsesModel("scripted", provider=provider, profile=profile))
    with serve_agent(served) as client:
        first = ask(client, served, "Hi!", include=["reasoning.encrypted_content"])
        ask(client, served, "And?", previous_response_id=first.id)
    assert summarize(first.output) == [("reasoning", "Hm."), ("assistant", "Hi.")]
    assert ("reasoning", "Hm.") in summarize(model.turns[1].items)
    assert "secret" in [getattr(item, "encrypted_content", None) for item in model.turns[1].items]


def test_raw_reasoning_is_shown(model: ScriptedRounds) -> None:
    model.prepare([parts.Reasoning("Hm, "), parts.Reasoning("snow?"), "Hi."])
    served = wrap(make_model(model))
    with serve_agent(served) as client:
        response = ask(client, served, "Hi!")
    assert summarize(response.output) == [("reasoning", "Hm, snow?"), ("assistant", "Hi.")]


@pytest.mark.parametrize("status", [401, 429, 503])
def test_an_error_of_the_model_keeps_its_status(model: ScriptedRounds, own_model: OpenAIModel, status: int) -> None:
    model.prepare([UpstreamError("the reason", status=status)])
    served = wrap(own_model)
    with serve_agent(served) as client:
        found, _, message = ask_for_error(client, served, "Hi!")
    assert (found, message) == (status, "The agent's model failed: the reason")


def test_an_error_in_the_models_stream_fails_the_response(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare(["Well, ", UpstreamError("the reason", code="rate_limit_exceeded")])
    served = wrap(own_model)
    with serve_agent(served) as client:
        status, code, message = ask_for_error(client, served, "Hi!")
    assert (status, code) == (200, "rate_limit_exceeded")
    assert message == "The agent's model failed: the reason"


def test_models_that_all_fail_are_one_error(model: ScriptedRounds) -> None:
    model.prepare([UpstreamError("first", status=503)], [UpstreamError("second", status=429)])
    served = wrap_agent(Agent(FallbackModel(make_model(model), make_model(model)), name="bot"))
    with serve_agent(served) as client:
        status, _, message = ask_for_error(client, served, "Hi!")
    assert (status, message) == (429, "The agent's model failed: second")


@ONE_API
def test_a_limit_of_the_agent_is_a_failure_that_says_so(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare([WEATHER_CALL])
    served = wrap_agent(Agent(own_model, name="bot", tools=[get_weather]), usage_limits=UsageLimits(request_limit=1))
    with serve_agent(served) as client:
        status, code, message = ask_for_error(client, served, "Hi!")
    assert (status, code) == (200, "usage_limit_exceeded")
    assert "request_limit of 1" in message


@ONE_API
def test_a_tool_that_gives_up_is_a_failure_of_the_model(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    async def find_city() -> str:
        raise ModelRetry("Not here.")

    model.prepare([call("find_city")], [call("find_city")])
    served = wrap(own_model, tools=[find_city])
    with serve_agent(served) as client:
        status, code, message = ask_for_error(client, served, "Hi!")
    assert (status, code) == (200, "agent_error")
    assert "find_city" in message


@ONE_API
def test_a_tool_that_needs_an_approval_is_not_run(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    model.prepare([call("launch"), call("get_place")])
    agent = Agent(own_model, name="bot")

    @agent.tool_plain(requires_approval=True)
    async def launch() -> str:
        raise AssertionError

    served = wrap_agent(agent)
    with serve_agent(served) as client:
        response = ask(client, served, "Go!", tools=[PLACE])
    assert [warning.code for warning in response.warnings or []] == ["unanswered_call"]


@ONE_API
def test_the_dependencies_are_made_from_the_turn(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    async def get_user(context: RunContext[str]) -> str:
        return context.deps

    model.prepare([call("get_user")], ["Ada."])
    agent = Agent(own_model, name="bot", deps_type=str, tools=[get_user])
    served = wrap_agent(agent, deps=lambda turn: turn.metadata["user"])
    with serve_agent(served) as client:
        response = ask(client, served, "Who am I?", metadata={"user": "Ada"})
    assert ("output", "Ada") in summarize(response.output)


def test_an_image_from_a_tool_is_in_its_output(model: ScriptedRounds) -> None:
    async def draw() -> BinaryContent:
        return BinaryContent.from_data_uri(f"data:image/png;base64,{PIXEL}")

    model.prepare([call("draw")], ["A dot."], ["Yes."])
    served = wrap(make_model(model), tools=[draw])
    with serve_agent(served) as client:
        first = ask(client, served, "Draw!")
        ask(client, served, "A dot?", previous_response_id=first.id)
    [output] = [item for item in first.output if isinstance(item, FunctionCallOutput)]
    images = [part for part in output.output if isinstance(part, InputImage)]
    assert [image.image_url for image in images] == [f"data:image/png;base64,{PIXEL}"]
    assert len(model.turns) == 3


@ONE_API
def test_a_conversation_without_a_question_is_rejected(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    served = wrap(own_model)
    with serve_agent(served) as client:
        status, _, message = ask_for_error(client, served, [{"role": "assistant", "content": "Hi."}])
    assert (status, message) == (400, "There is nothing to answer; send a message.")


def test_a_tool_of_the_models_provider_is_an_item(model: ScriptedRounds) -> None:
    search = ExtensionItem.of("openai", "web_search_call", id="", action={"type": "search", "query": "snow"})
    model.prepare([search, "It snows."])
    served = wrap(make_model(model), capabilities=[NativeTool(WebSearchTool())])
    with serve_agent(served) as client:
        response = ask(client, served, "Search!")
    called, output, said = response.output
    assert isinstance(called, ExtensionItem)
    assert isinstance(output, ExtensionItem)
    assert (called.type, called.get("name")) == ("pydantic_ai:native_tool_call", "web_search")
    assert json.loads(str(called.get("arguments")))["query"] == "snow"
    assert (output.type, output.get("call_id")) == ("pydantic_ai:native_tool_call_output", called.get("call_id"))
    assert summarize([said]) == [("assistant", "It snows.")]


@pytest.mark.anyio
async def test_a_run_that_is_left_leaves_no_task_behind(model: ScriptedRounds, own_model: OpenAIModel) -> None:
    async def sleep() -> str:
        return await asyncio.sleep(600, "late")

    model.prepare([call("sleep")])
    await leave_at_first_call(wrap(own_model, tools=[sleep]))
