"""Chat requests: conversion to a Request, and errors with the chat's parameters."""

from typing import Any

import pytest
from msgspec import UNSET

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    ExtensionContent,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    RefusalContent,
    user_message,
)
from antiphon.protocol.request import (
    INCLUDE_LOGPROBS,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningConfig,
    Request,
    StreamOptions,
    TextConfig,
)
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.tools import AllowedTools, ExtensionTool, ExtensionToolChoice, FunctionTool, FunctionToolChoice
from antiphon.wire.chat.request import ChatRequest, decode_chat

HI = {"role": "user", "content": "Hi!"}
SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}}
CALLED = FunctionCall(call_id="call_1", name="get_weather", arguments='{"city":"Rome"}')


def chat(*messages: object, **options: object) -> ChatRequest:
    """Decode a chat request."""
    return decode_chat({"model": "m", "messages": list(messages) or [HI], **options})


def items(*messages: object) -> list[Item]:
    """Decode messages to items."""
    return chat(*messages).request.input


def decode_options(**options: object) -> Request:
    """Decode the options of a chat request."""
    return chat(HI, **options).request


def rejected_param(*messages: object, **options: object) -> str:
    """Return the parameter that a chat request is rejected for."""
    with pytest.raises((InvalidValueError, RequestError)) as refused:
        chat(*messages, **options)
    error = refused.value
    return error.path if isinstance(error, InvalidValueError) else str(error.payload.param)


def test_roles_are_kept_and_instructions_stay_empty():
    request = chat(
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        HI,
        {"role": "assistant", "content": "Hello!"},
    ).request
    assert request.instructions is None
    assert request.input == [
        Message(role="system", content=[InputText(text="Be kind.")]),
        Message(role="developer", content=[InputText(text="Be brief.")]),
        user_message("Hi!"),
        Message(role="assistant", content=[OutputText(text="Hello!")]),
    ]


def test_every_kind_of_content_is_converted():
    sound = {"data": "AAAA", "format": "wav"}
    (message,) = items(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
                {"type": "image_url", "image_url": "https://a/c.png"},
                {"type": "file", "file": {"file_data": "data:x;base64,AA", "filename": "a.pdf"}},
                {"type": "file", "file": {"file_id": "file_1", "filename": None}},
                {"type": "input_audio", "input_audio": sound},
                {"type": "video_url", "video_url": {"url": "https://a/d.mp4"}},
            ],
        }
    )
    assert message == Message(
        role="user",
        content=[
            InputText(text="Look:", extra={"cache_control": {"type": "ephemeral"}}),
            InputImage(image_url="data:image/png;base64,AA"),
            InputImage(image_url="https://a/b.png", detail="low"),
            InputImage(image_url="https://a/c.png"),
            InputFile(file_data="data:x;base64,AA", filename="a.pdf"),
            InputFile(extra={"file_id": "file_1"}),
            ExtensionContent(type="openai:input_audio", extra={"input_audio": sound}),
            InputVideo(video_url="https://a/d.mp4"),
        ],
    )


def test_tool_messages_become_calls_and_outputs():
    given = chat(
        HI,
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_2", "content": "Sunny."},
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [{"type": "text", "text": "Rain"}, {"type": "text", "text": "."}],
        },
    )
    assert given.request.input == [
        user_message("Hi!"),
        CALLED,
        FunctionCall(call_id="call_2", name="get_weather", arguments='{"city":"Rome"}'),
        FunctionCallOutput(call_id="call_2", output="Sunny."),
        FunctionCallOutput(call_id="call_1", output=[InputText(text="Rain"), InputText(text=".")]),
    ]
    assert list(given.item_paths) == [
        "messages[0]",
        "messages[1].tool_calls[0]",
        "messages[1].tool_calls[1]",
        "messages[2]",
        "messages[3]",
    ]


