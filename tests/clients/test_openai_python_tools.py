"""Tools, with the real openai-python."""

import json

from openai import OpenAI, pydantic_function_tool
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall, ResponseInputParam
from pydantic import BaseModel

from tests.clients.openai_events import BEGIN_EVENTS, HELLO, output_as_input


class GetWeather(BaseModel):
    """Look out of a window somewhere."""

    location: str


WEATHER = FunctionToolParam(
    type="function",
    name="get_weather",
    description="Look out of a window somewhere.",
    parameters={
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
        "additionalProperties": False,
    },
    strict=True,
)
CLOCK = FunctionToolParam(
    type="function",
    name="read_clock",
    parameters={
        "type": "object",
        "properties": {"zone": {"type": "string", "enum": ["UTC"]}},
        "required": ["zone"],
        "additionalProperties": False,
    },
    strict=True,
)


def test_a_tool_is_called_and_its_output_sent_back(client: OpenAI) -> None:
    asked: ResponseInputParam = [{"role": "user", "content": "How is the weather in Oslo?"}]
    first = client.responses.create(model="demo", input=asked, tools=[WEATHER])
    (call,) = first.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.status) == ("get_weather", "completed")
    GetWeather.model_validate_json(call.arguments)
    second = client.responses.create(
        model="demo",
        input=[
            *asked,
            *output_as_input(first),
            {"type": "function_call_output", "call_id": call.call_id, "output": "Snow, -3 °C"},
        ],
        tools=[WEATHER],
    )
    assert second.output_text == "get_weather says: Snow, -3 °C"


def test_a_call_streams_its_arguments(client: OpenAI) -> None:
    pieces: list[str] = []
    with client.responses.stream(model="demo", input="The weather?", tools=[WEATHER]) as stream:
        types: list[str] = []
        for event in stream:
            types.append(event.type)
            if event.type == "response.function_call_arguments.delta":
                pieces.append(event.delta)
                assert event.snapshot == "".join(pieces)
        (call,) = stream.get_final_response().output
    assert len(pieces) > 1
    assert types == [
        *BEGIN_EVENTS,
        "response.output_item.added",
        *["response.function_call_arguments.delta"] * len(pieces),
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert isinstance(call, ResponseFunctionToolCall)
    assert call.arguments == "".join(pieces)


def test_every_tool_is_called_in_parallel(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input="USE_TOOLS", tools=[WEATHER, CLOCK]) as stream:
        final = stream.get_final_response()
    calls = [item for item in final.output if isinstance(item, ResponseFunctionToolCall)]
    assert [call.name for call in calls] == ["get_weather", "read_clock"]
    assert len({call.call_id for call in calls}) == len({call.id for call in calls}) == 2
    assert json.loads(calls[1].arguments) == {"zone": "UTC"}
    outputs: ResponseInputParam = [
        {"type": "function_call_output", "call_id": call.call_id, "output": call.name.upper()} for call in calls
    ]
    answer = client.responses.create(
        model="demo",
        input=[{"role": "user", "content": "USE_TOOLS"}, *output_as_input(final), *outputs],
        tools=[WEATHER, CLOCK],
    )
    assert answer.output_text == "get_weather says: GET_WEATHER\nread_clock says: READ_CLOCK"


def test_parallel_calls_can_be_disabled(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo", input="USE_TOOLS", tools=[WEATHER, CLOCK], parallel_tool_calls=False
    )
    assert [item.type for item in response.output] == ["function_call"]
    assert response.parallel_tool_calls is False


def test_a_tool_choice_is_obeyed(client: OpenAI) -> None:
    forced = client.responses.create(
        model="demo", input="Hello!", tools=[WEATHER, CLOCK], tool_choice={"type": "function", "name": "read_clock"}
    )
    (call,) = forced.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert call.name == "read_clock"
    none = client.responses.create(model="demo", input="The weather?", tools=[WEATHER], tool_choice="none")
    assert [item.type for item in none.output] == ["message"]


def test_parse_returns_typed_arguments(client: OpenAI) -> None:
    # The tool is made for chat completions; `parse` and `stream` turn it into their own form.
    tool = pydantic_function_tool(GetWeather, name="get_weather")
    response = client.responses.parse(model="demo", input="The weather?", tools=[tool])  # pyright: ignore[reportArgumentType]
    with client.responses.stream(model="demo", input="The weather?", tools=[tool]) as stream:  # pyright: ignore[reportArgumentType]
        final = stream.get_final_response()
    for answer in (response, final):
        (call,) = answer.output
        assert call.type == "function_call"
        assert isinstance(call.parsed_arguments, GetWeather)


def test_hosted_tools_are_dropped_with_a_warning(openai: OpenAI, spec: OpenAI) -> None:
    for client, slug in ((openai, ""), (spec, "openai:")):
        response = client.responses.create(
            model="demo", input="Hello!", tools=[{"type": "web_search"}, {"type": "custom", "name": "sql"}, CLOCK]
        )
        assert response.output_text == HELLO
        types = [tool.type for tool in response.tools]
        assert types == [f"{slug}web_search", f"{slug}custom", "function"]
        warnings = (response.model_extra or {})["antiphon:warnings"]
        assert [warning["param"] for warning in warnings] == ["tools[0]", "tools[1]"]
