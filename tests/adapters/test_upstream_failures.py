"""Providers that fail and clients that disconnect: retries, fallbacks and closed connections."""

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from antiphon.adapters.base import Capabilities
from antiphon.server.config.load import parse_config
from antiphon.server.settings import Settings
from tests.adapters.provider_servers import (
    NAMES,
    SCENE_MODULES,
    ProviderServers,
    configure_provider,
    serve_providers,
    stream_answer,
    whole_answer,
)
from tests.adapters.scenes import TIME, TOOL
from tests.http_client import event_types, parse_stream, post_response, stream_events, wait_until
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer

CRAMPED = Capabilities(window=10)
TEXT = SCENE_MODULES["openai"].SCENES["text"]
SAID = TEXT.expected.text


@pytest.fixture(scope="module")
def home() -> Iterator[ProviderServers]:
    with serve_providers(retries=0) as served:
        yield served


@pytest.fixture
def patient() -> Iterator[ProviderServers]:
    with serve_providers(retries=2, retry_seconds=0.01, commit_seconds=0.2) as served:
        yield served


def error(status: int, **headers: str) -> ScriptedAnswer:
    """Refuse as most providers do."""
    body = {"error": {"message": "Not so fast.", "type": "rate_limit_error", "code": "slow_down"}}
    return json_answer(body, status, **headers)


# --- errors before the answer ---------------------------------------------------------------------

