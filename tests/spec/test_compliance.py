"""The HTTP cases of the official compliance suite, run against `/v1`.

The suite checks the shape of an answer only, and so do we, but more strictly: every answer passes
the schema checks, every stream also the rules, and every case runs with and without streaming.
"""

import base64
import json
import socket
import struct
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from antiphon.server.settings import Settings
from tests.http_client import http_client, parse_stream
from tests.run_server import run_server
from tests.spec.schema_checks import check_event, check_response

pytestmark = pytest.mark.compliance

Json = dict[str, Any]


def message(role: str, content: object, **fields: object) -> Json:
    """Return an input message."""
    return {"type": "message", "role": role, "content": content, **fields}


def red_square() -> str:
    """Draw an image of 32 by 32 pixels, as a data URL."""
    rows = (b"\x00" + b"\xff\x00\x00" * 32) * 32
    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


WEATHER: Json = {
    "input": [message("user", "Will the weather in Lisbon hold until Friday?")],
    "tools": [
        {
            "type": "function",
            "name": "get_weather",
            "description": "Look out of a window somewhere.",
            "parameters": {
                "type": "object",
                "properties": {"location": {"type": "string", "description": "A city"}},
                "required": ["location"],
            },
        }
    ],
}
TOOLS_OF_OTHERS = [{"type": "function", "name": "read_clock"}, {"type": "web_search"}]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
CASES: dict[str, Json] = {
    "basic-response": {"input": [message("user", "Say hello in exactly 3 words.")]},
    "assistant-phase": {
        "input": [
            message("assistant", "Let me think about that.", phase="commentary"),
            message("assistant", "The answer is four.", phase="final_answer"),
            message("user", "Thank you. And twice that?"),
        ]
    },
    "streaming-response": {"input": [message("user", "Count from 1 to 5.")], "stream": True},
    "system-prompt": {"input": [message("system", "You are a ship's cook."), message("user", "Greet the crew.")]},
    "tool-calling": WEATHER,
    "tool-calling-streaming": WEATHER | {"stream": True},
    "image-input": {
        "input": [
            message(
                "user",
                [
                    {"type": "input_text", "text": "Which colour is this?"},
                    {"type": "input_image", "image_url": red_square()},
                ],
            )
        ]
    },
    "multi-turn": {
        "input": [
            message("user", "Our ship is called the Aurora."),
            message("assistant", "A fine name for a ship."),
            message("user", "How is our ship called?"),
        ]
    },
}


def post(server: str, body: Json) -> httpx.Response:
    """Send a request as the suite does: always with `stream`, and with a bearer key."""
    key = {"Authorization": "Bearer none"}
    with http_client(server) as http:
        return http.post("/v1/responses", json={"model": "demo", "stream": False} | body, headers=key)


def read_response(response: httpx.Response) -> Json:
    """Check a whole answer, and return it."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    check_response(answer)
    return answer


def read_events(response: httpx.Response) -> list[Json]:
    """Check a streamed answer, and return its events."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    # "The terminal event MUST be the literal string [DONE]." The suite reads no CRLF, and loses
    # an event whose blank line is missing.
    assert "\r" not in response.text
    events = parse_stream(response.text)
    for event in events:
        check_event(event)
    assert find_violations(map(decode_event, events)) == []
    return events


def check(case: str, answer: Json) -> None:
    """Check what the suite asks of a case's answer."""
    types = [item["type"] for item in answer["output"]]
    assert types == ["function_call" if case.startswith("tool-calling") else "message"]
    assert answer["status"] == "completed"


@pytest.mark.parametrize("case", CASES)
def test_a_case_without_streaming(server: str, case: str) -> None:
    check(case, read_response(post(server, CASES[case] | {"stream": False})))


@pytest.mark.parametrize("case", CASES)
def test_a_case_streamed(server: str, case: str) -> None:
    events = read_events(post(server, CASES[case] | {"stream": True}))
    assert events[-1]["type"] == "response.completed"
    check_response(events[-1]["response"])
    check(case, events[-1]["response"])


