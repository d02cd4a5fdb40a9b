"""One conversation through all providers: each reads what the others wrote, and no secrets."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.adapters.provider_servers import (
    NAMES,
    SCENE_MODULES,
    ProviderServers,
    serve_providers,
    stream_answer,
    whole_answer,
)
from tests.adapters.scenes import TOOL
from tests.http_client import parse_stream, post_response

OUTPUT = "It rains in Paris."


@pytest.fixture(scope="module")
def home() -> Iterator[ProviderServers]:
    with serve_providers(retries=0) as served:
        yield served


def post_turn(home: ProviderServers, name: str, scene: str, stream: bool, **body: Any) -> dict[str, Any]:
    """Have one provider play a scene in a conversation; return the response."""
    played = SCENE_MODULES[name].SCENES[scene]
    home.upstreams[name].play(stream_answer(played) if stream else whole_answer(played))
    asked = {"model": f"{name}/m", "tools": [TOOL], "reasoning": {"effort": "low"}, **body}
    answer = post_response(home.address, stream=stream, **asked)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["status"] == "completed", response
    return response


def last_request_body(home: ProviderServers, name: str) -> str:
    """Return the body that a provider was sent last."""
    return json.dumps(home.upstreams[name].requests[-1].json, ensure_ascii=False)


def call_id_of(name: str) -> str:
    """Return the scene of a provider's call, with thinking if it can think."""
    scenes = SCENE_MODULES[name].SCENES
    return "thinking_and_call" if "thinking_and_call" in scenes else "call"


def outputs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer every call of a response."""
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": OUTPUT}
        for item in response["output"]
        if item["type"] == "function_call"
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_goes_through_all_providers_and_back(home: ProviderServers, stream: bool) -> None:
    order = [*NAMES, NAMES[0]]
    response = post_turn(home, order[0], "text", stream, input="How is the weather in Lisbon?")
    for before, name in pairwise(order):
        called = post_turn(
            home, name, call_id_of(name), stream, input=f"And now {name}, please.", previous_response_id=response["id"]
        )
        body = last_request_body(home, name)
        assert "How is the weather in Lisbon?" in body, (before, name)
        assert SCENE_MODULES[order[0]].SCENES["text"].expected.text in body
        response = post_turn(home, name, "text", stream, input=outputs(called), previous_response_id=called["id"])
        body = last_request_body(home, name)
        assert OUTPUT in body
        assert "weather" in body
        told = order[: order.index(name) + 1] if name != order[0] else order
        for other in told[1:]:
            assert f"And now {other}, please." in body


@pytest.mark.parametrize("name", NAMES)
def test_sealed_reasoning_is_sent_back_only_to_its_provider(home: ProviderServers, name: str) -> None:
    called = post_turn(
        home, name, call_id_of(name), True, input="Weather?", include=["reasoning.encrypted_content"], store=False
    )
    said = [{"role": "user", "content": "Weather?"}, *called["output"], *outputs(called)]
    post_turn(home, name, "text", True, input=said, store=False)
    own = home.upstreams[name].requests[-1].json
    for other in NAMES:
        if other == name:
            continue
        post_turn(home, other, "text", True, input=said, store=False)
        body = last_request_body(home, other)
        for item in called["output"]:
            if item.get("encrypted_content"):
                assert item["encrypted_content"] not in body
                assert item["encrypted_content"] not in json.dumps(own)
        for secret in reasoning_texts(own):
            assert secret not in body


def reasoning_texts(body: Any) -> list[str]:
    """Return every signature and seal in a request that a provider was sent."""
    found: list[str] = []
    if isinstance(body, dict):
        for key, value in body.items():
            if key in SEALED and isinstance(value, str) and len(value) > 3:
                found.append(value)
            found += reasoning_texts(value)
    elif isinstance(body, list):
        for value in body:
            found += reasoning_texts(value)
    return found


SEALED = {"signature", "thoughtSignature", "redactedContent", "encrypted_content"}


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "google", "responses"])
def test_a_tool_loop_with_thinking_gives_the_seal_back(home: ProviderServers, name: str) -> None:
    called = post_turn(home, name, "thinking_and_call", True, input="Weather?")
    post_turn(home, name, "text", True, input=outputs(called), previous_response_id=called["id"])
    own = home.upstreams[name].requests[-1].json
    came = SCENE_MODULES[name].SCENES["thinking_and_call"].stream.decode("latin-1")
    assert reasoning_texts(own)
    for seal in reasoning_texts(own):
        assert seal in came
