"""JSON output by a tool call, validated against the client's schema."""

import json
from typing import Any

import pytest

from antiphon.adapters.base import Capabilities
from antiphon.adapters.json_via_tool import find_mismatch
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.writer import Writer
from antiphon.engine.run import ToolChoiceFilter
from antiphon.protocol.items import FunctionCall, Message, RefusalContent
from antiphon.protocol.response import Response
from tests.adapters.run_adapter import (
    EncodedRequest,
    decode_parts,
    decode_response,
    encode_request,
    make_adapter,
    synthesize,
)
from tests.adapters.scenes import TIME, TOOL, openai
from tests.adapters.scenes import writer as script
from tests.adapters.scenes.openai import call, call_start, calls
from tests.scripted_upstream import json_answer, scripted_upstream

WRITER = make_adapter(Writer)
JSON: dict[str, Any] = {"text": {"format": {"type": "json_object"}}}
SIZES = [0, 1, 90]


def decode_deltas(*deltas: dict, pieces: int = 0, **fields: Any) -> Response:
    """Return the response to what a model without a JSON mode says, asked for JSON."""
    asking = encode_request(WRITER, stream=True, **JSON | fields)
    return decode_response(asking, script.stream(*deltas), pieces=pieces)


def answer_call(arguments: str) -> dict:
    """Write the answer's tool being called."""
    return calls(call_start(0, "a", "final_answer", arguments))


@pytest.mark.parametrize("pieces", SIZES)
def test_an_answer_that_is_wrong_has_failed_and_is_paid_for(pieces: int) -> None:
    response = decode_deltas(answer_call("[1]"), pieces=pieces)
    assert response.status == "failed"
    assert response.error
    assert response.error.code == "invalid_structured_output"
    assert response.output_text == "[1]"
    assert response.usage
    assert response.usage.output_tokens > 0


@pytest.mark.parametrize("pieces", SIZES)
def test_arguments_that_are_none_are_an_empty_object(pieces: int) -> None:
    response = decode_deltas(answer_call(""), pieces=pieces)
    assert (response.status, response.output_text) == ("completed", "{}")


def test_a_whole_answer_is_judged_too() -> None:
    message = {"tool_calls": [call("a", "final_answer", "[1]")]}
    asking = encode_request(WRITER, **JSON)
    response = decode_response(asking, script.whole(message, "tool_calls"), stream=False)
    assert (response.status, response.output_text) == ("failed", "[1]")


@pytest.mark.parametrize("pieces", SIZES)
def test_an_answer_beside_a_call_is_validated_too(pieces: int) -> None:
    both = calls(call_start(0, "a", "final_answer", "[1]"), call_start(1, "b", "weather", "{}"))
    assert decode_deltas(both, pieces=pieces, tools=[TOOL]).status == "failed"


@pytest.mark.parametrize("pieces", SIZES)
def test_text_before_the_answer_call_is_dropped(pieces: int) -> None:
    deltas = ({"content": "Let me see."}, calls(call_start(0, "b", "weather", "{}")))
    answer = calls(call_start(1, "a", "final_answer", '{"x":1}'))
    response = decode_deltas(*deltas, answer, pieces=pieces, tools=[TOOL])
    kinds = [type(item) for item in response.output]
    assert (response.status, kinds) == ("completed", [Message, FunctionCall, Message])
    assert json.loads(response.output[-1].content[0].text) == {"x": 1}  # type: ignore[union-attr]


@pytest.mark.parametrize("pieces", SIZES)
def test_a_custom_tool_may_be_called_instead(pieces: int) -> None:
    asking = encode_request(
        make_adapter(OpenAI),
        stream=True,
        capabilities=Capabilities(lacks=frozenset({"json_object"})),
        tools=[{"type": "custom", "name": "patch"}],
        **JSON,
    )
    called = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "+1"}}
    said = {"content": "Let me see."}
    response = decode_response(asking, openai.stream(said, calls(called)), pieces=pieces)
    assert (response.status, response.output_text) == ("completed", "Let me see.")
    assert response.output[-1].type == "openai:custom_tool_call"


