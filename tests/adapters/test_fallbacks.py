"""Fallback to other models of an alias."""

import dataclasses
import json
from collections.abc import Iterator

import httpx
import pytest
from msgspec.structs import replace

from antiphon.adapters.base import Capabilities
from antiphon.server.settings import Settings
from tests.adapters.frame_checks import generation_frames, summarize_frames
from tests.adapters.frame_checks import post_frames as hear_frames
from tests.adapters.frame_checks import types as frame_types
from tests.adapters.provider_servers import (
    NAMES,
    SCENE_MODULES,
    ProviderServers,
    configure_provider,
    serve_providers,
    stream_answer,
    whole_answer,
)
from tests.adapters.scenes import TOOL, responses
from tests.http_client import event_types, http_client, parse_stream, post_response, stream_events
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer

CRAMPED = Capabilities(window=10)
TEXT = SCENE_MODULES["openai"].SCENES["text"]
SAID = TEXT.expected.text
TEXT_JSON = {"format": {"type": "json_object"}}
BROKE = {"error": {"message": "Bad.", "type": "server_error", "code": "broke"}}


@pytest.fixture
def patient() -> Iterator[ProviderServers]:
    aliases = {
        "best": ["anthropic/a", "openai/b"],
        "fast": ["openai/b"],
        "all": ["google/c", "ollama/d", "openai/b"],
        "same": ["writer/w", "openai/b"],
        "open": ["responses/r", "openai/b"],
        "last": ["openai/b", "responses/r"],
    } | {f"{name} or writer": [f"{name}/m", "writer/w"] for name in NAMES}
    with serve_providers(retries=0, aliases=aliases, commit_seconds=0.2) as served:
        yield served


def error(status: int, **headers: str) -> ScriptedAnswer:
    """Refuse as most providers do."""
    body = {"error": {"message": "Not so fast.", "type": "rate_limit_error", "code": "slow_down"}}
    return json_answer(body, status, **headers)


def chunks(*told: dict) -> ScriptedAnswer:
    """Play the chunks of a chat."""
    return sse_answer(b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in told))


def chunk(finish: str | None = None, **delta: str) -> dict:
    """Write one chunk of a chat."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_the_next_model_answers_where_the_first_cannot(patient: ProviderServers, status: int, stream: bool) -> None:
    patient.upstreams["anthropic"].play(error(status))
    patient.upstreams["openai"].play(stream_answer(TEXT) if stream else whole_answer(TEXT))
    answer = post_response(patient.address, model="best", stream=stream)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["output"][0]["content"][0]["text"] == SAID
    assert response["model"] == "best"
    (warning,) = response["antiphon:warnings"]
    assert (warning["code"], warning["param"]) == ("fallback", "model")
    assert warning["message"] == (
        "anthropic/a could not answer, and openai/b was asked instead: anthropic: Not so fast."
    )


@pytest.fixture
def again() -> Iterator[ProviderServers]:
    best = ["anthropic/a", "openai/b"]
    with serve_providers(["anthropic", "openai"], retries=1, aliases={"best": best}) as served:
        yield served


@pytest.mark.parametrize(("wait", "asked"), [("0", 2), ("3", 1)])
def test_a_long_wait_is_not_worth_it_where_another_may_answer(again: ProviderServers, wait: str, asked: int) -> None:
    again.upstreams["anthropic"].play(error(429, retry_after=wait))
    again.upstreams["openai"].play(whole_answer(TEXT))
    assert post_response(again.address, model="best").status_code == 200
    assert len(again.upstreams["anthropic"].requests) == asked


def test_the_last_model_of_an_alias_is_retried_after_its_wait(again: ProviderServers) -> None:
    again.upstreams["anthropic"].play(error(401))
    again.upstreams["openai"].play(error(429, retry_after="3"), whole_answer(TEXT))
    assert post_response(again.address, model="best").status_code == 200
    assert len(again.upstreams["openai"].requests) == 2


def test_a_window_that_is_too_small_is_a_reason_to_ask_another() -> None:
    small = replace(configure_provider("anthropic", "http://127.0.0.1:9"), models={"a": CRAMPED})
    with scripted_upstream(whole_answer(TEXT)) as openai:
        chosen = Settings(
            providers=[small, configure_provider("openai", openai.url)], aliases={"best": ["anthropic/a", "openai/b"]}
        )
        with run_server(chosen) as address:
            answer = post_response(address, model="best", input="word " * 100)
    assert answer.status_code == 200
    assert [w["code"] for w in answer.json()["antiphon:warnings"]] == ["fallback"]


BAD_KEY = {"reason": "API_KEY_INVALID", "domain": "googleapis.com"}
ITS_OWN = {
    "google has another key": (
        "google",
        {"error": {"code": 400, "message": "API key not valid.", "details": [BAD_KEY]}},
    ),
    "anthropic is out of credit": (
        "anthropic",
        {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
    ),
    "openai has too little room": ("openai", {"error": {"message": "Too long.", "code": "context_length_exceeded"}}),
    "bedrock does not serve the model": (
        "bedrock",
        {"message": "Invocation of model ID m with on-demand throughput isn\u2019t supported."},
    ),
}
"""What providers answer 400 to, though nothing is wrong with the request."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("trouble", ITS_OWN)
def test_a_provider_whose_400_is_its_own_trouble_is_passed_over(
    patient: ProviderServers, trouble: str, stream: bool
) -> None:
    name, body = ITS_OWN[trouble]
    patient.upstreams[name].play(json_answer(body, 400))
    scene = SCENE_MODULES["writer"].SCENES["text"]
    patient.upstreams["writer"].play(stream_answer(scene) if stream else whole_answer(scene))
    answer = post_response(patient.address, model=f"{name} or writer", stream=stream)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["output"][0]["content"][0]["text"] == scene.expected.text
    assert [w["code"] for w in response["antiphon:warnings"]] == ["fallback"]