def test_an_assistant_message_becomes_reasoning_text_and_calls():
    assert items(
        {
            "role": "assistant",
            "reasoning_content": "Hm.",
            "content": "I will look.",
            "tool_calls": [CALL],
            "function_call": None,
            "refusal": None,
            "audio": None,
            "annotations": [],
        }
    ) == [
        Reasoning(content=[ReasoningText(text="Hm.")]),
        Message(role="assistant", content=[OutputText(text="I will look.")]),
        CALLED,
    ]


@pytest.mark.parametrize("content", [None, "", [{"type": "text", "text": ""}]])
def test_calls_without_content_have_no_message(content: object):
    assert items({"role": "assistant", "content": content, "tool_calls": [CALL]}) == [CALLED]


def test_refusals_are_converted_in_both_forms():
    no = Message(role="assistant", content=[RefusalContent(refusal="No.")])
    assert items(
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ) == [no, no]


def test_an_empty_assistant_message_is_kept():
    empty = Message(role="assistant", content=[OutputText(text="")])
    assert items(HI, {"role": "assistant", "content": ""}, HI) == [user_message("Hi!"), empty, user_message("Hi!")]


def test_custom_tools_become_openai_extensions():
    call = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    assert items(
        {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "1"}
    ) == [
        ExtensionItem(type="openai:custom_tool_call", extra={"call_id": "c", "name": "sql", "input": "SELECT 1"}),
        ExtensionItem(type="openai:custom_tool_call_output", extra={"call_id": "c", "output": "1"}),
    ]


def test_calls_as_other_servers_send_them_are_accepted():
    """Without a type, without arguments, and with the same id in every turn."""
    call = {"id": "0", "function": {"name": "now"}}
    output = {"role": "tool", "tool_call_id": "0", "content": None}
    turn = [{"role": "assistant", "tool_calls": [call]}, output]
    assert items(*turn, *turn) == [
        FunctionCall(call_id="0", name="now", arguments="{}"),
        FunctionCallOutput(call_id="0", output=""),
        FunctionCall(call_id="0_2", name="now", arguments="{}"),
        FunctionCallOutput(call_id="0_2", output=""),
    ]


def test_deprecated_function_messages_are_accepted():
    called = {"name": "now", "arguments": "{}"}
    assert items(
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "now", "content": "Noon."},
    ) == [FunctionCall(call_id="now", name="now", arguments="{}"), FunctionCallOutput(call_id="now", output="Noon.")]


def test_every_option_is_converted():
    request = decode_options(
        max_completion_tokens=5,
        temperature=0.5,
        top_p=0.25,
        presence_penalty=1,
        frequency_penalty=-1,
        stop="END",
        seed=7,
        logprobs=True,
        top_logprobs=2,
        reasoning_effort="low",
        verbosity="high",
        service_tier="flex",
        prompt_cache_key="key",
        safety_identifier="who",
        user="me",
        metadata={"a": "b"},
        store=True,
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": True},
        parallel_tool_calls=False,
        n=1,
        modalities=["text"],
    )
    assert request == Request(
        model="m",
        input=[user_message("Hi!")],
        include=[INCLUDE_LOGPROBS],
        metadata={"a": "b"},
        text=TextConfig(verbosity="high"),
        temperature=0.5,
        top_p=0.25,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        parallel_tool_calls=False,
        stream=True,
        stream_options=StreamOptions(include_obfuscation=True),
        max_output_tokens=5,
        reasoning=ReasoningConfig(effort="low"),
        safety_identifier="who",
        prompt_cache_key="key",
        store=True,
        service_tier="flex",
        top_logprobs=2,
        user="me",
        stop=["END"],
        seed=7,
    )


NULLABLE = """tools tool_choice parallel_tool_calls response_format max_completion_tokens max_tokens
    temperature top_p presence_penalty frequency_penalty stop seed logprobs top_logprobs
    reasoning_effort verbosity service_tier prompt_cache_key safety_identifier user metadata store
    stream stream_options n modalities functions function_call""".split()


def test_null_is_the_same_as_absent():
    plain = Request(model="m", input=[user_message("Hi!")], store=False)
    assert decode_options() == plain
    assert decode_options(**dict.fromkeys(NULLABLE)) == plain
    assert decode_options(stop=[], tools=[]) == plain


