"""One conversation through every provider: each reads what all the others said, and no secrets."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.adapters.everywhere import NAMES, SCRIPTS, House, house, in_one_piece, streamed
from tests.adapters.scripts import TOOL
from tests.asking import ask, events_of

OUTPUT = "It rains in Paris."


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    with house(retries=0) as served:
        yield served


def turn(home: House, name: str, scene: str, stream: bool, **body: Any) -> dict[str, Any]:
    """Have one provider play a scene in a conversation; return the response."""
    played = SCRIPTS[name].SCENES[scene]
    home.upstreams[name].play(streamed(played) if stream else in_one_piece(played))
    asked = {"model": f"{name}/m", "tools": [TOOL], "reasoning": {"effort": "low"}, **body}
    answer = ask(home.address, stream=stream, **asked)
    response = events_of(answer.text)[-1]["response"] if stream else answer.json()
    assert response["status"] == "completed", response
    return response


def sent(home: House, name: str) -> str:
    """Return the body that a provider was sent last."""
    return json.dumps(home.upstreams[name].requests[-1].json, ensure_ascii=False)


def calling(name: str) -> str:
    """Return the scene of a provider's call, with thinking if it can think."""
    scenes = SCRIPTS[name].SCENES
    return "thinking_and_call" if "thinking_and_call" in scenes else "call"


def outputs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer every call of a response."""
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": OUTPUT}
        for item in response["output"]
        if item["type"] == "function_call"
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_goes_through_all_providers_and_back(home: House, stream: bool) -> None:
    order = [*NAMES, NAMES[0]]
    response = turn(home, order[0], "text", stream, input="How is the weather in Lisbon?")
    for before, name in pairwise(order):
        called = turn(
            home,
            name,
            calling(name),
            stream,
            input=f"And now {name}, please.",
            previous_response_id=response["id"],
        )
        body = sent(home, name)
        assert "How is the weather in Lisbon?" in body, (before, name)
        assert SCRIPTS[order[0]].SCENES["text"].seen.text in body
        response = turn(
            home,
            name,
            "text",
            stream,
            input=outputs(called),
            previous_response_id=called["id"],
        )
        body = sent(home, name)
        assert OUTPUT in body
        assert "weather" in body
        told = order[: order.index(name) + 1] if name != order[0] else order
        for other in told[1:]:
            assert f"And now {other}, please." in body


@pytest.mark.parametrize("name", NAMES)
def test_sealed_thinking_goes_back_only_to_where_it_came_from(home: House, name: str) -> None:
    called = turn(
        home,
        name,
        calling(name),
        True,
        input="Weather?",
        include=["reasoning.encrypted_content"],
        store=False,
    )
    said = [{"role": "user", "content": "Weather?"}, *called["output"], *outputs(called)]
    turn(home, name, "text", True, input=said, store=False)
    own = home.upstreams[name].requests[-1].json
    for other in NAMES:
        if other == name:
            continue
        turn(home, other, "text", True, input=said, store=False)
        body = sent(home, other)
        for item in called["output"]:
            if item.get("encrypted_content"):
                assert item["encrypted_content"] not in body
                assert item["encrypted_content"] not in json.dumps(own)
        for secret in thinking(own):
            assert secret not in body


def thinking(body: Any) -> list[str]:
    """Return every signature and seal in a request that a provider was sent."""
    found: list[str] = []
    if isinstance(body, dict):
        for key, value in body.items():
            if key in SEALED and isinstance(value, str) and len(value) > 3:
                found.append(value)
            found += thinking(value)
    elif isinstance(body, list):
        for value in body:
            found += thinking(value)
    return found


SEALED = {"signature", "thoughtSignature", "redactedContent", "encrypted_content"}


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "google", "responses"])
def test_a_tool_loop_with_thinking_gives_the_seal_back(home: House, name: str) -> None:
    called = turn(home, name, "thinking_and_call", True, input="Weather?")
    turn(home, name, "text", True, input=outputs(called), previous_response_id=called["id"])
    own = home.upstreams[name].requests[-1].json
    came = SCRIPTS[name].SCENES["thinking_and_call"].stream.decode("latin-1")
    assert thinking(own)
    for seal in thinking(own):
        assert seal in came
