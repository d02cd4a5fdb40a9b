"""`POST /chat/completions` at every door: responses, errors and storage."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.server.settings import Settings
from tests.http_client import DOORS, http_client, wait_until
from tests.run_server import run_server
from tests.server.gated_model import GatedModel

HELLO = "Hello from Antiphon's demo model. You said: Hi!"
EACH_DOOR = pytest.mark.parametrize("door", DOORS)
Json = dict[str, Any]


def printed(text: str) -> list[dict[str, str]]:
    """Return a chat of one message."""
    return [{"role": "user", "content": text}]


def ask(address: str, door: str = "/v1", **body: object) -> httpx.Response:
    """Request a completion, by default of `demo`."""
    with http_client(address) as http:
        chat = {"model": "demo", "messages": printed("Hi!"), **body}
        return http.post(f"{door}/chat/completions", json=chat)


def hear(address: str, door: str = "/v1", **body: object) -> list[Json]:
    """Ask for a stream, and return its chunks."""
    answer = ask(address, door, **(body | {"stream": True}))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, last, rest = answer.text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(f.removeprefix("data: ")) for f in frames if not f.startswith(":")]


def text_of(chunks: list[Json]) -> str:
    """Return the text of some chunks."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def refusal(answer: httpx.Response) -> tuple[int, str, str, str]:
    """Return the status, type, param and code of a refusal that has OpenAI's shape."""
    body = answer.json()
    assert body.keys() == {"error"}
    error = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return answer.status_code, error["type"], error["param"], error["code"]


@EACH_DOOR
def test_a_completion_is_the_same_at_every_door(server: str, door: str) -> None:
    completion = ask(server, door).json()
    assert completion["id"].startswith("chatcmpl-")
    assert completion == {
        "id": completion["id"],
        "object": "chat.completion",
        "created": completion["created"],
        "model": "demo",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": HELLO, "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 8,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "service_tier": "default",
    }


@EACH_DOOR
def test_a_stream_has_the_same_content(server: str, door: str) -> None:
    chunks = hear(server, door, stream_options={"include_usage": True})
    assert text_of(chunks) == HELLO
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    *_, last, counted = chunks
    assert last["choices"][0]["finish_reason"] == "stop"
    assert counted["choices"] == []
    assert counted["usage"]["total_tokens"] == 9


def test_a_limit_below_sixteen_is_obeyed(server: str) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        body: Json = {name: 3}
        (choice,) = ask(server, **body).json()["choices"]
        assert choice["message"]["content"] == "Hello from Antiphon's"
        assert choice["finish_reason"] == "length"


def test_warnings_use_the_clients_parameter_names(server: str) -> None:
    body = {"logit_bias": {"1": 1}, "tools": [{"type": "custom", "custom": {"name": "sql"}}]}
    messages = [{"role": "user", "content": "Hi!", "name": "Ann"}]
    warnings = ask(server, messages=messages, **body).json()["antiphon:warnings"]
    found = [(warning["code"], warning["param"]) for warning in warnings]
    assert found == [
        ("unused_parameter", "logit_bias"),
        ("unused_parameter", "messages[0].name"),
        ("unsupported_tool", "tools[0]"),
    ]
    assert hear(server, messages=messages, **body)[-1]["antiphon:warnings"] == warnings


def test_nothing_is_stored_unless_the_client_asks_for_it(server: str) -> None:
    with http_client(server) as http:
        for store, status in ((None, 404), (False, 404), (True, 200)):
            id = ask(server, store=store).json()["id"].replace("chatcmpl-", "resp_")
            assert http.get(f"/v1/responses/{id}").status_code == status


def test_a_key_is_answered_once(server: str) -> None:
    """Also when a finished response is streamed again."""
    body: Json = {"model": "demo", "messages": printed("Hi!"), "stream": True}
    with http_client(server) as http:
        first, again = (
            http.post("/v1/chat/completions", json=body, headers={"idempotency-key": "chat-1"}) for _ in range(2)
        )
    ids = [json.loads(one.text.split("\n\n")[0][6:])["id"] for one in (first, again)]
    assert ids[0] == ids[1]
    assert again.text.endswith("data: [DONE]\n\n")
    assert HELLO in again.text


