"""Chat answers of real servers with all their deviations, streamed and whole."""

import json

import pytest

from antiphon.adapters.openai import OpenAI
from antiphon.protocol import parts
from antiphon.protocol.events import Event
from antiphon.protocol.items import FunctionCall, Message, UrlCitation
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.struct import to_builtins
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import SynthOptions
from tests.adapters.chat_summary import items_without_ids
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, make_adapter, synthesize
from tests.adapters.scenes import TIME, TOOL
from tests.adapters.scenes.openai import (
    BERLIN,
    PARIS,
    SCENES,
    call,
    call_arguments,
    call_start,
    calls,
    chunk,
    frame,
    stream,
    whole,
)

CHAT = make_adapter(OpenAI, base_url="http://localhost:8000/v1", name="local")
DONE = b"data: [DONE]\n\n"


def decode_stream(body: bytes) -> Response:
    return decode_response(encode_request(CHAT, stream=True, tools=[TOOL, TIME]), body)


def decode_whole(body: bytes) -> Response:
    return decode_response(encode_request(CHAT, tools=[TOOL, TIME]), body, stream=False)


def calls_in(response: Response) -> list[tuple[str, str, str]]:
    found = [item for item in response.output if isinstance(item, FunctionCall)]
    return [(item.call_id, item.name, item.arguments) for item in found]


def decode_deltas(*deltas: dict) -> Response:
    return decode_stream(stream(*deltas, finish="tool_calls"))


# --- which call a bit belongs to ---

TWO = [("a", "weather", BERLIN), ("b", "weather", PARIS)]
ONE = [("a", "weather", BERLIN)]


def test_three_calls_in_one_delta_are_three_items_in_order():
    third = ("c", "time", "{}")
    delta = calls(call_start(0, *TWO[0]), call_start(1, *TWO[1]), call_start(2, *third))
    assert calls_in(decode_deltas(delta)) == [*TWO, third]


def test_a_new_id_and_name_on_a_known_index_is_another_call():
    response = decode_deltas(
        calls(call_start(0, "a", "weather")),
        calls(call_arguments(0, BERLIN)),
        calls(call_start(0, "b", "weather")),
        calls(call_arguments(0, PARIS)),
    )
    assert calls_in(response) == TWO


def test_indexes_that_start_at_one_leave_no_gap():
    asking = encode_request(CHAT, stream=True, tools=[TOOL])
    body = stream(calls(call_start(1, *TWO[0])), calls(call_start(2, *TWO[1])), finish="tool_calls")
    events, response = synthesize(asking, decode_parts(asking, body))
    indexes = [e.output_index for e in events if e.type == "response.output_item.added"]  # type: ignore[union-attr]
    assert (indexes, calls_in(response)) == ([0, 1], TWO)


def test_an_id_before_its_name_is_one_call():
    response = decode_deltas(
        calls({"index": 0, "id": "a"}),
        calls({"index": 0, "function": {"name": "weather"}}),
        calls(call_arguments(0, BERLIN)),
    )
    assert calls_in(response) == ONE


def test_a_name_before_its_id_is_one_call():
    response = decode_deltas(
        calls({"index": 0, "function": {"name": "weather", "arguments": ""}}),
        calls({"index": 0, "id": "a"}),
        calls(call_arguments(0, BERLIN)),
    )
    assert calls_in(response) == ONE


def test_an_id_and_a_name_after_one_another_on_a_known_index_are_another_call():
    response = decode_deltas(
        calls(call_start(0, "a", "weather", BERLIN)),
        calls({"index": 0, "id": "b"}),
        calls({"index": 0, "function": {"name": "weather"}}),
        calls(call_arguments(0, PARIS)),
    )
    assert calls_in(response) == TWO


@pytest.mark.parametrize("id", ["a", "", None])
@pytest.mark.parametrize("name", ["weather", "", None])
def test_ids_and_names_that_are_repeated_or_empty_do_no_harm(id: str | None, name: str | None):
    again = {"index": 0, "id": id, "function": {"name": name, "arguments": '"Berlin"}'}}
    end = {"index": 0, "id": id, "function": {"name": name, "arguments": ""}}
    response = decode_deltas(calls(call_start(0, "a", "weather", '{"city":')), calls(again), calls(end))
    assert calls_in(response) == ONE


