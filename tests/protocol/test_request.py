import pytest

from antiphon.protocol.items import (
    MAX_TEXT_LENGTH,
    FunctionCallOutput,
    InputText,
    ItemReference,
    Message,
    OutputText,
    user_message,
)
from antiphon.protocol.request import (
    CompactRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningConfig,
    Request,
    StreamOptions,
    TextConfig,
    TextFormat,
    WebSocketCreate,
)
from antiphon.protocol.struct import InvalidValueError, decode
from antiphon.protocol.tools import AllowedTools, ExtensionTool, ExtensionToolChoice, FunctionTool, FunctionToolChoice


def test_an_empty_request_has_the_defaults():
    assert decode(Request, {}) == Request(
        model=None,
        input=[],
        previous_response_id=None,
        include=[],
        tools=[],
        tool_choice="auto",
        metadata={},
        text=TextConfig(format=TextFormat()),
        temperature=None,
        top_p=None,
        presence_penalty=None,
        frequency_penalty=None,
        parallel_tool_calls=True,
        stream=False,
        stream_options=StreamOptions(include_obfuscation=False),
        background=False,
        max_output_tokens=None,
        max_tool_calls=None,
        reasoning=None,
        safety_identifier=None,
        prompt_cache_key=None,
        truncation="disabled",
        instructions=None,
        store=True,
        service_tier="default",
        top_logprobs=None,
        user=None,
    )


def test_string_input_is_a_user_message():
    asked = decode(Request, {"model": "m", "input": "Hi"})
    assert asked == Request(model="m", input=[Message(role="user", content=[InputText(text="Hi")])])


def test_the_type_of_an_item_is_inferred_from_its_fields():
    asked = decode(Request, {"input": [{"role": "user", "content": "Hi"}, {"id": "msg_1"}]})
    assert asked.input == [user_message("Hi"), ItemReference(id="msg_1")]


def test_a_null_type_counts_as_missing():
    asked = decode(Request, {"input": [{"type": None, "id": "msg_1"}]})
    assert asked.input == [ItemReference(id="msg_1")]


def test_string_content_becomes_the_part_of_the_role():
    asked = decode(
        Request, {"input": [{"role": "system", "content": "Be kind."}, {"role": "assistant", "content": "Hi"}]}
    )
    assert asked.input == [
        Message(role="system", content=[InputText(text="Be kind.")]),
        Message(role="assistant", content=[OutputText(text="Hi")]),
    ]


@pytest.mark.parametrize("raw", [{"reasoning": None}, {}])
def test_null_reasoning_means_that_it_is_not_set(raw: dict[str, object]):
    assert decode(Request, raw).reasoning is None


def test_empty_reasoning_is_reasoning_with_defaults():
    assert decode(Request, {"reasoning": {}}).reasoning == ReasoningConfig()


def test_includes_are_trimmed_and_empty_ones_dropped():
    asked = decode(Request, {"include": [" reasoning.encrypted_content ", "", "  "]})
    assert asked.include == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("raw", "format"),
    [
        ({"type": "text"}, TextFormat()),
        ({"type": "json_object"}, JsonObjectFormat()),
        ({}, TextFormat()),
        ({"schema": {}}, JsonSchemaFormat(schema={})),
        (
            {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": True},
            JsonSchemaFormat(name="n", schema={"a": 1}, strict=True),
        ),
        (None, TextFormat()),
    ],
)
def test_a_format_may_leave_its_type_out(raw: object, format: object):
    assert decode(Request, {"text": {"format": raw}}).text == TextConfig(format=format)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("raw", "choice"),
    [
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, FunctionToolChoice(name="f")),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]},
            AllowedTools(tools=[FunctionToolChoice(name="f")], mode="auto"),
        ),
        ({"type": "acme:search"}, ExtensionToolChoice(type="acme:search")),
    ],
)
def test_a_tool_choice_is_a_string_or_an_object(raw: object, choice: object):
    assert decode(Request, {"tool_choice": raw}).tool_choice == choice


def test_tools_are_functions_or_extensions():
    asked = decode(Request, {"tools": [{"type": "function", "name": "f"}, {"type": "acme:search"}]})
    assert asked.tools == [FunctionTool(name="f"), ExtensionTool(type="acme:search")]


