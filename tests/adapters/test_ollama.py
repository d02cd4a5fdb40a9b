"""Ollama: the requests and answers of its own client are the reference."""

import base64
import json

import ollama
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.ollama import REASONS, Ollama
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, Message, Reasoning
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, make_adapter
from tests.adapters.scenes import FORMAT, NAMES, SCHEMA, TOOL, Summary
from tests.adapters.scenes.ollama import SCENES, call, last_line, line, message_line
from tests.scripted_upstream import json_answer, ndjson_answer, scripted_upstream

OLLAMA = make_adapter(Ollama)
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
PLAIN_TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def summarize(response: Response, named: Summary) -> Summary:
    """Return what a response means; calls whose provider gave no id have none here either."""
    usage = response.usage
    assert usage
    details = response.incomplete_details
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    ids = [id for id, *_ in named.calls] or [""] * len(calls)
    return Summary(
        text=response.output_text,
        calls=[
            (call.call_id if id else "", call.name, json.loads(call.arguments))
            for id, call in zip(ids, calls, strict=True)
        ],
        reasoning="".join(
            part.text  # type: ignore[union-attr]
            for item in response.output
            if isinstance(item, Reasoning)
            for part in item.content or []
        ),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        status=response.status,
        reason=details.reason if details else None,
        stop=named.stop,
    )


def items_without_ids(response: Response) -> list[object]:
    """Return the output without what is ours alone: its ids."""
    told = []
    for item in response.output:
        fields = {name: getattr(item, name) for name in item.__struct_fields__ if name not in ("id", "call_id")}
        told.append(fields)
    return told


# --- answers ---


def test_every_scene_is_played_that_the_dialect_has():
    assert set(NAMES) - set(SCENES) == {"refusal"}


@pytest.mark.parametrize("name", SCENES)
def test_ollamas_own_client_reads_the_same_lines(name: str):
    scene = SCENES[name]
    with scripted_upstream(ndjson_answer(scene.stream)) as provider, ollama.Client(host=provider.url) as client:
        lines = list(client.chat("qwen3:8b", [{"role": "user", "content": "Hi"}], stream=True))
    assert summarize_sdk(lines) == without_ids(scene.expected)


@pytest.mark.parametrize("name", SCENES)
def test_ollamas_own_client_reads_the_same_whole_answer(name: str):
    scene = SCENES[name]
    answer_bytes = json_answer(json.loads(scene.whole))
    with scripted_upstream(answer_bytes) as provider, ollama.Client(host=provider.url) as client:
        answer = client.chat("qwen3:8b", [{"role": "user", "content": "Hi"}])
    assert summarize_sdk([answer]) == without_ids(scene.expected)


def summarize_sdk(lines: list[ollama.ChatResponse]) -> Summary:
    last = lines[-1]
    length = last.done_reason == "length"
    return Summary(
        text="".join(part.message.content or "" for part in lines),
        calls=[
            ("", call.function.name, dict(call.function.arguments))
            for part in lines
            for call in part.message.tool_calls or []
        ],
        reasoning="".join(part.message.thinking or "" for part in lines),
        input_tokens=last.prompt_eval_count or 0,
        output_tokens=last.eval_count or 0,
        status="incomplete" if length else "completed",
        reason="max_output_tokens" if length else None,
        stop=last.done_reason or "",
    )


def without_ids(seen: Summary) -> Summary:
    """Their client shows no ids of calls."""
    return Summary(**{**vars(seen), "calls": [("", name, args) for _, name, args in seen.calls]})


def test_a_stop_after_calls_finishes_with_tool_calls():
    told = decode_parts(encode_request(OLLAMA, tools=[TOOL]), SCENES["call"].stream)
    assert told[-1] == parts.Finish("tool_calls", "stop")


def test_calls_whose_index_starts_again_stay_apart_and_get_ids():
    response = decode_response(encode_request(OLLAMA, tools=[TOOL]), SCENES["parallel_calls"].stream)
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    assert len({call.call_id for call in calls}) == 2
    assert [call.arguments for call in calls] == ['{"city":"Paris"}', '{"city":"Oslo"}']


