"""OpenAI's chat answers, and the requests to compatible servers."""

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.base import Adapter
from antiphon.adapters.features import ALL_FEATURES
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.openai_chat.decode import REASONS
from antiphon.protocol import parts
from antiphon.protocol.items import CUSTOM_TOOL_CALL_OUTPUT, Message, Reasoning
from antiphon.protocol.struct import to_builtins
from tests.adapters.chat_summary import HELLO, join_text, sdk_options, summarize_sdk, whole_answer
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, make_adapter
from tests.adapters.scenes import NAMES, TIME, TOOL
from tests.adapters.scenes.openai import BERLIN, SCENES
from tests.scripted_upstream import scripted_upstream, sse_answer

OPENAI = make_adapter(OpenAI)
LOCAL = make_adapter(OpenAI, base_url="http://localhost:8000/v1/")
MISTRAL = make_adapter(OpenAI, base_url="https://api.mistral.ai/v1")
TIMER = {"type": "function", "function": {k: v for k, v in TIME.items() if k != "type"}}


# --- answers ---


def test_every_scene_is_played():
    assert set(SCENES) == set(NAMES)


@pytest.mark.parametrize("name", SCENES)
def test_openais_own_sdk_sees_the_same(name: str):
    scene = SCENES[name]
    end = scene.expected.status, scene.expected.reason
    answers = sse_answer(scene.stream), whole_answer(scene.whole)
    with scripted_upstream(*answers) as provider, openai.OpenAI(**sdk_options(provider)) as client:
        create: Any = client.chat.completions.create
        chunks = list(create(model="m", messages=[HELLO], stream=True))
        answer = create(model="m", messages=[HELLO])
    assert summarize_sdk(chunks, *end) == scene.expected
    assert summarize_sdk([answer], *end) == scene.expected


@given(st.data())
def test_any_cuts_in_the_bytes_give_the_same_parts(data: st.DataObject):
    scene = SCENES[data.draw(st.sampled_from(sorted(SCENES)))]
    asking = encode_request(OPENAI, stream=True, **scene.request)
    cuts = data.draw(st.lists(st.integers(0, len(scene.stream)), max_size=12).map(sorted))
    told = []
    for start, end in zip([0, *cuts], [*cuts, len(scene.stream)], strict=True):
        told += asking.decoder.feed(scene.stream[start:end])
    told += asking.decoder.close()
    assert told == decode_parts(encode_request(OPENAI, stream=True, **scene.request), scene.stream)


@pytest.mark.parametrize(("raw", "reason"), REASONS.items())
def test_every_finish_keeps_the_providers_reason(raw: str, reason: parts.Reason):
    body = SCENES["text"].stream.replace(b'"stop"', f'"{raw}"'.encode())
    assert parts.Finish(reason, raw) in decode_parts(encode_request(OPENAI, stream=True), body)


# --- what other servers are sent ---


def test_a_compatible_server_gets_the_field_names_that_all_servers_know():
    asking = encode_request(
        LOCAL, instructions="Be brief.", max_output_tokens=50, stream=True, seed=7, reasoning={"effort": "low"}
    )
    assert asking.sent.url == "http://localhost:8000/v1/chat/completions"
    assert asking.body == {
        "model": "some-model",
        "messages": [{"role": "system", "content": "Be brief."}, HELLO],
        "max_tokens": 50,
        "seed": 7,
        "reasoning_effort": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert asking.warnings == []


def test_a_compatible_server_is_not_sent_what_only_openai_has():
    asking = encode_request(
        LOCAL,
        service_tier="flex",
        prompt_cache_key="k",
        safety_identifier="s",
        text={"verbosity": "low"},
        tools=[TOOL, TIME, {"type": "custom", "name": "patch"}],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "time"}]},
    )
    assert asking.body == {"model": "some-model", "messages": [HELLO], "tools": [TIMER]}
    assert [(warning.code, warning.param) for warning in asking.warnings] == [
        ("unsupported_parameter", "prompt_cache_key"),
        ("unsupported_parameter", "safety_identifier"),
        ("unsupported_parameter", "service_tier"),
        ("unsupported_parameter", "text.verbosity"),
        ("unsupported_tool", "tools[2]"),
    ]