def test_an_integer_is_accepted_for_a_number():
    asked = decode(Request, {"temperature": 1, "top_p": 0, "presence_penalty": -2})
    assert (asked.temperature, asked.top_p, asked.presence_penalty) == (1.0, 0.0, -2.0)


def test_a_request_can_be_made_of_one_message():
    assert Request.from_message("m", "Hi", temperature=0.7, stream=True) == Request(
        model="m", input=[user_message("Hi")], temperature=0.7, stream=True
    )


def test_compact_and_websocket_requests_are_as_lenient():
    assert decode(CompactRequest, {"model": "m", "input": "Hi"}) == CompactRequest(
        model="m", input=[user_message("Hi")]
    )
    assert decode(WebSocketCreate, {"type": "response.create", "input": "Hi"}) == WebSocketCreate(
        input=[user_message("Hi")]
    )


FUNCTION = {"type": "function", "name": "f"}
INVALID_FIELDS: dict[str, list[tuple[object, str]]] = {
    "model": [(5, ""), ([], "")],
    "input": [
        (5, ""),
        ({}, ""),
        ([5], "[0]"),
        ([None], "[0]"),
        (["Hi"], "[0]"),
        ([[]], "[0]"),
        ([{}], "[0].id"),
        ([{"type": "nonsense"}], "[0].type"),
        ([{"content": "Hi"}], "[0].type"),
        ([{"role": "user"}], "[0].content"),
        ([{"role": "robot", "content": "Hi"}], "[0].role"),
        ([{"role": "user", "content": None}], "[0].content"),
        ([{"role": "user", "content": [{"type": "output_text", "text": ""}]}], "[0].content[0].type"),
        ([{"role": "assistant", "content": [{"type": "input_image"}]}], "[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "input_image", "detail": "sharp"}]}], "[0].content[0].detail"),
        ([{"role": "assistant", "content": "Hi", "phase": "last"}], "[0].phase"),
        ([{"type": "function_call", "call_id": "c", "name": "f"}], "[0].arguments"),
        ([{"type": "function_call", "call_id": "c" * 65, "name": "f", "arguments": ""}], "[0].call_id"),
        ([{"type": "function_call", "call_id": "c", "name": "", "arguments": ""}], "[0].name"),
        ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}], "[0].arguments"),
        ([{"type": "function_call_output", "call_id": "c", "output": "", "status": "new"}], "[0].status"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text"}]}], "[0].summary[0].text"),
        ([{"type": "compaction"}], "[0].encrypted_content"),
    ],
    "previous_response_id": [(5, "")],
    "include": [("logprobs", ""), ([5], "[0]")],
    "tools": [
        ({}, ""),
        (["f"], "[0]"),
        ([{"type": "function"}], "[0].name"),
        ([FUNCTION, {"type": "function", "name": "a b"}], "[1].name"),
        ([{"type": "function", "name": "f" * 65}], "[0].name"),
        ([FUNCTION | {"parameters": []}], "[0].parameters"),
        ([FUNCTION | {"strict": "yes"}], "[0].strict"),
        ([FUNCTION | {"description": 5}], "[0].description"),
        ([{"type": "search"}], "[0].type"),
    ],
    "tool_choice": [
        ("sometimes", ""),
        (5, ""),
        ([], ""),
        ({}, ".type"),
        ({"type": "function"}, ".name"),
        ({"type": "allowed_tools"}, ".tools"),
        ({"type": "allowed_tools", "tools": []}, ".tools"),
        ({"type": "allowed_tools", "tools": [FUNCTION] * 129}, ".tools"),
        ({"type": "allowed_tools", "tools": [FUNCTION], "mode": "any"}, ".mode"),
    ],
    "metadata": [
        ([], ""),
        ({str(n): "" for n in range(17)}, ""),
        ({"j": "", "k": 5}, ".k"),
        ({"k": "v" * 513}, ".k"),
        ({"k" * 65: "v"}, "." + "k" * 65),
    ],
    "text": [
        ("json", ""),
        ({"format": "json"}, ".format"),
        ({"format": {"type": "yaml"}}, ".format.type"),
        ({"format": {"type": "json_schema", "schema": "s"}}, ".format.schema"),
        ({"verbosity": "loud"}, ".verbosity"),
    ],
    "temperature": [(-0.1, ""), (2.1, ""), ("1", ""), (True, "")],
    "top_p": [(-0.1, ""), (1.1, ""), ("1", "")],
    "presence_penalty": [(-2.1, ""), (2.1, ""), ("1", "")],
    "frequency_penalty": [(-2.1, ""), (2.1, ""), ("1", "")],
    "parallel_tool_calls": [("yes", ""), (1, "")],
    "stream": [("true", ""), (1, "")],
    "stream_options": [(True, ""), ({"include_obfuscation": 1}, ".include_obfuscation")],
    "background": [("no", "")],
    "max_output_tokens": [(15, ""), (16.5, ""), ("16", ""), (True, ""), (2**53 + 1, "")],
    "max_tool_calls": [(0, ""), ("1", "")],
    "reasoning": [("high", ""), ({"effort": "extreme"}, ".effort"), ({"summary": 1}, ".summary")],
    "safety_identifier": [("s" * 65, ""), (5, "")],
    "prompt_cache_key": [("s" * 65, ""), (5, "")],
    "truncation": [("middle", ""), (True, "")],
    "instructions": [(5, ""), ([], "")],
    "store": [("no", ""), (0, "")],
    "service_tier": [("platinum", ""), ({}, "")],
    "top_logprobs": [(-1, ""), (21, ""), (1.5, "")],
    "user": [(5, "")],
    "conversation": [(5, ""), ([], ""), ({}, ".id"), ({"id": 5}, ".id")],
    "stop": [(5, ""), ([5], "[0]"), (["s"] * 17, ""), ([""], "[0]")],
    "seed": [("1", ""), (1.5, "")],
}