def test_arguments_in_a_string_are_taken_as_they_are():
    spoken = message_line(tool_calls=[call("weather", '{"city":"Oslo"}')])  # type: ignore[arg-type]
    response = decode_response(encode_request(OLLAMA, tools=[TOOL]), spoken + last_line())
    assert [i.arguments for i in response.output if isinstance(i, FunctionCall)] == ['{"city":"Oslo"}']


@pytest.mark.parametrize("reason", [*REASONS, "", "something new"])
def test_every_reason_ends_the_response(reason: str):
    told = decode_parts(encode_request(OLLAMA), message_line("Hi") + last_line(reason=reason))
    assert told[-1] == parts.Finish(REASONS.get(reason, "stop"), reason)


def test_log_probabilities_have_bytes():
    weighed = {"token": "Hé", "logprob": -0.1, "top_logprobs": [{"token": "H", "logprob": -2.0}]}
    body = line(message={"content": "Hé"}, logprobs=[weighed], done=False) + last_line()
    response = decode_response(encode_request(OLLAMA, top_logprobs=1), body)
    message = response.output[0]
    assert isinstance(message, Message)
    (logprob,) = message.content[0].logprobs  # type: ignore[union-attr]
    assert (logprob.token, logprob.bytes) == ("Hé", [72, 195, 169])
    assert [(top.token, top.bytes) for top in logprob.top_logprobs] == [("H", [72])]


def test_what_is_not_known_is_ignored():
    body = line(message={"content": "Hi", "images": ["aGk="], "mood": 1}, done=False, remote=1)
    body += line(done=False) + b"\n" + line(message=None, done=False) + last_line({"content": None})
    assert decode_response(encode_request(OLLAMA), body).output_text == "Hi"


@given(cuts=st.lists(st.integers(1, 400), max_size=6))
def test_however_the_bytes_are_cut_the_parts_are_the_same(cuts: list[int]):
    body = SCENES["thinking_and_call"].stream
    decoder = encode_request(OLLAMA, tools=[TOOL]).decoder
    told, rest = [], body
    for cut in cuts:
        told += decoder.feed(rest[:cut])
        rest = rest[cut:]
    told += decoder.feed(rest) + decoder.close()
    assert told == decode_parts(encode_request(OLLAMA, tools=[TOOL]), body)


# --- answers that go wrong ---


@pytest.mark.parametrize("before", [b"", message_line("Hel")])
def test_an_error_in_the_stream_is_a_failure(before: bytes):
    response = decode_response(encode_request(OLLAMA), before + b'{"error":"the runner has stopped"}\n')
    assert response.status == "failed"
    assert response.error
    assert response.error.message == "ollama: the runner has stopped"
    assert response.output_text == ("Hel" if before else "")


def test_a_stream_without_its_last_line_was_cut():
    response = decode_response(encode_request(OLLAMA), message_line("Hel") + message_line("lo"))
    assert (response.status, response.error.code) == ("failed", "upstream_cut")  # type: ignore[union-attr]


@pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe\x00", b"[1]\n", b'{"message":3}\n', b"{"])
@pytest.mark.parametrize("stream", [True, False])
def test_bytes_that_cannot_be_decoded_are_a_failure(body: bytes, stream: bool):
    response = decode_response(encode_request(OLLAMA), body, stream=stream)
    assert (response.status, response.error.code) == ("failed", "upstream_invalid")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "body", "type", "code", "message"),
    [
        (401, {"error": "unauthorized", "signin_url": "x"}, "authentication_error", None, "una"),
        (404, {"error": "model 'x' not found"}, "not_found", "model_not_found", "model 'x'"),
        (429, {"error": "too many"}, "too_many_requests", None, "too many"),
        (400, {"error": "does not support tools"}, "invalid_request", None, "does not"),
        (
            400,
            {"error": '{"error":{"code":400,"message":"exceeds the available context size"}}'},
            "invalid_request",
            "context_length_exceeded",
            "exceeds the available context size",
        ),
        (500, {"error": "boom"}, "model_error", None, "boom"),
    ],
)
def test_an_error_keeps_ollamas_message(status: int, body: dict, type: str, code: str | None, message: str):
    error = OLLAMA.decode_error(status, {"retry-after": "3"}, json.dumps(body).encode())
    payload = error.payload
    assert (error.status, payload.type, payload.code) == (status, type, code)
    assert payload.message.startswith(f"ollama: {message}")
    assert error.headers == {"retry-after": "3"}
    assert error.retryable is (status in (429, 500))


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>"])
def test_an_error_without_a_message_is_reported(body: bytes):
    error = OLLAMA.decode_error(502, {}, body)
    assert str(error) == "ollama: answered 502 and did not say why."