@pytest.mark.parametrize("code", ["content_filter", "unsupported_value", None])
def test_any_other_400_is_the_requests(patient: ProviderServers, code: str | None) -> None:
    patient.upstreams["openai"].play(json_answer({"error": {"message": "No.", "code": code}}, 400))
    answer = post_response(patient.address, model="openai or writer")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert patient.upstreams["writer"].requests == []


def test_a_bad_request_is_reported_to_the_client_without_a_fallback(patient: ProviderServers) -> None:
    patient.upstreams["anthropic"].play(error(400))
    assert post_response(patient.address, model="best").status_code == 400
    assert patient.upstreams["openai"].requests == []


def test_a_stream_that_breaks_before_its_first_word_falls_back(patient: ProviderServers) -> None:
    events = SCENE_MODULES["anthropic"].SCENES["text"].stream
    start = events[: events.index(b"event: content_block_start")]
    broken = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    patient.upstreams["anthropic"].play(sse_answer(start + broken))
    patient.upstreams["openai"].play(stream_answer(TEXT))
    heard = stream_events(patient.address, model="best")
    assert event_types(heard)[-1] == "response.completed"
    assert heard[-1]["response"]["output"][0]["content"][0]["text"] == SAID


def test_nothing_of_a_model_that_gave_way_is_left(patient: ProviderServers) -> None:
    events = SCENE_MODULES["anthropic"].SCENES["text"].stream
    start = events[: events.index(b"event: content_block_start")]
    assert b'"input_tokens": 12' in start
    patient.upstreams["anthropic"].play(sse_answer(start, cut=True))
    uncounted = TEXT.stream[: TEXT.stream.index(b'"usage": {')].rpartition(b"data: ")[0]
    patient.upstreams["openai"].play(sse_answer(uncounted))
    last = stream_events(patient.address, model="best", presence_penalty=1)[-1]["response"]
    assert last["usage"]["input_tokens"] != 12
    codes = [warning["code"] for warning in last["antiphon:warnings"]]
    assert codes == ["fallback", "usage_estimated"]  # and openai has presence penalties


def test_a_model_that_stood_in_may_fail_too(patient: ProviderServers, caplog: pytest.LogCaptureFixture) -> None:
    patient.upstreams["anthropic"].play(error(401))
    begun = b'data: {"choices":[{"index":0,"delta":{"content":"So"}}]}\n\n'
    patient.upstreams["openai"].play(sse_answer(begun + b'data: {"error":{"message":"Bad."}}\n\n'))
    failed = stream_events(patient.address, model="best")[-1]["response"]
    codes = [warning["code"] for warning in failed["antiphon:warnings"]]
    assert (failed["status"], codes) == ("failed", ["fallback", "usage_estimated"])
    assert "Traceback" not in caplog.text


def test_a_stream_that_breaks_after_its_first_word_does_not(patient: ProviderServers) -> None:
    events = SCENE_MODULES["anthropic"].SCENES["text"].stream
    half = events[: events.index(b"event: content_block_stop")]
    patient.upstreams["anthropic"].play(sse_answer(half, cut=True))
    heard = stream_events(patient.address, model="best")
    assert event_types(heard)[-1] == "response.failed"
    assert patient.upstreams["openai"].requests == []


def test_a_request_falls_back_to_a_model_that_supports_it(patient: ProviderServers) -> None:
    patient.upstreams["google"].play(error(500))
    patient.upstreams["openai"].play(whole_answer(TEXT))
    answer = post_response(patient.address, model="all", tools=[TOOL], tool_choice="required")
    assert answer.status_code == 200
    assert patient.upstreams["ollama"].requests == []  # it cannot be made to call
    codes = [warning["code"] for warning in answer.json()["antiphon:warnings"]]
    assert codes == ["fallback", "fallback", "tool_not_called"]