def test_all_cases_at_once(server: str) -> None:
    with ThreadPoolExecutor(2 * len(CASES)) as pool:
        answers = list(pool.map(lambda case: post(server, case), 2 * [*CASES.values()]))
    for case, answer in zip(2 * [*CASES], answers, strict=True):
        if CASES[case].get("stream"):
            check(case, read_events(answer)[-1]["response"])
        else:
            check(case, read_response(answer))


def test_a_streamed_call_is_added_filled_and_done(server: str) -> None:
    events = read_events(post(server, CASES["tool-calling-streaming"]))
    deltas = sum(event["type"] == "response.function_call_arguments.delta" for event in events)
    assert deltas > 0
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        *["response.function_call_arguments.delta"] * deltas,
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[2]["item"]["type"] == events[-2]["item"]["type"] == "function_call"
    assert events[2]["item"]["name"] == "get_weather"
    assert set(json.loads(events[-2]["item"]["arguments"])) == {"location"}


EXTRA_CASES: dict[str, Json] = {
    "reasoning": {"reasoning": {"effort": "high", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
    "refusal": {"input": "REFUSE"},
    "budget": {"input": "Tell a story.", "max_output_tokens": 16},
    "parallel calls": {"input": "USE_TOOLS", "tools": [*WEATHER["tools"], *TOOLS_OF_OTHERS]},
    "structured output": {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}},
}


@pytest.mark.parametrize("body", EXTRA_CASES.values(), ids=EXTRA_CASES)
def test_a_case_beyond_the_suite(server: str, body: Json) -> None:
    body = {"input": "Hello!"} | body
    answer = read_response(post(server, body))
    last = read_events(post(server, body | {"stream": True}))[-1]["response"]
    check_response(last)
    assert drop_volatile(answer) == drop_volatile(last)


def drop_volatile(value: object) -> object:
    """Return a value without its ids, times and seals, which differ from answer to answer."""
    if isinstance(value, list):
        return [drop_volatile(entry) for entry in value]
    if isinstance(value, dict):
        changing = {"id", "call_id", "created_at", "completed_at", "encrypted_content"}
        return {name: drop_volatile(value[name]) for name in value if name not in changing}
    return value


@agent("phased")
async def two_phases(turn: Turn) -> AsyncIterator[parts.Part]:
    """Thinks aloud before it answers."""
    yield parts.Text("Let me look.", key=0, phase="commentary")
    yield parts.Text(turn.text, key=1, phase="final_answer")


def test_response_output_phase_schema() -> None:
    body = {"model": "phased", "input": "Four."}
    with run_server(Settings(agents=[two_phases])) as address:
        answer = read_response(post(address, body))
        events = read_events(post(address, body | {"stream": True}))
    for response in (answer, events[-1]["response"]):
        phases = [(item["phase"], item["content"][0]["text"]) for item in response["output"]]
        assert phases == [("commentary", "Let me look."), ("final_answer", "Four.")]


def test_a_failed_stream_matches_the_specification(server: str) -> None:
    *_, error, failed = read_events(post(server, {"input": "FAIL", "stream": True}))
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    check_response(failed["response"])


def test_no_event_is_split_between_writes(server: str) -> None:
    # The suite's parser forgets what it has read when the blank line comes in another read. What
    # the server writes at once is one chunk of the body, so every chunk must hold whole events.
    chunks = body_chunks(server, {"model": "demo", "input": "Hello!", "stream": True})
    assert all(chunk.endswith(b"\n\n") for chunk in chunks)
    assert chunks[-1].endswith(b"data: [DONE]\n\n")


def body_chunks(server: str, body: Json) -> list[bytes]:
    """Post a request over a bare socket; return the chunks of the answer's body."""
    url, data = urlsplit(server), json.dumps(body)
    request = (
        f"POST /v1/responses HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n{data}"
    )
    with socket.create_connection((url.hostname, url.port or 80), timeout=30) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as answer:
            while answer.readline() != b"\r\n":
                pass
            chunks: list[bytes] = []
            while size := int(answer.readline(), 16):
                chunks.append(answer.read(size))
                answer.readline()
    return chunks