@agent("worker")
async def worker(turn: Turn) -> AsyncIterator[Part]:
    """Calls a tool of its own, then answers."""
    call = FunctionCall(call_id="own", name="search", arguments='{"query":"tea"}')
    yield parts.Whole(call)
    yield parts.Whole(FunctionCallOutput(call_id="own", output="Green."))
    yield parts.Text("Green tea.")


@worker.entry("busy")
async def busy(turn: Turn) -> AsyncIterator[str]:
    """Has no time."""
    raise UpstreamError("Come back later.", status=429, headers={"retry-after": "3"})
    yield ""


@pytest.fixture(scope="module")
def gate() -> GatedModel:
    """Give a model that tests hold in their hand."""
    return GatedModel()


@pytest.fixture(scope="module")
def server_url(gate: GatedModel) -> Iterator[str]:
    """Serve those models."""
    with run_server(Settings(agents=(worker, gate.agent), heartbeat_seconds=0.05)) as address:
        yield address


def test_a_cancellation_within_an_agent_is_not_a_disconnect(server_url: str) -> None:
    (choice,) = ask(server_url, model="worker").json()["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Green tea.", "refusal": None, "annotations": []}
    assert choice["finish_reason"] == "stop"
    chunks = hear(server_url, model="worker")
    assert text_of(chunks) == "Green tea."
    assert not any("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_a_providers_error_keeps_its_status(server_url: str, stream: bool) -> None:
    answer = ask(server_url, model="worker/busy", stream=stream)
    assert refusal(answer)[0] == 429
    assert answer.headers["retry-after"] == "3"


def test_heartbeats_are_sent_until_a_disconnect_stops_the_model(server_url: str, gate: GatedModel) -> None:
    path, body = ("/v1/chat/completions", {"model": "gate", "messages": printed("Hi!"), "stream": True})
    with http_client(server_url) as http, http.stream("POST", path, json=body) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith(":")) == ": keep-alive"
        assert gate.running == 1
    wait_until(lambda: gate.running == 0)


@EACH_DOOR
@pytest.mark.parametrize("stream", [False, True])
def test_errors_name_the_parameters_of_the_chat_request(server: str, door: str, stream: bool) -> None:
    invalid = "invalid_request_error"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"enum": []}}}]
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": []}}}
    cases: list[tuple[Json, tuple[int, str, str | None, str | None]]] = [
        ({"model": "gpt-9"}, (404, invalid, "model", "model_not_found")),
        ({"model": None}, (400, invalid, "model", "invalid_value")),
        ({"messages": []}, (400, invalid, "messages", "invalid_value")),
        ({"n": 2}, (400, invalid, "n", "unsupported_value")),
        (
            {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
            (400, invalid, "messages[0].tool_call_id", "function_call_not_found"),
        ),
        ({"messages": printed("USE_TOOL"), "tools": tools}, (400, invalid, "tools[0].function.parameters", None)),
        ({"response_format": format}, (400, invalid, "response_format.json_schema.schema", None)),
        ({"tool_choice": "required"}, (400, invalid, "tool_choice", "invalid_value")),
    ]
    for body, expected in cases:
        assert refusal(ask(server, door, stream=stream, **body)) == expected


@EACH_DOOR
def test_a_failing_model_is_a_server_error_and_an_error_in_a_stream(server: str, door: str) -> None:
    whole = ask(server, door, messages=printed("FAIL"))
    assert refusal(whole) == (500, "server_error", None, "server_error")
    *chunks, last = hear(server, door, messages=printed("FAIL"))
    assert text_of(chunks) == "Hello from Antiphon's demo"
    assert last == whole.json()


@EACH_DOOR
def test_an_invalid_chat_request_has_openais_error_format(server: str, door: str) -> None:
    path = f"{door}/chat/completions"
    with http_client(server) as http:
        answers = [
            http.post(path, content="{", headers={"content-type": "application/json"}),
            http.post(path, content="a=b"),
            http.post(path, json=[]),
            http.get(path),
        ]
    invalid = "invalid_request_error"
    assert [refusal(answer) for answer in answers] == [
        (400, invalid, None, "invalid_json"),
        (415, invalid, None, "unsupported_media_type"),
        (400, invalid, None, "invalid_value"),
        (405, invalid, None, "method_not_allowed"),
    ]


def test_the_authentication_error_is_in_openais_format() -> None:
    with run_server(Settings(api_key="sk-secret")) as address:
        assert refusal(ask(address)) == (401, "authentication_error", None, "invalid_api_key")
