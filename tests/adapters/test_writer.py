"""Writer: the requests and answers of its SDK are the reference."""

import json
from typing import Any

import pytest
import writerai

from antiphon.adapters.writer import Writer
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from antiphon.transport.request import Key
from tests.adapters.chat_summary import HELLO, sdk_options, summarize_sdk, whole_answer
from tests.adapters.run_adapter import EncodedRequest, decode_parts, decode_response, encode_request, make_adapter
from tests.adapters.scenes import FORMAT, NAMES, TIME, TOOL
from tests.adapters.scenes.openai import BERLIN, chunk, frame
from tests.adapters.scenes.writer import SCENES
from tests.scripted_upstream import ReceivedRequest, json_answer, scripted_upstream, sse_answer

WRITER = make_adapter(Writer)
PNG = "data:image/png;base64,iVBORw0KGgo="
LOOSE = {name: value for name, value in TOOL.items() if name != "strict"}
FUNCTION = {"type": "function", "function": {k: v for k, v in LOOSE.items() if k != "type"}}
TIMER = {"type": "function", "function": {k: v for k, v in TIME.items() if k != "type"}}


# --- answers ---


def test_every_scene_is_played_that_the_dialect_has():
    assert set(NAMES) - set(SCENES) == {"thinking_and_call"}


@pytest.mark.parametrize("name", SCENES)
def test_writers_own_sdk_sees_the_same(name: str):
    scene = SCENES[name]
    end = scene.expected.status, scene.expected.reason
    answers = sse_answer(scene.stream), whole_answer(scene.whole)
    with scripted_upstream(*answers) as provider, writerai.Writer(**sdk_options(provider)) as client:
        chat: Any = client.chat.chat
        chunks = list(chat(model="m", messages=[HELLO], stream=True))
        answer = chat(model="m", messages=[HELLO])
    assert summarize_sdk(chunks, *end) == scene.expected
    assert summarize_sdk([answer], *end) == scene.expected


def test_a_message_beside_the_last_delta_is_ignored():
    last = chunk({}, "stop")
    last["choices"][0]["message"] = {"role": "assistant", "content": "Hi"}
    body = frame(chunk({"content": "Hi"})) + frame(last) + b"data: [DONE]\n\n"
    assert decode_response(encode_request(WRITER, stream=True), body).output_text == "Hi"


def test_an_error_event_fails_as_writers_own_sdk_fails():
    body = frame(chunk({"content": "Hel"}))
    body += b'event: error\ndata: {"message": "overloaded", "code": 503}\n\n'
    (*_, failure) = decode_parts(encode_request(WRITER, stream=True), body)
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.message) == (503, "writer: overloaded")
    with scripted_upstream(sse_answer(body)) as provider, writerai.Writer(**sdk_options(provider)) as client:
        chat: Any = client.chat.chat
        with pytest.raises(writerai.APIError, match="overloaded"):
            list(chat(model="m", messages=[HELLO], stream=True))


# --- requests ---


def our_request(**fields: Any) -> EncodedRequest:
    return encode_request(WRITER, upstream_model="palmyra-x5", **fields)


def send_with_sdk(**fields: Any) -> ReceivedRequest:
    """Return what Writer's SDK sends."""
    answer = whole_answer(SCENES["text"].whole)
    with scripted_upstream(answer) as provider, writerai.Writer(**sdk_options(provider)) as client:
        chat: Any = client.chat.chat
        chat(**{"model": "palmyra-x5", "messages": [HELLO]} | fields)
    return provider.requests[0]


def test_the_request_goes_where_writers_sdk_sends_it():
    sent, theirs = our_request().sent, send_with_sdk()
    path = theirs.path.removeprefix("/v1")
    assert (sent.method, sent.url) == (theirs.method, f"https://api.writer.com/v1{path}")
    assert theirs.headers["authorization"] == "Bearer sk-test"
    assert WRITER.credential() == Key()


def test_models_are_listed_as_writers_sdk_lists_them():
    body = {"models": [{"id": "palmyra-x5", "name": "Palmyra X5"}]}
    with scripted_upstream(json_answer(body)) as provider, writerai.Writer(**sdk_options(provider)) as client:
        assert WRITER.decode_models(body) == [model.id for model in client.models.list().models]
    listing = WRITER.models_request()
    assert listing
    path = provider.requests[0].path.removeprefix("/v1")
    assert listing.url == f"https://api.writer.com/v1{path}"


