"""Requests to OpenAI's chat API, compared with those of its SDK."""

from typing import Any

import openai
import pytest

from antiphon.adapters.base import Capabilities
from antiphon.adapters.openai import OpenAI
from antiphon.protocol.errors import RequestError
from antiphon.transport.request import Key
from tests.adapters.chat_summary import HELLO, sdk_options, whole_answer
from tests.adapters.run_adapter import EncodedRequest, encode_request, make_adapter
from tests.adapters.scenes import FORMAT, SCHEMA, TIME, TOOL
from tests.adapters.scenes.openai import BERLIN, SCENES
from tests.scripted_upstream import ReceivedRequest, scripted_upstream

OPENAI = make_adapter(OpenAI)
LOCAL = make_adapter(OpenAI, base_url="http://localhost:8000/v1/")
PNG = "data:image/png;base64,iVBORw0KGgo="
ATTACHED = "[The next user message holds what is attached.]"
PDF = "data:application/pdf;base64,JVBERi0xLjQ="
FUNCTION = {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}
TIMER = {"type": "function", "function": {k: v for k, v in TIME.items() if k != "type"}}


def our_request(**fields: Any) -> EncodedRequest:
    return encode_request(OPENAI, upstream_model="gpt-5-mini", **fields)


def send_with_sdk(**fields: Any) -> ReceivedRequest:
    """Return what OpenAI's SDK sends."""
    answer = whole_answer(SCENES["text"].whole)
    with scripted_upstream(answer) as provider, openai.OpenAI(**sdk_options(provider)) as client:
        create: Any = client.chat.completions.create
        create(**{"model": "gpt-5-mini", "messages": [HELLO]} | fields)
    return provider.requests[0]


def sdk_request(**fields: Any) -> dict:
    """Return the body that OpenAI's SDK sends."""
    return send_with_sdk(**fields).json


def test_the_request_goes_where_openais_sdk_sends_it():
    sent, theirs = our_request().sent, send_with_sdk()
    assert (sent.method, sent.url) == (theirs.method, f"https://api.openai.com/v1{theirs.path}")
    assert theirs.headers["authorization"] == "Bearer sk-test"
    assert OPENAI.credential() == Key()
    assert OPENAI.models_request() is not None
    assert OPENAI.decode_models({"data": [{"id": "gpt-5"}, {"id": "gpt-5-mini"}]}) == ["gpt-5", "gpt-5-mini"]


OPTIONS: list[tuple[dict, dict]] = [
    ({}, {}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"instructions": "Be brief."}, {"messages": [{"role": "developer", "content": "Be brief."}, HELLO]}),
    ({"max_output_tokens": 100}, {"max_completion_tokens": 100}),
    ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    ({"presence_penalty": 0.1, "frequency_penalty": -0.1}, {"presence_penalty": 0.1, "frequency_penalty": -0.1}),
    ({"stop": ["END"], "seed": 7}, {"stop": ["END"], "seed": 7}),
    ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
    ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    ({"service_tier": "flex"}, {"service_tier": "flex"}),
    (
        {"prompt_cache_key": "k", "safety_identifier": "s", "user": "u"},
        {"prompt_cache_key": "k", "safety_identifier": "s", "user": "u"},
    ),
    ({"reasoning": {"effort": "high"}}, {"reasoning_effort": "high"}),
    ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        {"text": FORMAT},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "report", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    ({"tools": [TOOL, TIME]}, {"tools": [FUNCTION, TIMER]}),
    ({"tool_choice": "none", "parallel_tool_calls": False}, {}),
    ({"tools": [TOOL], "tool_choice": "none"}, {"tools": [FUNCTION], "tool_choice": "none"}),
    (
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False},
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}},
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    ),
    (
        {
            "tools": [TOOL, TIME],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "time"}],
            },
        },
        {
            "tools": [FUNCTION, TIMER],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]},
            },
        },
    ),
]


@pytest.mark.parametrize(("asking", "saying"), OPTIONS)
def test_each_option_is_sent_as_openais_sdk_sends_it(asking: dict, saying: dict):
    assert our_request(**asking).body == sdk_request(**saying)
    assert our_request(**asking).warnings == []