def test_every_field_of_a_request_has_invalid_values():
    assert set(INVALID_FIELDS) == set(Request.__struct_fields__) - {"extra"}


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [(name, value, place) for name, cases in INVALID_FIELDS.items() for value, place in cases],
)
def test_an_invalid_value_is_rejected_with_its_path(name: str, value: object, place: str):
    with pytest.raises(InvalidValueError) as caught:
        decode(Request, {name: value})
    assert caught.value.path == name + place


@pytest.mark.parametrize("raw", [None, [], "Hi", 5])
def test_a_body_that_is_no_object_is_rejected(raw: object):
    with pytest.raises(InvalidValueError, match=r"^expected an object"):
        decode(Request, raw)


def test_input_has_a_maximum_length():
    assert len(decode(Request, {"input": "x" * MAX_TEXT_LENGTH}).input) == 1
    with pytest.raises(InvalidValueError, match=f"input: expected at most {MAX_TEXT_LENGTH} characters"):
        decode(Request, {"input": "x" * (MAX_TEXT_LENGTH + 1)})
    output = {"type": "function_call_output", "call_id": "c", "output": "x" * (MAX_TEXT_LENGTH + 1)}
    with pytest.raises(InvalidValueError, match=r"input\[0\]\.output: "):
        decode(Request, {"input": [output]})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [0, 2]),
        ("top_p", [0, 1]),
        ("presence_penalty", [-2, 2]),
        ("frequency_penalty", [-2, 2]),
        ("max_output_tokens", [16, 2**53]),
        ("max_tool_calls", [1]),
        ("top_logprobs", [0, 20]),
        ("service_tier", ["auto", "default", "flex", "scale", "priority"]),
        ("truncation", ["auto", "disabled"]),
    ],
)
def test_the_limits_themselves_are_allowed(name: str, values: list[object]):
    assert [getattr(decode(Request, {name: value}), name) for value in values] == values


def test_an_output_may_be_a_string_or_parts():
    parts = [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]
    raw = [
        {"type": "function_call_output", "call_id": "c", "output": "42"},
        {"type": "function_call_output", "call_id": "d", "output": parts},
    ]
    words = [InputText(text="4"), InputText(text="2")]
    assert decode(Request, {"input": raw}).input == [
        FunctionCallOutput(call_id="c", output="42"),
        FunctionCallOutput(call_id="d", output=words),  # pyright: ignore[reportArgumentType]
    ]
