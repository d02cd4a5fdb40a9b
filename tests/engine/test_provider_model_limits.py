"""Answers that are cut short, or too large."""

import gzip
from collections.abc import AsyncIterator

import pytest

from antiphon.agents.agent import Turn
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from tests.adapters.openai_chat.test_fast_text import event
from tests.adapters.provider_servers import SCENE_MODULES, serve_providers, stream_answer
from tests.engine.builders import make_engine, make_request
from tests.engine.recording_sink import RecordingSink
from tests.http_client import parse_stream, post_response
from tests.scripted_upstream import ScriptedAnswer, json_answer, sse_answer

TEXT = SCENE_MODULES["openai"].SCENES["text"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [0, 2, 8])
def test_a_compressed_stream_without_its_end_is_cut_short(cut: int, stream: bool) -> None:
    body = gzip.compress(stream_answer(TEXT).body)
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    with serve_providers(["openai"], retries=0) as served:
        served.upstreams["openai"].play(ScriptedAnswer(body[: len(body) - cut], headers=headers))
        answer = post_response(served.address, model="openai/m", stream=stream)
    if cut and not stream:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_cut")
        return
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["status"] == ("failed" if cut else "completed")
    assert response["output"][0]["content"][0]["text"] == TEXT.expected.text
    assert not cut or response["error"]["code"] == "upstream_cut"


LIMIT = 100_000


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("word", ["w", "word " * 1000], ids=["many deltas", "large deltas"])
def test_a_stream_with_too_much_output_fails_and_keeps_what_it_has(word: str, coding: str) -> None:
    frame = event(word)
    body = frame * (16_000_000 // len(frame))
    sent = gzip.compress(body, 1) if coding == "gzip" else body
    headers = {"content-type": "text/event-stream", "content-encoding": coding}
    with serve_providers(["openai"], answer_bytes=LIMIT) as served:
        served.upstreams["openai"].play(ScriptedAnswer(sent, headers=headers))
        answer = post_response(served.address, model="openai/m", stream=True)
    response = parse_stream(answer.text)[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "answer_too_large")
    assert "answer_bytes" in response["error"]["message"]
    text = response["output"][0]["content"][0]["text"]
    assert word * 10 < text  # some of it was kept
    assert len(text) < len(word) * (len(body) // len(frame)) * 2 / 3  # the rest was not read


def test_a_whole_answer_with_too_much_output_fails() -> None:
    message = {"role": "assistant", "content": "x" * (LIMIT + 1)}
    with serve_providers(["openai"], answer_bytes=LIMIT) as served:
        served.upstreams["openai"].play(json_answer({"choices": [{"message": message, "finish_reason": "stop"}]}))
        answer = post_response(served.address, model="openai/m")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "answer_too_large")


def test_an_answer_below_the_limit_is_complete() -> None:
    body = event("word " * 1000) * 1000 + stream_answer(TEXT).body
    with serve_providers(["openai"]) as served:
        served.upstreams["openai"].play(sse_answer(body))
        answer = post_response(served.address, model="openai/m", stream=True)
    response = parse_stream(answer.text)[-1]["response"]
    assert response["status"] == "completed"
    assert len(response["output"][0]["content"][0]["text"]) > 5_000_000


@pytest.mark.anyio
@pytest.mark.parametrize("part", ["x" * 10_000, parts.Call(1, "f", "x" * 1000), parts.Reasoning("y" * 3000)])
async def test_an_agent_with_endless_output_is_stopped(part: Part | str) -> None:
    closed = False

    async def endless(turn: Turn) -> AsyncIterator[Part | str]:
        nonlocal closed
        del turn
        try:
            while True:
                yield part
        finally:
            closed = True

    sink = RecordingSink()
    run = await make_engine(endless, answer_bytes=LIMIT).create_run(make_request(stream=True), sink)
    response = await run.execute()
    assert response.status == "failed"
    assert response.error
    assert response.error.code == "answer_too_large"
    assert response.output
    assert closed
    assert len(sink.events) < 1000


@pytest.mark.anyio
async def test_an_agent_that_returns_too_much_fails() -> None:
    async def large(turn: Turn) -> str:
        del turn
        return "x" * (LIMIT + 1)

    run = await make_engine(large, answer_bytes=LIMIT).create_run(make_request())
    response = await run.execute()
    assert (response.status, response.error and response.error.code) == ("failed", "answer_too_large")
