"""Hashbrown's published core: it asks, decodes our bytes, and merges threads as we do."""

import json
import random
from typing import Any

import pytest

from antiphon.core.content import OutputText
from antiphon.core.items import FunctionCall, Message
from antiphon.core.threads import Json, assistant, merge
from antiphon.server.settings import Settings
from antiphon.wire.frames import Decoder, encode
from tests.adapters.framing import PATH, SAVED, calls_of, check, of_type, said, types
from tests.hashbrown import done
from tests.serving import serving

HELLO = "Hello from Antiphon's demo model. You said: 🎵"
TOOL = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def asking(address: str, **params: Any) -> Json:
    """Return the task of asking `demo`, with what every request has."""
    least = {"operation": "generate", "model": "demo", "system": "", "messages": [said("🎵")]}
    return {"url": f"{address}{PATH}", "params": least | {"tools": []} | params}


def test_an_answer_is_decoded_to_the_last_frame(server: str) -> None:
    (frames,) = done(asking(server))
    check(frames)
    assert "".join(frame["delta"] for frame in of_type(frames, "output_text.delta")) == HELLO
    assert types(frames)[-3:] == ["response.completed", *SAVED]


def test_a_call_and_its_result_go_there_and_back(server: str) -> None:
    (frames,) = done(asking(server, messages=[said("USE_TOOL")], tools=[TOOL]))
    check(frames)
    (call,) = calls_of(frames)
    result = {
        "role": "tool",
        "content": {"status": "fulfilled", "value": "sunny"},
        "toolCallId": call["call_id"],
        "toolName": call["name"],
    }
    thread = frames[-1]["threadId"]
    answered, shown = done(
        asking(server, messages=[result], tools=[TOOL], threadId=thread),
        asking(server, operation="load-thread", messages=[], threadId=thread),
    )
    check(answered)
    assert "sunny" in of_type(answered, "output_text.done")[0]["text"]
    roles = [message["role"] for message in shown[-1]["thread"]]
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_an_error_is_the_last_frame_and_has_words(server: str) -> None:
    unknown, wrong, broken = done(
        asking(server, model="gpt-9"),
        asking(server, messages=[{"role": "user"}]),
        asking(server, messages=[said("FAIL")]),
    )
    assert types(unknown) == types(wrong) == ["error"]
    assert unknown[0]["error"]["message"].startswith("The model 'gpt-9' does not exist.")
    assert wrong[0]["error"]["param"] == "messages[0].content"
    check(broken)
    assert broken[-1]["error"]["message"] == "The model 'demo' failed while answering."


def test_a_bad_key_is_told_as_an_error_of_http() -> None:
    with serving(Settings(api_key="sk-secret")) as address:
        (refused,) = done(asking(address))
    assert refused["thrown"].startswith("Unauthorized (401): ")


def test_a_frame_of_theirs_is_the_same_bytes() -> None:
    frame: Json = {"type": "thread-load-failure", "error": "é 🎵 \n"}
    (theirs,) = done({"call": "encodeFrame", "with": [frame]})
    data = bytes(theirs[str(place)] for place in range(len(theirs)))
    assert data == encode(frame)
    assert Decoder().feed(data) == [frame]


# --- threads ---------------------------------------------------------------------------------

ALPHABET: list[Json] = [
    said("a"),
    said("b"),
    {"role": "assistant", "content": "a"},
    {"role": "assistant", "content": "a", "toolCalls": []},
    {"role": "tool", "content": {"status": "fulfilled", "value": 1}, "toolCallId": "c"},
    {"role": "tool", "content": {"status": "fulfilled", "value": True}, "toolCallId": "c"},
    {"role": "tool", "content": {"value": 1, "status": "fulfilled"}, "toolCallId": "c"},
]


def test_threads_are_merged_as_hashbrown_merges_them() -> None:
    dice = random.Random(7)
    pairs = [
        [dice.choices(ALPHABET[:few], k=dice.randrange(6)) for _ in range(2)]
        for few in (2, 3, len(ALPHABET))
        for _ in range(300)
    ]
    theirs = done(*[{"call": "mergeMessagesForThread", "with": pair} for pair in pairs])
    assert [merge(*pair) for pair in pairs] == theirs
    overlapping = [len(merge(*pair)) < len(pair[0]) + len(pair[1]) for pair in pairs]
    assert 100 < sum(overlapping) < 800


@pytest.mark.parametrize("calls", [0, 2])
def test_an_answer_is_kept_as_hashbrown_keeps_it(calls: int) -> None:
    made = [
        FunctionCall(call_id=f"call_{n}", name="f", arguments=json.dumps({"n": n}))
        for n in range(calls)
    ]
    kept = assistant([Message(role="assistant", content=[OutputText(text="Hi")]), *made])
    delta = {"role": "assistant", "content": "Hi", "toolCalls": kept["toolCalls"]}
    chunk = {"choices": [{"index": 0, "delta": delta, "finishReason": None}]}
    (theirs,) = done({"call": "updateAssistantMessage", "with": [None, chunk]})
    assert kept == theirs
