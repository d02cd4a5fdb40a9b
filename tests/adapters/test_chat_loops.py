"""Tool loops through chat servers: what a model said goes back as its server wants to hear it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from antiphon.adapters.azure import Azure
from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.responses import Responses
from antiphon.server.settings import Settings
from tests.adapters.chatting import HELLO, played
from tests.adapters.hearing import asked, made
from tests.adapters.scripts import TOOL
from tests.adapters.scripts import openai as script
from tests.adapters.scripts import responses as open_responses
from tests.adapters.scripts.openai import BERLIN
from tests.asking import ask, hear
from tests.serving import serving
from tests.upstream import Answer, ScriptedUpstream, upstream

CHAT_TOOL = {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}
SUNNY = played(script.whole({"content": "Sunny."}))
DEEPSEEK = "http://api.deepseek.com/v1"
GROQ = "http://api.groq.com/openai/v1"
SEALED = ["reasoning.encrypted_content"]
WAYS = ["by its id", "by what was sealed"]

House = tuple[str, ScriptedUpstream]
"""The address of our server, and the upstream behind it."""


@contextmanager
def house(*answers: Answer, adapter: str = "openai", url: str = "") -> Iterator[House]:
    """Serve the models of one server; the proxy to any address is the scripted upstream."""
    with upstream(*answers) as there, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        patch.setenv("http_proxy", there.url)
        patch.setenv("no_proxy", "127.0.0.1")
        server = Provider(name="there", adapter=adapter, base_url=url or f"{there.url}/v1")
        with serving(Settings(providers=[server], keys={"there": "secret"})) as address:
            yield address, there


def turn(address: str, *, stream: bool = False, door: str = "/v1", **body: Any) -> dict[str, Any]:
    """Ask for a response of a model that has a tool."""
    body = {"model": "there/some-model", "tools": [TOOL]} | body
    if stream:
        return hear(address, door, **body)[-1]["response"]
    return ask(address, door, **body).json()


def outputs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer every call of a response."""
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    kind = "function_call_output"
    return [{"type": kind, "call_id": call["call_id"], "output": "21"} for call in calls]


def looped(home: House, way: str, *, stream: bool = False) -> dict[str, Any]:
    """Ask, answer the calls, and ask again; return the assistant's message that was sent then."""
    address, there = home
    stored = way == "by its id"
    kept: dict[str, Any] = {} if stored else {"store": False, "include": SEALED}
    first = turn(address, stream=stream, **kept)
    more = {"previous_response_id": first["id"]} if stored else {}
    before = [] if stored else [{"role": "user", "content": "Hi!"}, *first["output"]]
    second = turn(address, stream=stream, input=[*before, *outputs(first)], **more, **kept)
    assert second["status"] == "completed"
    return there.requests[1].json["messages"][1]


# --- arguments that are no object ---

ODD = ['{"city": "Ro', "Rome", "[1]", "null"]


@pytest.mark.parametrize("arguments", ODD)
@pytest.mark.parametrize("adapter", ["openai", "writer"])
def test_arguments_that_are_no_object_do_not_block_a_chain(adapter: str, arguments: str):
    called = script.whole(script.calls(script.call("call_a", "weather", arguments)), "tool_calls")
    with house(played(called), SUNNY, adapter=adapter) as home:
        (sent,) = looped(home, "by its id")["tool_calls"]
    assert json.loads(sent["function"]["arguments"]).keys() == {"arguments"}


@pytest.mark.parametrize("arguments", ODD)
def test_nor_do_they_where_responses_are_spoken(arguments: str):
    scene = open_responses.SCENES["text"]
    call = {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": arguments}
    with house(Answer(scene.whole, headers={}), adapter="responses") as (address, there):
        turn(address, input=[HELLO, call, *outputs({"output": [call]})])
    sent = there.requests[0].json["input"][1]
    assert json.loads(sent["arguments"]).keys() == {"arguments"}


@pytest.mark.parametrize("arguments", [*ODD, BERLIN, '{ "city" : "Rome" }'])
@pytest.mark.parametrize(
    "adapter",
    [
        made(OpenAI),
        made(Azure, endpoint="https://a.openai.azure.com"),
        made(Responses, base_url="https://api.openai.com/v1"),
    ],
    ids=["openai", "azure", "responses"],
)
def test_openai_hears_them_as_they_came(adapter: Adapter, arguments: str):
    call = {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": arguments}
    body = asked(adapter, input=[HELLO, call, *outputs({"output": [call]})]).body
    sent = body["input"][1] if "input" in body else body["messages"][1]["tool_calls"][0]["function"]
    assert sent["arguments"] == arguments


def test_arguments_that_are_an_object_keep_their_spelling_everywhere():
    spelled = '{ "city" : "Rome" }'
    called = script.whole(script.calls(script.call("call_a", "weather", spelled)), "tool_calls")
    with house(played(called), SUNNY) as home:
        (sent,) = looped(home, "by its id")["tool_calls"]
    assert sent["function"]["arguments"] == spelled