# --- requests ---


def sdk_request(**fields: object) -> dict:
    """Return what Ollama's own client sends."""
    with scripted_upstream(ndjson_answer(last_line())) as provider:
        with ollama.Client(host=provider.url) as client:
            answer = client.chat("qwen3:8b", **fields)  # type: ignore[arg-type]
            if fields.get("stream"):
                list(answer)
        return provider.requests[0].json


def our_request(**fields: object) -> dict:
    """Return what we send, without what their client cannot say: ids of calls, `truncate`."""
    request = encode_request(OLLAMA, upstream_model="qwen3:8b", capabilities=None, **fields)
    assert request.sent.url == "http://127.0.0.1:11434/api/chat"
    body = json.loads(json.dumps(request.body))
    assert body.pop("truncate") is False
    for message in body["messages"]:
        message.pop("tool_call_id", None)
        for made_call in message.get("tool_calls", []):
            made_call.pop("id")
    return body


USER = {"role": "user", "content": "Hello"}
THEIR_TOOL = {
    "type": "function",
    "function": {name: PLAIN_TOOL[name] for name in ("name", "description", "parameters")},
}
HISTORY = [
    {"role": "user", "content": "Weather in Paris and Oslo?"},
    {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city":"Paris"}'},
    {"type": "function_call", "call_id": "b", "name": "weather", "arguments": '{"city":"Oslo"}'},
    {"type": "function_call_output", "call_id": "b", "output": "rain"},
    {"type": "function_call_output", "call_id": "a", "output": "sun"},
    {"role": "assistant", "content": "Sun and rain."},
    {"role": "user", "content": "Thanks."},
]
THEIR_HISTORY = [
    {"role": "user", "content": "Weather in Paris and Oslo?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Paris"}}},
            {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
        ],
    },
    {"role": "tool", "tool_name": "weather", "content": "sun"},
    {"role": "tool", "tool_name": "weather", "content": "rain"},
    {"role": "assistant", "content": "Sun and rain."},
    {"role": "user", "content": "Thanks."},
]
OPTIONS = {
    "temperature": 0.5,
    "top_p": 0.9,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "seed": 7,
    "stop": ["END"],
}
SAME_REQUESTS = {
    "a plain question": ({}, {"messages": [USER]}),
    "instructions and developer text": (
        {"instructions": "Be brief.", "input": [{"role": "developer", "content": "Be kind."}, USER]},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}, USER]},
    ),
    "a history with calls": ({"input": HISTORY}, {"messages": THEIR_HISTORY}),
    "an image": (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "What?"}, IMAGE]}]},
        {"messages": [{"role": "user", "content": "What?", "images": [PIXEL]}]},
    ),
    "an image from a tool": (
        {
            "input": [
                USER,
                {"type": "function_call", "call_id": "a", "name": "look", "arguments": ""},
                {
                    "type": "function_call_output",
                    "call_id": "a",
                    "output": [{"type": "input_text", "text": "See:"}, IMAGE],
                },
            ]
        },
        {
            "messages": [
                USER,
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
                {"role": "tool", "tool_name": "look", "content": "See:", "images": [PIXEL]},
            ]
        },
    ),
    "tools": ({"tools": [PLAIN_TOOL]}, {"messages": [USER], "tools": [THEIR_TOOL]}),
    "no tools, as chosen": ({"tools": [PLAIN_TOOL], "tool_choice": "none"}, {"messages": [USER]}),
    "a stream": ({"stream": True}, {"messages": [USER], "stream": True}),
    "options": ({**OPTIONS, "max_output_tokens": 99}, {"messages": [USER], "options": {**OPTIONS, "num_predict": 99}}),
    "a schema": ({"text": FORMAT}, {"messages": [USER], "format": SCHEMA}),
    "any json": ({"text": {"format": {"type": "json_object"}}}, {"messages": [USER], "format": "json"}),
    "thinking": ({"reasoning": {"effort": "high"}}, {"messages": [USER], "think": True}),
    "no thinking": ({"reasoning": {"effort": "none"}}, {"messages": [USER], "think": False}),
    "log probabilities": ({"top_logprobs": 3}, {"messages": [USER], "logprobs": True, "top_logprobs": 3}),
    "included log probabilities": (
        {"include": ["message.output_text.logprobs"]},
        {"messages": [USER], "logprobs": True},
    ),
}


