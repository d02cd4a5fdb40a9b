"""Answers that are cut short, or too large."""

import gzip

import pytest

from tests.adapters.provider_servers import SCENE_MODULES, serve_providers, stream_answer
from tests.http_client import parse_stream, post_response
from tests.scripted_upstream import ScriptedAnswer

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
