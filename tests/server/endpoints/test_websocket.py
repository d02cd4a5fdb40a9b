"""WebSockets against a real server: turns, cached context, lanes and errors."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import RequestError, StoreError, UpstreamError
from antiphon.protocol.events import decode_event
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from tests.http_client import DOORS, event_types, post_response, stream_events, wait_until
from tests.run_server import run_server, without_store
from tests.server.gated_model import GatedModel, envelope_error
from tests.spec.schema_checks import check_event
from tests.ws_client import Json, WsClient, response_text, ws_client

NOT_FOUND = (400, "invalid_request", "previous_response_not_found")
TWO_TURNS = "This conversation has 3 messages."


@agent("moody")
async def moody(turn: Turn) -> AsyncIterator[str]:
    """Raise the requested error."""
    match turn.text:
        case "upstream":
            headers = {"retry-after": "7"}
            raise UpstreamError("Busy.", status=429, code="busy", headers=headers)
        case "request":
            raise RequestError("Not like this.", param="input", status=422)
        case "late":
            await asyncio.sleep(0.5)
            raise UpstreamError("Too late.", status=503)
        case _:
            yield turn.text


@pytest.fixture
def gated(gate: GatedModel) -> Iterator[str]:
    with run_server(Settings(agents=[gate.agent, moody])) as address:
        yield address


@pytest.fixture
def ws(server: str) -> Iterator[WsClient]:
    with ws_client(server) as ws:
        yield ws


def timeless(value: object) -> object:
    """Return a value without its ids and times, which differ from answer to answer."""
    if isinstance(value, list):
        return [timeless(entry) for entry in value]
    if isinstance(value, dict):
        changing = {"id", "item_id", "call_id", "created_at", "completed_at", "encrypted_content"}
        return {name: timeless(value[name]) for name in value if name not in changing}
    return value


ASKED: dict[str, dict[str, Any]] = {
    "text": {},
    "reasoning": {"reasoning": {"effort": "high", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
    "sealed reasoning": {"reasoning": {"effort": "high"}},
    "call": {"input": "USE_TOOL", "tools": [{"type": "function", "name": "look"}]},
    "refusal": {"input": "REFUSE"},
    "budget": {"input": "Tell a story.", "max_output_tokens": 16},
    "format": {"text": {"format": {"type": "json_object"}}},
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_turn_has_the_events_of_a_stream(server: str, door: str, asked: dict[str, Any]) -> None:
    with ws_client(server, door) as ws:
        events = ws.turn(store=True, **asked)
    assert timeless(events) == timeless(stream_events(server, door, **asked))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    if door == "/v1":
        for event in events:
            check_event(event)
        assert find_violations(map(decode_event, events)) == []


@pytest.mark.parametrize("door", DOORS)
def test_a_failed_turn_ends_with_one_message(server: str, door: str) -> None:
    with ws_client(server, door) as ws:
        events = ws.turn(input="FAIL")
        assert response_text(ws.completed_response()).endswith("You said: Hi!")
    assert event_types(events).count("response.failed") == 1
    assert "error" not in event_types(events)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["error"]["code"] == "server_error"
    if door == "/v1":
        for event in events:
            check_event(event)


def test_nothing_follows_the_last_event_of_a_turn(ws: WsClient) -> None:
    ws.turn()
    with pytest.raises(TimeoutError):
        ws.socket.recv(0.2)


def test_turns_of_the_default_lane_never_interleave(ws: WsClient) -> None:
    for index in range(5):
        ws.create(input=f"Turn {index}")
    received = [ws.receive_turn() for _ in range(5)]
    for index, events in enumerate(received):
        assert find_violations(map(decode_event, events)) == []
        assert response_text(events[-1]["response"]).endswith(f"Turn {index}")
        assert not any("stream_id" in event for event in events)


def test_redundant_http_fields_are_accepted(ws: WsClient) -> None:
    implied = {"stream": True, "stream_options": {"include_obfuscation": True}, "background": None}
    events = ws.turn(**implied)
    assert events[-1]["type"] == "response.completed"
    assert "antiphon:warnings" not in events[-1]["response"]
    assert not any("obfuscation" in event for event in events)


def test_a_tool_loop_runs_on_one_connection(ws: WsClient) -> None:
    tools = [{"type": "function", "name": "get_weather"}]
    call = ws.completed_response(input="weather in Oslo?", tools=tools)
    for index in range(2):
        (item,) = call["output"]
        output = {"type": "function_call_output", "call_id": item["call_id"], "output": "Snow."}
        printed = ws.completed_response(input=[output], previous_response_id=call["id"], tools=tools)
        assert response_text(printed) == "get_weather says: Snow."
        if index == 0:
            again = {"input": "weather in Rome?", "tools": tools}
            call = ws.completed_response(previous_response_id=printed["id"], **again)


def test_unstored_responses_continue_on_their_connection(ws: WsClient, server: str) -> None:
    first = ws.completed_response()
    assert response_text(ws.completed_response(previous_response_id=first["id"])).endswith(TWO_TURNS)
    assert post_response(server, previous_response_id=first["id"]).status_code == 400


@pytest.mark.parametrize("store", [True, False])
def test_unstored_responses_are_unknown_on_other_connections(server: str, store: bool) -> None:
    with ws_client(server) as ws:
        first = ws.completed_response()
    with ws_client(server) as other:
        lost = other.error_message(previous_response_id=first["id"], store=store)
        assert envelope_error(lost) == NOT_FOUND
        assert lost["error"]["param"] == "previous_response_id"
        assert other.completed_response()["status"] == "completed"


def test_stored_responses_continue_on_any_connection(server: str) -> None:
    stored = post_response(server).json()
    with ws_client(server) as ws:
        assert envelope_error(ws.error_message(previous_response_id=stored["id"])) == NOT_FOUND
        on = ws.completed_response(previous_response_id=stored["id"], store=True)
    assert response_text(on).endswith(TWO_TURNS)
    over_http = post_response(server, previous_response_id=on["id"]).json()
    assert response_text(over_http).endswith("This conversation has 5 messages.")


ORPHAN = [{"type": "function_call_output", "call_id": "call_nobody", "output": "?"}]
BROKEN = {
    "refused": {"input": ORPHAN},
    "malformed": {"temperature": 7},
    "background": {"background": True},
    "failed": {"input": "FAIL"},
    "no model": {"model": "nobody"},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_failed_continuation_evicts_its_parent(ws: WsClient, broken: Json) -> None:
    first = ws.completed_response()
    assert ws.turn(previous_response_id=first["id"], **broken)[-1]["type"] in ("error", "response.failed")
    assert envelope_error(ws.error_message(previous_response_id=first["id"])) == NOT_FOUND


def test_a_failed_fork_evicts_nothing(ws: WsClient) -> None:
    first = ws.completed_response()
    fork = ws.error_message(previous_response_id=first["id"], input=ORPHAN, stream_id="fork")
    assert envelope_error(fork) == (400, "invalid_request", "function_call_not_found")
    assert fork["stream_id"] == "fork"
    assert response_text(ws.completed_response(previous_response_id=first["id"])).endswith(TWO_TURNS)


def test_a_chain_may_fork_into_another_lane(ws: WsClient) -> None:
    first = ws.completed_response()
    for lane in ("left", "right"):
        fork = ws.completed_response(previous_response_id=first["id"], stream_id=lane)
        assert response_text(fork).endswith(TWO_TURNS)
    assert response_text(ws.completed_response(previous_response_id=first["id"])).endswith(TWO_TURNS)


def test_a_warm_up_generates_nothing_and_can_be_continued(ws: WsClient) -> None:
    events = ws.turn(input="My name is Ada.", generate=False, instructions="Be kind.")
    assert event_types(events) == ["response.created", "response.in_progress", "response.completed"]
    warm = events[-1]["response"]
    assert (warm["status"], warm["output"]) == ("completed", [])
    for event in events:
        check_event(event)
    printed = response_text(ws.completed_response(input="Who am I?", previous_response_id=warm["id"]))
    assert printed.endswith("This conversation has 2 messages.")


def test_a_warm_up_reports_ignored_fields(ws: WsClient) -> None:
    first, *_ = ws.turn(generate=False, foo=1)[-1]["response"]["antiphon:warnings"]
    assert (first["code"], first["param"]) == ("unused_parameter", "foo")


def test_named_lanes_interleave_and_label_their_messages(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as ws:
        for lane in ("a", "b"):
            ws.create(model="gate", input=lane, stream_id=lane)
        wait_until(lambda: gate.running == 2)
        gate.release.set()
        received = [ws.receive()]
        while event_types(received).count("response.completed") < 2:
            received.append(ws.receive())
    lanes = [event["stream_id"] for event in received]
    assert lanes.index("b") < len(lanes) - 1 - lanes[::-1].index("a"), "b began after a ended"
    for lane in ("a", "b"):
        events = [event for event in received if event["stream_id"] == lane]
        assert find_violations(decode_event({**event, "stream_id": None}) for event in events) == []
        assert response_text(events[-1]["response"]) == f"{lane}."


def test_a_lane_does_not_wait_for_the_default_lane(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as ws:
        ws.create(model="gate", input="slow")
        assert ws.receive()["type"] == "response.created"
        ws.create(stream_id="quick")
        received = [ws.receive()]
        while received[-1]["type"] != "response.completed":
            received.append(ws.receive())
        assert received[-1]["stream_id"] == "quick"
        gate.release.set()
        assert response_text(ws.receive_turn()[-1]["response"]) == "slow."


def test_sixteen_turns_run_concurrently_and_thirty_two_are_queued(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as ws:
        for index in range(16):
            ws.create(model="gate", input="run", stream_id=f"lane{index}")
        for index in range(32):
            ws.create(model="gate", input="wait", stream_id=f"lane{index}")
        ws.create(model="gate", input="too much", stream_id="lane0")
        refused = ws.receive()
        while refused["type"] != "error":
            refused = ws.receive()
        assert envelope_error(refused) == (429, "too_many_requests", "websocket_queue_full")
        assert refused["stream_id"] == "lane0"
        assert gate.running == 16
        gate.release.set()
        received = [ws.receive()]
        while event_types(received).count("response.completed") < 48:
            received.append(ws.receive())
    assert gate.most_running == 16


def test_a_connection_may_use_thirty_two_named_lanes(ws: WsClient) -> None:
    for index in range(32):
        ws.completed_response(stream_id=f"agent_{index}", generate=False)
    refused = ws.error_message(stream_id="agent_32")
    assert envelope_error(refused) == (400, "invalid_request", "websocket_stream_limit_reached")
    assert refused["stream_id"] == "agent_32"
    ws.completed_response(stream_id="agent_31")
    ws.completed_response()


def test_an_invalid_lane_is_reported(ws: WsClient) -> None:
    refused = ws.error_message(stream_id="")
    assert envelope_error(refused) == (400, "invalid_request", "invalid_stream_id")
    assert refused["error"]["param"] == "stream_id"
    assert "stream_id" not in refused


GARBAGE: list[str | bytes] = ["", "{", "[]", "null", b"\x00", '{"type":"response.steer"}', "\x00"]


def test_a_hundred_invalid_messages_do_not_close_the_connection(ws: WsClient) -> None:
    for index in range(100):
        ws.socket.send(GARBAGE[index % len(GARBAGE)])
    for _ in range(100):
        assert envelope_error(ws.receive())[0] == 400
    assert ws.completed_response()["status"] == "completed"


def test_an_error_waits_for_the_turn_before_it(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as ws:
        ws.create(model="gate", input="first")
        assert ws.receive()["type"] == "response.created"
        ws.socket.send("garbage")
        ws.create(temperature=9)
        gate.release.set()
        assert ws.receive_turn()[-1]["type"] == "response.completed"
        assert envelope_error(ws.receive())[2] == "invalid_json"
        assert envelope_error(ws.receive())[2] == "invalid_value"


def test_a_message_that_is_too_large_is_rejected() -> None:
    with run_server(Settings(body_limit=1000)) as address, ws_client(address) as ws:
        refused = ws.error_message(input="x" * 1000)
        assert envelope_error(refused) == (413, "invalid_request", "request_too_large")
        assert ws.completed_response()["status"] == "completed"


def test_an_early_model_error_is_an_error_message(gated: str) -> None:
    with ws_client(gated) as ws:
        busy = ws.error_message(model="moody", input="upstream", stream_id="a")
        assert envelope_error(busy) == (429, "model_error", "busy")
        assert (busy["stream_id"], busy["error"]["headers"]) == ("a", {"retry-after": "7"})
        refused = ws.error_message(model="moody", input="request")
        assert envelope_error(refused) == (422, "invalid_request", "invalid_request")
        assert refused["error"]["param"] == "input"


def test_a_late_model_error_fails_the_announced_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="antiphon.access")
    with run_server(Settings(agents=[moody], commit_seconds=0.1)) as address, ws_client(address) as ws:
        events = ws.turn(model="moody", input="late")
    assert event_types(events) == ["response.created", "response.in_progress", "response.failed"]
    (line,) = [line for line in caplog.messages if line.startswith("TURN")]
    assert line.startswith("TURN /v1/responses 503 ")


def test_the_openai_door_uses_openais_dialect(server: str) -> None:
    with ws_client(server, "/openai/v1") as ws:
        lost = ws.error_message(previous_response_id="resp_nobody")
        assert (lost["status"], lost["error"]["type"]) == (400, "invalid_request_error")
        assert ws.error_message(model="nobody")["status"] == 400


def test_a_failing_store_is_an_envelope_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise StoreError("disk full")

    app = create_app(without_store(None))
    with run_server(app) as address, ws_client(address) as ws:
        with monkeypatch.context() as broken:
            broken.setattr(app.state.service, "engine", fail)
            assert envelope_error(ws.error_message()) == (503, "server_error", "store_unavailable")
        assert ws.completed_response()["status"] == "completed"


def test_an_unexpected_error_is_an_error_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    app = create_app(without_store(None))
    with run_server(app) as address, ws_client(address) as ws:
        monkeypatch.setattr(app.state.service, "engine", fail)
        assert envelope_error(ws.error_message()) == (500, "server_error", "internal_error")