ONE: list[dict[str, Any]] = [{"type": "function", "name": "weather"}]
ANSWER = {"type": "function", "function": {"name": "final_answer"}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_the_answer_is_one_of_the_tools_that_may_be_called(mode: str) -> None:
    asking = encode_without_schema(tools=[TOOL, TIME], tool_choice=allowed_tools(mode))
    tools = [{"type": "function", "function": {"name": "weather"}}, ANSWER]
    assert asking.body["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": tools},
    }
    assert [tool_name(tool) for tool in asking.body["tools"]] == ["weather", "time", "final_answer"]


def test_the_answer_is_the_only_tool_where_none_of_the_others_may_be_called() -> None:
    asking = encode_without_schema(tools=[TOOL, TIME], tool_choice=allowed_tools("none"))
    assert asking.body["tool_choice"] == ANSWER
    assert [tool_name(tool) for tool in asking.body["tools"]] == ["final_answer"]


@pytest.mark.parametrize("mode", ["auto", "required", "none"])
def test_the_tool_choice_filter_passes_the_answer(mode: str) -> None:
    asking = encode_without_schema(tools=[TOOL, TIME], tool_choice=allowed_tools(mode), stream=True)
    guard = ToolChoiceFilter.for_request(asking.prompt.request)
    assert guard
    passed = guard.filter(decode_parts(asking, openai.stream(answer_call('{"x":1}'))))
    response = synthesize(asking, passed)[1]
    assert (response.status, response.output_text) == ("completed", '{"x":1}')
    assert not response.warnings


def encode_without_schema(**fields: Any) -> EncodedRequest:
    """Ask OpenAI for JSON of a model that has no JSON mode."""
    lacks = Capabilities(lacks=frozenset({"json_object"}))
    return encode_request(make_adapter(OpenAI), capabilities=lacks, **JSON | fields)


def allowed_tools(mode: str) -> dict[str, Any]:
    """Allow one tool."""
    return {"type": "allowed_tools", "mode": mode, "tools": ONE}


def tool_name(tool: dict) -> str:
    """Return a tool's name."""
    return tool["function"]["name"]


@pytest.mark.parametrize("pieces", SIZES)
def test_a_refusal_is_an_answer(pieces: int) -> None:
    response = decode_deltas({"refusal": "No."}, pieces=pieces)
    (message,) = response.output
    assert response.status == "completed"
    assert isinstance(message, Message)
    assert message.content == [RefusalContent(refusal="No.")]


@pytest.mark.parametrize("pieces", SIZES)
def test_text_is_kept_when_the_answer_breaks_off(pieces: int) -> None:
    asking = encode_request(WRITER, stream=True, **JSON)
    said = script.stream({"content": "Part"}).split(b"\n\n")[:2]
    broken = b"\n\n".join([*said, b'data: {"error":{"message":"Oh."}}', b""])
    response = decode_response(asking, broken, pieces=pieces)
    assert (response.status, response.output_text) == ("failed", "Part")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "{}/x.json"}}},
        {"$schema": "{}/x.json"},
        {"$id": "{}/y.json", "properties": {"a": {"$ref": "x.json"}}},
        {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
    ],
)
def test_nothing_is_fetched_for_a_schema(schema: dict[str, object]) -> None:
    with scripted_upstream(json_answer({"type": "string"})) as server:
        placed = nest_reference(schema, server.url)
        assert isinstance(placed, dict)
        assert find_mismatch('{"a": 1}', placed) is None  # what cannot be read demands nothing
        assert server.connections == 0


def nest_reference(value: object, url: str) -> object:
    """Put an address into a schema."""
    if isinstance(value, dict):
        return {name: nest_reference(inner, url) for name, inner in value.items()}
    return value.replace("{}", url) if isinstance(value, str) else value


def test_a_schema_may_refer_to_itself() -> None:
    schema: dict[str, object] = {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "string"}}}
    assert find_mismatch('{"a": "x"}', schema) is None
    assert find_mismatch('{"a": 1}', schema) == 'a: 1 is not of type "string"'


def test_half_a_character_is_mended_before_it_is_checked() -> None:
    assert find_mismatch('{"a": "\ud800"}', {"type": "object"}) is None
    assert find_mismatch('{"a": "\ud800"}', {"type": "array"}) is not None


def test_advice_for_clients_is_not_given_about_a_models_answer() -> None:
    assert find_mismatch("{", {}) == "Invalid JSON: it ends too early, or inside a surrogate pair (byte 1)."