def test_a_fresh_id_with_every_bit_is_still_one_call():
    later = {"index": 0, "id": "y", "function": {"name": None, "arguments": '"Berlin"}'}}
    last = {"index": 0, "id": "z", "function": {"name": None, "arguments": ""}}
    response = decode_deltas(calls(call_start(0, "a", "weather", '{"city":')), calls(later), calls(last))
    assert calls_in(response) == ONE


def test_calls_without_ids_or_indexes_are_separated_by_names_and_complete_arguments():
    def bit(name: str, arguments: str) -> dict:
        return {"id": "", "function": {"name": name, "arguments": arguments}}

    response = decode_deltas(calls(bit("weather", BERLIN)), calls(bit("weather", PARIS)), calls(bit("time", "{}")))
    assert [(name, said) for _, name, said in calls_in(response)] == [
        ("weather", BERLIN),
        ("weather", PARIS),
        ("time", "{}"),
    ]
    assert len({id for id, *_ in calls_in(response)}) == 3


def test_a_call_with_only_a_name_is_emitted_at_the_end():
    bare = {"index": 0, "function": {"name": "time"}}
    assert [said[1:] for said in calls_in(decode_deltas(calls(bare)))] == [("time", "{}")]


def test_arguments_without_a_call_are_dropped_with_a_warning():
    response = decode_deltas(calls(call_arguments(0, BERLIN)))
    assert calls_in(response) == []
    assert response.warnings
    assert response.warnings[0].code == "nameless_call"


def test_empty_calls_are_nothing():
    assert calls_in(decode_deltas(calls({}), calls({"index": 0}), calls(call_start(0, *ONE[0])))) == ONE


def test_arguments_that_are_an_object_become_a_string():
    fields = {"id": "a", "function": {"name": "weather", "arguments": {"city": "Berlin"}}}
    assert calls_in(decode_deltas(calls({"index": 0} | fields))) == ONE
    assert calls_in(decode_whole(whole(calls(fields), "tool_calls"))) == ONE


def test_whole_calls_are_counted_by_their_place_whatever_their_index():
    message = calls({"index": 0} | call(*TWO[0]), {"index": 0} | call(*TWO[1]))
    assert calls_in(decode_whole(whole(message, "tool_calls"))) == TWO


def test_the_function_call_of_old_is_a_call():
    deltas = [{"name": "weather", "arguments": ""}, {"arguments": '{"city":'}]
    deltas += [{"arguments": '"Berlin"}'}]
    body = stream(*[{"function_call": delta} for delta in deltas], finish="function_call")
    message = {"function_call": {"name": "weather", "arguments": BERLIN}}
    for response in (decode_stream(body), decode_whole(whole(message, "function_call"))):
        assert [said[1:] for said in calls_in(response)] == [("weather", BERLIN)]


def test_calls_with_the_word_stop_are_calls():
    asking = encode_request(CHAT, stream=True)
    said = decode_parts(asking, stream(calls(call_start(0, *ONE[0])), finish="stop"))
    assert parts.Finish("tool_calls", "stop") in said


def test_a_custom_tool_is_called_in_one_item():
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": ""}}
    later = {"index": 0, "custom": {"input": "+1"}}
    message = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "+1+1"}}
    body = stream(calls(first), calls(later), calls(later), finish="tool_calls")
    expected = [
        {"type": "openai:custom_tool_call", "status": "completed", "call_id": "a", "name": "patch", "input": "+1+1"}
    ]
    assert items_without_ids(decode_stream(body)) == expected
    assert items_without_ids(decode_whole(whole(calls(message), "tool_calls"))) == expected


# --- thinking, words, notes ---


def test_reasoning_text_and_a_call_are_three_items():
    asking = encode_request(CHAT, stream=True, tools=[TOOL])
    events, response = synthesize(asking, decode_parts(asking, SCENES["thinking_and_call"].stream))
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    for kind in ("response.output_item.added", "response.output_item.done"):
        assert [e.output_index for e in events if e.type == kind] == [0, 1, 2]  # type: ignore[union-attr]