def test_the_next_model_makes_a_conversation_small_where_the_first_cannot(patient: ProviderServers) -> None:
    patient.upstreams["anthropic"].play(error(401))
    patient.upstreams["openai"].play(whole_answer(TEXT))
    body = {"model": "best", "input": "Hi!"}
    url = f"{patient.address}/v1/responses/compact"
    made = httpx.post(url, json=body, trust_env=False).json()
    assert [item["type"] for item in made["output"]] == ["message", "compaction"]
    assert [warning["code"] for warning in made["antiphon:warnings"]] == ["fallback"]


def test_if_all_models_fail_the_last_error_is_returned(patient: ProviderServers) -> None:
    patient.upstreams["anthropic"].play(json_answer({"error": {"message": "kaboom"}}, 500))
    patient.upstreams["openai"].play(json_answer({"error": {"message": "no way"}}, 401))
    answer = post_response(patient.address, model="best")
    told = answer.json()["error"]["message"]
    assert answer.status_code == 401
    assert told == "openai: no way. Others could not answer before it. anthropic/a: anthropic: kaboom."


def test_an_alias_is_a_model(patient: ProviderServers) -> None:
    patient.upstreams["openai"].play(whole_answer(TEXT))
    assert post_response(patient.address, model="fast").json()["model"] == "fast"
    listed = httpx.get(f"{patient.address}/v1/models").json()["data"]
    assert {"best", "fast", "all"} <= {model["id"] for model in listed}


# --- what breaks without a word -------------------------------------------------------------------

ROLE = chunk(role="assistant", content="")
WORDLESS = {
    "an error": [BROKE],
    "a role": [ROLE, BROKE],
    "an end": [chunk("stop"), BROKE],
    "a role and an end": [ROLE, chunk("length"), BROKE],
}


@pytest.mark.parametrize("before", WORDLESS)
def test_an_answer_that_breaks_without_a_word_has_failed(patient: ProviderServers, before: str) -> None:
    patient.upstreams["openai"].play(chunks(*WORDLESS[before]))
    last = stream_events(patient.address, model="openai/m")[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "broke"


@pytest.mark.parametrize("before", WORDLESS)
def test_and_another_may_answer_in_its_place(patient: ProviderServers, before: str) -> None:
    patient.upstreams["writer"].play(chunks(*WORDLESS[before]))
    patient.upstreams["openai"].play(stream_answer(TEXT))
    last = stream_events(patient.address, model="same")[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == SAID


@pytest.mark.parametrize("before", WORDLESS)
def test_frames_go_on_in_the_message_that_was_begun(patient: ProviderServers, before: str) -> None:
    patient.upstreams["writer"].play(chunks(*WORDLESS[before]))
    patient.upstreams["openai"].play(stream_answer(TEXT))
    frames = generation_frames(hear_frames(patient.address, model="same"))
    assert frame_types(frames)[-1] == "response.completed"
    assert summarize_frames(frames, TEXT.expected)["text"] == SAID
    assert len({frame["itemId"] for frame in frames if "itemId" in frame}) == 1


def test_log_probabilities_of_a_token_without_text_are_kept(patient: ProviderServers) -> None:
    weighed = chunk(content="")
    weighed["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": -1, "bytes": [97]}]}
    patient.upstreams["writer"].play(chunks(weighed, BROKE))
    assert stream_events(patient.address, model="same")[-1]["type"] == "response.failed"
    assert patient.upstreams["openai"].requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_json_that_does_not_come_has_failed(patient: ProviderServers, stream: bool) -> None:
    silent = chunks(ROLE, chunk("stop"))
    nothing = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}
    patient.upstreams["writer"].play(silent if stream else json_answer(nothing))
    answer = post_response(patient.address, model="writer/w", stream=stream, text=TEXT_JSON)
    told = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert told["error"]["code"] == "invalid_structured_output"


def test_a_whole_answer_that_broke_on_its_way_has_the_status_of_its_error(patient: ProviderServers) -> None:
    broke = {"code": "rate_limit_exceeded", "message": "Slow down."}
    said = responses.message("So")
    told = responses.response(said, status="failed", error=broke)
    patient.upstreams["responses"].play(json_answer(told))
    answer = post_response(patient.address, model="responses/r")
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"


# --- what is not read -----------------------------------------------------------------------------


def unused_warnings(response: dict) -> list[str]:
    """Return the fields that a response says were not used."""
    told = response.get("antiphon:warnings", [])
    return [warning["param"] for warning in told if warning["code"] == "unused_parameter"]