def test_max_tokens_is_accepted():
    assert decode_options(max_tokens=3).max_output_tokens == 3
    assert decode_options(max_tokens=3, max_completion_tokens=4).max_output_tokens == 4
    assert chat(HI, max_tokens=3).param_name("max_output_tokens") == "max_tokens"
    assert chat(HI, max_completion_tokens=3).param_name("max_output_tokens") == "max_completion_tokens"


def test_include_usage_is_kept_for_the_response():
    assert not chat(HI).include_usage
    assert chat(HI, stream_options={"include_usage": True}).include_usage


def test_response_formats_are_converted():
    text = decode_options(response_format={"type": "text"}).text
    assert text == TextConfig()
    anything = decode_options(response_format={"type": "json_object"}).text
    assert anything == TextConfig(format=JsonObjectFormat())
    schema = {"name": "city", "schema": SCHEMA, "strict": True, "description": "A city."}
    city = decode_options(response_format={"type": "json_schema", "json_schema": schema}).text
    format = JsonSchemaFormat(name="city", schema=SCHEMA, strict=True, description="A city.")
    assert city == TextConfig(format=format)


def test_tools_are_converted():
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    tools = [
        WEATHER,
        {"type": "custom", "custom": {"name": "free", "description": "Any text."}},
        {"type": "custom", "custom": {"name": "strict", "format": grammar}},
        {"type": "custom", "custom": {"name": "plain", "format": {"type": "text"}}},
        {"type": "acme:search", "depth": 2},
    ]
    assert decode_options(tools=tools).tools == [
        FunctionTool(name="get_weather", parameters=SCHEMA),
        ExtensionTool(type="openai:custom", extra={"name": "free", "description": "Any text."}),
        ExtensionTool(
            type="openai:custom",
            extra={"name": "strict", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
        ),
        ExtensionTool(type="openai:custom", extra={"name": "plain", "format": {"type": "text"}}),
        ExtensionTool(type="acme:search", extra={"depth": 2}),
    ]


NAMED = {"type": "function", "function": {"name": "f"}}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("none", "none"),
        ("auto", "auto"),
        ("required", "required"),
        (NAMED, FunctionToolChoice(name="f")),
        (CUSTOM, ExtensionToolChoice(type="openai:custom", extra={"name": "c"})),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
            AllowedTools(mode="required", tools=[FunctionToolChoice(name="f")]),
        ),
    ],
)
def test_tool_choices_are_converted(given: object, expected: object):
    assert decode_options(tools=[WEATHER], tool_choice=given).tool_choice == expected


def test_unused_fields_are_dropped_with_a_warning():
    given = chat(HI | {"name": "Ann"}, logit_bias={"1": 2}, prediction=None, previous_response_id="resp_1", top_k=5)
    assert [warning.param for warning in given.warnings] == ["logit_bias", "previous_response_id", "messages[0].name"]
    assert {warning.code for warning in given.warnings} == {"unused_parameter"}
    assert given.request.extra == {"top_k": 5}
    assert given.request.previous_response_id is None
    assert decode_options().extra is UNSET


def test_warnings_about_nested_fields_have_their_path():
    call = CALL | {"index": 0, "extra_content": {"signature": "s"}}
    thought = {"reasoning_details": [{"text": "Hm"}], "prefix": True, "annotations": []}
    custom = {"type": "custom", "custom": {"name": "sql", "dialect": "x"}}
    given = chat(
        HI | {"cache_control": {"type": "ephemeral"}, "acme:trace": 1, "other": None},
        {"role": "assistant", "content": "He", "tool_calls": [call], **thought},
        tools=[WEATHER | {"cache_control": {}, "foo": 1}, custom, {"type": "acme:t", "size": 1}],
        stream_options={"include_usage": True, "foo": 1},
    )
    assert [warning.param for warning in given.warnings] == [
        "messages[0].cache_control",
        "messages[1].tool_calls[0].extra_content",
        "messages[1].reasoning_details",
        "messages[1].prefix",
        "stream_options.foo",
        "tools[0].foo",
        "tools[1].custom.dialect",
    ]
    assert given.param_name("tools[0].foo") == "tools[0].function.foo"
    assert given.param_name("tools[2].size") == "tools[2].size"


