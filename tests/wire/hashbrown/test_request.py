"""Hashbrown's requests: what each field and message becomes, and where what is wrong is blamed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.content import InputText, OutputText
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.request import (
    JsonObjectFormat,
    JsonSchemaFormat,
    Request,
    TextConfig,
)
from antiphon.protocol.tools import FunctionTool, Tool
from antiphon.wire.hashbrown.request import HashbrownRequest, decode_hashbrown
from antiphon.wire.hashbrown.threads import Json, assistant_message

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


def talk(saved: list[Json] | None = None, **fields: Any) -> HashbrownRequest:
    """Return a request understood."""
    return decode_hashbrown(body(**fields)).continue_thread(saved or [])


def items(*messages: Json, saved: list[Json] | None = None) -> list[Item]:
    """Return the items that some messages become."""
    return talk(saved, messages=list(messages)).request.input


def user(text: str) -> Message:
    """Return what the user said."""
    return Message(role="user", content=[InputText(text=text)])


def model(text: str) -> Message:
    """Return what the model said."""
    return Message(role="assistant", content=[OutputText(text=text)])


# --- what is asked for -----------------------------------------------------------------------


def test_a_request_says_the_same_in_our_words() -> None:
    tool = {"name": "getWeather", "description": "Tells.", "parameters": SCHEMA}
    made = talk(system="Be terse.", tools=[tool], toolChoice="required", responseFormat=SCHEMA)
    offered: list[Tool] = [FunctionTool(name="getWeather", description="Tells.", parameters=SCHEMA)]
    schema = JsonSchemaFormat(name="schema", schema=SCHEMA, strict=True)
    assert made.request == Request(
        model="m",
        input=[user("hi")],
        instructions="Be terse.",
        tools=offered,
        tool_choice="required",
        text=TextConfig(format=schema),
        stream=True,
        store=False,
    )
    assert made.client_functions == {"getWeather"}
    assert list(made.warnings) == []


def test_the_least_there_is_to_say() -> None:
    made = decode_hashbrown({"model": "m", "messages": [HI]}).continue_thread([])
    assert made.request == Request(model="m", input=[user("hi")], stream=True, store=False)


def test_any_json_is_wanted_without_the_schema() -> None:
    made = talk(responseFormat=SCHEMA, responseFormatMode="json")
    assert made.request.text.format == JsonObjectFormat()
    assert talk(responseFormat=SCHEMA, responseFormatMode="schema").request.text.format.type == (
        "json_schema"
    )


def test_null_is_the_same_as_nothing() -> None:
    fields = ("responseFormat", "responseFormatMode", "toolChoice", "tools", "threadId", "system")
    assert talk(**dict.fromkeys(fields)).request == talk().request


def test_a_field_that_nobody_reads_is_warned_of_and_reaches_no_model() -> None:
    made = talk(ui=True, temperature=0.5, nothing=None)
    assert [(warning.code, warning.param) for warning in made.warnings] == [
        ("unused_parameter", "ui"),
        ("unused_parameter", "temperature"),
    ]
    assert made.request == talk().request


# --- messages --------------------------------------------------------------------------------


def test_a_call_and_what_came_of_it() -> None:
    assert items(HI, CALLED, GIVEN) == [
        user("hi"),
        FunctionCall(call_id="call_1", name="getWeather", arguments='{"city":"Paris"}'),
        FunctionCallOutput(
            call_id="call_1",
            output='{"status":"fulfilled","value":{"city":"Paris","temp":72}}',
        ),
    ]


def test_words_beside_a_call_come_before_it() -> None:
    said = CALLED | {"content": "Let me see."}
    assert [item.type for item in items(HI, said, GIVEN)] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ({"status": "rejected", "reason": {}}, '{"status":"rejected","reason":{}}'),
        ({"status": "fulfilled"}, '{"status":"fulfilled"}'),
        ("plain", "plain"),
        (None, ""),
        ([1, 2], "[1,2]"),
    ],
)
def test_what_a_tool_gave_back_is_read_as_json(content: object, output: str) -> None:
    *_, given_back = items(HI, CALLED, GIVEN | {"content": content})
    assert given_back == FunctionCallOutput(call_id="call_1", output=output)


def test_what_is_no_text_is_written_as_json() -> None:
    call = CALL | {"function": {"name": "f", "arguments": {"a": 1}}}
    bare = CALL | {"id": "call_2", "function": {"name": "g"}}
    said: list[Json] = [
        {"role": "user", "content": {"a": [1]}},
        {"role": "assistant", "content": ["x"], "toolCalls": [call, bare]},
    ]
    assert items(*said) == [
        user('{"a":[1]}'),
        model('["x"]'),
        FunctionCall(call_id="call_1", name="f", arguments='{"a":1}'),
        FunctionCall(call_id="call_2", name="g", arguments="{}"),
    ]


def test_what_was_said_by_nobody_is_skipped() -> None:
    error: Json = {"role": "error", "content": "Failed."}
    empty: Json = {"role": "assistant", "content": ""}
    assert items(HI, error, empty, {"role": "assistant"}, HI) == [user("hi"), user("hi")]


def test_an_id_that_comes_again_in_a_later_turn_is_made_unique() -> None:
    made = items(HI, CALLED, GIVEN, CALLED, GIVEN | {"content": "again"})
    calls = [item.call_id for item in made if isinstance(item, FunctionCall)]
    outputs = [item.call_id for item in made if isinstance(item, FunctionCallOutput)]
    assert calls == outputs == ["call_1", "call_1_2"]


def test_sealed_thinking_comes_back_where_it_stood() -> None:
    thought = {"before_text": ["1"], "before_call": ["2", "3"]}
    call = CALL | {"metadata": {"antiphon": thought}}
    made = items(HI, {"role": "assistant", "content": "So.", "toolCalls": [call]}, GIVEN)
    assert made[1:5] == [
        Reasoning(encrypted_content="1"),
        model("So."),
        Reasoning(encrypted_content="2"),
        Reasoning(encrypted_content="3"),
    ]


def test_metadata_of_others_is_accepted_and_warned_of() -> None:
    call = CALL | {"metadata": {"google": {"thoughtSignature": "x"}}}
    made = talk(messages=[HI, CALLED | {"toolCalls": [call]}, GIVEN])
    assert [warning.param for warning in made.warnings] == ["messages[1].toolCalls[0].metadata"]


# --- threads ---------------------------------------------------------------------------------


def test_a_thread_goes_on_where_it_stopped() -> None:
    made = talk([HI, CALLED], messages=[GIVEN])
    assert made.request.input == items(HI, CALLED, GIVEN)
    assert made.messages == [HI, CALLED, GIVEN]
    assert list(made.item_paths) == ["threadId", "threadId.toolCalls[0]", "messages[0]"]


def test_what_the_thread_ends_with_is_not_said_twice() -> None:
    bye: Json = {"role": "user", "content": "bye"}
    made = talk([HI, CALLED, GIVEN], messages=[CALLED, GIVEN, bye])
    assert made.messages == [HI, CALLED, GIVEN, bye]
    assert made.item_paths[-1] == "messages[2]"
    assert made.request.input == items(HI, CALLED, GIVEN, bye)


def test_what_is_ours_in_a_thread_does_not_make_it_another() -> None:
    call = FunctionCall(call_id="call_1", name="f", arguments="{}")
    kept = assistant_message([Reasoning(encrypted_content="1"), call])
    known = assistant_message([call])
    made = talk([HI, kept], messages=[HI, known, GIVEN])
    assert made.messages == [HI, kept, GIVEN]
    assert Reasoning(encrypted_content="1") in made.request.input


def test_a_thread_that_holds_no_messages_is_blamed() -> None:
    with pytest.raises(RequestError, match="contains an invalid message") as caught:
        talk([{"role": "wizard"}])
    assert caught.value.payload.param == "threadId"


MESSAGES = st.lists(st.sampled_from([HI, CALLED, {"role": "assistant", "content": "a"}]))


@given(MESSAGES, MESSAGES)
def test_a_thread_and_what_is_new_are_one_conversation(saved: list[Json], new: list[Json]) -> None:
    made = talk(saved, messages=new)
    whole = talk(messages=list(made.messages))
    assert made.request == whole.request
    assert len(made.item_paths) == len(made.request.input)


# --- what is wrong ---------------------------------------------------------------------------


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
        (
            {"messages": [HI, {"role": "tool", "content": "x"}]},
            "messages[1].toolCallId",
            "missing_required_parameter",
        ),
        ({"messages": [HI, GIVEN]}, "messages[1].toolCallId", "function_call_not_found"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        talk(**fields)
    payload = caught.value.payload
    assert (payload.type, payload.param, payload.code) == ("invalid_request", param, code)


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(RequestError, match="expected an object"):
        decode_hashbrown([])


def test_our_params_have_their_names() -> None:
    made = talk(messages=[HI, CALLED, GIVEN])
    assert [made.param_name(param) for param in PARAMS] == list(PARAMS.values())


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
