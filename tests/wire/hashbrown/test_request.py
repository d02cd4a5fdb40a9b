"""Hashbrown requests: conversion to a Request, and errors with Hashbrown's parameters."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, InputText, Item, Message, OutputText, Reasoning
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat, Request, TextConfig
from antiphon.protocol.tools import FunctionTool, Tool
from antiphon.wire.hashbrown.request import HashbrownRequest, Json, assistant_message, continue_thread, decode_hashbrown

SCHEMA: Json = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
HI: Json = {"role": "user", "content": "hi"}
CALL: Json = {
    "id": "call_1",
    "index": 0,
    "type": "function",
    "function": {"name": "getWeather", "arguments": '{"city":"Paris"}'},
}
CALLED: Json = {"role": "assistant", "content": "", "toolCalls": [CALL]}
VALUE = {"status": "fulfilled", "value": {"city": "Paris", "temp": 72}}
GIVEN: Json = {"role": "tool", "content": VALUE, "toolCallId": "call_1", "toolName": "getWeather"}


def body(**fields: Any) -> Json:
    """Return a request as the published client sends it."""
    least = {"operation": "generate", "model": "m", "system": "", "messages": [HI], "tools": []}
    return least | fields


def decode_request(saved: list[Json] | None = None, **fields: Any) -> HashbrownRequest:
    """Return a decoded request that continues a thread."""
    return continue_thread(*decode_hashbrown(body(**fields)), saved or [])


def items(*messages: Json, saved: list[Json] | None = None) -> list[Item]:
    """Return the items of some messages."""
    return decode_request(saved, messages=list(messages)).request.input


def user(text: str) -> Message:
    """Return a user message item."""
    return Message(role="user", content=[InputText(text=text)])


def model(text: str) -> Message:
    """Return an assistant message item."""
    return Message(role="assistant", content=[OutputText(text=text)])


def test_every_field_is_converted() -> None:
    tool = {"name": "getWeather", "description": "Tells.", "parameters": SCHEMA}
    decoded = decode_request(system="Be terse.", tools=[tool], toolChoice="required", responseFormat=SCHEMA)
    offered: list[Tool] = [FunctionTool(name="getWeather", description="Tells.", parameters=SCHEMA)]
    schema = JsonSchemaFormat(name="schema", schema=SCHEMA, strict=True)
    assert decoded.request == Request(
        model="m",
        input=[user("hi")],
        instructions="Be terse.",
        tools=offered,
        tool_choice="required",
        text=TextConfig(format=schema),
        stream=True,
        store=False,
    )
    assert decoded.client_functions == {"getWeather"}
    assert list(decoded.warnings) == []


def test_a_minimal_request() -> None:
    decoded = continue_thread(*decode_hashbrown({"model": "m", "messages": [HI]}), [])
    assert decoded.request == Request(model="m", input=[user("hi")], stream=True, store=False)


def test_json_mode_asks_for_any_json_object() -> None:
    decoded = decode_request(responseFormat=SCHEMA, responseFormatMode="json")
    assert decoded.request.text.format == JsonObjectFormat()
    assert decode_request(responseFormat=SCHEMA, responseFormatMode="schema").request.text.format.type == (
        "json_schema"
    )


def test_null_is_the_same_as_absent() -> None:
    fields = ("responseFormat", "responseFormatMode", "toolChoice", "tools", "threadId", "system")
    assert decode_request(**dict.fromkeys(fields)).request == decode_request().request


def test_an_unknown_field_is_dropped_with_a_warning() -> None:
    decoded = decode_request(ui=True, temperature=0.5, nothing=None)
    assert [(warning.code, warning.param) for warning in decoded.warnings] == [
        ("unused_parameter", "ui"),
        ("unused_parameter", "temperature"),
    ]
    assert decoded.request == decode_request().request


def test_a_call_and_its_output() -> None:
    assert items(HI, CALLED, GIVEN) == [
        user("hi"),
        FunctionCall(call_id="call_1", name="getWeather", arguments='{"city":"Paris"}'),
        FunctionCallOutput(call_id="call_1", output='{"status":"fulfilled","value":{"city":"Paris","temp":72}}'),
    ]


def test_text_comes_before_the_calls_of_its_message() -> None:
    user_text = CALLED | {"content": "Let me see."}
    assert [item.type for item in items(HI, user_text, GIVEN)] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]


@pytest.mark.parametrize(
    ("content", "output"),
    [({"status": "fulfilled"}, '{"status":"fulfilled"}'), ("plain", "plain"), (None, ""), ([1, 2], "[1,2]")],
)
def test_a_tool_result_is_encoded_as_json(content: object, output: str) -> None:
    *_, given_back = items(HI, CALLED, GIVEN | {"content": content})
    assert given_back == FunctionCallOutput(call_id="call_1", output=output)


def test_content_that_is_not_text_is_encoded_as_json() -> None:
    call = CALL | {"function": {"name": "f", "arguments": {"a": 1}}}
    bare = CALL | {"id": "call_2", "function": {"name": "g"}}
    user_text: list[Json] = [
        {"role": "user", "content": {"a": [1]}},
        {"role": "assistant", "content": ["x"], "toolCalls": [call, bare]},
    ]
    assert items(*user_text) == [
        user('{"a":[1]}'),
        model('["x"]'),
        FunctionCall(call_id="call_1", name="f", arguments='{"a":1}'),
        FunctionCall(call_id="call_2", name="g", arguments="{}"),
    ]


def test_error_messages_are_skipped() -> None:
    error: Json = {"role": "error", "content": "Failed."}
    empty: Json = {"role": "assistant", "content": ""}
    assert items(HI, error, empty, {"role": "assistant"}, HI) == [user("hi"), user("hi")]


def test_a_repeated_call_id_is_made_unique() -> None:
    decoded = items(HI, CALLED, GIVEN, CALLED, GIVEN | {"content": "again"})
    calls = [item.call_id for item in decoded if isinstance(item, FunctionCall)]
    outputs = [item.call_id for item in decoded if isinstance(item, FunctionCallOutput)]
    assert calls == outputs == ["call_1", "call_1_2"]


def test_encrypted_reasoning_returns_to_its_position() -> None:
    thought = {"before_text": ["1"], "before_call": ["2", "3"]}
    call = CALL | {"metadata": {"antiphon": thought}}
    decoded = items(HI, {"role": "assistant", "content": "So.", "toolCalls": [call]}, GIVEN)
    assert decoded[1:5] == [
        Reasoning(encrypted_content="1"),
        model("So."),
        Reasoning(encrypted_content="2"),
        Reasoning(encrypted_content="3"),
    ]


def test_other_metadata_is_accepted_with_a_warning() -> None:
    call = CALL | {"metadata": {"google": {"thoughtSignature": "x"}}}
    decoded = decode_request(messages=[HI, CALLED | {"toolCalls": [call]}, GIVEN])
    assert [warning.param for warning in decoded.warnings] == ["messages[1].toolCalls[0].metadata"]


def test_a_request_continues_its_thread() -> None:
    decoded = decode_request([HI, CALLED], messages=[GIVEN])
    assert decoded.request.input == items(HI, CALLED, GIVEN)
    assert decoded.messages == [HI, CALLED, GIVEN]
    assert list(decoded.item_paths) == ["threadId", "threadId.toolCalls[0]", "messages[0]"]


def test_overlapping_messages_are_included_once() -> None:
    bye: Json = {"role": "user", "content": "bye"}
    decoded = decode_request([HI, CALLED, GIVEN], messages=[CALLED, GIVEN, bye])
    assert decoded.messages == [HI, CALLED, GIVEN, bye]
    assert decoded.item_paths[-1] == "messages[2]"
    assert decoded.request.input == items(HI, CALLED, GIVEN, bye)


def test_our_metadata_does_not_affect_the_overlap() -> None:
    call = FunctionCall(call_id="call_1", name="f", arguments="{}")
    stored = assistant_message([Reasoning(encrypted_content="1"), call])
    known = assistant_message([call])
    decoded = decode_request([HI, stored], messages=[HI, known, GIVEN])
    assert decoded.messages == [HI, stored, GIVEN]
    assert Reasoning(encrypted_content="1") in decoded.request.input


def test_a_thread_with_invalid_messages_is_rejected() -> None:
    with pytest.raises(RequestError, match="contains an invalid message") as caught:
        decode_request([{"role": "wizard"}])
    assert caught.value.payload.param == "threadId"


MESSAGES = st.lists(st.sampled_from([HI, CALLED, {"role": "assistant", "content": "a"}]))


@given(MESSAGES, MESSAGES)
def test_a_thread_and_new_messages_are_one_conversation(saved: list[Json], new: list[Json]) -> None:
    decoded = decode_request(saved, messages=new)
    whole = decode_request(messages=list(decoded.messages))
    assert decoded.request == whole.request
    assert len(decoded.item_paths) == len(decoded.request.input)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "invalid_value"),
        ({"model": ""}, "model", "invalid_value"),
        ({"model": {"spec": 1}}, "model", "invalid_value"),
        ({"messages": None}, "messages", "invalid_value"),
        ({"messages": [1]}, "messages[0]", "invalid_value"),
        ({"messages": [{}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"operation": "dance"}, "operation", "invalid_value"),
        ({"system": 1}, "system", "invalid_value"),
        ({"tools": [{"name": "a b"}]}, "tools[0].name", "invalid_value"),
        ({"tools": [{"name": "f", "parameters": 1}]}, "tools[0].parameters", "invalid_value"),
        ({"toolChoice": "maybe"}, "toolChoice", "invalid_value"),
        ({"responseFormat": "json"}, "responseFormat", "invalid_value"),
        ({"responseFormatMode": "xml"}, "responseFormatMode", "invalid_value"),
        ({"threadId": ""}, "threadId", "invalid_value"),
        (
            {"messages": [CALLED | {"toolCalls": [{"id": "x"}]}]},
            "messages[0].toolCalls[0].function",
            "missing_required_parameter",
        ),
        ({"messages": [HI, {"role": "tool", "content": "x"}]}, "messages[1].toolCallId", "missing_required_parameter"),
        ({"messages": [HI, GIVEN]}, "messages[1].toolCallId", "function_call_not_found"),
    ],
)
def test_an_invalid_field_is_rejected_with_its_path(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_request(**fields)
    payload = caught.value.payload
    assert (payload.type, payload.param, payload.code) == ("invalid_request", param, code)


def test_a_body_that_is_not_an_object_is_rejected() -> None:
    with pytest.raises(RequestError, match="expected an object"):
        decode_hashbrown([])


def test_our_parameters_are_translated_to_hashbrowns() -> None:
    decoded = decode_request(messages=[HI, CALLED, GIVEN])
    assert [decoded.param_name(param) for param in PARAMS] == list(PARAMS.values())


PARAMS = {
    "input": "messages",
    "input[0].content[0]": "messages[0]",
    "input[1].arguments": "messages[1].toolCalls[0]",
    "input[9]": "input[9]",
    "instructions": "system",
    "tool_choice": "toolChoice",
    "text.format.schema": "responseFormat",
    "tools[0].parameters": "tools[0].parameters",
    "model": "model",
}