BAD_MESSAGES: list[tuple[list[Any], str]] = [
    ([{}], "messages[0].role"),
    (["Hi"], "messages[0]"),
    ([HI, {"role": "robot", "content": "x"}], "messages[1].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": 7}], "messages[0].content"),
    ([HI, HI, {"role": "user", "content": [{"type": "fax"}]}], "messages[2].content[0].type"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].image_url.url"),
    ([{"role": "user", "content": [{"type": "file", "file": {"filename": "a"}}]}], "messages[0].content[0].file"),
    ([{"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}], "messages[0].content[0].type"),
    ([{"role": "system", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content[0].type"),
    ([{"role": "assistant"}], "messages[0].content"),
    ([{"role": "assistant", "audio": {"id": "a"}}], "messages[0].audio"),
    ([{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}], "messages[0].tool_calls[0].function"),
    ([{"role": "assistant", "tool_calls": ["call_1"]}], "messages[0].tool_calls[0]"),
    ([{"role": "assistant", "tool_calls": [CALL | {"id": ""}]}], "messages[0].tool_calls[0].id"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
    ([{"role": "tool", "tool_call_id": "c", "content": "x"}], "messages[0].tool_call_id"),
    ([{"role": "function", "name": "f", "content": "x"}], "messages[0].name"),
    ([{"role": "function", "content": "x"}], "messages[0].name"),
]


@pytest.mark.parametrize(("messages", "param"), BAD_MESSAGES, ids=lambda v: str(v)[:60])
def test_an_invalid_message_is_rejected_with_its_path(messages: list[object], param: str):
    assert rejected_param(*messages) == param


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"n": 0}, "n"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"functions": []}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": "many"}, "max_completion_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"stop": [""]}, "stop[0]"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"reasoning_effort": "furious"}, "reasoning_effort"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"tools": [{"type": "function", "name": "flat"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"model": None}, "model"),
    ({"model": ""}, "model"),
]


@pytest.mark.parametrize(("options", "param"), BAD_OPTIONS, ids=str)
def test_an_invalid_option_is_rejected_with_its_name(options: dict[str, object], param: str):
    assert rejected_param(**options) == param


@pytest.mark.parametrize("body", [None, [], "chat", 7])
def test_a_body_that_is_not_an_object_is_rejected(body: object):
    with pytest.raises(InvalidValueError, match="expected an object"):
        decode_chat(body)


def test_too_many_calls_are_rejected():
    calls = [CALL | {"id": str(index)} for index in range(5000)]
    assert rejected_param(HI, {"role": "assistant", "tool_calls": calls}) == "messages"


@pytest.mark.parametrize(
    ("our_param", "chat_param"),
    [
        ("input", "messages"),
        ("input[0].content[1]", "messages[0].content[1]"),
        ("input[1].call_id", "messages[1].tool_calls[0]"),
        ("input[2].output[0]", "messages[2].content[0]"),
        ("input[9]", "input[9]"),
        ("model", "model"),
        ("tool_choice", "tool_choice"),
        ("tools[3]", "tools[3]"),
        ("tools[3].parameters", "tools[3].function.parameters"),
        ("text.format", "response_format"),
        ("text.format.schema", "response_format.json_schema.schema"),
        ("text.verbosity", "verbosity"),
        ("reasoning", "reasoning_effort"),
        ("reasoning.effort", "reasoning_effort"),
        ("top_logprobs", "top_logprobs"),
    ],
)
def test_our_parameters_are_translated_to_the_chats(our_param: str, chat_param: str):
    given = chat(
        HI, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
    )
    assert given.param_name(our_param) == chat_param