@pytest.mark.parametrize("name", SAME_REQUESTS)
def test_we_send_what_ollamas_own_client_sends(name: str):
    ours, theirs = SAME_REQUESTS[name]
    expected = sdk_request(**theirs)
    body = our_request(**ours)
    assert {"tools": []} | body == {"tools": []} | expected


@pytest.mark.parametrize(
    ("effort", "level", "warned"),
    [("low", "low", 0), ("high", "high", 0), ("minimal", "low", 1), ("max", "high", 1), ("none", "low", 1)],
)
def test_gpt_oss_has_three_levels_of_effort(effort: str, level: str, warned: int):
    request = encode_request(OLLAMA, upstream_model="gpt-oss:120b-cloud", reasoning={"effort": effort})
    assert request.body["think"] == level
    assert len(request.warnings) == warned


def test_other_models_have_reasoning_on_or_off_with_a_warning():
    request = encode_request(OLLAMA, upstream_model="qwen3:8b", reasoning={"effort": "low"})
    assert request.body["think"] is True
    assert [(w.code, w.param) for w in request.warnings] == [("approximated_parameter", "reasoning.effort")]


def test_unrequested_options_are_not_sent():
    request = encode_request(OLLAMA, reasoning={"summary": "auto"})
    assert set(request.body) == {"model", "messages", "stream", "truncate"}
    assert [w.param for w in request.warnings] == ["reasoning.summary"]


def test_a_history_is_truncated_only_if_the_client_allows_it():
    assert "truncate" not in encode_request(OLLAMA, truncation="auto").body


def test_an_output_has_the_name_of_the_call_before_it_also_if_its_id_comes_again():
    history: list[object] = []
    for name in ("weather", "time"):
        call = {"type": "function_call", "call_id": "call_0", "name": name, "arguments": "{}"}
        history += [call, {"type": "function_call_output", "call_id": "call_0", "output": name}]
        history.append(USER)
    messages = encode_request(OLLAMA, input=history).body["messages"]
    told = [(m["tool_name"], m["content"]) for m in messages if m["role"] == "tool"]
    assert told == [("weather", "weather"), ("time", "time")]


def test_reasoning_is_sent_back_only_with_its_calls():
    response = decode_response(encode_request(OLLAMA, tools=[TOOL]), SCENES["thinking_and_call"].stream)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
    history = [USER, *(to_builtins(item) for item in response.output), output]
    assert encode_request(OLLAMA, tools=[TOOL], input=history).body["messages"][1:] == [
        {
            "role": "assistant",
            "thinking": "Paris is a city.",
            "tool_calls": [{"id": "call_1", "function": {"name": "weather", "arguments": {"city": "Paris"}}}],
        },
        {"role": "tool", "tool_name": "weather", "tool_call_id": "call_1", "content": "sun"},
    ]
    spoken = decode_response(
        encode_request(OLLAMA), message_line(thinking="Hm.") + message_line("Hello!") + last_line()
    )
    history = [USER, *(to_builtins(item) for item in spoken.output), USER]
    assert encode_request(OLLAMA, input=history).body["messages"][1] == {"role": "assistant", "content": "Hello!"}


