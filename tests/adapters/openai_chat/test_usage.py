"""Token counts of chat servers."""

import json

import pytest

from antiphon.adapters.openai import OpenAI
from antiphon.protocol import parts
from antiphon.protocol.response import Response, ResponseUsage
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, make_adapter
from tests.adapters.scenes.openai import chunk, frame, stream, whole

CHAT = make_adapter(OpenAI, base_url="http://localhost:8000/v1", name="local")
DONE = b"data: [DONE]\n\n"


def decode_stream(body: bytes) -> Response:
    return decode_response(encode_request(CHAT, stream=True), body)


@pytest.mark.parametrize("ending", [b"", DONE, b"data: [DONE]", DONE + b"data: junk\n\n"])
def test_usage_in_the_last_chunk_and_any_ending_is_a_clean_end(ending: bytes):
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    body = frame(chunk({"content": "Hi"})) + frame(chunk({}, "stop", usage=usage)) + ending
    response = decode_stream(body)
    assert (response.status, response.output_text) == ("completed", "Hi")
    assert response.usage
    assert response.usage.total_tokens == 4


def test_usage_in_every_chunk_counts_once():
    def counted(n: int) -> dict:
        return {"prompt_tokens": 3, "completion_tokens": n, "total_tokens": 3 + n}

    body = b"".join(frame(chunk({"content": "x"}, usage=counted(n))) for n in (1, 2, 3))
    response = decode_stream(body + frame(chunk({}, "stop", usage=counted(3))))
    assert response.usage
    assert response.usage.output_tokens == 3


@pytest.mark.parametrize("count", [1, "1", 1.0])
def test_groq_counts_aside(count: object):
    counts = {"prompt_tokens": 3, "completion_tokens": count, "queue_time": 0.01}
    body = frame(chunk({"content": "Hi"}, x_groq={"id": "req_1"}))
    body += frame(chunk({}, "stop", x_groq={"id": "req_1", "usage": counts})) + DONE
    response = decode_stream(body)
    assert (response.output_text, response.usage) == ("Hi", ResponseUsage.of(3, 1))


@pytest.mark.parametrize("aside", ["?", [], None, {"usage": "?"}, {"error": None}])
def test_invalid_side_data_does_not_lose_the_answer(aside: object):
    response = decode_stream(stream({"content": "Hi"}) + frame(chunk({}, x_groq=aside)))
    assert (response.status, response.output_text) == ("completed", "Hi")
    response = decode_stream(frame(chunk({"content": "Hi"}, "stop", x_groq=aside)))
    assert (response.status, response.output_text) == ("completed", "Hi")


XAI = {
    "prompt_tokens": 14,
    "completion_tokens": 9,
    "total_tokens": 137,
    "completion_tokens_details": {"reasoning_tokens": 114},
}


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        (XAI, ResponseUsage.of(14, 123, reasoning=114)),
        (XAI | {"completion_tokens": 123}, ResponseUsage.of(14, 123, reasoning=114)),
        (XAI | {"total_tokens": "137"}, ResponseUsage.of(14, 123, reasoning=114)),
        (XAI | {"total_tokens": None}, ResponseUsage.of(14, 9, reasoning=114)),
        (XAI | {"total_tokens": {}}, ResponseUsage.of(14, 9, reasoning=114)),
        (XAI | {"total_tokens": 20}, ResponseUsage.of(14, 9, reasoning=114)),
        ({"completion_tokens": 9, "total_tokens": 137}, ResponseUsage.of(0, 9)),
        ({"prompt_tokens": 14, "total_tokens": 137}, ResponseUsage.of(14, 0)),
    ],
)
def test_what_only_the_total_counts_was_written_too(counts: dict, usage: ResponseUsage):
    assert decode_stream(stream({"content": "Hi"}, usage=counts)).usage == usage
    once = decode_response(encode_request(CHAT), whole({"content": "Hi"}, usage=counts), stream=False)
    assert once.usage == usage


# --- what is counted beside a failure ---

COUNTED = {"prompt_tokens": 11, "completion_tokens": 22, "total_tokens": 33}
SPENT = {"index": 0, "delta": {"content": "lo"}, "finish_reason": "insufficient_system_resource"}
ERRED = {"index": 0, "delta": {"content": ""}, "error": {"message": "Bad.", "code": 502}}


@pytest.mark.parametrize("pieces", [0, 1, 90])
@pytest.mark.parametrize("choice", [SPENT, ERRED])
def test_a_failure_is_the_last_word_and_its_tokens_are_counted(choice: dict, pieces: int):
    last = chunk({}) | {"choices": [choice], "usage": COUNTED}
    body = frame(chunk({"content": "Hel"})) + frame(last) + DONE
    response = decode_response(encode_request(CHAT, stream=True), body, pieces=pieces)
    assert response.status == "failed"
    assert response.output_text.startswith("Hel")
    assert response.usage
    assert response.usage.total_tokens == 33


@pytest.mark.parametrize("finish", [None, "insufficient_system_resource"])
def test_a_whole_answer_that_failed_has_nothing_after_it(finish: str | None):
    message = {"role": "assistant", "content": None}
    choice = {"index": 0, "message": message, "finish_reason": finish, "error": None}
    choice |= {} if finish else {"error": {"message": "Bad.", "code": 502}}
    parts_heard = decode_parts(
        encode_request(CHAT), json.dumps({"choices": [choice], "usage": COUNTED}).encode(), stream=False
    )
    assert isinstance(parts_heard[-1], parts.Failure)
    assert sum(isinstance(part, parts.Usage) for part in parts_heard) == 1
    assert not any(isinstance(part, parts.Finish) for part in parts_heard)
