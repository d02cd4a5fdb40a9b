"""Background responses: queued, run without a client, streamed from any event."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from antiphon.protocol.fold import fold
from antiphon.protocol.struct import encode
from antiphon.server.settings import Settings
from antiphon.wire import json
from tests.http_client import DOORS, event_types, http_client, parse_event, parse_stream, stream_events, wait_until
from tests.run_server import run_server
from tests.server.gated_model import GatedModel
from tests.server.stateful_server import (
    DIALECT_DOORS,
    ENDLESS_COUNTER,
    call,
    create_response,
    error_code,
    get_response,
    output_text,
    replay,
    serve_agents,
    wait_until_ended,
)


def numbers(events: list[dict[str, Any]]) -> list[int]:
    """Return only the numbers of some events."""
    return [event["sequence_number"] for event in events]


@pytest.mark.parametrize("door", DOORS)
def test_a_background_response_is_answered_at_once_and_can_be_polled(server_url: str, door: str) -> None:
    response = create_response(server_url, "endless", "go", door, background=True)
    assert (response["status"], response["background"]) == ("queued", True)
    assert response["output"] == []
    wait_until(lambda: get_response(server_url, response["id"], door)["status"] == "in_progress")
    call(server_url, "POST", f"{door}/responses/{response['id']}/cancel")
    final = wait_until_ended(
        server_url, create_response(server_url, "counter", "10", door, background=True)["id"], door
    )
    assert (final["status"], final["background"]) == ("completed", True)
    assert output_text(final) == "".join(f"{word} " for word in range(10))


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_a_background_stream_starts_queued_and_ends_with_the_stored_response(server_url: str, door: str) -> None:
    events = stream_events(server_url, door, model="counter", input="5", background=True)
    assert event_types(events)[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert numbers(events) == list(range(len(events)))
    assert events[0]["response"]["status"] == events[1]["response"]["status"] == "queued"
    assert events[-1]["response"] == get_response(server_url, events[0]["response"]["id"], door)


def test_a_background_response_continues_after_a_disconnect(server_url: str) -> None:
    body = {"model": "counter", "input": "50", "background": True, "stream": True}
    with http_client(server_url) as http, http.stream("POST", "/v1/responses", json=body) as answer:
        first = next(answer.iter_text())
    id = parse_event(first.split("\n\n")[0])["response"]["id"]
    final = wait_until_ended(server_url, id)
    assert (final["status"], output_text(final)[-3:]) == ("completed", "49 ")


@pytest.mark.parametrize("door", DIALECT_DOORS)
@pytest.mark.parametrize("input", ["4", "4 cut", "4 broken", "0 broken"])
def test_a_stream_can_be_resumed_after_any_event(server_url: str, door: str, input: str) -> None:
    whole = stream_events(server_url, door, model="counter", input=input, background=True)
    id = whole[0]["response"]["id"]
    assert replay(server_url, id, door=door) == whole
    for number in range(len(whole)):
        assert replay(server_url, id, number, door) == whole[number + 1 :]
    assert replay(server_url, id, len(whole) + 10, door) == []
    assert replay(server_url, id, 2**63 - 1, door) == []


def test_a_failed_stream_can_be_resumed_between_its_last_two_frames(server_url: str) -> None:
    whole = stream_events(server_url, model="counter", input="1 broken", background=True)
    id = whole[0]["response"]["id"]
    assert event_types(whole)[-2:] == ["error", "response.failed"]
    error = whole[-2]["sequence_number"]
    assert replay(server_url, id, error) == whole[-1:]
    assert replay(server_url, id, error - 1) == whole[-2:]
    assert replay(server_url, id, error + 1) == []
    openai = replay(server_url, id, door="/openai")
    assert openai[-1]["type"] == "response.failed"
    assert openai[-1]["sequence_number"] == error
    assert replay(server_url, id, error - 1, "/openai") == openai[-1:]
    assert replay(server_url, id, error, "/openai") == []


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_concurrent_readers_get_the_same_events(server_url: str, door: str) -> None:
    id = create_response(server_url, "counter", "60", background=True)["id"]

    def join(number: int) -> list[Any]:
        time.sleep(number * 0.005)
        return replay(server_url, id, number, door)

    with ThreadPoolExecutor(20) as pool:
        received = list(pool.map(join, range(20)))
    whole = replay(server_url, id, door=door)
    assert numbers(whole) == list(range(len(whole)))
    assert received == [whole[number + 1 :] for number in range(20)]


def test_a_stream_resumed_at_its_end_waits_for_more() -> None:
    gate = GatedModel()
    settings = Settings(agents=[gate.agent], heartbeat_seconds=0.05, responses_dir=None)
    with run_server(settings) as address, http_client(address) as http:
        id = create_response(address, "gate", "go", background=True)["id"]
        wait_until(lambda: gate.running == 1)
        query = {"stream": "true", "starting_after": 5}  # the word that was said
        with http.stream("GET", f"/v1/responses/{id}", params=query) as answer:
            chunks = answer.iter_text()
            assert next(chunks).startswith(": keep-alive\n\n")
            gate.release.set()
            received = parse_stream("".join(chunks))
        assert received == replay(address, id, 5)
        assert numbers(received)[0] == 6


def test_repeated_reconnects_lose_no_event(server_url: str) -> None:
    id = create_response(server_url, "counter", "80", background=True)["id"]
    received: list[dict[str, Any]] = []
    while not received or received[-1]["type"] != "response.completed":
        query = {"stream": "true"} | ({"starting_after": len(received) - 1} if received else {})
        with http_client(server_url) as http, http.stream("GET", f"/v1/responses/{id}", params=query) as answer:
            text = ""
            for chunk in answer.iter_text():
                text += chunk
                if len(text) > 2000:
                    break
        whole = [frame for frame in text.split("\n\n")[:-1] if frame.startswith("event:")]
        received += map(parse_event, whole)
    assert received == replay(server_url, id)


@pytest.mark.parametrize("input", ["6", "6 broken"])
def test_a_stream_can_be_read_from_any_number_after_a_restart(tmp_path: Path, input: str) -> None:
    with serve_agents(tmp_path) as server_url:
        whole = stream_events(server_url, model="counter", input=input, background=True)
        id = whole[0]["response"]["id"]
        openai = replay(server_url, id, door="/openai")
    with serve_agents(tmp_path) as server_url:
        assert replay(server_url, id) == whole
        for number in range(len(whole)):
            assert replay(server_url, id, number) == whole[number + 1 :]
        assert replay(server_url, id, door="/openai") == openai


def test_replayed_events_obey_the_rules(server_url: str) -> None:
    tools = [{"type": "function", "name": "ping"}]
    id = create_response(server_url, "demo", "ping", background=True, tools=tools)["id"]
    final = wait_until_ended(server_url, id)
    events = [decode_event(event) for event in replay(server_url, id)]
    assert find_violations(events) == []
    assert json.decode(encode(fold(events))) == final


@pytest.mark.parametrize("door", DIALECT_DOORS)
@pytest.mark.parametrize("input", ["3", "3 cut", "0"])
def test_a_foreground_response_is_streamed_again_with_new_events(server_url: str, door: str, input: str) -> None:
    response = create_response(server_url, "counter", input, door)
    events = replay(server_url, response["id"], door=door)
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert events[-1]["response"] == response
    if door == "/v1":
        assert find_violations([decode_event(event) for event in events]) == []


@pytest.mark.parametrize(
    "options",
    [{"tools": [{"type": "function", "name": "ping"}]}, {"reasoning": {"effort": "low", "summary": "auto"}}],
    ids=["calls", "reasoning"],
)
def test_calls_and_reasoning_are_streamed_again(server_url: str, options: dict[str, Any]) -> None:
    response = create_response(server_url, "demo", "ping", **options)
    events = [decode_event(event) for event in replay(server_url, response["id"])]
    assert find_violations(events) == []
    assert json.decode(encode(fold(events))) == response


def test_a_failed_foreground_response_is_streamed_again(server_url: str) -> None:
    first = stream_events(server_url, model="counter", input="2 broken")
    events = replay(server_url, first[0]["response"]["id"])
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-1]["response"] == first[-1]["response"]


def test_a_foreground_response_cannot_be_resumed(server_url: str) -> None:
    id = create_response(server_url, "demo", "Hi!")["id"]
    answer = call(server_url, "GET", f"/v1/responses/{id}?stream=true&starting_after=1")
    assert error_code(answer) == (400, "not_a_background_response", "starting_after")


def test_a_foreground_response_in_progress_says_when_it_can_be_streamed(server_url: str) -> None:
    body = {"model": "endless", "input": "go", "stream": True}
    with http_client(server_url) as http, http.stream("POST", "/v1/responses", json=body) as answer:
        id = next(answer.iter_text()).partition('"id":"')[2].partition('"')[0]
        refused = call(server_url, "GET", f"/v1/responses/{id}?stream=true")
    assert error_code(refused) == (400, "response_in_progress", "stream")
    assert "when it has ended" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=NaN", "starting_after"),
        ("stream=true&starting_after=1.5", "starting_after"),
        (f"stream=true&starting_after={2**63}", "starting_after"),
        ("starting_after=1", "starting_after"),
        ("stream=maybe", "stream"),
    ],
)
def test_an_invalid_resumption_is_rejected(server_url: str, query: str, param: str) -> None:
    id = create_response(server_url, "counter", "1", background=True)["id"]
    answer = call(server_url, "GET", f"/v1/responses/{id}?{query}")
    assert error_code(answer) == (400, "invalid_value", param)


def test_events_go_after_a_while_and_responses_later(tmp_path: Path) -> None:
    times = {"event_seconds": 0, "sweep_seconds": 0.05}
    with serve_agents(tmp_path, **times) as server_url:
        id = create_response(server_url, "counter", "1", background=True)["id"]
        wait_until_ended(server_url, id)
        path = f"/v1/responses/{id}"
        resumed = f"{path}?stream=true&starting_after=0"
        wait_until(lambda: call(server_url, "GET", resumed).status_code == 404)
        assert error_code(call(server_url, "GET", resumed)) == (404, "events_not_found", "starting_after")
        # Without a log the events are generated anew.
        assert replay(server_url, id)[-1]["response"] == get_response(server_url, id)
    with serve_agents(tmp_path, response_seconds=0, **times) as server_url:
        wait_until(lambda: call(server_url, "GET", path).status_code == 404)


def create(server_url: str, key: str, door: str = "/v1", **body: Any):
    """Ask for a response with an idempotency key."""
    headers = {"idempotency-key": key}
    return call(server_url, "POST", f"{door}/responses", json=body, headers=headers)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_the_same_key_and_body_give_the_same_response(server_url: str, door: str, store: bool) -> None:
    key = f"same {door} {store}"
    body = {"model": "counter", "input": "3", "store": store}
    first, again = [create(server_url, key, door, **body) for _ in range(2)]
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    reordered = dict(reversed(body.items()))
    assert create(server_url, key, door, **reordered).json() == first.json()


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_a_repeated_request_gets_the_same_stream(server_url: str, door: str, store: bool) -> None:
    key = f"stream {door} {store}"
    body = {"model": "counter", "input": "3 cut", "store": store, "stream": True}
    first, again = [parse_stream(create(server_url, key, door, **body).text) for _ in range(2)]
    assert first[-1]["response"] == again[-1]["response"]
    assert numbers(again) == list(range(len(again)))


@pytest.mark.parametrize("store", [True, False])
def test_the_same_key_with_another_body_is_rejected(server_url: str, store: bool) -> None:
    key = f"reused {store}"
    create(server_url, key, model="counter", input="1", store=store)
    answer = create(server_url, key, model="counter", input="2", store=store)
    assert error_code(answer) == (422, "idempotency_key_reused", "Idempotency-Key")


@pytest.mark.parametrize("store", [True, False])
def test_a_repeated_request_in_progress_is_a_409(server_url: str, store: bool) -> None:
    key = f"busy {store}"
    body = {"model": "endless", "input": "go", "store": store, "stream": True}
    headers = {"idempotency-key": key}
    with http_client(server_url) as http, http.stream("POST", "/v1/responses", json=body, headers=headers) as first:
        chunks = first.iter_text()
        id = parse_event(next(chunks).split("\n\n")[0])["response"]["id"]
        answer = create(server_url, key, **body)
        assert error_code(answer) == (409, "idempotency_key_in_use", "Idempotency-Key")
        assert answer.headers["retry-after"] == "1"
    wait_until(lambda: create(server_url, key, **body).status_code == 200)
    last = parse_stream(create(server_url, key, **body).text)[-1]
    assert (last["response"]["id"], last["response"]["status"]) == (id, "cancelled")


def test_fifty_identical_requests_at_once_are_one_job(server_url: str) -> None:
    stopped = ENDLESS_COUNTER.stopped
    body = {"model": "endless", "input": "go", "background": True}
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: create(server_url, "fifty", **body), range(50)))
    assert {answer.status_code for answer in answers} == {200}
    [id] = {answer.json()["id"] for answer in answers}
    call(server_url, "POST", f"/v1/responses/{id}/cancel")
    assert ENDLESS_COUNTER.stopped - stopped <= 1
    assert create(server_url, "fifty", **body).json()["status"] == "cancelled"


def test_the_same_background_request_follows_the_same_stream(server_url: str) -> None:
    body = {"model": "counter", "input": "20", "background": True, "stream": True}
    with ThreadPoolExecutor(5) as pool:
        texts = list(pool.map(lambda _: create(server_url, "follow", **body).text, range(5)))
    assert len({str(parse_stream(text)) for text in texts}) == 1


def test_a_failed_background_response_is_a_response(server_url: str) -> None:
    body = {"model": "counter", "input": "1 broken", "background": True}
    id = create(server_url, "failed", **body).json()["id"]
    final = wait_until_ended(server_url, id)
    again = create(server_url, "failed", **body)
    assert (again.status_code, again.json()) == (200, final)


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "é".encode().decode("latin-1")])
def test_an_invalid_idempotency_key_is_rejected(server_url: str, key: str) -> None:
    headers = {"idempotency-key": key.encode("latin-1")}
    body = {"model": "demo", "input": "Hi!"}
    with http_client(server_url) as http:
        answer = http.post("/v1/responses", json=body, headers=headers)  # pyright: ignore
    assert error_code(answer) == (400, "invalid_value", "Idempotency-Key")


def test_a_key_outlives_the_server(tmp_path: Path) -> None:
    body = {"model": "counter", "input": "2"}
    with serve_agents(tmp_path) as server_url:
        first = create(server_url, "k", **body).json()
    with serve_agents(tmp_path) as server_url:
        assert create(server_url, "k", **body).json() == first
