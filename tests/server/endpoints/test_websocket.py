"""WebSockets against a real server: their turns, their memory, their lanes and their errors."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from antiphon.agents.agent import agent
from antiphon.agents.turn import Turn
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import RequestError, StoreError, UpstreamError
from antiphon.protocol.events import decode_event
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from tests.http_client import (
    DOORS,
    event_types,
    post_response,
    stream_events,
    wait_until,
)
from tests.run_server import run_server, without_store
from tests.server.gated_model import GatedModel, envelope_error
from tests.spec.schema_checks import check_event
from tests.ws_client import (
    Json,
    WsClient,
    response_text,
    ws_client,
)

NOT_FOUND = (400, "invalid_request", "previous_response_not_found")
TWO_TURNS = "This conversation has 3 messages."


@agent("moody")
async def moody(turn: Turn) -> AsyncIterator[str]:
    """Refuses to answer, in the way it is told."""
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
def talk(server: str) -> Iterator[WsClient]:
    with ws_client(server) as talk:
        yield talk


# --- turns ------------------------------------------------------------------------------------


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
    "reasoning": {
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    },
    "sealed reasoning": {"reasoning": {"effort": "high"}},
    "call": {"input": "USE_TOOL", "tools": [{"type": "function", "name": "look"}]},
    "refusal": {"input": "REFUSE"},
    "budget": {"input": "Tell a story.", "max_output_tokens": 16},
    "format": {"text": {"format": {"type": "json_object"}}},
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_turn_has_the_events_of_a_stream(server: str, door: str, asked: dict[str, Any]) -> None:
    with ws_client(server, door) as talk:
        events = talk.turn(store=True, **asked)
    assert timeless(events) == timeless(stream_events(server, door, **asked))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    if door == "/v1":
        for event in events:
            check_event(event)
        assert find_violations(map(decode_event, events)) == []


@pytest.mark.parametrize("door", DOORS)
def test_a_turn_that_breaks_ends_with_one_message(server: str, door: str) -> None:
    with ws_client(server, door) as talk:
        events = talk.turn(input="FAIL")
        assert response_text(talk.completed_response()).endswith("You said: Hi!")
    assert event_types(events).count("response.failed") == 1
    assert "error" not in event_types(events)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["error"]["code"] == "server_error"
    if door == "/v1":
        for event in events:
            check_event(event)


def test_nothing_follows_the_last_event_of_a_turn(talk: WsClient) -> None:
    talk.turn()
    with pytest.raises(TimeoutError):
        talk.socket.recv(0.2)


def test_turns_of_the_default_lane_never_interleave(talk: WsClient) -> None:
    for index in range(5):
        talk.create(input=f"Turn {index}")
    heard = [talk.receive_turn() for _ in range(5)]
    for index, events in enumerate(heard):
        assert find_violations(map(decode_event, events)) == []
        assert response_text(events[-1]["response"]).endswith(f"Turn {index}")
        assert not any("stream_id" in event for event in events)


def test_what_http_needs_to_be_told_may_be_said_here_too(talk: WsClient) -> None:
    implied = {"stream": True, "stream_options": {"include_obfuscation": True}, "background": None}
    events = talk.turn(**implied)
    assert events[-1]["type"] == "response.completed"
    assert "antiphon:warnings" not in events[-1]["response"]
    assert not any("obfuscation" in event for event in events)


def test_a_tool_loop_runs_on_one_connection(talk: WsClient) -> None:
    tools = [{"type": "function", "name": "get_weather"}]
    call = talk.completed_response(input="weather in Oslo?", tools=tools)
    for index in range(2):
        (item,) = call["output"]
        output = {"type": "function_call_output", "call_id": item["call_id"], "output": "Snow."}
        said = talk.completed_response(input=[output], previous_response_id=call["id"], tools=tools)
        assert response_text(said) == "get_weather says: Snow."
        if index == 0:
            again = {"input": "weather in Rome?", "tools": tools}
            call = talk.completed_response(previous_response_id=said["id"], **again)


# --- memory -----------------------------------------------------------------------------------


def test_what_is_not_stored_can_be_continued_on_its_connection(talk: WsClient, server: str) -> None:
    first = talk.completed_response()
    assert response_text(talk.completed_response(previous_response_id=first["id"])).endswith(
        TWO_TURNS
    )
    assert post_response(server, previous_response_id=first["id"]).status_code == 400


@pytest.mark.parametrize("store", [True, False])
def test_what_is_not_stored_is_unknown_on_another_connection(server: str, store: bool) -> None:
    with ws_client(server) as talk:
        first = talk.completed_response()
    with ws_client(server) as other:
        lost = other.error_message(previous_response_id=first["id"], store=store)
        assert envelope_error(lost) == NOT_FOUND
        assert lost["error"]["param"] == "previous_response_id"
        assert other.completed_response()["status"] == "completed"


def test_what_is_stored_can_be_continued_anywhere_if_that_is_stored_too(server: str) -> None:
    stored = post_response(server).json()
    with ws_client(server) as talk:
        assert envelope_error(talk.error_message(previous_response_id=stored["id"])) == NOT_FOUND
        on = talk.completed_response(previous_response_id=stored["id"], store=True)
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
def test_a_failed_continuation_evicts_what_it_continued(talk: WsClient, broken: Json) -> None:
    first = talk.completed_response()
    assert talk.turn(previous_response_id=first["id"], **broken)[-1]["type"] in (
        "error",
        "response.failed",
    )
    assert envelope_error(talk.error_message(previous_response_id=first["id"])) == NOT_FOUND


def test_a_failed_fork_evicts_nothing(talk: WsClient) -> None:
    first = talk.completed_response()
    fork = talk.error_message(previous_response_id=first["id"], input=ORPHAN, stream_id="fork")
    assert envelope_error(fork) == (400, "invalid_request", "function_call_not_found")
    assert fork["stream_id"] == "fork"
    assert response_text(talk.completed_response(previous_response_id=first["id"])).endswith(
        TWO_TURNS
    )


def test_a_chain_may_fork_into_another_lane(talk: WsClient) -> None:
    first = talk.completed_response()
    for lane in ("left", "right"):
        fork = talk.completed_response(previous_response_id=first["id"], stream_id=lane)
        assert response_text(fork).endswith(TWO_TURNS)
    assert response_text(talk.completed_response(previous_response_id=first["id"])).endswith(
        TWO_TURNS
    )


def test_a_warm_up_generates_nothing_and_can_be_continued(talk: WsClient) -> None:
    events = talk.turn(input="My name is Ada.", generate=False, instructions="Be kind.")
    assert event_types(events) == ["response.created", "response.in_progress", "response.completed"]
    warm = events[-1]["response"]
    assert (warm["status"], warm["output"]) == ("completed", [])
    for event in events:
        check_event(event)
    said = response_text(
        talk.completed_response(input="Who am I?", previous_response_id=warm["id"])
    )
    assert said.endswith("This conversation has 2 messages.")


def test_a_warm_up_says_what_is_not_read(talk: WsClient) -> None:
    first, *_ = talk.turn(generate=False, foo=1)[-1]["response"]["antiphon:warnings"]
    assert (first["code"], first["param"]) == ("unused_parameter", "foo")


# --- lanes ------------------------------------------------------------------------------------


def test_named_lanes_interleave_and_their_messages_bear_their_names(
    gated: str, gate: GatedModel
) -> None:
    with ws_client(gated) as talk:
        for lane in ("a", "b"):
            talk.create(model="gate", input=lane, stream_id=lane)
        wait_until(lambda: gate.running == 2)
        gate.release.set()
        heard = [talk.receive()]
        while event_types(heard).count("response.completed") < 2:
            heard.append(talk.receive())
    lanes = [event["stream_id"] for event in heard]
    assert lanes.index("b") < len(lanes) - 1 - lanes[::-1].index("a"), "b began after a ended"
    for lane in ("a", "b"):
        events = [event for event in heard if event["stream_id"] == lane]
        assert find_violations(decode_event({**event, "stream_id": None}) for event in events) == []
        assert response_text(events[-1]["response"]) == f"{lane}."


def test_a_lane_does_not_wait_for_the_default_lane(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as talk:
        talk.create(model="gate", input="slow")
        assert talk.receive()["type"] == "response.created"
        talk.create(stream_id="quick")
        heard = [talk.receive()]
        while heard[-1]["type"] != "response.completed":
            heard.append(talk.receive())
        assert heard[-1]["stream_id"] == "quick"
        gate.release.set()
        assert response_text(talk.receive_turn()[-1]["response"]) == "slow."


def test_sixteen_turns_run_at_once_and_thirty_two_more_may_wait(
    gated: str, gate: GatedModel
) -> None:
    with ws_client(gated) as talk:
        for index in range(16):
            talk.create(model="gate", input="run", stream_id=f"lane{index}")
        for index in range(32):
            talk.create(model="gate", input="wait", stream_id=f"lane{index}")
        talk.create(model="gate", input="too much", stream_id="lane0")
        refused = talk.receive()
        while refused["type"] != "error":
            refused = talk.receive()
        assert envelope_error(refused) == (429, "too_many_requests", "websocket_queue_full")
        assert refused["stream_id"] == "lane0"
        assert gate.running == 16
        gate.release.set()
        heard = [talk.receive()]
        while event_types(heard).count("response.completed") < 48:
            heard.append(talk.receive())
    assert gate.most_running == 16


def test_a_connection_may_name_thirty_two_lanes(talk: WsClient) -> None:
    for index in range(32):
        talk.completed_response(stream_id=f"agent_{index}", generate=False)
    refused = talk.error_message(stream_id="agent_32")
    assert envelope_error(refused) == (400, "invalid_request", "websocket_stream_limit_reached")
    assert refused["stream_id"] == "agent_32"
    talk.completed_response(stream_id="agent_31")
    talk.completed_response()


def test_an_invalid_lane_is_named_as_what_is_wrong(talk: WsClient) -> None:
    refused = talk.error_message(stream_id="")
    assert envelope_error(refused) == (400, "invalid_request", "invalid_stream_id")
    assert refused["error"]["param"] == "stream_id"
    assert "stream_id" not in refused


# --- what goes wrong --------------------------------------------------------------------------

GARBAGE: list[str | bytes] = ["", "{", "[]", "null", b"\x00", '{"type":"response.steer"}', "\x00"]


def test_a_hundred_messages_of_garbage_leave_the_connection_open(talk: WsClient) -> None:
    for index in range(100):
        talk.socket.send(GARBAGE[index % len(GARBAGE)])
    for _ in range(100):
        assert envelope_error(talk.receive())[0] == 400
    assert talk.completed_response()["status"] == "completed"


def test_an_error_waits_for_the_turn_before_it(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as talk:
        talk.create(model="gate", input="first")
        assert talk.receive()["type"] == "response.created"
        talk.socket.send("garbage")
        talk.create(temperature=9)
        gate.release.set()
        assert talk.receive_turn()[-1]["type"] == "response.completed"
        assert envelope_error(talk.receive())[2] == "invalid_json"
        assert envelope_error(talk.receive())[2] == "invalid_value"


def test_a_message_that_is_too_large_is_refused() -> None:
    with run_server(Settings(body_limit=1000)) as address, ws_client(address) as talk:
        refused = talk.error_message(input="x" * 1000)
        assert envelope_error(refused) == (413, "invalid_request", "request_too_large")
        assert talk.completed_response()["status"] == "completed"


def test_a_model_that_refuses_at_once_gives_an_envelope(gated: str) -> None:
    with ws_client(gated) as talk:
        busy = talk.error_message(model="moody", input="upstream", stream_id="a")
        assert envelope_error(busy) == (429, "model_error", "busy")
        assert (busy["stream_id"], busy["error"]["headers"]) == ("a", {"retry-after": "7"})
        refused = talk.error_message(model="moody", input="request")
        assert envelope_error(refused) == (422, "invalid_request", "invalid_request")
        assert refused["error"]["param"] == "input"


def test_a_model_that_refuses_late_fails_a_response_that_was_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="antiphon.access")
    with (
        run_server(Settings(agents=[moody], commit_seconds=0.1)) as address,
        ws_client(address) as talk,
    ):
        events = talk.turn(model="moody", input="late")
    assert event_types(events) == ["response.created", "response.in_progress", "response.failed"]
    (line,) = [line for line in caplog.messages if line.startswith("TURN")]
    assert line.startswith("TURN /v1/responses 503 ")


def test_the_openai_door_speaks_openai(server: str) -> None:
    with ws_client(server, "/openai/v1") as talk:
        lost = talk.error_message(previous_response_id="resp_nobody")
        assert (lost["status"], lost["error"]["type"]) == (400, "invalid_request_error")
        assert talk.error_message(model="nobody")["status"] == 400


def test_a_failing_store_is_an_envelope_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise StoreError("disk full")

    app = create_app(without_store(None))
    with run_server(app) as address, ws_client(address) as talk:
        with monkeypatch.context() as broken:
            broken.setattr(app.state.service, "engine", fail)
            assert envelope_error(talk.error_message()) == (
                503,
                "server_error",
                "store_unavailable",
            )
        assert talk.completed_response()["status"] == "completed"


def test_what_nobody_expected_is_an_envelope_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    app = create_app(without_store(None))
    with run_server(app) as address, ws_client(address) as talk:
        monkeypatch.setattr(app.state.service, "engine", fail)
        assert envelope_error(talk.error_message()) == (500, "server_error", "internal_error")
