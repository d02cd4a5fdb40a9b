"""What Ollama does not support is rejected or dropped with a warning."""

import json

import pytest

from antiphon.adapters.base import Capabilities
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from tests.adapters.provider_servers import serve_providers, whole_answer
from tests.adapters.run_adapter import encode_request
from tests.adapters.scenes import TOOL
from tests.adapters.scenes.ollama import SCENES
from tests.adapters.test_ollama import IMAGE, OLLAMA, PIXEL, USER
from tests.http_client import post_response
from tests.scripted_upstream import json_answer


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_tier": "flex"}, "service_tier"),
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"safety_identifier": "s"}, "safety_identifier"),
        ({"user": "u"}, "user"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": [{"type": "openai:web_search_call", "id": "ws_1"}, USER]}, "input[0]"),
    ],
)
def test_what_changes_no_meaning_is_left_out_with_a_warning(fields: dict, param: str):
    request = encode_request(OLLAMA, **fields)
    assert [warning.param for warning in request.warnings] == [param]
    assert set(request.body) == {"model", "messages", "stream", "truncate"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}}, "tool_choice"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/b.png"}]}]},
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_file", "file_data": "aGk=", "filename": "a.txt"}]}
                ]
            },
            "input[0].content[0]",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,!"}]}]},
            "input[0].content[0]",
        ),
    ],
)
def test_what_changes_the_meaning_is_refused(fields: dict, param: str):
    with pytest.raises(RequestError) as refused:
        encode_request(OLLAMA, **fields)
    assert refused.value.payload.param == param


def test_no_effort_is_sent_to_a_model_without_reasoning():
    lacking = Capabilities(lacks=frozenset({"reasoning"}))
    request = encode_request(OLLAMA, reasoning={"effort": "high"}, capabilities=lacking)
    assert "think" not in request.body
    assert [w.param for w in request.warnings] == ["reasoning"]


def test_a_model_without_reasoning_is_called_again_without_an_effort_and_later_too():
    refusal = json_answer({"error": '"gemma3" does not support thinking'}, 400)
    wish = {"model": "ollama/gemma3", "reasoning": {"effort": "low"}}
    with serve_providers(["ollama"]) as served:
        there = served.upstreams["ollama"]
        there.play(refusal, whole_answer(SCENES["text"]))
        answers = [post_response(served.address, **wish).json() for _ in range(2)]
    assert ["think" in sent.json for sent in there.requests] == [True, False, False]
    for answer in answers:
        assert answer["status"] == "completed"
        assert [warning["param"] for warning in answer["antiphon:warnings"]] == ["reasoning"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "invalid think value"),
        (404, "model 'gemma3' does not support thinking"),
        (400, '"gemma3" does not support tools'),
    ],
)
def test_any_other_refusal_is_the_answer(status: int, words: str):
    error = OLLAMA.decode_error(status, {}, json.dumps({"error": words}).encode())
    assert OLLAMA.fallback_adapter(error) is None


def test_a_request_that_is_rejected_twice_is_not_repeated_again():
    error = OLLAMA.decode_error(400, {}, b'{"error": "x does not support thinking"}')
    other = OLLAMA.fallback_adapter(error)
    assert other
    assert other.fallback_adapter(error) is None


def test_the_detail_of_an_image_is_left_out_with_a_warning():
    pieces = [IMAGE | {"detail": "high"}, IMAGE]
    asking = encode_request(OLLAMA, input=[{"role": "user", "content": pieces}])
    assert asking.body["messages"][0]["images"] == [PIXEL, PIXEL]
    message = "Images have no 'detail' at ollama; it was not sent."
    place = "input[0].content[0].detail"
    assert asking.warnings == [parts.Warn("unsupported_parameter", message, place)]
