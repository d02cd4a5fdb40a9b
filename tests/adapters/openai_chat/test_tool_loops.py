"""Tool loops through chat servers: earlier turns are sent as each server needs them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from antiphon.adapters.azure import Azure
from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.openai import OpenAI
from antiphon.server.settings import Settings
from tests.adapters.chat_summary import HELLO, sdk_options, whole_answer
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes import TOOL
from tests.adapters.scenes import openai as script
from tests.adapters.scenes import responses as open_responses
from tests.adapters.scenes.openai import BERLIN, PARIS
from tests.http_client import post_response, stream_events
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, scripted_upstream, sse_answer

CHAT_TOOL = {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}
SUNNY = whole_answer(script.whole({"content": "Sunny."}))
DEEPSEEK = "http://api.deepseek.com/v1"
GROQ = "http://api.groq.com/openai/v1"
SEALED = ["reasoning.encrypted_content"]
WAYS = ["by its id", "by what was sealed"]

House = tuple[str, ScriptedUpstream]
"""The address of our server, and the upstream behind it."""


@contextmanager
def serve_chat(*answers: ScriptedAnswer, adapter: str = "openai", url: str = "") -> Iterator[House]:
    """Serve the models of one server; the proxy to any address is the scripted upstream."""
    with scripted_upstream(*answers) as there, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        patch.setenv("http_proxy", there.url)
        patch.setenv("no_proxy", "127.0.0.1")
        server = Provider(name="there", adapter=adapter, base_url=url or f"{there.url}/v1")
        with run_server(Settings(providers=[server], keys={"there": "secret"})) as address:
            yield address, there


def post_turn(address: str, *, stream: bool = False, door: str = "/v1", **body: Any) -> dict[str, Any]:
    """Ask for a response of a model that has a tool."""
    body = {"model": "there/some-model", "tools": [TOOL]} | body
    if stream:
        return stream_events(address, door, **body)[-1]["response"]
    return post_response(address, door, **body).json()


def outputs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer every call of a response."""
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    kind = "function_call_output"
    return [{"type": kind, "call_id": call["call_id"], "output": "21"} for call in calls]


def run_loop(home: House, way: str, *, stream: bool = False) -> dict[str, Any]:
    """Ask, answer the calls, and ask again; return the assistant's message that was sent then."""
    address, there = home
    stored = way == "by its id"
    kept: dict[str, Any] = {} if stored else {"store": False, "include": SEALED}
    first = post_turn(address, stream=stream, **kept)
    more = {"previous_response_id": first["id"]} if stored else {}
    before = [] if stored else [{"role": "user", "content": "Hi!"}, *first["output"]]
    second = post_turn(address, stream=stream, input=[*before, *outputs(first)], **more, **kept)
    assert second["status"] == "completed"
    return there.requests[1].json["messages"][1]


# --- arguments that are no object ---

ODD = ['{"city": "Ro', "Rome", "[1]", "null"]


@pytest.mark.parametrize("arguments", ODD)
@pytest.mark.parametrize("adapter", ["openai", "writer"])
def test_arguments_that_are_no_object_do_not_block_a_chain(adapter: str, arguments: str):
    called = script.whole(script.calls(script.call("call_a", "weather", arguments)), "tool_calls")
    with serve_chat(whole_answer(called), SUNNY, adapter=adapter) as home:
        (sent,) = run_loop(home, "by its id")["tool_calls"]
    assert json.loads(sent["function"]["arguments"]).keys() == {"arguments"}


