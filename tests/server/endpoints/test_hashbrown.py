"""`POST /hashbrown/chat`: frames, threads and errors."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.hashbrown.threads import ThreadError
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from antiphon.wire.hashbrown.frames import HEARTBEAT, Decoder
from tests.adapters.frame_checks import (
    LOADED,
    PATH,
    SAVED,
    Json,
    call_frames,
    check,
    generation_frames,
    of_type,
    post,
    post_frames,
    read,
    types,
    user_message,
)
from tests.http_client import http_client, wait_until
from tests.run_server import run_server
from tests.server.gated_model import GatedModel

HELLO = "Hello from Antiphon's demo model. You said: Hi!"
TOOL = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ANSWERED: Json = {"role": "assistant", "content": HELLO, "toolCalls": []}


def text_of(frames: list[Json]) -> str:
    """Return the text of some frames."""
    return "".join(str(frame["delta"]) for frame in of_type(frames, "output_text.delta"))


def loaded(address: str, thread: str) -> list[Json]:
    """Return the frames that show a thread."""
    return post_frames(address, operation="load-thread", threadId=thread, messages=[])


@agent("worker")
async def worker(turn: Turn) -> AsyncIterator[Part]:
    """Calls a tool of its own, then answers."""
    yield parts.Reasoning("Tea?")
    yield parts.Whole(FunctionCall(call_id="own", name="search", arguments='{"query":"tea"}'))
    yield parts.Whole(FunctionCallOutput(call_id="own", output="Green."))
    yield parts.Text("Green tea.")


@worker.entry("reader")
async def reader(turn: Turn) -> AsyncIterator[str]:
    """Says what it was given to read."""
    yield json.dumps([turn.instructions, [item.type for item in turn.items]])


@worker.entry("broken")
async def broken(turn: Turn) -> AsyncIterator[str]:
    """Breaks in the middle."""
    yield "So"
    raise RuntimeError("secret words")


@pytest.fixture(scope="module")
def gate() -> GatedModel:
    """Give a model that tests hold in their hand."""
    return GatedModel()


@pytest.fixture(scope="module")
def server_url(gate: GatedModel) -> Iterator[str]:
    """Serve those models."""
    settings = Settings(agents=(worker, gate.agent), heartbeat_seconds=0.02, outlet_bytes=50_000)
    with run_server(settings) as address:
        yield address


def test_an_agent_answers_in_frames(server: str) -> None:
    frames = post_frames(server)
    assert text_of(frames) == HELLO
    assert types(frames)[-3:] == ["response.completed", *SAVED]
    response = generation_frames(frames)[-1]["response"]
    assert response["output"][0]["content"][0]["text"] == HELLO


def test_a_cancellation_within_an_agent_is_not_a_disconnect(server_url: str) -> None:
    frames = post_frames(server_url, model="worker", tools=[TOOL])
    assert text_of(frames) == "Green tea."
    assert call_frames(frames) == []
    assert "".join(frame["delta"] for frame in of_type(frames, "reasoning.delta")) == "Tea?"
    (_, answer) = loaded(server_url, frames[-1]["threadId"])[-1]["thread"]
    assert answer == {"role": "assistant", "content": "Green tea.", "toolCalls": []}


def test_an_agent_reads_the_system_prompt_and_the_whole_conversation(server_url: str) -> None:
    messages = [
        user_message("Hi!"),
        {
            "role": "assistant",
            "content": "Let me see.",
            "toolCalls": [
                {"id": "c", "index": 0, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "content": {"status": "rejected", "reason": {}}, "toolCallId": "c"},
    ]
    frames = post_frames(server_url, model="worker/reader", system="Be terse.", messages=messages)
    assert json.loads(text_of(frames)) == ["Be terse.", ["message", "message", "function_call", "function_call_output"]]


def test_a_response_can_follow_a_schema(server: str) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    frames = post_frames(server, responseFormat=schema)
    assert isinstance(json.loads(text_of(frames))["city"], str)


def test_unused_parameters_cause_a_warning(server: str) -> None:
    response = generation_frames(post_frames(server, ui=True))[-1]["response"]
    assert [warning["param"] for warning in response["antiphon:warnings"]] == ["ui"]


def test_only_the_thread_is_stored(server: str) -> None:
    id = generation_frames(post_frames(server))[-1]["response"]["id"]
    with http_client(server) as http:
        assert http.get(f"/v1/responses/{id}").status_code == 404


def test_frames_are_sent_at_once_and_heartbeats_between_them(server_url: str, gate: GatedModel) -> None:
    body = {"model": "gate", "messages": [user_message("Well")], "tools": []}
    decoder, frames = Decoder(), []
    with http_client(server_url) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        while not of_type(frames, "output_text.delta"):
            frames += decoder.feed(next(pieces))
        wait_until(lambda: gate.running == 1)
        while HEARTBEAT not in types(frames):
            frames += decoder.feed(next(pieces))
        gate.release.set()
        for piece in pieces:
            frames += decoder.feed(piece)
    decoder.close()
    gate.release.clear()
    check(frames)
    assert text_of(frames) == "Well."


def test_a_disconnect_stops_the_model(server_url: str, gate: GatedModel) -> None:
    body = {"model": "gate", "messages": [user_message("Well")], "tools": []}
    with http_client(server_url) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        wait_until(lambda: gate.running == 1)
    wait_until(lambda: gate.running == 0)


def test_a_slow_client_makes_the_model_wait(server_url: str, gate: GatedModel) -> None:
    body = {"model": "gate/endless", "messages": [user_message("Well")], "tools": []}
    with http_client(server_url) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        before = -1
        while gate.deltas_sent > before:
            before = gate.deltas_sent
            time.sleep(0.3)
    assert before * 10_000 < 20_000_000


def test_a_failing_agent_ends_with_one_error_without_details(server_url: str) -> None:
    frames = post_frames(server_url, model="worker/broken")
    assert text_of(frames) == "So"
    assert frames[-1]["error"] == {
        "type": "server_error",
        "code": "server_error",
        "message": "The model 'worker/broken' failed while answering.",
    }


def test_a_stopping_server_fails_its_streams(gate: GatedModel) -> None:
    settings = Settings(agents=(gate.agent,), drain_seconds=0.1, responses_dir=None)
    app = create_app(settings)
    body = {"model": "gate", "messages": [user_message("Well")], "tools": []}
    with run_server(app) as address, http_client(address) as http:
        with http.stream("POST", PATH, json=body) as answer:
            pieces = answer.iter_raw()
            first = next(pieces)
            assert gate.loop is not None
            drained = asyncio.run_coroutine_threadsafe(app.state.service.drain(), gate.loop)
            frames = read(first + b"".join(pieces))
            drained.result(10)
        assert post(address).status_code == 503
    check(frames)
    assert "The server stopped" in frames[-1]["error"]["message"]


def test_a_response_that_ends_during_shutdown_is_saved(gate: GatedModel) -> None:
    settings = Settings(agents=(gate.agent,), drain_seconds=10, responses_dir=None)
    app = create_app(settings)
    body = {"model": "gate", "messages": [user_message("Well")], "tools": []}
    with run_server(app) as address, http_client(address) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        first = next(pieces)
        assert gate.loop is not None
        drained = asyncio.run_coroutine_threadsafe(app.state.service.drain(), gate.loop)
        wait_until(lambda: app.state.service.draining)
        gate.release.set()
        frames = read(first + b"".join(pieces))
        drained.result(10)
    gate.release.clear()
    check(frames)
    assert types(frames)[-2:] == SAVED


def test_a_thread_is_created_continued_and_loaded(server: str) -> None:
    thread = post_frames(server)[-1]["threadId"]
    frames = post_frames(server, threadId=thread, messages=[user_message("And?")])
    assert types(frames)[:3] == [*LOADED, "response.created"]
    assert "thread" not in frames[1]
    assert types(frames)[-2:] == SAVED
    assert frames[-1]["threadId"] == thread
    displayed = loaded(server, thread)
    assert types(displayed) == LOADED
    assert [message["role"] for message in displayed[-1]["thread"]] == ["user", "assistant", "user", "assistant"]
    assert displayed[-1]["thread"][:2] == [user_message("Hi!"), ANSWERED]


def test_repeated_messages_are_not_added_to_a_thread(server: str) -> None:
    thread = post_frames(server)[-1]["threadId"]
    again = [user_message("Hi!"), ANSWERED, user_message("And?")]
    post_frames(server, threadId=thread, messages=again)
    assert [m["content"] for m in loaded(server, thread)[-1]["thread"]][:3] == ["Hi!", HELLO, "And?"]


def test_two_threads_never_meet(server: str) -> None:
    one, other = (post_frames(server, messages=[user_message(word)])[-1]["threadId"] for word in ("a", "b"))
    assert one != other
    assert loaded(server, one)[-1]["thread"][0] == user_message("a")
    assert loaded(server, other)[-1]["thread"][0] == user_message("b")


@pytest.mark.parametrize("operation", ["generate", "load-thread"])
def test_an_unknown_thread_fails_to_load(server: str, operation: str) -> None:
    frames = post_frames(server, operation=operation, threadId="thread_0")
    assert frames == [
        {"type": "thread-load-start"},
        {"type": "thread-load-failure", "error": "Thread 'thread_0' not found."},
    ]


def test_a_thread_without_an_id_cannot_be_shown(server: str) -> None:
    (frame,) = post_frames(server, operation="load-thread", messages=[])
    assert (frame["error"]["type"], frame["error"]["param"]) == ("invalid_request", "threadId")


def test_threads_survive_a_restart(tmp_path: Path) -> None:
    with run_server(Settings(responses_dir=tmp_path)) as address:
        thread = post_frames(address)[-1]["threadId"]
    with run_server(Settings(responses_dir=tmp_path)) as address:
        assert loaded(address, thread)[-1]["thread"] == [user_message("Hi!"), ANSWERED]


def test_without_threads_no_thread_frames_are_sent() -> None:
    with run_server(Settings(threads=False)) as address:
        (frame,) = post_frames(address, operation="load-thread", threadId="x", messages=[])
        assert (frame["error"]["type"], frame["error"]["param"]) == ("invalid_request", "operation")
        assert generation_frames(frames := post_frames(address)) == frames
        assert post_frames(address, threadId="x") == [
            {"type": "thread-load-start"},
            {"type": "thread-load-failure", "error": "Thread loading is not available for this transport."},
        ]


class FakeThreadStorage:
    """Threads in a dictionary, which may be stuck."""

    def __init__(self) -> None:
        self.threads: dict[tuple[str, str], list[Json]] = {}
        self.trouble: Exception | None = None
        self.renamed = False

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        """Return a thread."""
        if (tenant, thread_id) not in self.threads:
            raise ThreadError("No such drawer.")
        return self.threads[tenant, thread_id]

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        """Keep a thread."""
        if self.trouble:
            raise self.trouble
        id = "another" if self.renamed else thread_id or f"mine-{len(self.threads)}"
        self.threads[tenant, id] = list(messages)
        return id


@pytest.fixture
def drawer() -> FakeThreadStorage:
    """Give an empty one."""
    return FakeThreadStorage()


@pytest.fixture
def own(drawer: FakeThreadStorage) -> Iterator[str]:
    """Serve with it."""
    with run_server(Settings(threads=drawer)) as address:
        yield address


def test_threads_can_be_stored_elsewhere(own: str, drawer: FakeThreadStorage) -> None:
    frames = post_frames(own)
    assert frames[-1] == {"type": "thread-save-success", "threadId": "mine-0"}
    assert drawer.threads == {("", "mine-0"): [user_message("Hi!"), ANSWERED]}
    post_frames(own, threadId="mine-0", messages=[user_message("And?")])
    assert len(drawer.threads["", "mine-0"]) == 4
    assert post_frames(own, threadId="nothing")[-1]["error"] == "No such drawer."


def test_a_thread_must_keep_its_id(own: str, drawer: FakeThreadStorage) -> None:
    post_frames(own)
    drawer.renamed = True
    frames = post_frames(own, threadId="mine-0", messages=[user_message("And?")])
    assert frames[-2:] == [
        {"type": "thread-save-start"},
        {"type": "thread-save-failure", "error": "Save returned a different threadId than the existing thread"},
    ]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (ThreadError("The drawer is full."), "The drawer is full."),
        (RuntimeError("secret words"), "The thread cannot be saved."),
    ],
)
def test_a_thread_that_cannot_be_saved_does_not_spoil_the_answer(
    own: str, drawer: FakeThreadStorage, trouble: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    drawer.trouble = trouble
    with caplog.at_level(logging.CRITICAL, "antiphon.server"):
        frames = post_frames(own)
    assert types(frames)[-3] == "response.completed"
    assert frames[-1] == {"type": "thread-save-failure", "error": told}


def test_a_thread_id_of_another_type_is_rejected(own: str, drawer: FakeThreadStorage) -> None:
    drawer.threads["", "odd"] = [{"role": "wizard", "content": "x"}]
    frames = post_frames(own, threadId="odd")
    assert types(frames) == [*LOADED, "error"]
    assert frames[-1]["error"]["param"] == "threadId"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": "gpt-9"}, "model", "model_not_found"),
        ({"model": None}, "model", "invalid_value"),
        ({"messages": []}, "messages", "missing_required_parameter"),
        ({"messages": "Hi"}, "messages", "invalid_value"),
        ({"toolChoice": "required"}, "toolChoice", "invalid_value"),
        ({"operation": "dance"}, "operation", "invalid_value"),
        (
            {"messages": [{"role": "tool", "content": "x", "toolCallId": "c"}]},
            "messages[0].toolCallId",
            "function_call_not_found",
        ),
    ],
)
def test_an_error_is_one_frame_that_names_the_param(server: str, body: dict[str, Any], param: str, code: str) -> None:
    (frame,) = post_frames(server, **body)
    error = frame["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request", param, code)


def test_a_body_that_is_json_and_nothing_else_is_one_frame(server: str) -> None:
    with http_client(server) as http:
        (frame,) = read(http.post(PATH, json=[]).content)
    assert frame["error"]["type"] == "invalid_request"


def test_invalid_bodies_are_rejected(server: str) -> None:
    with http_client(server) as http:
        answers = [
            http.post(PATH, content="{", headers={"content-type": "application/json"}),
            http.post(PATH, content="a=b"),
            http.get(PATH),
        ]
    assert [answer.status_code for answer in answers] == [400, 415, 405]
    assert [answer.json()["error"]["code"] for answer in answers] == [
        "invalid_json",
        "unsupported_media_type",
        "method_not_allowed",
    ]


def test_an_api_key_is_required() -> None:
    with run_server(Settings(api_key="sk-secret")) as address:
        answer = post(address)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_log_holds_neither_messages_nor_tools(caplog: pytest.LogCaptureFixture) -> None:
    secret = "carrots"
    tool = TOOL | {"description": secret, "parameters": {"type": "object", "properties": {secret: {"type": "string"}}}}
    with caplog.at_level(logging.DEBUG, "antiphon"), run_server(Settings(agents=[worker])) as address:
        for text in (secret, f"FAIL {secret}", f"USE_TOOL {secret}"):
            post_frames(address, messages=[user_message(text)], system=secret, tools=[tool])
        post(address, messages=[{"role": secret}])
        wait_until(lambda: sum(record.name == "antiphon.access" for record in caplog.records) == 4)
    assert secret not in caplog.text