def test_custom_calls_and_refusals_are_converted_for_a_compatible_server():
    said = [
        {"role": "user", "content": [{"type": "input_video", "video_url": "https://a.b/c.mp4"}]},
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+1"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "Done."}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    function = {"name": "patch", "arguments": '{"input":"+1"}'}
    assert encode_request(LOCAL, input=said).body["messages"] == [
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://a.b/c.mp4"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "Done."},
        {"role": "assistant", "content": "No."},
    ]


def test_mistral_is_sent_nothing_that_it_refuses():
    said = [
        {"type": "function_call", "call_id": "call_123", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_123", "output": "noon"},
        {"type": "function_call", "call_id": "abcDEF123", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "abcDEF123", "output": "noon"},
    ]
    asking = encode_request(MISTRAL, input=said, stream=True, seed=7, user="u", top_logprobs=2)
    body = asking.body
    ids = [message["tool_calls"][0]["id"] for message in body.pop("messages")[::2]]
    assert body == {"model": "some-model", "random_seed": 7, "stream": True}
    assert [len(id) for id in ids] == [9, 9]
    assert ids[0].isalnum()
    assert ids[1] == "abcDEF123"
    assert [warning.param for warning in asking.warnings] == ["user", "top_logprobs"]


@pytest.mark.parametrize(
    ("url", "own"),
    [
        (None, True),
        ("https://eu.api.openai.com/v1", True),
        ("https://api.openai.com.example.com/v1", False),
        ("https://openrouter.ai/api/v1", False),
        ("http://127.0.0.1:1234/v1", False),
    ],
)
def test_openais_own_address_is_recognised(url: str | None, own: bool):
    adapter = make_adapter(OpenAI, base_url=url)
    assert ("allowed_tools" in adapter.features) == own
    assert adapter.features <= ALL_FEATURES


# --- thinking goes back ---


def replay_loop(adapter: Adapter, body: bytes, *then: dict) -> list[dict]:
    """Ask again after a call was made and answered, as the client would."""
    scene = SCENES["thinking_and_call"]
    response = decode_response(encode_request(adapter, stream=True, **scene.request), body)
    output = {"type": "function_call_output", "call_id": "call_a", "output": "21"}
    said = [HELLO, *map(to_builtins, response.output), output, *then]
    return encode_request(adapter, input=said, **scene.request).body["messages"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_before_a_call_is_sent_back_in_its_field(field: str):
    body = SCENES["thinking_and_call"].stream.replace(b"reasoning_content", field.encode())
    call = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": BERLIN}}
    turn = {"role": "assistant", "content": "One moment.", field: "The user wants weather.", "tool_calls": [call]}
    output = {"role": "tool", "tool_call_id": "call_a", "content": "21"}
    assert replay_loop(LOCAL, body) == [HELLO, turn, output]
    later = [{"role": "assistant", "content": "21."}, HELLO]
    assert replay_loop(LOCAL, body, *later) == [HELLO, turn, output, *later]


def test_thinking_that_led_to_no_call_stays_behind_when_the_user_goes_on():
    thought = Reasoning(
        id="rs_1",
        content=[{"type": "reasoning_text", "text": "Hm."}],  # type: ignore[list-item]
        encrypted_content='{"field":"reasoning_content"}',
    )
    said = [HELLO, to_builtins(thought), {"role": "assistant", "content": "Hi."}]
    answer = {"role": "assistant", "content": "Hi."}
    assert encode_request(LOCAL, input=said).body["messages"] == [HELLO, answer | {"reasoning_content": "Hm."}]
    assert encode_request(LOCAL, input=[*said, HELLO]).body["messages"] == [HELLO, answer, HELLO]


def test_mistrals_reasoning_is_sent_back_as_a_content_piece():
    pieces = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "One moment."},
    ]
    call = {"index": 0, "id": "abcDEF123", "function": {"name": "weather", "arguments": BERLIN}}
    message = {"role": "assistant", "content": pieces, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"choices": [choice]}).encode()
    response = decode_response(encode_request(MISTRAL), body, stream=False)
    output = {"type": "function_call_output", "call_id": "abcDEF123", "output": "21"}
    said = [HELLO, *map(to_builtins, response.output), output]
    told = encode_request(MISTRAL, input=said).body["messages"][1]
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert told["content"] == pieces


def test_foreign_thinking_is_left_out():
    thoughts = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAA"},
    ]
    said = [HELLO, *thoughts, {"role": "assistant", "content": "Hi."}, *thoughts]
    assert encode_request(LOCAL, input=said).body["messages"] == [HELLO, {"role": "assistant", "content": "Hi."}]


# --- errors before the answer ---

LIMITED = {
    "error": {
        "message": "Rate limit reached for key sk-abcdefghijkl.",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
}


@pytest.mark.parametrize(
    ("status", "body", "type", "code", "retryable"),
    [
        (401, b'{"error":{"message":"no","type":"x","code":"invalid_api_key"}}', "x", None, False),
        (429, json.dumps(LIMITED).encode(), "requests", "rate_limit_exceeded", True),
        (429, b'{"error":{"code":"insufficient_quota"}}', "too_many_requests", None, False),
        (400, b'{"error":{"message":"m","param":"messages"}}', "invalid_request", None, False),
        (404, b'{"detail":"Not Found"}', "not_found", None, False),
        (422, b'{"object":"error","message":"m","type":"t"}', "t", None, False),
        (500, b'{"error":"broken"}', "model_error", None, True),
        (502, b"<html>Bad gateway</html>", "model_error", None, True),
        (503, b"", "model_error", None, True),
    ],
)
def test_a_refusal_keeps_the_providers_text(status: int, body: bytes, type: str, code: str | None, retryable: bool):
    error = OPENAI.decode_error(status, {"retry-after": "7"}, body)
    assert (error.status, error.payload.type, error.retryable) == (status, type, retryable)
    assert code is None or error.payload.code == code
    assert error.headers == {"retry-after": "7"}
    assert "sk-" not in error.payload.message


def test_the_output_type_of_custom_tools_passes_the_feature_filter():
    assert {"openai:custom_tool_call", CUSTOM_TOOL_CALL_OUTPUT} == OPENAI.extension_items


def test_text_has_as_many_parts_as_chunks():
    said = decode_parts(encode_request(OPENAI, stream=True), SCENES["text"].stream)
    words = [part.text for part in said if isinstance(part, parts.Text)]
    assert words == ["", "Hello", ", 🎭", " world!", ""]
    assert join_text(said) == "Hello, 🎭 world!"
    response = decode_response(encode_request(OPENAI, stream=True), SCENES["text"].stream)
    assert [type(item) for item in response.output] == [Message]
