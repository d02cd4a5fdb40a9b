"""Conversations with calls whose tools are no longer offered, for Anthropic and Bedrock."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.adapters.provider_servers import SCENE_MODULES, ProviderServers, serve_providers, stream_answer, whole_answer
from tests.adapters.scenes import TIME, TOOL
from tests.http_client import parse_stream, post_response
from tests.scripted_upstream import json_answer

NAMES = ["anthropic", "bedrock"]
CALL = {"call_id": "c1", "name": "weather", "arguments": "{}"}
ASKED = {"role": "user", "content": "How is the weather?"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "Sunny"}
HISTORY = [ASKED, {"type": "function_call"} | CALL, OUTPUT]
CHATTED = [
    ASKED,
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Sunny"},
]
NONE = {"type": "allowed_tools", "mode": "none", "tools": [{"type": "function", "name": "time"}]}
EMPTY = {"type": "object", "properties": {}}
SHOWN = {
    "anthropic": {"tools": [{"name": "weather", "input_schema": EMPTY}], "tool_choice": {"type": "none"}},
    "bedrock": {"toolConfig": {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": EMPTY}}}]}},
}
"""What was called once, as it is shown to a model that may not call it."""


@pytest.fixture(scope="module")
def home() -> Iterator[ProviderServers]:
    with serve_providers(NAMES, retries=0) as served:
        yield served


def shown_tools(home: ProviderServers, name: str) -> dict[str, Any]:
    """Return what an upstream was last sent about tools."""
    body = home.upstreams[name].requests[-1].json
    return {field: body[field] for field in SHOWN[name] if field in body}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fields", [{}, {"tool_choice": "none"}, {"tools": [TOOL, TIME], "tool_choice": NONE}])
def test_earlier_calls_are_declared_as_tools_if_there_are_none(home: ProviderServers, name: str, fields: dict) -> None:
    home.upstreams[name].play(whole_answer(SCENE_MODULES[name].SCENES["text"]))
    assert post_response(home.address, model=f"{name}/m", input=HISTORY, **fields).status_code == 200
    assert shown_tools(home, name) == SHOWN[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_of_a_chain_need_not_repeat_its_tools(home: ProviderServers, name: str) -> None:
    scene = SCENE_MODULES[name].SCENES["call"]
    home.upstreams[name].play(whole_answer(scene), whole_answer(SCENE_MODULES[name].SCENES["text"]))
    first = post_response(home.address, model=f"{name}/m", tools=[TOOL]).json()
    (call,) = first["output"]
    answer = post_response(
        home.address, model=f"{name}/m", previous_response_id=first["id"], input=[OUTPUT | {"call_id": call["call_id"]}]
    )
    assert answer.status_code == 200
    assert shown_tools(home, name) == SHOWN[name]


@pytest.mark.parametrize("name", NAMES)
def test_so_it_is_at_the_chat_door(home: ProviderServers, name: str) -> None:
    home.upstreams[name].play(whole_answer(SCENE_MODULES[name].SCENES["text"]))
    body = {"model": f"{name}/m", "messages": CHATTED}
    answer = httpx.post(f"{home.address}/v1/chat/completions", json=body)
    assert answer.status_code == 200
    assert shown_tools(home, name) == SHOWN[name]


def test_so_it_is_when_tokens_are_counted(home: ProviderServers) -> None:
    home.upstreams["anthropic"].play(json_answer({"input_tokens": 14}))
    body = {"model": "anthropic/m", "input": HISTORY}
    answer = httpx.post(f"{home.address}/v1/responses/input_tokens", json=body)
    assert answer.json()["input_tokens"] == 14
    assert shown_tools(home, "anthropic") == SHOWN["anthropic"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_call_of_it_never_reaches_the_client(home: ProviderServers, name: str, stream: bool) -> None:
    scene = SCENE_MODULES[name].SCENES["text_and_call"]
    home.upstreams[name].play(stream_answer(scene) if stream else whole_answer(scene))
    answer = post_response(home.address, model=f"{name}/m", input=HISTORY, stream=stream)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["status"] == "completed"
    assert [item["type"] for item in response["output"]] == ["message"]
    assert [w["code"] for w in response["antiphon:warnings"]] == ["dropped_call"]
    assert "function_call" not in json.dumps(response["output"])


@pytest.mark.parametrize("name", NAMES)
def test_offered_tools_are_sent_without_those_of_the_history(home: ProviderServers, name: str) -> None:
    home.upstreams[name].play(whole_answer(SCENE_MODULES[name].SCENES["text"]))
    post_response(home.address, model=f"{name}/m", input=HISTORY, tools=[TIME])
    assert "weather" not in json.dumps(shown_tools(home, name))