@pytest.mark.parametrize("arguments", ODD)
def test_nor_do_they_where_responses_are_spoken(arguments: str):
    scene = open_responses.SCENES["text"]
    call = {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": arguments}
    with serve_chat(ScriptedAnswer(scene.whole, headers={}), adapter="responses") as (address, there):
        post_turn(address, input=[HELLO, call, *outputs({"output": [call]})])
    sent = there.requests[0].json["input"][1]
    assert json.loads(sent["arguments"]).keys() == {"arguments"}


@pytest.mark.parametrize("arguments", [*ODD, BERLIN, '{ "city" : "Rome" }'])
@pytest.mark.parametrize(
    "adapter",
    [
        make_adapter(OpenAI),
        make_adapter(Azure, endpoint="https://a.openai.azure.com"),
        make_adapter(OpenResponses, base_url="https://api.openai.com/v1"),
    ],
    ids=["openai", "azure", "responses"],
)
def test_openai_gets_arguments_unchanged(adapter: Adapter, arguments: str):
    call = {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": arguments}
    body = encode_request(adapter, input=[HELLO, call, *outputs({"output": [call]})]).body
    sent = body["input"][1] if "input" in body else body["messages"][1]["tool_calls"][0]["function"]
    assert sent["arguments"] == arguments


def test_arguments_that_are_an_object_keep_their_spelling_everywhere():
    spelled = '{ "city" : "Rome" }'
    called = script.whole(script.calls(script.call("call_a", "weather", spelled)), "tool_calls")
    with serve_chat(whole_answer(called), SUNNY) as home:
        (sent,) = run_loop(home, "by its id")["tool_calls"]
    assert sent["function"]["arguments"] == spelled


# --- thinking that a client shows ---

THOUGHT = script.calls(script.call_start(0, "call_a", "weather", BERLIN)) | {"reasoning_content": "I must look."}
THINKS = sse_answer(script.stream(THOUGHT, finish="tool_calls"))


def check_chat_door(address: str) -> None:
    """Run a tool loop with OpenAI's own client at the chat door."""
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        said: list[Any] = [{"role": "user", "content": "Weather?"}]
        more: Any = {"model": "there/some-model", "tools": [CHAT_TOOL]}
        with client.chat.completions.stream(messages=said, **more) as stream:
            message = stream.get_final_completion().choices[0].message
        said.append(message.model_dump(exclude_none=True))
        said.append({"role": "tool", "tool_call_id": "call_a", "content": "21"})
        assert client.chat.completions.create(messages=said, **more).choices[0].message.content


def check_responses_door(address: str, door: str) -> None:
    """Run a tool loop that keeps nothing, without sealed thinking."""
    first = post_turn(address, stream=True, door=door, store=False)
    (thought, _) = first["output"]
    assert "encrypted_content" not in thought
    said = [{"role": "user", "content": "Hi!"}, *first["output"], *outputs(first)]
    post_turn(address, door=door, store=False, input=said)


@pytest.mark.parametrize("door", ["/v1", "/openai/v1", "chat"])
@pytest.mark.parametrize(("url", "told"), [(DEEPSEEK, "I must look."), (GROQ, None), ("", None)])
def test_only_deepseek_gets_reasoning_without_a_seal(door: str, url: str, told: str | None):
    with serve_chat(THINKS, SUNNY, url=url) as (address, there):
        if door == "chat":
            check_chat_door(address)
        else:
            check_responses_door(address, door)
    message = there.requests[1].json["messages"][1]
    assert [call["id"] for call in message["tool_calls"]] == ["call_a"]
    assert message.get("reasoning_content") == told


# --- what signs thinking ---


def signed_call(id: str, arguments: str, signature: str | None) -> dict[str, Any]:
    """Make a call as Gemini does in this dialect: whole, and without an index."""
    call = script.call(id, "weather", arguments)
    if signature is None:
        return call
    return call | {"extra_content": {"google": {"thought_signature": signature}}}


CALLS = {
    "one call": [signed_call("a", BERLIN, "SIG==")],
    "parallel calls": [signed_call("a", BERLIN, "SIG=="), signed_call("b", PARIS, None)],
    "a signature each": [signed_call("a", BERLIN, "ONE=="), signed_call("b", PARIS, "TWO==")],
    "only the second": [signed_call("a", BERLIN, None), signed_call("b", PARIS, "TWO==")],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", CALLS)
def test_a_signature_is_sent_back_with_its_call(name: str, stream: bool, way: str):
    calls = CALLS[name]
    whole = whole_answer(script.whole({"tool_calls": calls}, "tool_calls"))
    bits = sse_answer(script.stream(*map(script.calls, calls), finish="tool_calls"))
    ends = sse_answer(script.stream({"content": "Sunny."})) if stream else SUNNY
    with serve_chat(bits if stream else whole, ends) as home:
        assert run_loop(home, way, stream=stream)["tool_calls"] == calls


ENCRYPTED = {"type": "reasoning.encrypted", "id": "call_a", "format": "google-gemini-v1"}
DETAILS = [
    {"type": "reasoning.text", "text": "Let me look.", "format": "x", "index": 0} | {"signature": "S"},
    {"type": "reasoning.summary", "summary": "Looking.", "format": "x", "index": 1},
    ENCRYPTED | {"data": "ONE", "index": 0},
    ENCRYPTED | {"data": "TWO", "index": 0},
]


def detail(**bit: object) -> dict[str, Any]:
    """Make a delta with one detail of the thinking, and its words as OpenRouter tells them too."""
    return {"content": "", "reasoning": bit.get("text"), "reasoning_details": [bit]}


BITS = [
    detail(type="reasoning.text", text="Let me", format="x", index=0),
    detail(type="reasoning.text", text=" look.", format="x", index=0),
    detail(type="reasoning.text", signature="S", format="x", index=0, text=None),
    detail(type="reasoning.summary", summary="Look", format="x", index=1),
    detail(type="reasoning.summary", summary="ing.", format="x", index=1),
    script.calls(script.call_start(0, "call_a", "weather", BERLIN)),
    detail(**DETAILS[2]),
    detail(**DETAILS[3]),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_reasoning_details_are_sent_back_complete(stream: bool, way: str):
    message = script.calls(script.call("call_a", "weather", BERLIN)) | {
        "reasoning": "Let me look.",
        "reasoning_details": DETAILS,
    }
    bits = sse_answer(script.stream(*BITS, finish="tool_calls"))
    ends = sse_answer(script.stream({"content": "Sunny."})) if stream else SUNNY
    with serve_chat(bits if stream else whole_answer(script.whole(message, "tool_calls")), ends) as home:
        sent = run_loop(home, way, stream=stream)
    assert sent == {"role": "assistant", "content": None} | message


def test_replayed_calls_are_those_of_openais_own_client():
    message = {"reasoning": "Hm.", "reasoning_details": DETAILS} | script.calls(*CALLS["one call"])
    answers = whole_answer(script.whole(message, "tool_calls")), SUNNY
    with scripted_upstream(*answers) as there, openai.OpenAI(**sdk_options(there)) as client:
        create: Any = client.chat.completions.create
        said = create(model="m", messages=[HELLO]).choices[0].message
        create(model="m", messages=[HELLO, said.model_dump(exclude_none=True)])
    with serve_chat(*answers) as home:
        sent = run_loop(home, "by its id")
    theirs = there.requests[1].json["messages"][1]
    assert {name: value for name, value in sent.items() if value is not None} == theirs


def test_no_other_provider_sees_a_signature():
    message = {"reasoning_details": DETAILS} | script.calls(*CALLS["one call"])
    first, then = (scripted_upstream(whole_answer(script.whole(message, "tool_calls"))), scripted_upstream(SUNNY))
    with first as here, then as there:
        servers = [
            Provider(name=name, adapter="openai", base_url=f"{url}/v1")
            for name, url in (("here", here.url), ("there", there.url))
        ]
        keys = {"here": "secret", "there": "secret"}
        with run_server(Settings(providers=servers, keys=keys)) as address:
            called = post_turn(address, model="here/m")
            post_turn(address, previous_response_id=called["id"], input=outputs(called))
    sent = there.requests[0].json["messages"][1]
    call = script.call("a", "weather", BERLIN)
    assert sent == {"role": "assistant", "content": None, "tool_calls": [call]}


# --- turns in which nothing was said ---


@pytest.mark.parametrize("words", [[""], ["", ""]])
def test_a_turn_without_a_word_is_left_out(words: list[str]):
    silent = {"role": "assistant", "content": [{"type": "output_text", "text": w} for w in words]}
    with serve_chat(SUNNY) as (address, there):
        post_turn(address, input=[HELLO, silent, HELLO])
    assert there.requests[0].json["messages"] == [HELLO, HELLO]


def test_a_call_without_text_is_kept():
    call = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": BERLIN}
    silent = {"role": "assistant", "content": [{"type": "output_text", "text": ""}]}
    with serve_chat(SUNNY) as (address, there):
        post_turn(address, input=[HELLO, silent, call, *outputs({"output": [call]})])
    calls = [script.call("a", "weather", BERLIN)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    assert there.requests[0].json["messages"][1] == message


def test_silence_alone_is_refused():
    silent = {"role": "assistant", "content": [{"type": "output_text", "text": ""}]}
    with serve_chat(SUNNY) as (address, there):
        refused = post_response(address, model="there/some-model", input=[silent])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert there.requests == []
