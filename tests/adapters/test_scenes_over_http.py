"""A few scenes of every provider through the whole server, streamed and not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from tests.adapters.provider_servers import (
    NAMES,
    SCENE_MODULES,
    SERVER_SCENES,
    ProviderServers,
    serve_providers,
    stream_answer,
    summarize,
    whole_answer,
)
from tests.http_client import event_types, http_client, post_response, stream_events
from tests.scripted_upstream import json_answer, sse_answer
from tests.server.openapi.checks import check_component, check_events
from tests.spec.schema_checks import check_event, check_response


@pytest.fixture(scope="module")
def home() -> Iterator[ProviderServers]:
    with serve_providers(retries=0) as served:
        yield served


@pytest.mark.parametrize(("name", "scene"), SERVER_SCENES)
def test_a_stream_has_the_expected_content(home: ProviderServers, name: str, scene: str) -> None:
    played = SCENE_MODULES[name].SCENES[scene]
    for pieces in (0, 7):
        home.upstreams[name].play(stream_answer(played, chunk_size=pieces))
        events = stream_events(home.address, model=f"{name}/some-model", **played.request)
        for event in events:
            check_event(event)
        check_events("POST", "/v1/responses", events)
        assert find_violations(decode_event(event) for event in events) == []
        assert summarize(events[-1]["response"], played.expected) == played.expected


@pytest.mark.parametrize(("name", "scene"), SERVER_SCENES)
def test_a_whole_answer_has_the_expected_content(home: ProviderServers, name: str, scene: str) -> None:
    played = SCENE_MODULES[name].SCENES[scene]
    home.upstreams[name].play(whole_answer(played))
    answer = post_response(home.address, model=f"{name}/some-model", **played.request)
    assert answer.status_code == 200
    check_response(answer.json())
    check_component("Response", answer.json())
    assert summarize(answer.json(), played.expected) == played.expected


HALF = "A \ud83c"
"""What half of an emoji becomes a title of."""

CITED: dict[str, Any] = {
    "content": "Hello",
    "annotations": [
        {"type": "url_citation", "url_citation": {"url": "https://a", "title": HALF, "start_index": 0, "end_index": 5}}
    ],
}
WEIGHED = {"content": [{"token": HALF, "logprob": -0.5, "bytes": None, "top_logprobs": []}]}


@pytest.mark.parametrize("stream", [True, False])
def test_half_an_emoji_in_side_data_breaks_nothing(home: ProviderServers, stream: bool) -> None:
    said = {"delta" if stream else "message": CITED}
    choice = {"index": 0, **said, "logprobs": WEIGHED, "finish_reason": "stop"}
    data = json.dumps({"choices": [choice]}).encode()
    played = sse_answer(b"data: %b\n\ndata: [DONE]\n\n" % data) if stream else json_answer({"choices": [choice]})
    home.upstreams["openai"].play(played)
    if stream:
        events = stream_events(home.address, model="openai/some-model")
        assert find_violations(decode_event(event) for event in events) == []
        final = events[-1]["response"]
    else:
        final = post_response(home.address, model="openai/some-model").json()
    (text,) = final["output"][0]["content"]
    assert (final["status"], text["text"]) == ("completed", "Hello")
    assert (text["annotations"][0]["title"], text["logprobs"][0]["token"]) == ("A \ufffd",) * 2
    with http_client(home.address) as http:
        assert http.get(f"/v1/responses/{final['id']}").json() == final


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_what_was_streamed(home: ProviderServers, name: str) -> None:
    played = SCENE_MODULES[name].SCENES["text_and_call"]
    home.upstreams[name].play(stream_answer(played))
    events = stream_events(home.address, model=f"{name}/some-model", **played.request)
    final = events[-1]["response"]
    import httpx

    kept = httpx.get(f"{home.address}/v1/responses/{final['id']}").json()
    assert kept == final
    assert event_types(events)[-1] == "response.completed"


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_is_cut_never_completes(home: ProviderServers, name: str) -> None:
    played = SCENE_MODULES[name].SCENES["text"]
    half = type(played)(played.stream[: len(played.stream) // 2], b"", played.expected)
    home.upstreams[name].play(stream_answer(half, cut=True))
    events = stream_events(home.address, model=f"{name}/some-model")
    assert event_types(events)[-2:] == ["error", "response.failed"]
    failed = events[-1]["response"]
    assert failed["error"]["message"].startswith(f"{name}: ")
    assert {item["status"] for item in failed["output"] if "status" in item} <= {"incomplete"}


CHAT = {"object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]}
NONE: list[tuple[str, object]] = [
    *((name, body) for name in NAMES for body in ({}, [])),
    *((name, CHAT) for name in NAMES if name not in ("openai", "azure", "writer")),
]


@pytest.mark.parametrize(("name", "body"), NONE)
def test_a_body_that_is_not_an_answer_is_invalid(home: ProviderServers, name: str, body: object) -> None:
    home.upstreams[name].play(json_answer(body))
    answer = post_response(home.address, model=f"{name}/some-model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
    assert answer.json()["error"]["message"].startswith(f"{name}: ")


def test_fields_inside_others_go_on_to_a_server_that_may_know_them(home: ProviderServers) -> None:
    home.upstreams["responses"].play(whole_answer(SCENE_MODULES["responses"].SCENES["text"]))
    tool = {"type": "function", "name": "f", "parameters": {}, "foo": 1}
    asked = {"tools": [tool], "reasoning": {"effort": "low", "foo": 2}}
    answer = post_response(home.address, model="responses/some-model", **asked).json()
    sent = home.upstreams["responses"].requests[-1].json
    assert (sent["tools"][0]["foo"], sent["reasoning"]["foo"]) == (1, 2)
    assert "antiphon:warnings" not in answer