def test_thinking_that_comes_twice_is_marked_twice():
    said = decode_parts(
        encode_request(CHAT, stream=True),
        stream({"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"}, {"reasoning": "d"}),
    )
    seal = '{"field":"reasoning"}'
    assert [part for part in said if isinstance(part, parts.Reasoning)] == [
        parts.Reasoning("a", encrypted_content=seal),
        parts.Reasoning("b"),
        parts.Reasoning("d", encrypted_content=seal),
    ]


def test_thinking_that_is_sent_in_both_fields_is_thought_once():
    body = stream({"reasoning": "a", "reasoning_content": "a"}, {"content": "b"})
    assert items_without_ids(decode_stream(body))[0] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "a"}],
        "encrypted_content": '{"field":"reasoning_content"}',
    }


def test_citations_are_notes_on_the_text():
    cited = {"url": "https://a.b", "title": "A", "start_index": 0, "end_index": 2}
    notes = [{"type": "url_citation", "url_citation": cited}, {"type": "unheard_of"}]
    expected = [UrlCitation(**cited)]
    for response in (
        decode_stream(stream({"content": "Hi"}, {"annotations": notes})),
        decode_whole(whole({"content": "Hi", "annotations": notes})),
    ):
        (message,) = response.output
        assert isinstance(message, Message)
        assert message.content[0].annotations == expected  # type: ignore[union-attr]


def test_log_probabilities_without_bytes_get_those_of_the_token():
    top = {"token": "Ho", "logprob": -2.5, "bytes": None}
    token = {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": [top]}
    likely: dict = {"content": [token], "refusal": None}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": likely, "finish_reason": "stop"}
    message = {"index": 0, "message": {"content": "Hi"}, "logprobs": likely}
    expected = [token | {"bytes": [72, 105], "top_logprobs": [top | {"bytes": [72, 111]}]}]
    for response in (
        decode_stream(frame({"choices": [choice]}) + DONE),
        decode_whole(json.dumps({"choices": [message | {"finish_reason": "stop"}]}).encode()),
    ):
        (written,) = response.output
        assert to_builtins(written.content[0].logprobs) == expected  # type: ignore[union-attr]


# --- side data of the wrong shape ---

CITED = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A"}}
WEIGHED = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}


def decode_with_side_data(message: dict, choice: dict | None = None, **fields: object) -> list[Response]:
    """Return an answer with invalid side data, streamed and whole."""
    end = {"index": 0, "finish_reason": "stop", **(choice or {})}
    bodies = [{"choices": [end | {name: message}], **fields} for name in ("delta", "message")]
    return [decode_stream(frame(bodies[0]) + DONE), decode_whole(json.dumps(bodies[1]).encode())]


@pytest.mark.parametrize("logprobs", [-0.25, [], "?", {"content": 3}, {"content": [{"token": "Hi", "logprob": None}]}])
def test_invalid_logprobs_do_not_lose_the_text(logprobs: object):
    for response in decode_with_side_data({"content": "Hi"}, {"logprobs": logprobs}):
        assert (response.status, response.output_text) == ("completed", "Hi")


def test_valid_fields_of_invalid_side_data_are_kept():
    odd = {"token": "x", "logprob": None}
    message = {"content": "Hi", "annotations": [{"url_citation": 3}, CITED, "?"]}
    usage = {"prompt_tokens": 3.0, "completion_tokens": "2", "prompt_tokens_details": "none"}
    for response in decode_with_side_data(message, {"logprobs": {"content": [odd, WEIGHED]}}, usage=usage):
        assert (response.status, response.output_text) == ("completed", "Hi")
        assert response.usage == ResponseUsage.of(3, 2)
        (said,) = [item for item in response.output if isinstance(item, Message)]
        (text,) = to_builtins(said.content)  # type: ignore[misc]
        assert [note["url"] for note in text["annotations"]] == ["https://a"]
        assert text["logprobs"] == [WEIGHED]


@pytest.mark.parametrize("usage", [[], "?", 3, {"prompt_tokens": {}}, {"completion_tokens": 1.5}])
def test_invalid_usage_does_not_lose_the_text(usage: object):
    for response in decode_with_side_data({"content": "Hi"}, usage=usage):
        assert (response.status, response.output_text) == ("completed", "Hi")


