"""Server-Sent Events: framing, timing, and slow clients."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol.errors import UpstreamError
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from antiphon.server.streaming.event_stream import EventStream
from antiphon.wire.openresponses import Dialect
from tests.http_client import (
    DOORS,
    WAIT,
    event_types,
    http_client,
    parse_stream,
    post_response,
    stream_events,
    wait_until,
)
from tests.run_server import run_server


@contextmanager
def visiting(address: str, body: dict[str, Any], buffer: int = 0) -> Iterator[socket.socket]:
    """Post a request on a socket of our own."""
    place = urlsplit(address)
    content = json.dumps(body).encode()
    head = f"POST /v1/responses HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.socket() as connection:
        connection.settimeout(WAIT)
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.connect((place.hostname, place.port))
        connection.sendall(head.encode() + content)
        yield connection


def received(connection: socket.socket, until: bytes) -> bytes:
    """Read until some bytes have come."""
    data = b""
    while until not in data:
        chunk = connection.recv(65536)
        assert chunk, f"the connection was closed after {data!r}"
        data += chunk
    return data


@pytest.mark.parametrize("door", DOORS)
def test_a_stream_is_framed_to_the_letter(server: str, door: str) -> None:
    answer = post_response(server, door, stream=True, input="Two\nlines\r\nand ünïcode")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answer.headers
    raw = answer.content
    assert b"\r" not in raw
    assert raw.endswith(b"\n\ndata: [DONE]\n\n")
    for frame in raw.split(b"\n\n")[:-2]:
        event, data = frame.split(b"\n")
        value = json.loads(data.removeprefix(b"data: "))
        assert event == b"event: " + value["type"].encode()


@pytest.mark.parametrize("door", DOORS)
def test_events_come_in_the_order_of_the_specification_numbered_from_zero(server: str, door: str) -> None:
    events = stream_events(server, door, input="Hi!")
    assert event_types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 8,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("door", DOORS)
def test_every_event_of_a_text_has_its_shape(server: str, door: str) -> None:
    created, progress, added, opened, *deltas, done, closed, whole, completed = stream_events(server, door)
    started = created["response"]
    assert started == progress["response"]
    assert (started["object"], started["status"], started["model"], started["output"]) == (
        "response",
        "in_progress",
        "demo",
        [],
    )
    assert started["completed_at"] is None
    id, text = added["item"]["id"], "Hello from Antiphon's demo model. You said: Hi!"
    item = {"type": "message", "id": id, "role": "assistant"}
    part = {"type": "output_text", "annotations": []}
    place = {"item_id": id, "output_index": 0, "content_index": 0}
    odds = {} if door == "/v1" else {"logprobs": []}
    assert _unnumbered(added) == {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": item | {"status": "in_progress", "content": []},
    }
    assert _unnumbered(opened) == place | {"type": "response.content_part.added", "part": part | {"text": ""}}
    texts = [delta.pop("delta") for delta in deltas]
    assert "".join(texts) == text
    expected = place | odds | {"type": "response.output_text.delta"}
    assert [_unnumbered(delta) for delta in deltas] == [expected] * len(deltas)
    assert _unnumbered(done) == place | odds | {"type": "response.output_text.done", "text": text}
    assert _unnumbered(closed) == place | {"type": "response.content_part.done", "part": part | {"text": text}}
    finished = item | {"status": "completed", "content": [part | {"text": text}]}
    assert _unnumbered(whole) == {"type": "response.output_item.done", "output_index": 0, "item": finished}
    response = completed["response"]
    assert response == started | {
        "status": "completed",
        "completed_at": response["completed_at"],
        "output": [finished],
        "usage": response["usage"],
    }


def _unnumbered(event: dict[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in event if name != "sequence_number"}


def test_a_truncated_response_ends_with_incomplete(server: str) -> None:
    events = stream_events(server, input="A story!", max_output_tokens=16)
    done, last = events[-2:]
    assert (done["type"], done["item"]["status"]) == ("response.output_item.done", "incomplete")
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.anyio
async def test_an_event_is_never_split_between_two_writes() -> None:
    writes: list[bytes] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/responses",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    body = json.dumps({"model": "demo", "input": "A story!", "stream": True}).encode()
    requested = iter([{"type": "http.request", "body": body}])

    async def receive() -> Any:
        for message in requested:
            return message
        await asyncio.sleep(WAIT)
        raise AssertionError("the stream did not end")

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        if message["type"] == "http.response.body":
            writes.append(message["body"])

    await create_app()(scope, receive, send)
    assert all(one.endswith(b"\n\n") for one in writes)
    assert all(one.startswith(b"event: ") for one in writes[:-1])
    assert writes[-1] == b"data: [DONE]\n\n"
    assert len(parse_stream(b"".join(writes).decode())) > 60


def test_a_delta_is_sent_at_once() -> None:
    released = threading.Event()

    @agent("patient")
    async def patient() -> AsyncIterator[str]:
        yield "first"
        while not released.is_set():
            await asyncio.sleep(0.01)
        yield "second"

    requested = {"model": "patient", "input": "Hi!", "stream": True}
    with run_server(Settings(agents=[patient])) as address, visiting(address, requested) as connection:
        assert b'"delta":"second"' not in received(connection, b'"delta":"first"')
        released.set()
        received(connection, b"data: [DONE]\n\n")


def test_all_events_are_sent_before_the_model_continues() -> None:
    released = threading.Event()

    @agent("plain")
    def plain() -> Iterator[str]:
        yield "first"
        yield "second"
        assert released.wait(WAIT)

    requested = {"model": "plain", "input": "Hi!", "stream": True}
    with run_server(Settings(agents=[plain])) as address, visiting(address, requested) as connection:
        received(connection, b'"delta":"second"')
        released.set()
        received(connection, b"data: [DONE]\n\n")


@agent("quiet")
async def quiet(turn: Turn) -> AsyncIterator[str]:
    """Wait for a while, then do what the input requests."""
    await asyncio.sleep(0.5)
    if turn.text == "fail":
        raise UpstreamError("Too late.", status=429, type="too_many_requests")
    yield "At last."


def test_silence_is_filled_with_comments() -> None:
    settings = Settings(agents=[quiet], commit_seconds=0.05, heartbeat_seconds=0.05)
    with run_server(settings) as address:
        text = post_response(address, model="quiet", stream=True).text
    frames = text.split("\n\n")
    assert frames.count(": keep-alive") >= 3
    assert frames[2] == ": keep-alive"
    assert parse_stream(text)[-1]["response"]["status"] == "completed"


@pytest.mark.anyio
async def test_a_comment_comes_after_each_interval_of_silence() -> None:
    sent: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    stream, intervals = EventStream(Dialect(), 1000), 0
    sending = asyncio.create_task(stream.send(send, 0.1))
    while sent.count(stream.heartbeat) < 5:
        await asyncio.sleep(0.1)
        intervals += 1
        assert intervals < 9
    stream.close()
    await sending


def test_a_lively_stream_has_no_comments(server: str) -> None:
    assert ": keep-alive" not in post_response(server, stream=True).text


def test_a_stream_starts_after_the_commit_time() -> None:
    settings = Settings(agents=[quiet], commit_seconds=0.05)
    with run_server(settings) as address:
        requested = {"model": "quiet", "input": "fail", "stream": True}
        with visiting(address, requested) as connection:
            early = received(connection, b"event: response.in_progress")
            assert early.startswith(b"HTTP/1.1 200 ")
            assert b"response.failed" not in early
        for door, ending in (
            ("/v1", ["error", "response.failed"]),
            ("/openai", ["response.in_progress", "response.failed"]),
        ):
            events = stream_events(address, door, model="quiet", input="fail")
            assert event_types(events)[-2:] == ending
            assert events[-1]["response"]["error"]["message"] == "Too late."


def test_an_error_before_the_commit_time_keeps_its_status() -> None:
    with run_server(Settings(agents=[quiet], commit_seconds=15)) as address:
        answer = post_response(address, model="quiet", input="fail", stream=True)
    assert (answer.status_code, answer.json()["error"]["message"]) == (429, "Too late.")


def test_a_model_waits_for_a_slow_reader_while_others_are_served() -> None:
    made = 0

    @agent("endless")
    async def endless() -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "x" * 1000

    requested = {"model": "endless", "input": "Hi!", "stream": True}
    settings = Settings(agents=[endless], outlet_bytes=64 * 1024)
    with run_server(settings) as address:
        with visiting(address, requested, buffer=4096) as connection:
            received(connection, b'"delta":"xxx')
            paused = _standstill(lambda: made)
            assert paused < 5000
            assert post_response(address, input="Hi!").status_code == 200
            assert made == paused
            wait_until(lambda: bool(connection.recv(65536)) and made > paused)
        gone = _standstill(lambda: made)
        assert post_response(address, input="Hi!").status_code == 200
        assert made == gone


def _standstill(count: Any) -> int:
    """Wait until a count stops growing, and return it."""
    deadline, last, since = time.monotonic() + WAIT, -1, time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline, "it never stood still"
        if (now := count()) != last:
            last, since = now, time.monotonic()
        time.sleep(0.01)
    return last


def test_a_model_that_never_yields_does_not_block_others() -> None:
    answered = threading.Event()

    @agent("greedy")
    async def greedy() -> AsyncIterator[str]:
        while not answered.is_set():
            yield "more "

    with run_server(Settings(agents=[greedy])) as address, ThreadPoolExecutor() as pool:
        streamed = pool.submit(post_response, address, model="greedy", stream=True)
        whole = pool.submit(post_response, address, model="greedy")
        time.sleep(0.1)
        assert post_response(address).status_code == 200
        answered.set()
        assert streamed.result(WAIT).status_code == 200
        assert whole.result(WAIT).status_code == 200


def test_fifty_streams_at_once_do_not_mix() -> None:
    together = threading.Barrier(50)

    @agent("numbered")
    async def numbered(turn: Turn) -> AsyncIterator[str]:
        for index in range(20):
            await asyncio.sleep(0.001)
            yield f"{turn.text}:{index} "

    def heard(address: str, name: str) -> list[dict[str, Any]]:
        together.wait(WAIT)
        return stream_events(address, model="numbered", input=name)

    with run_server(Settings(agents=[numbered])) as address, ThreadPoolExecutor(50) as pool:
        names = [f"caller-{number}" for number in range(50)]
        streams = list(pool.map(heard, [address] * 50, names))
    for name, events in zip(names, streams, strict=True):
        text = "".join(f"{name}:{index} " for index in range(20))
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == text
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len({events[0]["response"]["id"] for events in streams}) == 50


def test_one_connection_carries_many_answers(server: str) -> None:
    with http_client(server) as http:
        body = {"model": "demo", "input": "Hi!"}
        for stream in (False, True, True, False):
            answer = http.post("/v1/responses", json=body | {"stream": stream})
            assert answer.status_code == 200