TURNS: list[tuple[str, Any, list[dict]]] = [
    (
        "roles",
        [
            {"role": "system", "content": "One."},
            {"role": "developer", "content": "Two."},
            {"role": "user", "content": "Three."},
            {"role": "assistant", "content": "Four."},
            {"role": "user", "content": [{"type": "input_text", "text": "Five."}]},
        ],
        [
            {"role": "developer", "content": "One."},
            {"role": "developer", "content": "Two."},
            {"role": "user", "content": "Three."},
            {"role": "assistant", "content": "Four."},
            {"role": "user", "content": "Five."},
        ],
    ),
    (
        "several texts",
        [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    ),
    (
        "images and files",
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": PNG, "detail": "low"},
                    {"type": "input_image", "image_url": "https://example.com/a.png"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
                    {"type": "input_file", "file_data": PDF},
                    {"type": "input_file", "file_id": "file_1"},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
                    {"type": "file", "file": {"filename": "file.pdf", "file_data": PDF}},
                    {"type": "file", "file": {"file_id": "file_1"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ],
            }
        ],
    ),
    (
        "calls and outputs",
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "One moment."},
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": BERLIN},
            {"type": "function_call", "call_id": "b", "name": "time", "arguments": ""},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [
                    {"type": "input_text", "text": "noon"},
                    {"type": "input_image", "image_url": PNG},
                    {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
                ],
            },
            {"type": "function_call_output", "call_id": "a", "output": "21"},
            {"role": "assistant", "content": "21 degrees at noon."},
            {"role": "user", "content": "Thanks."},
        ],
        [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "One moment.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "weather", "arguments": BERLIN}},
                    {"id": "b", "type": "function", "function": {"name": "time", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "21"},
            {
                "role": "tool",
                "tool_call_id": "b",
                "content": [
                    {"type": "text", "text": "noon"},
                    {"type": "text", "text": "[The next user message holds what is attached.]"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Attached to the output of b:"},
                    {"type": "image_url", "image_url": {"url": PNG}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
                ],
            },
            {"role": "assistant", "content": "21 degrees at noon."},
            {"role": "user", "content": "Thanks."},
        ],
    ),
    (
        "a call alone",
        [
            {"type": "function_call", "call_id": "a", "name": "time", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": ""},
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "time", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": ""},
        ],
    ),
    (
        "a refusal",
        [
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": "Please."},
        ],
        [{"role": "assistant", "content": None, "refusal": "No."}, {"role": "user", "content": "Please."}],
    ),
    (
        "a custom tool",
        [
            {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+1"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
            {"role": "assistant", "content": "Done."},
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "patch", "input": "+1"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "done"},
            {"role": "assistant", "content": "Done."},
        ],
    ),
    (
        "a function and a custom tool",
        [
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": BERLIN},
            {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "+1"},
            {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": PNG}]},
            {
                "type": "custom_tool_call_output",
                "call_id": "b",
                "output": [{"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": PNG}],
            },
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "weather", "arguments": BERLIN}},
                    {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "+1"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": ATTACHED},
            {
                "role": "tool",
                "tool_call_id": "b",
                "content": [{"type": "text", "text": "done"}, {"type": "text", "text": ATTACHED}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Attached to the output of a:"},
                    {"type": "image_url", "image_url": {"url": PNG}},
                    {"type": "text", "text": "Attached to the output of b:"},
                    {"type": "image_url", "image_url": {"url": PNG}},
                ],
            },
        ],
    ),
]


@pytest.mark.parametrize(("said", "messages"), [t[1:] for t in TURNS], ids=[t[0] for t in TURNS])
def test_a_conversation_is_sent_as_openais_sdk_sends_it(said: list, messages: list):
    assert our_request(input=said).body == sdk_request(messages=messages)


def test_a_custom_tool_is_offered_and_required_as_openais_sdk_does_it():
    format = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    asking = our_request(
        tools=[{"type": "custom", "name": "patch", "description": "Patch.", "format": format}],
        tool_choice={"type": "custom", "name": "patch"},
    )
    inner = {"syntax": "lark", "definition": "start: /.+/"}
    custom = {"name": "patch", "description": "Patch.", "format": {"type": "grammar", "grammar": inner}}
    assert asking.body == sdk_request(
        tools=[{"type": "custom", "custom": custom}], tool_choice={"type": "custom", "custom": {"name": "patch"}}
    )


# --- what cannot be carried ---


def test_what_a_custom_tool_shows_is_refused_as_what_a_function_shows():
    called = {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+1"}
    shown = {"type": "input_image", "image_url": PNG}
    output = {"type": "custom_tool_call_output", "call_id": "a", "output": [shown]}
    blind = Capabilities(lacks=frozenset({"images"}))
    with pytest.raises(RequestError) as caught:
        our_request(input=[called, output], capabilities=blind)
    assert caught.value.payload.param == "input[1].output[0]"


SEARCH = {"type": "web_search"}


def test_an_allowed_tool_that_chat_does_not_have_is_left_out():
    choice = {"type": "allowed_tools", "tools": [SEARCH, {"type": "function", "name": "time"}]}
    timer = {"type": "function", "function": {"name": "time"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [timer]}}
    asking = our_request(tools=[TOOL, TIME, SEARCH], tool_choice=choice)
    assert asking.body["tool_choice"] == allowed
    assert [(w.code, w.param) for w in asking.warnings] == [("unsupported_tool", "tools[2]")]


def test_where_no_allowed_tool_is_left_none_is_called_or_the_request_is_refused():
    choice = {"type": "allowed_tools", "tools": [SEARCH]}
    assert our_request(tools=[TOOL, SEARCH], tool_choice=choice).body["tool_choice"] == "none"
    with pytest.raises(RequestError) as caught:
        our_request(tools=[TOOL, SEARCH], tool_choice=choice | {"mode": "required"})
    assert caught.value.payload.param == "tool_choice"


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4.1", "ft:gpt-3.5-turbo:acme", "gpt-4"])
def test_no_effort_is_sent_to_models_without_reasoning(model: str):
    asking = encode_request(OPENAI, upstream_model=model, reasoning={"effort": "high"})
    assert "reasoning_effort" not in asking.body
    assert [(w.code, w.param) for w in asking.warnings] == [("unsupported_parameter", "reasoning")]
    assert encode_request(OPENAI, upstream_model=model, reasoning={"effort": "none"}).warnings == []


def test_a_reasoning_summary_is_dropped_with_a_warning():
    asking = our_request(reasoning={"effort": "low", "summary": "auto"})
    assert asking.body["reasoning_effort"] == "low"
    assert [w.param for w in asking.warnings] == ["reasoning.summary"]


def test_a_hosted_tool_is_dropped_with_a_warning():
    asking = our_request(tools=[{"type": "web_search"}, TOOL])
    assert asking.body["tools"] == [FUNCTION]
    assert [(w.code, w.param) for w in asking.warnings] == [("unsupported_tool", "tools[0]")]


REFUSED: list[tuple[dict, str]] = [
    ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
    (
        {"input": [HELLO, {"role": "user", "content": [{"type": "input_image", "image_url": "data:nothing"}]}]},
        "input[1].content[0]",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://example.com/a.pdf"}]}]},
        "input[0].content[0]",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_video", "video_url": "https://a.b/c.mp4"}]}]},
        "input[0].content[0]",
    ),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_would_change_the_meaning_is_refused(fields: dict, param: str):
    with pytest.raises(RequestError) as caught:
        our_request(**fields)
    assert caught.value.payload.param == param


def test_a_request_is_repeated_without_the_feature_that_a_model_lacks():
    lacks = Capabilities(lacks=frozenset({"json_schema", "temperature"}))
    asking = encode_request(LOCAL, capabilities=lacks, text=FORMAT, temperature=1.0)
    assert asking.body["tool_choice"]["function"]["name"] == "final_answer"
    assert [w.param for w in asking.warnings] == ["temperature"]


def test_parallel_calls_and_effort_are_not_sent_to_a_model_that_lacks_them():
    lacks = Capabilities(lacks=frozenset({"parallel_tool_calls", "reasoning"}))
    fields: Any = {"parallel_tool_calls": False, "reasoning": {"effort": "none"}, "tools": [TOOL]}
    asking = encode_request(LOCAL, capabilities=lacks, **fields)
    assert asking.body == {"model": "some-model", "messages": [HELLO], "tools": [FUNCTION]}
    assert asking.warnings == []


def test_the_history_of_another_provider_is_legal_here():
    odd = "toolu_" + "x" * 58
    said = [
        HELLO,
        {"type": "function_call", "call_id": odd, "name": "get weather!", "arguments": "{}"},
        {"type": "acme:thing", "id": "x_1"},
        {"type": "function_call_output", "call_id": odd, "output": "21"},
    ]
    asking = our_request(input=said)
    call, output = asking.body["messages"][1:]
    assert len(call["tool_calls"][0]["id"]) <= 40
    assert call["tool_calls"][0]["function"]["name"] == "get_weather_"
    assert output["tool_call_id"] == call["tool_calls"][0]["id"]
    assert [(w.code, w.param) for w in asking.warnings] == [("unsupported_item", "input[2]")]