BODIES = {
    "html": ScriptedAnswer(b"<html>Bad gateway</html>", 502, {"content-type": "text/html"}),
    "empty": ScriptedAnswer(b"", 500),
    "odd": ScriptedAnswer(b'{"error": [1, 2]}', 500, {"content-type": "application/json"}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_a_refusal_keeps_its_status_and_names_the_provider(
    home: ProviderServers, name: str, status: int, stream: bool
) -> None:
    code = "model_not_found" if status == 404 else "slow_down"
    body = {"error": {"message": "No.", "type": "some_error", "code": code}}
    home.upstreams[name].play(json_answer(body, status, retry_after="7"))
    answer = post_response(home.address, model=f"{name}/m", stream=stream)
    told = answer.json()["error"]
    assert answer.status_code == status
    assert told["message"] == f"{name}: No."
    assert answer.headers["retry-after"] == "7"
    assert f"secret-{name}" not in answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", BODIES)
def test_an_error_without_a_message_is_still_an_error(
    home: ProviderServers, name: str, body: str, stream: bool
) -> None:
    home.upstreams[name].play(BODIES[body])
    answer = post_response(home.address, model=f"{name}/m", stream=stream)
    assert answer.status_code == BODIES[body].status
    assert answer.json()["error"]["message"].startswith(f"{name}: ")
    assert "Traceback" not in answer.text


REASON = b'{"error":{"message":"No."}}'
UNFINISHED = {
    "cut in a word": (ScriptedAnswer(REASON[:-4], cut=True), "answered {status} and did not say why."),
    "cut at its end": (ScriptedAnswer(REASON, cut=True), "No."),
    "stalled": (ScriptedAnswer(REASON, chunk_size=9, pause=0.5), "answered {status} and did not say why."),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", UNFINISHED)
@pytest.mark.parametrize("status", [401, 429, 500])
def test_an_error_whose_body_does_not_arrive_keeps_its_status(
    patient: ProviderServers, status: int, body: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.engine.provider_model.ERROR_BODY_SECONDS", 0.05)
    told, message = UNFINISHED[body]
    patient.upstreams["openai"].play(dataclasses.replace(told, status=status, headers={"retry-after": "60"}))
    answer = post_response(patient.address, model="openai/m", stream=stream)
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "60")
    assert answer.json()["error"]["message"] == f"openai: {message.format(status=status)}"
    assert len(patient.upstreams["openai"].requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_web_page_is_no_answer(home: ProviderServers, name: str, stream: bool) -> None:
    page = ScriptedAnswer(b"<html>Welcome!</html>", 200, {"content-type": "text/html; charset=utf-8"})
    home.upstreams[name].play(page)
    answer = post_response(home.address, model=f"{name}/m", stream=stream)
    message = f"{name}: answered with a web page. Its base_url probably leads elsewhere."
    assert (answer.status_code, answer.json()["error"]["message"]) == (502, message)


def test_an_overloaded_provider_is_unavailable(home: ProviderServers) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    home.upstreams["anthropic"].play(json_answer(body, 529))
    answer = post_response(home.address, model="anthropic/m")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [600, 999])
def test_a_status_that_is_no_error_is_a_bad_gateway(home: ProviderServers, status: int, stream: bool) -> None:
    away = {"location": "http://169.254.169.254/latest"}
    home.upstreams["openai"].play(ScriptedAnswer(b"", status, away))
    answer = post_response(home.address, model="openai/m", stream=stream)
    assert (answer.status_code, "location" in answer.headers) == (502, False)
    assert answer.json()["error"]["message"] == f"openai: answered {status} and did not say why."


HALVES = rb'{"error":{"message":"Bad \ud800.","type":"t\udc00","code":"c\ud800","param":"p\ud800"}}'


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_in_an_error_is_mended(home: ProviderServers, stream: bool) -> None:
    home.upstreams["openai"].play(ScriptedAnswer(HALVES, 500, {"content-type": "application/json"}))
    answer = post_response(home.address, model="openai/m", stream=stream)
    assert answer.json()["error"] == {
        "message": "openai: Bad \ufffd.",
        "type": "t\ufffd",
        "code": "c\ufffd",
        "param": "p\ufffd",
    }


def test_a_very_long_error_message_is_truncated(home: ProviderServers) -> None:
    body = {"error": {"message": "m" * 9999, "type": "t" * 9999, "code": "c" * 9999}}
    home.upstreams["openai"].play(json_answer(body, 500))
    told = post_response(home.address, model="openai/m").json()["error"]
    assert {name: len(told[name]) for name in ("message", "type", "code")} == {
        "message": 2000 + len("openai: "),
        "type": 200,
        "code": 200,
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_provider_that_repeats_our_key_is_not_quoted(home: ProviderServers, name: str, stream: bool) -> None:
    body = {"error": {"message": f"No such key: secret-{name}!", "code": f"secret-{name}"}}
    home.upstreams[name].play(json_answer(body, 401))
    answer = post_response(home.address, model=f"{name}/m", stream=stream)
    assert answer.json()["error"]["message"] == f"{name}: No such key: [redacted]!"
    assert f"secret-{name}" not in answer.text


def test_a_provider_that_is_not_there_is_a_bad_gateway() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        port = taken.getsockname()[1]
        nobody = configure_provider("openai", f"http://127.0.0.1:{port}")
        with run_server(Settings(providers=[nobody], retries=0)) as address:
            answer = post_response(address, model="openai/m")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    told = answer.json()["error"]["message"]
    assert told == f"openai: cannot be reached at 127.0.0.1:{port}: connection refused."


@pytest.mark.parametrize("name", NAMES)
def test_a_provider_with_an_invalid_address_is_a_bad_gateway(name: str) -> None:
    nowhere = configure_provider(name, "http://[::1:8080")
    keys = {name: "secret"}
    with run_server(Settings(providers=[nowhere], keys=keys, retries=0)) as address:
        answer = post_response(address, model=f"{name}/m")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    told = answer.json()["error"]["message"]
    assert told == f"{name}: cannot be reached: its address is not an http(s) URL."


def test_a_silent_provider_is_a_gateway_timeout() -> None:
    with serve_providers(["openai"], retries=0, first_byte_seconds=0.2) as served:
        served.upstreams["openai"].play(ScriptedAnswer(delay=1.0))
        answer = post_response(served.address, model="openai/m")
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


def test_a_provider_may_have_timeouts_of_its_own() -> None:
    late = ScriptedAnswer(delay=1.0)
    with scripted_upstream(late) as hasty, scripted_upstream(late) as slow, scripted_upstream(late) as other:
        text = f"""
            [providers.hasty]
            adapter = "openai"
            base_url = "{hasty.url}"
            timeouts = {{ first_byte = 0.2 }}

            [providers.slow]
            adapter = "openai"
            base_url = "{slow.url}"
            timeouts = {{ connect = 5 }}

            [providers.other]
            adapter = "openai"
            base_url = "{other.url}"
            """
        chosen = Settings(retries=0, first_byte_seconds=0.5).with_config(parse_config(text, {}))
        with run_server(chosen) as address:
            told = [
                post_response(address, model=f"{name}/m").json()["error"]["message"]
                for name in ("hasty", "slow", "other")
            ]
    assert told == [
        "hasty: sent nothing for 0.2 seconds.",
        "slow: sent nothing for 0.5 seconds.",
        "other: sent nothing for 0.5 seconds.",
    ]


def test_a_provider_that_falls_silent_fails_the_response() -> None:
    with serve_providers(["openai"], idle_seconds=0.2) as served:
        served.upstreams["openai"].play(stream_answer(TEXT, chunk_size=len(TEXT.stream) // 2, pause=1.0))
        events = stream_events(served.address, model="openai/m")
    assert event_types(events)[-2:] == ["error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "timeout"


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_of_an_unknown_provider_does_not_exist(home: ProviderServers, stream: bool) -> None:
    for model in ("nobody/m", "openai/", "openai"):
        answer = post_response(home.address, model=model, stream=stream)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("model", ["azure/..", "bedrock/../x", "openai/.", "google/a/../b"])
def test_a_name_that_leads_elsewhere_is_no_model(home: ProviderServers, model: str) -> None:
    answer = post_response(home.address, model=model)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


# --- errors inside the answer ---------------------------------------------------------------------


def test_an_error_as_the_first_event_of_a_stream_keeps_no_partial_answer(home: ProviderServers) -> None:
    home.upstreams["openai"].play(sse_answer(b'data: {"error":{"message":"Bad.","code":500}}\n\n'))
    events = stream_events(home.address, model="openai/m")
    assert event_types(events) == ["response.created", "response.in_progress", "error", "response.failed"]
    assert events[-1]["response"]["output"] == []


def test_an_error_in_the_middle_of_a_stream_keeps_the_text_so_far(home: ProviderServers) -> None:
    begun = b'data: {"choices":[{"index":0,"delta":{"content":"So"}}]}\n\n'
    broken = b'data: {"error":{"message":"Bad.","type":"server_error","code":"oops"}}\n\n'
    home.upstreams["openai"].play(sse_answer(begun + broken))
    failed = stream_events(home.address, model="openai/m")[-1]["response"]
    assert failed["output"][0]["status"] == "incomplete"
    assert failed["output"][0]["content"][0]["text"] == "So"
    assert failed["error"]["code"] == "oops"
    assert failed["usage"]["output_tokens"] > 0
    assert [warning["code"] for warning in failed["antiphon:warnings"]] == ["usage_estimated"]


def test_an_error_beside_usage_ends_the_stream(home: ProviderServers) -> None:
    said = b'data: {"choices":[{"index":0,"delta":{"content":"So"}}]}\n\n'
    spent = (
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"insufficient_system_resource"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'
    )
    home.upstreams["openai"].play(sse_answer(said + spent))
    events = stream_events(home.address, model="openai/m")
    assert event_types(events)[-2:] == ["error", "response.failed"]
    assert events[-1]["response"]["usage"]["total_tokens"] == 7
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "So"


@pytest.mark.parametrize("begun", [b"", b'data: {"choices":[{"delta":{"content":"So"}}]}\n\n'])
def test_half_a_character_in_an_error_of_a_stream_is_mended(home: ProviderServers, begun: bytes) -> None:
    home.upstreams["openai"].play(sse_answer(begun + b"data: " + HALVES + b"\n\n"))
    heard = stream_events(home.address, model="openai/m")
    told = {"code": "c\ufffd", "message": "openai: Bad \ufffd.", "type": "t\ufffd"}
    assert event_types(heard)[-2:] == ["error", "response.failed"]
    assert heard[-1]["response"]["error"] == told


@pytest.mark.parametrize("begun", [b"", b'data: {"choices":[{"delta":{"content":"So"}}]}\n\n'])
def test_a_key_that_is_repeated_in_mid_stream_is_not_quoted(home: ProviderServers, begun: bytes) -> None:
    error = json.dumps(dict.fromkeys(("message", "type", "code", "param"), "secret-openai"))
    home.upstreams["openai"].play(sse_answer(begun + b'data: {"error":%b}\n\n' % error.encode()))
    answer = post_response(home.address, model="openai/m", stream=True)
    assert "openai: [redacted]" in answer.text
    assert "secret-openai" not in answer.text


def test_a_truncated_last_line_loses_only_the_usage(home: ProviderServers) -> None:
    last = TEXT.stream.index(b'"usage": {')
    home.upstreams["openai"].play(sse_answer(TEXT.stream[:last], cut=True))
    response = stream_events(home.address, model="openai/m")[-1]["response"]
    assert (response["status"], response["output"][0]["content"][0]["text"]) == ("completed", SAID)
    assert [warning["code"] for warning in response["antiphon:warnings"]] == ["usage_estimated"]


# --- trying again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_provider_is_retried_before_its_answer_has_begun(patient: ProviderServers, status: int, stream: bool) -> None:
    good = stream_answer(TEXT) if stream else whole_answer(TEXT)
    patient.upstreams["openai"].play(error(status), error(status), good)
    answer = post_response(patient.address, model="openai/m", stream=stream)
    assert SAID in answer.text or SAID in text_of(answer)
    assert len(patient.upstreams["openai"].requests) == 3


def text_of(answer: httpx.Response) -> str:
    """Return the text that was streamed."""
    return "".join(
        event["delta"] for event in parse_stream(answer.text) if event["type"] == "response.output_text.delta"
    )


def test_trying_again_ends(patient: ProviderServers) -> None:
    patient.upstreams["openai"].play(error(503))
    assert post_response(patient.address, model="openai/m").status_code == 503
    assert len(patient.upstreams["openai"].requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_permanent_errors_are_not_retried(patient: ProviderServers, status: int) -> None:
    patient.upstreams["openai"].play(error(status))
    assert post_response(patient.address, model="openai/m").status_code == status
    assert len(patient.upstreams["openai"].requests) == 1


def test_a_long_wait_is_left_to_the_client(patient: ProviderServers) -> None:
    patient.upstreams["openai"].play(error(429, retry_after="60"))
    answer = post_response(patient.address, model="openai/m")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    assert len(patient.upstreams["openai"].requests) == 1


def test_nothing_is_retried_after_the_answer_has_begun(patient: ProviderServers) -> None:
    patient.upstreams["openai"].play(sse_answer(TEXT.stream[:200], cut=True))
    stream_events(patient.address, model="openai/m")
    assert len(patient.upstreams["openai"].requests) == 1


# --- leaving --------------------------------------------------------------------------------------


def disconnect_after(address: str, seconds: float, **body: Any) -> None:
    """Ask, and hang up after a while."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{address}/v1/responses", json=body | {"input": "Hi"}, timeout=seconds)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_first_byte_ends_the_upstream_request(
    home: ProviderServers, stream: bool
) -> None:
    openai = home.upstreams["openai"]
    openai.play(ScriptedAnswer(TEXT.stream, headers={"content-type": "text/event-stream"}, delay=3))
    before = openai.disconnects
    started = time.monotonic()
    disconnect_after(home.address, 0.5, model="openai/m", stream=stream)
    wait_until(lambda: openai.disconnects > before)
    assert time.monotonic() - started < 2  # and not when it would have spoken


def test_a_client_that_leaves_in_mid_stream_ends_the_upstream_request(home: ProviderServers) -> None:
    openai = home.upstreams["openai"]
    word = b'data: {"choices":[{"index":0,"delta":{"content":"So "}}]}\n\n'
    openai.play(sse_answer(word * 100, chunk_size=len(word), pause=0.05))
    before = openai.disconnects
    body = {"model": "openai/m", "input": "Hi", "stream": True}
    with httpx.stream("POST", f"{home.address}/v1/responses", json=body) as answer:
        next(answer.iter_lines())
    left = time.monotonic()
    wait_until(lambda: openai.disconnects > before)
    assert time.monotonic() - left < 1.5


# --- the tool choice is a hard constraint ---------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ollama"])
def test_a_call_that_is_not_allowed_never_reaches_the_client(home: ProviderServers, name: str, stream: bool) -> None:
    scene = SCENE_MODULES[name].SCENES["call"]  # calls `weather`
    home.upstreams[name].play(stream_answer(scene) if stream else whole_answer(scene))
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [name_header("time")]}
    answer = post_response(home.address, model=f"{name}/m", tools=[TOOL, TIME], tool_choice=choice, stream=stream)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert [item["type"] for item in response["output"]] == ["message"]
    assert [w["code"] for w in response["antiphon:warnings"]] == ["tool_not_allowed"]
    assert '"function_call"' not in json.dumps(response["output"])


def name_header(name: str) -> dict[str, str]:
    """Name a function in a tool choice."""
    return {"type": "function", "name": name}


@pytest.mark.parametrize("name", NAMES)
def test_one_call_at_a_time_gives_one_call(home: ProviderServers, name: str) -> None:
    scene = SCENE_MODULES[name].SCENES["parallel_calls"]
    home.upstreams[name].play(stream_answer(scene))
    asked = scene.request | {"parallel_tool_calls": False}
    response = stream_events(home.address, model=f"{name}/m", **asked)[-1]["response"]
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        (name, arguments) for _, name, arguments in scene.expected.calls[:1]
    ]


# --- many at once ---------------------------------------------------------------------------------


def test_many_streams_at_once_do_not_mix(home: ProviderServers) -> None:
    def words(name: str) -> bytes:
        word = f'data: {{"choices":[{{"index":0,"delta":{{"content":"{name} "}}}}]}}\n\n'
        end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        return (word * 20 + end + "data: [DONE]\n\n").encode()

    openai = home.upstreams["openai"]
    openai.play(*(sse_answer(words(f"w{n}"), chunk_size=50, pause=0.001) for n in range(21)))
    heard: list[str] = []

    def listen() -> None:
        events = stream_events(home.address, model="openai/m")
        heard.append(events[-1]["response"]["output"][0]["content"][0]["text"])

    threads = [threading.Thread(target=listen) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 20
    for text in heard:
        first = text.split()[0]
        assert text == f"{first} " * 20


# --- counting -------------------------------------------------------------------------------------


def count_tokens(address: str, model: str) -> dict[str, Any]:
    """Ask how many tokens a request would be."""
    body = {"model": model, "input": "How many?"}
    return httpx.post(f"{address}/v1/responses/input_tokens", json=body).json()


def test_tokens_are_counted_by_the_provider_or_estimated(home: ProviderServers) -> None:
    home.upstreams["anthropic"].play(json_answer({"input_tokens": 14}))
    assert count_tokens(home.address, "anthropic/m") == {"object": "response.input_tokens", "input_tokens": 14}
    assert home.upstreams["anthropic"].requests[-1].path == "/v1/messages/count_tokens"
    home.upstreams["anthropic"].play(error(500))
    for name in ("anthropic", "openai"):
        (warning,) = count_tokens(home.address, f"{name}/m")["antiphon:warnings"]
        assert warning["code"] == "usage_estimated"
