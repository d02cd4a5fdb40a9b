"""`POST /hashbrown/chat`: answers that a client cannot use, and what a client sends that others would not."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.items import FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.server.settings import Settings
from tests.adapters.frame_checks import (
    PATH,
    SAVED,
    Json,
    call_frames,
    generation_frames,
    of_type,
    post_frames,
    read,
    types,
    user_message,
)
from tests.http_client import http_client
from tests.run_server import run_server

TOOL = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CUT = '{"city":"Os'


@agent("caller")
async def caller(turn: Turn) -> AsyncIterator[Part]:
    """Calls a tool, always under the same id."""
    yield parts.Call("a", "weather", '{"city":"Oslo"}', "call_0", complete=True)


@caller.entry("cut")
async def cut(turn: Turn) -> AsyncIterator[Part]:
    """Reaches its limit within a call, after the text that it was given."""
    if turn.text:
        yield parts.Text(turn.text)
    yield parts.Call("a", "weather", CUT, "call_1")
    yield parts.Finish("length")


@caller.entry("broken")
async def broken(turn: Turn) -> AsyncIterator[Part]:
    """Fails within a call."""
    yield parts.Text("Let me see.")
    yield parts.Call("a", "weather", CUT, "call_1")
    yield parts.Failure(ErrorPayload(message="Bad.", type="model_error", code="oops"))


@caller.entry("invalid")
async def invalid(turn: Turn) -> AsyncIterator[Part]:
    """Calls a tool with arguments that are not JSON."""
    yield parts.Text("Let me see.")
    yield parts.Call("a", "weather", "Oslo", "call_1", complete=True)


@caller.entry("silent")
async def silent(turn: Turn) -> AsyncIterator[Part]:
    """Says nothing."""
    yield parts.Text("")


@caller.entry("reader")
async def reader(turn: Turn) -> AsyncIterator[str]:
    """Repeats what it reads."""
    outputs = [item for item in turn.items if isinstance(item, FunctionCallOutput)]
    yield json.dumps([turn.text, [[output.text, output.status or None] for output in outputs]], ensure_ascii=False)


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """Serve these models."""
    with run_server(Settings(agents=(caller,), responses_dir=None)) as address:
        yield address


def text_of(frames: list[Json]) -> str:
    """Return the text of some frames."""
    return "".join(str(frame["delta"]) for frame in of_type(frames, "output_text.delta"))


def tool_message(id: str, content: Json | None = None) -> Json:
    """Return the result of a call."""
    return {
        "role": "tool",
        "content": content or {"status": "fulfilled", "value": 1},
        "toolCallId": id,
        "toolName": "weather",
    }


def call_message(id: str) -> Json:
    """Return an assistant's message with a call."""
    function = {"name": "weather", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": "",
        "toolCalls": [{"index": 0, "id": id, "type": "function", "function": function}],
    }


# --- ids of calls ----------------------------------------------------------------------------


def test_a_call_id_that_the_messages_have_is_not_given_again(server_url: str) -> None:
    first = [user_message("Hi"), call_message("call_0"), tool_message("call_0")]
    (call,) = call_frames(post_frames(server_url, model="caller", tools=[TOOL], messages=first))
    assert call["call_id"] != "call_0"


def test_a_call_id_that_the_thread_has_is_not_given_again(server_url: str) -> None:
    frames = post_frames(server_url, model="caller", tools=[TOOL])
    thread, ids = frames[-1]["threadId"], [call_frames(frames)[0]["call_id"]]
    for _ in range(2):
        result = [tool_message(ids[-1])]
        frames = post_frames(server_url, model="caller", tools=[TOOL], threadId=thread, messages=result)
        assert types(frames)[-2:] == SAVED
        ids.append(call_frames(frames)[0]["call_id"])
    assert ids[0] == "call_0"
    assert len(set(ids)) == 3


# --- answers that the client drops -----------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param("cut", "", id="neither text nor a whole call"),
        pytest.param("invalid", "Hi", id="arguments that are not JSON"),
        pytest.param("silent", "Hi", id="no text at all"),
    ],
)
def test_an_answer_that_the_client_drops_is_not_saved(server_url: str, entry: str, text: str) -> None:
    thread = post_frames(server_url, model="caller/reader")[-1]["threadId"]
    frames = post_frames(
        server_url, model=f"caller/{entry}", tools=[TOOL], threadId=thread, messages=[user_message(text)]
    )
    assert types(frames)[-1] in ("response.completed", "response.incomplete")
    shown = post_frames(server_url, operation="load-thread", threadId=thread, messages=[])[-1]["thread"]
    assert [message["role"] for message in shown] == ["user", "assistant"]


@pytest.mark.parametrize(("entry", "end"), [("cut", "response.incomplete"), ("broken", "error")])
def test_the_arguments_of_a_cut_call_are_never_said_to_be_whole(server_url: str, entry: str, end: str) -> None:
    frames = post_frames(server_url, model=f"caller/{entry}", tools=[TOOL], messages=[user_message("Let me see.")])
    assert text_of(frames) == "Let me see."
    assert of_type(frames, "function_call_arguments.done") == []
    assert [call["status"] for call in call_frames(frames)] == ["incomplete"]
    assert types(generation_frames(frames))[-1] == end


def test_the_text_before_a_cut_call_is_saved_without_the_call(server_url: str) -> None:
    frames = post_frames(server_url, model="caller/cut", tools=[TOOL], messages=[user_message("Well.")])
    assert types(frames)[-2:] == SAVED
    shown = post_frames(server_url, operation="load-thread", threadId=frames[-1]["threadId"], messages=[])[-1]["thread"]
    assert shown[-1] == {"role": "assistant", "content": "Well.", "toolCalls": []}


# --- what clients send -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (r"a\ud83d", "a\ufffd"),
        (r"\uDE00b", "\ufffdb"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\\ud83d\ud83d", "\\ud83d\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_a_lone_surrogate_is_read_as_a_replacement_character(server_url: str, escaped: str, expected: str) -> None:
    body = f'{{"model":"caller/reader","messages":[{{"role":"user","content":"{escaped}"}}]}}'
    with http_client(server_url) as http:
        answer = http.post(PATH, content=body.encode(), headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert json.loads(text_of(read(answer.content)))[0] == expected


def test_a_key_that_is_repeated_is_refused_also_beside_a_lone_surrogate(server_url: str) -> None:
    body = r'{"model":"caller/reader","model":"demo","messages":[{"role":"user","content":"\ud83d"}]}'
    with http_client(server_url) as http:
        answer = http.post(PATH, content=body.encode(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


def test_a_rejected_tool_is_an_incomplete_output(server_url: str) -> None:
    messages = [
        user_message("Hi"),
        call_message("a"),
        tool_message("a", {"status": "rejected", "reason": "No."}),
        call_message("b"),
        tool_message("b"),
    ]
    (_, outputs) = json.loads(text_of(post_frames(server_url, model="caller/reader", messages=messages)))
    assert outputs == [
        ['{"status":"rejected","reason":"No."}', "incomplete"],
        ['{"status":"fulfilled","value":1}', None],
    ]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"messages": []}, "'messages'"),
        ({"messages": [], "threadId": ""}, "'threadId'"),
        ({"toolChoice": "required"}, "toolChoice"),
    ],
)
def test_an_error_speaks_of_the_clients_own_fields(server_url: str, body: Json, word: str) -> None:
    (frame,) = post_frames(server_url, **body)
    message = frame["error"]["message"]
    assert word in message + str(frame["error"]["param"])
    for foreign in ("'input'", "input[", "tool_choice", "instructions"):
        assert foreign not in message