OPTIONS: list[tuple[dict, dict]] = [
    ({}, {}),
    ({"reasoning": {"effort": "none"}}, {}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"instructions": "Be brief."}, {"messages": [{"role": "system", "content": "Be brief."}, HELLO]}),
    (
        {"max_output_tokens": 100, "temperature": 0.5, "top_p": 0.9, "stop": ["END"]},
        {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "stop": ["END"]},
    ),
    ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    (
        {"text": FORMAT},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {k: v for k, v in FORMAT["format"].items() if k != "type"},
            }
        },
    ),
    ({"tools": [LOOSE]}, {"tools": [FUNCTION]}),
    ({"tools": [LOOSE], "tool_choice": "none"}, {"tools": [FUNCTION], "tool_choice": {"value": "none"}}),
    (
        {"tools": [LOOSE], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [FUNCTION], "tool_choice": {"value": "required"}},
    ),
    (
        {"tools": [LOOSE], "tool_choice": {"type": "function", "name": "weather"}},
        {"tools": [FUNCTION], "tool_choice": {"value": {"type": "function", "function": {"name": "weather"}}}},
    ),
    (
        {
            "tools": [LOOSE, TIME],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "time"}],
            },
        },
        {"tools": [TIMER], "tool_choice": {"value": "required"}},
    ),
    (
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "Look:"},
                        {"type": "input_image", "image_url": PNG},
                        {"type": "input_image", "image_url": "https://example.com/a.png"},
                    ],
                },
                {"type": "function_call", "call_id": "a", "name": "weather", "arguments": BERLIN},
                {"type": "function_call_output", "call_id": "a", "output": "21"},
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look:"},
                        {"type": "image_url", "image_url": {"url": PNG}},
                        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": BERLIN}}
                    ],
                },
                {"role": "tool", "tool_call_id": "a", "content": "21"},
            ]
        },
    ),
]


@pytest.mark.parametrize(("asking", "saying"), OPTIONS)
def test_each_option_is_sent_as_writers_sdk_sends_it(asking: dict, saying: dict):
    assert our_request(**asking).body == send_with_sdk(**saying).json
    assert our_request(**asking).warnings == []


# --- what cannot be carried ---


def test_json_of_any_shape_is_had_by_a_tool():
    body = our_request(text={"format": {"type": "json_object"}}).body
    assert body["tool_choice"]["value"]["function"]["name"] == "final_answer"
    assert "response_format" not in body


def test_dropped_features_have_a_warning():
    asking = our_request(
        input=[{"role": "user", "content": [{"type": "input_image", "image_url": PNG, "detail": "high"}]}],
        tools=[TOOL, {"type": "custom", "name": "patch"}],
        seed=1,
        presence_penalty=1,
        frequency_penalty=1,
        service_tier="flex",
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        top_logprobs=3,
        reasoning={"effort": "high"},
        text={"verbosity": "low"},
    )
    assert asking.body == {
        "model": "palmyra-x5",
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}],
        "logprobs": True,
        "tools": [FUNCTION],
    }
    assert sorted(str(warning.param) for warning in asking.warnings) == [
        "frequency_penalty",
        "input[0].content[0].detail",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "seed",
        "service_tier",
        "text.verbosity",
        "tools[0].strict",
        "tools[1]",
        "top_logprobs",
        "user",
    ]


def test_files_are_refused():
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0xLjQ="}
    with pytest.raises(RequestError) as caught:
        our_request(input=[{"role": "user", "content": [file]}])
    assert caught.value.payload.param == "input[0].content[0]"


# --- where ---


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_an_address_may_name_the_version_of_the_path_or_not(end: str):
    there = make_adapter(Writer, base_url=f"https://api.writer.com{end}")
    assert encode_request(there).sent.url == "https://api.writer.com/v1/chat"
    listing = there.models_request()
    assert listing
    assert listing.url == "https://api.writer.com/v1/models"


# --- errors ---


@pytest.mark.parametrize(
    ("status", "body", "message", "retryable"),
    [
        (401, {"errors": [], "message": "No key."}, "writer: No key.", False),
        (422, {"detail": "Bad."}, "writer: Bad.", False),
        (429, {"error": {"message": "Slow down."}}, "writer: Slow down.", True),
        (500, {}, "writer: answered 500 and did not say why.", True),
    ],
)
def test_a_refusal_keeps_the_providers_text(status: int, body: dict, message: str, retryable: bool):
    error = WRITER.decode_error(status, {}, json.dumps(body).encode())
    assert (error.status, error.payload.message) == (status, message)
    assert error.retryable == retryable
