"""Hashbrown's published core against our server: requests, frames and threads.

Over the transport of `js/hashbrown` its whole chat runs on our frames, here without a page.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.protocol.items import FunctionCall, Message, OutputText
from antiphon.server.settings import Settings
from antiphon.wire.hashbrown import request
from antiphon.wire.hashbrown.frames import Decoder, encode_frame
from antiphon.wire.hashbrown.request import merge_messages
from tests.adapters.frame_checks import PATH, SAVED, Json, call_frames, check, of_type, types, user_message
from tests.adapters.provider_servers import ProviderServers, serve_providers
from tests.adapters.scenes import openai
from tests.hashbrown_node import run_chats, run_tasks
from tests.http_client import wait_until
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer
from tests.server.gated_model import GatedModel

HELLO = "Hello from Antiphon's demo model. You said: 🎵"
TOOL = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def make_task(address: str, **params: Any) -> Json:
    """Return a task that sends `demo` a request."""
    least = {"operation": "generate", "model": "demo", "system": "", "messages": [user_message("🎵")]}
    return {"url": f"{address}{PATH}", "params": least | {"tools": []} | params}


def test_hashbrown_decodes_every_frame(server: str) -> None:
    (frames,) = run_tasks(make_task(server))
    check(frames)
    assert "".join(frame["delta"] for frame in of_type(frames, "output_text.delta")) == HELLO
    assert types(frames)[-3:] == ["response.completed", *SAVED]


def test_a_call_and_its_result_make_the_round_trip(server: str) -> None:
    (frames,) = run_tasks(make_task(server, messages=[user_message("USE_TOOL")], tools=[TOOL]))
    check(frames)
    (call,) = call_frames(frames)
    result = {
        "role": "tool",
        "content": {"status": "fulfilled", "value": "sunny"},
        "toolCallId": call["call_id"],
        "toolName": call["name"],
    }
    thread = frames[-1]["threadId"]
    answer, loaded = run_tasks(
        make_task(server, messages=[result], tools=[TOOL], threadId=thread),
        make_task(server, operation="load-thread", messages=[], threadId=thread),
    )
    check(answer)
    assert "sunny" in of_type(answer, "output_text.done")[0]["text"]
    roles = [message["role"] for message in loaded[-1]["thread"]]
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_an_error_is_the_last_frame_and_has_a_message(server: str) -> None:
    unknown, error_message, broken = run_tasks(
        make_task(server, model="gpt-9"),
        make_task(server, messages=[{"role": "user"}]),
        make_task(server, messages=[user_message("FAIL")]),
    )
    assert types(unknown) == types(error_message) == ["error"]
    assert unknown[0]["error"]["message"].startswith("The model 'gpt-9' does not exist.")
    assert error_message[0]["error"]["param"] == "messages[0].content"
    check(broken)
    assert broken[-1]["error"]["message"] == "The model 'demo' failed while answering."


def test_an_invalid_key_is_an_http_error() -> None:
    with run_server(Settings(api_key="sk-secret")) as address:
        (refused,) = run_tasks(make_task(address))
    assert refused["thrown"].startswith("Unauthorized (401): ")


def test_hashbrown_encodes_the_same_bytes() -> None:
    frame: Json = {"type": "thread-load-failure", "error": "é 🎵 \n"}
    (hashbrown_result,) = run_tasks({"call": "encodeFrame", "with": [frame]})
    data = bytes(hashbrown_result[str(place)] for place in range(len(hashbrown_result)))
    assert data == encode_frame(frame)
    assert Decoder().feed(data) == [frame]


ALPHABET: list[Json] = [
    user_message("a"),
    user_message("b"),
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
    hashbrown_result = run_tasks(*[{"call": "mergeMessagesForThread", "with": pair} for pair in pairs])
    assert [merge_messages(*pair) for pair in pairs] == hashbrown_result
    overlapping = [len(merge_messages(*pair)) < len(pair[0]) + len(pair[1]) for pair in pairs]
    assert 100 < sum(overlapping) < 800


@pytest.mark.parametrize("calls", [0, 2])
def test_a_response_is_stored_as_by_hashbrown(calls: int) -> None:
    made = [FunctionCall(call_id=f"call_{n}", name="f", arguments=json.dumps({"n": n})) for n in range(calls)]
    stored = request.assistant_message([Message(role="assistant", content=[OutputText(text="Hi")]), *made])
    delta = {"role": "assistant", "content": "Hi", "toolCalls": stored["toolCalls"]}
    chunk = {"choices": [{"index": 0, "delta": delta, "finishReason": None}]}
    (hashbrown_result,) = run_tasks({"call": "updateAssistantMessage", "with": [None, chunk]})
    assert stored == hashbrown_result


def chat(address: str, *say: str, model: str = "demo", **more: Any) -> Json:
    """Run a chat to its end; return what its user saw."""
    (saw,) = run_chats({"url": f"{address}{PATH}", "model": model, "say": say} | more)
    assert (saw["stuck"], saw["busy"]) == (None, [])
    return saw


def assistant_message(content: object, *calls: Json) -> Json:
    """Return an assistant message as a page has it."""
    return {"role": "assistant", "content": content, "toolCalls": list(calls)}


def executed_call(call_id: str, city: str) -> Json:
    """Return an executed call of `weather` as a page has it."""
    result = {"status": "fulfilled", "value": "sunny"}
    call = {"role": "tool", "status": "done", "name": "weather", "toolCallId": call_id}
    return call | {"args": {"city": city}, "result": result}


def error_message(text: str) -> Json:
    """Return an error message as a page has it."""
    return {"role": "error", "content": text}


@pytest.fixture(scope="module")
def home() -> Iterator[ProviderServers]:
    with serve_providers(["openai"], retries=0) as served:
        yield served


def test_a_page_shows_a_response_while_it_streams(server: str) -> None:
    saw = chat(server, "🎵")
    words = HELLO.split(" ")
    assert saw["grown"] == [" ".join(words[: count + 1]) for count in range(len(words))]
    assert saw["messages"] == [user_message("🎵"), assistant_message(HELLO)]
    assert saw["error"] is None


def test_a_page_shows_refusals_and_structured_output(server: str) -> None:
    refused = chat(server, "REFUSE")
    assert refused["messages"][-1] == assistant_message("I was asked to refuse, and so I do.")
    structured = chat(server, "Oslo", structured=True)
    assert structured["messages"] == [user_message("Oslo"), assistant_message("") | {"content": {"city": "Oslo"}}]


def test_a_pages_tools_run_and_the_response_continues(home: ProviderServers) -> None:
    calling = openai.stream(
        {"content": "Let me see."},
        openai.calls(openai.call_start(0, "call_1", "weather"), openai.call_start(1, "call_2", "weather")),
        openai.calls(openai.call_arguments(0, '{"city":"Os'), openai.call_arguments(1, '{"city":')),
        openai.calls(openai.call_arguments(1, '"Rome"}'), openai.call_arguments(0, 'lo"}')),
        finish="tool_calls",
    )
    home.upstreams["openai"].play(sse_answer(calling), sse_answer(openai.stream({"content": "Go out."})))
    saw = chat(home.address, "Well?", model="openai/m", tools=["weather"])
    assert saw["ran"] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert saw["messages"] == [
        user_message("Well?"),
        assistant_message("Let me see.", executed_call("call_1", "Oslo"), executed_call("call_2", "Rome")),
        assistant_message("Go out."),
    ]
    assert saw["error"] is None
    _, again = saw["requests"]
    assert [message["toolCallId"] for message in again["messages"]] == ["call_1", "call_2"]
    sent = home.upstreams["openai"].requests[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]


SLOW = json_answer({"error": {"message": "Slow.", "type": "tokens"}}, 429)
BEGUN = b"".join(openai.frame(openai.chunk({"content": text})) for text in ("Hel", "lo"))
BAD = BEGUN + openai.frame({"error": {"message": "Bad.", "type": "oops"}})
FILTERED = openai.stream({"content": "Hello"}, finish="content_filter")


@pytest.mark.parametrize(
    ("answer", "error", "grown"),
    [
        pytest.param(SLOW, "openai: Slow.", [], id="before"),
        pytest.param(sse_answer(BAD), "openai: Bad.", ["Hel", "Hello"], id="within"),
        pytest.param(sse_answer(FILTERED), "A content filter stopped the answer.", ["Hello"], id="failed"),
    ],
)
def test_a_page_shows_a_providers_error_and_continues(
    home: ProviderServers, answer: ScriptedAnswer, error: str, grown: list[str]
) -> None:
    home.upstreams["openai"].play(answer)
    saw = chat(home.address, "Hi!", model="openai/m")
    assert saw["messages"] == [user_message("Hi!"), error_message(error)]
    assert saw["grown"] == grown
    assert saw["error"] == saw["generatingError" if grown else "sendingError"] == error
    assert len(saw["requests"]) == 1
    home.upstreams["openai"].play(answer, sse_answer(openai.stream({"content": "Now."})))
    saw = chat(home.address, "Hi!", "Well?", model="openai/m")
    assert saw["messages"][1:] == [error_message(error), user_message("Well?"), assistant_message("Now.")]
    assert saw["error"] is None


def test_a_page_shows_that_a_provider_disconnected(home: ProviderServers) -> None:
    home.upstreams["openai"].play(sse_answer(BEGUN, cut=True))
    saw = chat(home.address, "Hi!", model="openai/m")
    assert saw["grown"] == ["Hel", "Hello"]
    assert saw["error"] == saw["generatingError"]
    assert saw["error"].startswith("openai: ")


CREATED = encode_frame({"type": "response.created", "response": {}})
DELTA = encode_frame({"type": "response.output_text.delta", "delta": "Hello"})
COMPLETED = encode_frame({"type": "response.completed", "response": {}})
LOADING, SAVING = (encode_frame({"type": f"thread-{name}-start"}) for name in ("load", "save"))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("body", "error", "messages"),
    [
        pytest.param(b"", "sendingError", [], id="nothing"),
        pytest.param(CREATED + DELTA, "generatingError", [], id="within"),
        pytest.param(CREATED + DELTA[:-9], "generatingError", [], id="within a frame"),
        pytest.param(LOADING, "threadLoadError", [], id="loading"),
        pytest.param(
            CREATED + DELTA + COMPLETED + SAVING, "threadSaveError", [assistant_message("Hello")], id="saving"
        ),
    ],
)
def test_a_page_does_not_wait_for_a_server_that_disconnected(
    body: bytes, error: str, messages: list[Json], cut: bool
) -> None:
    with scripted_upstream(ScriptedAnswer(body, cut=cut)) as door:
        saw = chat(door.url, "Hi!")
    assert saw[error].startswith("The answer broke off")
    assert saw["error"] == saw[error]
    assert saw["messages"] == [user_message("Hi!"), *(messages or [error_message(saw[error])])]


ERROR = encode_frame({"type": "error", "error": {"type": "oops", "message": "Bad."}})
FAILED = encode_frame({"type": "response.failed", "response": {"error": None}})


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        pytest.param(ERROR + CREATED + COMPLETED, "sendingError", "Bad.", id="before"),
        pytest.param(CREATED + DELTA + ERROR + COMPLETED, "generatingError", "Bad.", id="within"),
        pytest.param(CREATED + FAILED + COMPLETED, "generatingError", "Response failed.", id="mute"),
        pytest.param(LOADING + ERROR, "threadLoadError", "Bad.", id="loading"),
    ],
)
def test_nothing_follows_an_error(body: bytes, error: str, words: str) -> None:
    with scripted_upstream(ScriptedAnswer(body)) as door:
        saw = chat(door.url, "Hi!")
    assert saw["messages"] == [user_message("Hi!"), error_message(words)]
    assert saw["error"] == saw[error] == words
    ends = [name for name in saw["frames"] if name.endswith(("error", "failure", "finish"))]
    assert ends == saw["frames"][-1:]
    assert saw["held"] == 0  # nor does anybody listen for it


def test_a_page_keeps_complete_frames_before_a_disconnect() -> None:
    with scripted_upstream(ScriptedAnswer(CREATED + DELTA + COMPLETED, cut=True)) as door:
        saw = chat(door.url, "Hi!")
    assert (saw["messages"], saw["error"]) == ([user_message("Hi!"), assistant_message("Hello")], None)


def test_an_empty_response_is_hashbrowns_own_error() -> None:
    empty = encode_frame({"type": "response.output_text.delta", "delta": ""})
    with scripted_upstream(ScriptedAnswer(CREATED + empty + COMPLETED)) as door:
        saw = chat(door.url, "Hi!")
    assert saw["error"] == "No message was generated"


def test_a_page_returns_to_its_thread(server: str) -> None:
    before = chat(server, "USE_TOOL in Oslo", "Bye!", tools=["weather"])
    thread = before["threadId"]
    assert [request.get("threadId") for request in before["requests"]] == [None, thread, thread]
    after = chat(server, "Hi again!", tools=["weather"], threadId=thread)
    loaded = before["messages"]
    loaded[1]["toolCalls"][0]["args"] = None  # core forgets them when it loads a thread
    assert after["messages"][: len(loaded)] == loaded
    assert after["ran"] == []
    load, go_on = after["requests"]
    assert (load["operation"], load["messages"]) == ("load-thread", [])
    assert (go_on["messages"], go_on["threadId"]) == ([user_message("Hi again!")], thread)
    assert after["messages"][-1]["role"] == "assistant"
    assert (after["threadId"], after["error"]) == (thread, None)


def test_a_page_shows_that_its_thread_is_missing(server: str) -> None:
    saw = chat(server, threadId="thread_none")
    assert saw["threadLoadError"] == saw["error"] == "Thread 'thread_none' not found."


def test_a_page_shows_an_http_error_and_does_not_retry() -> None:
    with run_server(Settings(api_key="sk-secret")) as address:
        refused = chat(address, "Hi!", retries=2)
        let_in = chat(address, "🎵", key="sk-secret")
    assert refused["sendingError"].startswith("Unauthorized (401): ")
    assert len(refused["requests"]) == 1
    assert let_in["messages"][-1] == assistant_message(HELLO)


def test_a_page_retries_after_an_error_if_configured(home: ProviderServers) -> None:
    home.upstreams["openai"].play(SLOW, sse_answer(openai.stream({"content": "Now."})))
    saw = chat(home.address, "Hi!", model="openai/m", retries=1)
    assert saw["messages"] == [user_message("Hi!"), error_message("openai: Slow."), assistant_message("Now.")]
    assert len(saw["requests"]) == 2


def test_stopping_a_response_stops_the_model(gate: GatedModel) -> None:
    with run_server(Settings(agents=(gate.agent,))) as address:
        saw = chat(address, "Well", model="gate", stop="Well", retries=1)
        wait_until(lambda: len(gate.turns) == 1 and gate.running == 0)
    assert (saw["grown"], saw["error"], len(saw["requests"])) == (["Well"], None, 1)
    assert saw["frames"] == ["generation-start", "generation-chunk"]


def test_a_response_can_be_stopped_before_its_start() -> None:
    with scripted_upstream(ScriptedAnswer(delay=60)) as door:
        saw = chat(door.url, "Hi!", stop="", retries=1)
    assert (saw["messages"], saw["error"]) == ([user_message("Hi!")], None)
    assert len(saw["requests"]) == 1