@pytest.mark.parametrize(
    ("arguments", "written"),
    [([], "{}"), ({"a": 1}, '{"a":1}'), ([1], "[1]"), ({}, "{}"), (3, "3"), ('{"a":1}', '{"a":1}')],
)
def test_calls_may_have_numbers_for_ids_and_arguments_of_any_kind(arguments: object, written: str):
    made = {"id": 7, "index": "0", "function": {"name": "weather", "arguments": arguments}}
    for response in decode_with_side_data({"content": None, "tool_calls": [made]}):
        assert calls_in(response) == [("7", "weather", written)]


def test_content_that_is_not_text_is_invalid():
    for response in decode_with_side_data({"content": 3}):
        assert response.error
        assert response.error.code == "upstream_invalid"


# --- around the answer ---


def test_noise_around_the_answer_is_ignored():
    role = {"role": "assistant", "content": None}
    second = {"index": 1, "delta": {"content": "another"}, "finish_reason": "stop"}
    body = b"".join(
        [
            b": OPENROUTER PROCESSING\n\n",
            b"event: ping\ndata: {}\n\n",
            b"data: \n\n",
            frame({"choices": []}),
            frame({"choices": None, "usage": None, "unheard_of": [1]}),
            *[frame(chunk(role))] * 3,
            frame(chunk({"content": "Hi", "unheard_of": {}})),
            frame({"choices": [second]}),
            frame({"choices": [{"index": 0, "content_filter_offsets": {}}]}),
            frame(chunk({"content": None}, "")),
            frame(chunk({}, "stop")),
            frame(chunk({}, "stop")),
            frame({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
            DONE,
            b"data: what is this\n\n",
        ]
    )
    response = decode_stream(body)
    assert items_without_ids(response) == [
        {
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        }
    ]
    assert response.usage
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 1)
    said = decode_parts(encode_request(CHAT, stream=True), body)
    assert [part for part in said if isinstance(part, parts.Finish)] == [parts.Finish("stop", "stop")]


def test_done_without_a_reason_is_a_normal_end():
    body = frame(chunk({"content": "Hi"})) + DONE
    assert parts.Finish("stop", None) in decode_parts(encode_request(CHAT, stream=True), body)
    assert decode_stream(body).status == "completed"
    message = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": None}]}
    assert decode_whole(json.dumps(message).encode()).status == "completed"


def test_an_unknown_reason_is_a_stop():
    said = decode_parts(encode_request(CHAT, stream=True), stream({"content": "Hi"}, finish="eos"))
    assert parts.Finish("stop", "eos") in said


def test_a_filter_leaves_the_answer_incomplete():
    for response in (
        decode_stream(stream({"content": "Hi"}, finish="content_filter")),
        decode_whole(whole({"content": "Hi"}, "content_filter")),
    ):
        assert response.status == "incomplete"
        assert response.incomplete_details
        assert response.incomplete_details.reason == "content_filter"
        assert response.output[-1].status == "incomplete"  # type: ignore[union-attr]
        assert response.usage


def test_an_answer_of_nothing_is_an_empty_message():
    for response in (decode_stream(stream()), decode_whole(whole({}))):
        assert (response.status, response.output_text) == ("completed", "")


# --- errors inside the answer ---

BEGUN = frame(chunk({"content": "Hel"}))
ERRORS: list[tuple[bytes, int, str, str | None]] = [
    (frame({"error": {"message": "busy", "code": 429}}), 429, "busy", "429"),
    (frame({"error": {"message": "busy", "code": "503"}}), 503, "busy", "503"),
    (frame({"error": {"message": "no", "type": "invalid_request_error"}}), 400, "no", None),
    (frame({"error": {"message": "slow", "code": "rate_limit_exceeded"}}), 429, "slow", "rate_limit_exceeded"),
    (frame({"error": {"message": "odd", "code": 7}}), 502, "odd", "7"),
    (frame({"error": "words"}), 502, "words", None),
    (frame({"object": "error", "message": "flat", "code": 400}), 400, "flat", "400"),
    (b'event: error\ndata: {"message": "named"}\n\n', 502, "named", None),
    (b"event: error\ndata: mere words\n\n", 502, "mere words", None),
    (frame({"choices": [{"index": 0, "error": {"message": "in", "code": 500}}]}), 500, "in", "500"),
    (frame(chunk({}, "error")), 502, "stopped with 'error'.", "error"),
    (frame(chunk({}, "abort")), 502, "stopped with 'abort'.", "abort"),
    (frame(chunk({}, "network_error")), 502, "stopped with 'network_error'.", "network_error"),
    (frame(chunk({}, x_groq={"id": "r", "error": "full"})), 502, "full", None),
    (frame(chunk({"content": "?"}, x_groq={"error": {"message": "no", "code": 503}})), 503, "no", "503"),
]


@pytest.mark.parametrize(("error", "status", "words", "code"), ERRORS)
def test_an_error_in_the_middle_of_a_stream_keeps_the_text_so_far(
    error: bytes, status: int, words: str, code: str | None
):
    said = decode_parts(encode_request(CHAT, stream=True), BEGUN + error + frame(chunk({"content": "lo"})) + DONE)
    failure = said[-1]
    assert isinstance(failure, parts.Failure)
    assert failure.error.message == f"local: {words}"
    assert (failure.status, failure.error.code) == (status, code)
    response = decode_stream(BEGUN + error + DONE)
    assert (response.status, response.output_text) == ("failed", "Hel")
    assert response.output[0].status == "incomplete"  # type: ignore[union-attr]


def test_an_error_before_any_word_fails_with_nothing_made():
    response = decode_stream(frame({"error": {"message": "no", "type": "server_error"}}))
    assert (response.status, response.output) == ("failed", [])


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"no","code":400}}',
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[],"usage":{"prompt_tokens":1}}',
        b'{"choices":[{"index":1,"message":{"content":"not ours"}}]}',
        b"<html>",
        b"",
        b"[]",
        b'{"choices":[{"message":{"content":7}}]}',
        b"\xff\xfe",
    ],
)
def test_a_whole_answer_that_holds_none_is_a_failure(body: bytes):
    assert decode_whole(body).status == "failed"