def test_the_fallback_model_warns_of_what_it_does_not_support(patient: ProviderServers) -> None:
    patient.upstreams["responses"].play(error(500))
    patient.upstreams["openai"].play(whole_answer(TEXT))
    assert unused_warnings(post_response(patient.address, model="open", odd=1).json()) == ["odd"]


def test_what_it_reads_is_not(patient: ProviderServers) -> None:
    patient.upstreams["openai"].play(error(500))
    patient.upstreams["responses"].play(whole_answer(SCENE_MODULES["responses"].SCENES["text"]))
    assert unused_warnings(post_response(patient.address, model="last", odd=1).json()) == []
    assert patient.upstreams["responses"].requests[-1].json["odd"] == 1


def test_a_server_called_through_chat_gets_only_what_chat_supports(patient: ProviderServers) -> None:
    there = patient.upstreams["responses"]
    there.play(error(404), whole_answer(TEXT))
    assert unused_warnings(post_response(patient.address, model="responses/r", odd=1).json()) == ["odd"]
    assert there.requests[-1].path.endswith("/chat/completions")


def test_the_fallback_warning_names_a_server_called_through_chat(patient: ProviderServers) -> None:
    patient.upstreams["openai"].play(error(500))
    patient.upstreams["responses"].play(error(404), whole_answer(TEXT))
    warned = post_response(patient.address, model="last").json()["antiphon:warnings"]
    assert [warning["code"] for warning in warned] == ["fallback"]


# --- the log --------------------------------------------------------------------------------------


def test_the_log_names_the_failed_provider_without_the_full_message(
    patient: ProviderServers, caplog: pytest.LogCaptureFixture
) -> None:
    patient.upstreams["anthropic"].play(error(500))
    patient.upstreams["openai"].play(error(429))
    post_response(patient.address, model="best")
    first, last = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert first.endswith(": 'anthropic/a' cannot answer (500 slow_down); asking 'openai/b'")
    assert last.endswith(": 'openai/b' cannot answer (429 slow_down)")
    assert "Not so fast" not in caplog.text


def test_a_broken_answer_is_logged(patient: ProviderServers, caplog: pytest.LogCaptureFixture) -> None:
    forged = {"error": {"message": "Bad.", "type": "server_error", "code": "x\nERROR forged"}}
    patient.upstreams["openai"].play(chunks(chunk(content="So"), forged))
    stream_events(patient.address, model="openai/\nm")
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith(": 'openai/\\nm' broke (500 server_error)")


ERRORS = {
    "of no known kind": ({"message": "Bad."}, "broke (502 model_error)"),
    "of the model": ({"message": "Bad.", "type": "model_error"}, "broke (502 model_error)"),
    "of the server": ({"message": "Bad.", "type": "server_error"}, "broke (500 server_error)"),
    "with a status": ({"message": "Bad.", "code": 503}, "broke (503 503)"),
    "that is overload": ({"type": "overloaded_error"}, "broke (503 overloaded_error)"),
    "that is none": (None, "broke (502 upstream_cut)"),
}
"""What an answer broke with, and what the log says of it."""


@pytest.mark.parametrize("path", ["/v1/responses", "/openai/responses", "/v1/chat/completions"])
@pytest.mark.parametrize("broken", ERRORS)
def test_a_broken_whole_answer_has_the_logged_status_also_when_repeated(
    patient: ProviderServers, caplog: pytest.LogCaptureFixture, broken: str, path: str
) -> None:
    error, told = ERRORS[broken]
    said = [chunk(content="So"), *([{"error": error}] if error else [])]
    patient.upstreams["openai"].play(chunks(*said))
    words = "messages" if "chat" in path else "input"
    body = {"model": "openai/m", words: [{"role": "user", "content": "Hi"}]}
    headers = {"idempotency-key": f"{path} {broken}"}
    with http_client(patient.address) as http:
        first, again = (http.post(path, json=body, headers=headers) for _ in range(2))
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith(f": 'openai/m' {told}")
    assert f"broke ({first.status_code} " in told
    assert again.status_code == first.status_code
    assert again.json()["error"]["message"] == first.json()["error"]["message"]


def test_a_stalled_answer_is_a_timeout_for_every_request_with_its_key(caplog: pytest.LogCaptureFixture) -> None:
    with serve_providers(["openai"], idle_seconds=0.2, retries=0) as served:
        begun = chunks(chunk(content="So"), chunk(content=" far"))
        served.upstreams["openai"].play(dataclasses.replace(begun, chunk_size=90, pause=1.0))
        body, keyed = {"model": "openai/m", "input": "Hi"}, {"idempotency-key": "the same"}
        with http_client(served.address) as http:
            answers = [http.post("/v1/responses", json=body, headers=keyed) for _ in range(2)]
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith(": 'openai/m' cannot answer (504 timeout)")
    assert [answer.status_code for answer in answers] == [504, 504]
