"""Agents of the OpenAI Agents SDK, served: what only this bridge has to get right."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents.models.interface import Model
from agents.tracing import Span, Trace, TracingProcessor, set_trace_processors, set_tracing_disabled
from agents.tracing.processors import default_processor
from pydantic import BaseModel

from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunContextWrapper,
    WebSearchTool,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from antiphon.agents.agent import Agent as Served
from antiphon.bridges.openai_agents import wrap_agent
from antiphon.protocol import parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import ExtensionItem, FunctionCall, FunctionCallOutput
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


ONE_API = pytest.mark.parametrize("sdk_model", ["responses"], indirect=True)
"""Marks what has nothing to do with the API of the model."""


def call(name: str, arguments: str = "{}") -> parts.Call:
    return parts.Call(name=name, arguments=arguments)


WEATHER_CALL = call("get_weather", '{"city":"Oslo"}')


def test_text_and_own_tools(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(["One moment.", WEATHER_CALL], ["It is ", "snow."])
    served = wrap_agent(Agent(name="Weather bot", model=sdk_model, tools=[get_weather], instructions="Be kind."))
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
    assert not response.warnings


def wrap(sdk_model: Model, **fields: Any) -> Served:
    return wrap_agent(Agent(**{"name": "bot", "model": sdk_model, "tools": [get_weather], **fields}))


def test_a_call_of_each_side_in_one_round(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([WEATHER_CALL, call("get_place")], ["You see snow."])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        first = ask(client, served, "Where am I?", tools=[PLACE])
        assert summarize(first.output) == [
            ("call", "get_weather", '{"city":"Oslo"}'),
            ("call", "get_place", "{}"),
            ("output", "snow in Oslo"),
        ]
        [place] = [item for item in first.output if isinstance(item, FunctionCall) and item.name == "get_place"]
        output = FunctionCallOutput(call_id=place.call_id, output="Oslo")
        second = ask(client, served, [output], tools=[PLACE], previous_response_id=first.id)
    assert summarize(second.output) == [("assistant", "You see snow.")]
    assert sorted(summarize(model.turns[1].items)[1:]) == sorted([*summarize(first.output), ("output", "Oslo")])


def test_a_choice_of_a_function_reaches_the_model(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([call("get_place")])
    served = wrap(sdk_model)
    choice = {"type": "function", "name": "get_place"}
    with serve_agent(served) as client:
        response = ask(client, served, "Where am I?", tools=[PLACE], tool_choice=choice)
    assert summarize(response.output) == [("call", "get_place", "{}")]
    assert getattr(model.turns[0].tool_choice, "name", None) == "get_place"


@ONE_API
def test_a_function_that_the_agent_has_too_is_rejected(model: ScriptedRounds, sdk_model: Model) -> None:
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        error = ask_for_error(client, served, "Hi!", tools=[FunctionTool(name="get_weather")])
    message = "The agent has a tool 'get_weather' of its own. Offer yours under another name."
    assert error == (400, "duplicate_tool", message)


def test_a_handoff_shows_as_a_call_and_the_next_agent_can_call_the_clients_functions(
    model: ScriptedRounds, sdk_model: Model
) -> None:
    model.prepare([call("transfer_to_guide")], [call("get_place")])
    guide = Agent(name="guide", model=sdk_model, instructions="Guide.")
    guide.handoffs = [greeter := Agent(name="greeter", model=sdk_model, handoffs=[guide])]
    served = wrap_agent(greeter)
    with serve_agent(served) as client:
        response = ask(client, served, "Where am I?", tools=[PLACE])
    assert summarize(response.output) == [
        ("call", "transfer_to_guide", "{}"),
        ("output", '{"assistant": "guide"}'),
        ("call", "get_place", "{}"),
    ]
    assert [tool.name for tool in model.turns[1].functions] == ["get_place", "transfer_to_greeter"]


@ONE_API
def test_an_agent_as_a_tool_counts_its_tokens(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([call("ask_expert", '{"input":"Snow?"}')], ["Yes."], ["Yes, it snows."])
    expert = Agent(name="expert", model=sdk_model).as_tool("ask_expert", "Ask an expert.")
    served = wrap(sdk_model, tools=[expert])
    with serve_agent(served) as client:
        response = ask(client, served, "Does it snow?")
    assert summarize(response.output)[1:] == [("output", "Yes."), ("assistant", "Yes, it snows.")]
    assert response.usage is not None
    assert response.usage.input_tokens == 30


class City(BaseModel):
    name: str


def test_the_answer_of_an_agent_with_an_output_type_is_json(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(['{"name":', '"Oslo"}'])
    served = wrap(sdk_model, output_type=City)
    with serve_agent(served) as client:
        response = ask(client, served, "Where?")
    assert response.output_text == '{"name":"Oslo"}'
    assert model.turns[0].request.text.format.type == "json_schema"


@ONE_API
def test_a_tool_may_give_the_final_answer(model: ScriptedRounds, sdk_model: Model) -> None:
    @function_tool
    async def find_city() -> City:
        return City(name="Oslo")

    model.prepare([call("find_city")])
    served = wrap(sdk_model, tools=[find_city], output_type=City, tool_use_behavior="stop_on_first_tool")
    with serve_agent(served) as client:
        response = ask(client, served, "Where?")
    assert summarize(response.output)[0] == ("call", "find_city", "{}")
    assert response.output_text == '{"name":"Oslo"}'


@pytest.mark.parametrize(
    ("format", "schema"),
    [
        ({"type": "json_schema", "name": "city", "schema": {"type": "object", "required": ["name"]}}, ["name"]),
        ({"type": "json_object"}, None),
    ],
)
def test_the_format_of_the_request_is_that_of_an_agent_without_its_own(
    model: ScriptedRounds, sdk_model: Model, format: dict[str, object], schema: object
) -> None:
    model.prepare(['{"name":"Oslo"}'])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Where?", text={"format": format})
    assert response.output_text == '{"name":"Oslo"}'
    wanted = model.turns[0].request.text.format
    assert wanted.type == "json_schema"
    assert (wanted.schema or {}).get("required") == schema
    assert not response.warnings


def test_what_the_client_sets_reaches_the_model(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(["Hi."])
    served = wrap(sdk_model, model_settings=ModelSettings(temperature=1.5, top_p=0.5))
    settings = {"temperature": 0.25, "max_output_tokens": 100, "parallel_tool_calls": False, "user": "ada"}
    reasoning = {"effort": "low"}
    with serve_agent(served) as client:
        ask(client, served, "Hi!", **settings, reasoning=reasoning, text={"verbosity": "low"}, top_logprobs=2)
    request = model.turns[0].request
    assert {name: getattr(request, name) for name in settings} == settings
    assert (request.top_p, request.text.verbosity, request.top_logprobs) == (0.5, "low", 2)
    assert request.reasoning is not None
    assert request.reasoning.effort == "low"


def test_what_the_sdk_cannot_carry_is_a_warning(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(["Hi."])
    served = wrap(sdk_model)
    tools = [{"type": "openai:web_search"}]
    with serve_agent(served) as client:
        response = ask(client, served, "Hi!", seed=1, stop=["."], presence_penalty=1.0, max_tool_calls=3, tools=tools)
    names = [warning.param for warning in response.warnings or []]
    in_chat = isinstance(sdk_model, OpenAIChatCompletionsModel)
    assert names == [*([] if in_chat else ["presence_penalty"]), "max_tool_calls", "stop", "seed", "tools[0]"]
    assert model.turns[0].request.presence_penalty == (1.0 if in_chat else None)


def test_an_answer_at_the_limit_of_tokens_is_incomplete(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(["One two", parts.Usage(input_tokens=1, output_tokens=16), parts.Finish("length")])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Count!", max_output_tokens=16)
    assert (response.status, response.output_text) == ("incomplete", "One two")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_no_round_begins_after_the_limit_of_tokens(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([WEATHER_CALL, parts.Usage(output_tokens=20)], ["too much"])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        response = ask(client, served, "Count!", max_output_tokens=16)
    assert response.status == "incomplete"
    assert summarize(response.output)[1:] == [("output", "snow in Oslo")]
    assert len(model.turns) == 1


def test_a_refusal_is_an_answer(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([parts.Refusal("I may not.")])
    served = wrap(sdk_model, output_type=City)
    with serve_agent(served) as client:
        response = ask(client, served, "Where?")
    assert response.status == "completed"
    assert summarize(response.output) == [("assistant", "I may not.")]


def test_reasoning_comes_back_to_the_model_that_made_it(model: ScriptedRounds) -> None:
    model.prepare([parts.Reasoning(summary="Hm."), parts.Reasoning(encrypted_content="secret"), "Hi."], ["Ho."])
    sdk_model = OpenAIResponsesModel(model="scripted", openai_client=openai_client(model.address))
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        first = ask(client, served, "Hi!", include=["reasoning.encrypted_content"])
        ask(client, served, "And?", previous_response_id=first.id)
    assert summarize(first.output) == [("reasoning", "Hm."), ("assistant", "Hi.")]
    assert summarize(model.turns[1].items) == [
        ("user", "Hi!"),
        ("reasoning", "Hm."),
        ("assistant", "Hi."),
        ("user", "And?"),
    ]
    assert getattr(model.turns[1].items[1], "encrypted_content", None) == "secret"


@pytest.mark.parametrize("status", [401, 429, 503])
def test_an_error_of_the_model_keeps_its_status(model: ScriptedRounds, sdk_model: Model, status: int) -> None:
    model.prepare([UpstreamError("the reason", status=status)])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        found, _, message = ask_for_error(client, served, "Hi!")
    assert (found, message) == (status, "The agent's model failed: the reason")


def test_an_error_in_the_models_stream_fails_the_response(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare(["Well, ", UpstreamError("the reason", code="rate_limit_exceeded")])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        status, code, message = ask_for_error(client, served, "Hi!")
    assert (status, code) == (200, "rate_limit_exceeded")
    assert message.startswith("The agent's model")
    assert message.endswith(": the reason")


@ONE_API
def test_too_many_turns_are_a_failure_that_says_so(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([WEATHER_CALL], [WEATHER_CALL])
    served = wrap_agent(Agent(name="bot", model=sdk_model, tools=[get_weather]), max_turns=1)
    with serve_agent(served) as client:
        error = ask_for_error(client, served, "Hi!")
    assert error == (200, "max_turns_exceeded", "The agent failed: Max turns (1) exceeded")


@ONE_API
def test_an_unknown_tool_is_a_failure_of_the_model(model: ScriptedRounds, sdk_model: Model) -> None:
    model.prepare([call("fly")])
    served = wrap(sdk_model)
    with serve_agent(served) as client:
        _, code, message = ask_for_error(client, served, "Hi!")
    assert (code, message) == ("agent_error", "The agent failed: Tool fly not found in agent bot")


@input_guardrail(run_in_parallel=False)
async def reject_input(_context: Any, _agent: Any, _input: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


@output_guardrail
async def reject_output(_context: Any, _agent: Any, _output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


@ONE_API
def test_a_guardrail_says_what_it_rejects(model: ScriptedRounds, sdk_model: Model) -> None:
    served = wrap(sdk_model, input_guardrails=[reject_input])
    with serve_agent(served) as client:
        error = ask_for_error(client, served, "Hi!")
    assert error == (400, "content_filter", "The guardrail 'reject_input' rejected the input.")
    model.prepare(["Hi."])
    served = wrap(sdk_model, output_guardrails=[reject_output])
    with serve_agent(served) as client:
        error = ask_for_error(client, served, "Hi!")
    assert error == (200, "content_filter", "The guardrail 'reject_output' rejected the answer.")


@ONE_API
def test_a_tool_that_needs_an_approval_is_not_run(model: ScriptedRounds, sdk_model: Model) -> None:
    @function_tool(needs_approval=True)
    async def launch() -> str:
        raise AssertionError

    model.prepare([call("launch")])
    served = wrap(sdk_model, tools=[launch])
    with serve_agent(served) as client:
        response = ask(client, served, "Go!")
    assert [warning.code for warning in response.warnings or []] == ["unanswered_call"]


@ONE_API
def test_the_context_is_made_from_the_turn(model: ScriptedRounds, sdk_model: Model) -> None:
    @function_tool
    async def get_user(wrapper: RunContextWrapper[str]) -> str:
        return wrapper.context

    model.prepare([call("get_user")], ["Ada."])
    agent = Agent[str](name="bot", model=sdk_model, tools=[get_user])
    served = wrap_agent(agent, context=lambda turn: turn.metadata["user"])
    with serve_agent(served) as client:
        response = ask(client, served, "Who am I?", metadata={"user": "Ada"})
    assert ("output", "Ada") in summarize(response.output)


def test_a_tool_of_the_models_provider_is_an_item(model: ScriptedRounds) -> None:
    search = ExtensionItem.of("openai", "web_search_call", id="", action={"type": "search", "query": "snow"})
    model.prepare([search, "It snows."], ["Yes."])
    sdk_model = OpenAIResponsesModel(model="scripted", openai_client=openai_client(model.address))
    served = wrap(sdk_model, tools=[WebSearchTool()])
    with serve_agent(served) as client:
        first = ask(client, served, "Search!")
        ask(client, served, "Sure?", previous_response_id=first.id)
    assert summarize(first.output) == [("openai:web_search_call",), ("assistant", "It snows.")]
    assert summarize(model.turns[1].items)[1:3] == summarize(first.output)


class TraceRecorder(TracingProcessor):
    """Records the names of traces."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.names.append(trace.name)

    def on_trace_end(self, trace: Trace) -> None: ...

    def on_span_start(self, span: Span[Any]) -> None: ...

    def on_span_end(self, span: Span[Any]) -> None: ...

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


def test_traces_are_made_only_if_the_program_wants_them(model: ScriptedRounds) -> None:
    sdk_model = OpenAIResponsesModel(model="scripted", openai_client=openai_client(model.address))
    recorder = TraceRecorder()
    untraced = wrap(sdk_model)
    set_trace_processors([recorder])
    set_tracing_disabled(False)
    try:
        for served, names in [(untraced, []), (wrap(sdk_model), ["Agent workflow"])]:
            model.prepare(["Hi."])
            with serve_agent(served) as client:
                ask(client, served, "Hi!")
            assert recorder.names == names
    finally:
        set_tracing_disabled(True)  # as other tests of this process want it
        set_trace_processors([default_processor()])


@pytest.mark.anyio
async def test_a_run_that_is_left_leaves_no_task_behind(model: ScriptedRounds, sdk_model: Model) -> None:
    @function_tool
    async def sleep() -> str:
        return await asyncio.sleep(600, "late")

    model.prepare([call("sleep")])
    await leave_at_first_call(wrap(sdk_model, tools=[sleep]))