@pytest.mark.parametrize("end", ["", "chunk", "bytes"])
def test_a_stream_that_is_cut_never_completes(end: str):
    body = SCENES["text"].stream
    cut = {"": b"", "chunk": body[: body.index(b" world!") + 20], "bytes": body[:333]}[end]
    response = decode_stream(cut)
    assert response.status == "failed"
    assert response.error
    assert response.error.code in ("upstream_cut", "upstream_invalid")


@pytest.mark.parametrize("junk", [b"data: {\n\n", b"data: 7\n\n", b"data: \xff\n\n", b"data: null\n\n"])
def test_invalid_data_is_a_failure_and_not_an_exception(junk: bytes):
    response = decode_stream(BEGUN + junk)
    assert (response.status, response.output_text) == ("failed", "Hel")
    assert response.error
    assert response.error.code == "upstream_invalid"


def test_half_an_emoji_waits_for_its_other_half():
    deltas = [b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}']
    deltas += [b'{"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}']
    body = b"".join(b"data: " + delta + b"\n\n" for delta in deltas) + DONE
    assert decode_stream(body).output_text == "😀"


# --- for those who count deltas ---


def test_every_text_chunk_is_emitted_even_an_empty_one():
    deltas = [{"content": ""}, {"content": "a"}, {"content": None}, {"content": "b"}]
    said = decode_parts(encode_request(CHAT, stream=True), b"".join(frame(chunk(d)) for d in deltas) + DONE)
    asking = encode_request(CHAT, stream=True)
    synth = Synth(
        Response.new(asking.prompt.request, id="resp_1", created_at=1),
        ids=lambda prefix: f"{prefix}_1",
        clock=lambda: 2.0,
        options=SynthOptions(keep_empty=True),
    )
    events: list[Event] = list(synth.start())
    for part in said:
        events += synth.feed(part)
    words = [e.delta for e in events if e.type == "response.output_text.delta"]  # type: ignore[union-attr]
    assert words == ["", "a", "", "b"]