def test_thinking_of_others_is_left_out():
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    request = encode_request(OLLAMA, input=[USER, thought, *HISTORY[1:]])
    assert request.body["messages"][1:] == encode_request(OLLAMA, input=HISTORY).body["messages"][1:]


def test_an_empty_turn_is_dropped():
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    silent = {"role": "assistant", "content": ""}
    sent = encode_request(OLLAMA, input=[USER, thought, USER, silent, USER]).body["messages"]
    assert sent == [{"role": "user", "content": "Hello"}] * 3
    with pytest.raises(RequestError) as refused:
        encode_request(OLLAMA, input=[thought])
    assert refused.value.payload.param == "input"


def test_reasoning_after_text_is_sealed_again():
    body = (
        message_line(thinking="a")
        + message_line("b")
        + message_line(thinking="c")
        + message_line(thinking="d")
        + last_line()
    )
    told = [part for part in decode_parts(encode_request(OLLAMA), body) if isinstance(part, parts.Reasoning)]
    assert [(part.text, bool(part.encrypted_content)) for part in told] == [("a", True), ("c", True), ("d", False)]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [("", {}), ("[1]", {"arguments": [1]}), ("{oops", {"arguments": "{oops"}), ("3", {"arguments": 3})],
)
def test_invalid_arguments_of_other_models_become_objects(arguments: str, sent: dict):
    odd = {"type": "function_call", "call_id": "f/1", "name": "f", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "f/1", "output": "ok"}
    message = encode_request(OLLAMA, input=[USER, odd, output]).body["messages"][1]
    assert message["tool_calls"] == [{"id": "f/1", "function": {"name": "f", "arguments": sent}}]


def test_tools_that_may_not_be_called_are_not_sent():
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
    other = {"type": "function", "name": "other"}
    request = encode_request(OLLAMA, tools=[PLAIN_TOOL, other], tool_choice=allowed)
    assert request.body["tools"] == [THEIR_TOOL]


def test_json_beside_tools_may_come_from_the_answer_tool():
    request = encode_request(OLLAMA, tools=[TOOL], text=FORMAT)
    assert "format" not in request.body
    assert [t["function"]["name"] for t in request.body["tools"]] == ["weather", "final_answer"]
    report = {"city": "Paris", "degrees": 21}
    body = message_line(tool_calls=[call("final_answer", report)]) + last_line()
    response = decode_response(request, body)
    assert (response.status, json.loads(response.output_text)) == ("completed", report)


# --- where ---


def test_models_are_listed():
    listing = OLLAMA.models_request()
    assert listing
    assert (listing.method, listing.url) == ("GET", "http://127.0.0.1:11434/api/tags")
    assert OLLAMA.decode_models({"models": [{"name": "qwen3:8b"}, {"model": "x"}, 3]}) == ["qwen3:8b"]


@pytest.mark.parametrize("end", ["", "/", "/api", "/api/", "/v1", "/v1/"])
def test_the_address_may_end_as_its_makers_write_it(end: str):
    there = make_adapter(Ollama, base_url=f"https://ollama.com{end}")
    assert encode_request(there).sent.url == "https://ollama.com/api/chat"
    listing = there.models_request()
    assert listing
    assert listing.url == "https://ollama.com/api/tags"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("gpu", "http://gpu:11434"),
        ("gpu:80", "http://gpu:80"),
        (":8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:1", "http://127.0.0.1:1"),
        ("::1", "http://[::1]:11434"),
        ("[::]:5", "http://[::1]:5"),
        ("http://gpu", "http://gpu"),
        ("https://ollama.example/base/", "https://ollama.example/base"),
    ],
)
def test_the_host_variable_is_read_as_ollamas_own_client_reads_it(host: str, url: str) -> None:
    assert Ollama.parse_variable("base_url", host) == url
