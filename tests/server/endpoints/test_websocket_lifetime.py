"""WebSocket connections: who may open one, what ends it, and the access log."""

import asyncio
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from pathlib import Path

import pytest
from starlette.applications import Starlette
from websockets.exceptions import InvalidStatus

from antiphon.server.app import create_app
from antiphon.server.endpoints import websocket
from antiphon.server.settings import Settings
from antiphon.wire.websocket import ClientMessage, decode_message
from tests.http_client import http_client, wait_until
from tests.run_server import run_server, without_store
from tests.server.gated_model import GatedModel, close_code, envelope_error
from tests.ws_client import response_text, ws_client

LIMIT = (400, "invalid_request", "websocket_connection_limit_reached")


@pytest.fixture
def gated(gate: GatedModel) -> Iterator[str]:
    with run_server(Settings(agents=[gate.agent])) as address:
        yield address


def test_authentication_precedes_validation() -> None:
    with run_server(Settings(api_key="secret")) as address:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            with pytest.raises(InvalidStatus) as refused, ws_client(address, additional_headers=headers):
                pass
            answer = refused.value.response
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert json.loads(answer.body or b"")["error"]["code"] == "invalid_api_key"
        with ws_client(address, additional_headers={"Authorization": "Bearer secret"}) as ws:
            assert ws.completed_response()["status"] == "completed"


def test_a_web_page_must_be_allowed_to_connect() -> None:
    with run_server(Settings(allowed_origins=["https://good.example"])) as address:
        with ws_client(address, origin="https://good.example") as ws:
            assert ws.completed_response()["status"] == "completed"
        for origin in ("https://evil.example", "null", "https://good.example.evil"):
            with pytest.raises(InvalidStatus) as refused, ws_client(address, origin=origin):
                pass
            assert refused.value.response.status_code == 403
            body = json.loads(refused.value.response.body or b"")
            assert body["error"]["code"] == "origin_not_allowed"


@pytest.mark.anyio
async def test_a_server_without_the_http_extension_closes_the_handshake() -> None:
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(dict(message))

    app = create_app(without_store(Settings(api_key="secret")))
    scope = {"type": "websocket", "path": "/v1/responses", "headers": [], "root_path": ""}
    await app(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_other_paths_accept_no_websocket(server: str) -> None:
    with pytest.raises(InvalidStatus) as refused, ws_client(server, "/v1/models"):
        pass
    assert refused.value.response.status_code == 403


def test_leaving_stops_the_model_at_once(gated: str, gate: GatedModel) -> None:
    with ws_client(gated) as ws:
        ws.create(model="gate", store=True)
        ws.create(model="gate", stream_id="a")
        ws.create(model="gate", input="waits for ever")
        id = ws.receive()["response"]["id"]
        wait_until(lambda: gate.running == 2)
    wait_until(lambda: gate.running == 0)
    wait_until(lambda: all(turn.cancelled.is_set() for turn in gate.turns))
    assert len(gate.turns) == 2
    with http_client(gated) as http:
        wait_until(lambda: http.get(f"/v1/responses/{id}").json()["status"] == "cancelled")


def test_leaving_at_once_leaves_no_response_in_progress(gate: GatedModel, tmp_path: Path) -> None:
    def read_statuses() -> list[str]:
        with closing(sqlite3.connect(next(tmp_path.glob("*.db")))) as database:
            return [status for (status,) in database.execute("SELECT status FROM responses")]

    with run_server(Settings(agents=[gate.agent], responses_dir=tmp_path)) as address:
        for _ in range(20):
            with ws_client(address) as ws:
                ws.create(model="gate", store=True)
        wait_until(lambda: gate.running == 0 and set(read_statuses()) <= {"cancelled"})


def test_a_client_that_does_not_read_makes_the_model_wait(gated: str, gate: GatedModel) -> None:
    with ws_client(gated, max_queue=1, close_timeout=0.1) as ws:
        ws.create(model="gate/endless")
        wait_until(lambda: gate.deltas_sent > 10)
        time.sleep(0.3)
        output = gate.deltas_sent
        time.sleep(0.3)
        assert gate.deltas_sent == output


def test_a_large_message_is_parsed_in_a_thread(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(data: str | bytes, limit: int) -> ClientMessage:
        threads.append(threading.get_ident())
        return decode_message(data, limit)

    threads: list[int] = []
    monkeypatch.setattr(websocket, "decode_message", decode)
    with ws_client(server) as ws:
        for size in (1000, 300_000, 1000):
            ws.completed_response(instructions="x" * size)
    assert threads[0] == threads[2] != threads[1]


def test_an_expired_connection_ends_with_an_error_message() -> None:
    with run_server(Settings(socket_seconds=0.5)) as address, ws_client(address) as ws:
        ws.completed_response()
        assert envelope_error(ws.receive()) == LIMIT
        assert close_code(ws) == 1001


def test_an_expired_connection_finishes_running_turns_and_starts_none(gate: GatedModel) -> None:
    settings = Settings(agents=[gate.agent], socket_seconds=0.3)
    with run_server(settings) as address, ws_client(address) as ws:
        ws.create(model="gate", input="first")
        ws.create(model="gate", input="second")
        time.sleep(0.5)
        ws.create(model="gate", input="late", stream_id="late")
        late = ws.receive_turn()
        assert envelope_error(late[-1]) == LIMIT
        assert late[-1]["stream_id"] == "late"
        gate.release.set()
        assert response_text(ws.receive_turn()[-1]["response"]) == "first."
        assert envelope_error(ws.receive()) == envelope_error(ws.receive()) == LIMIT
        assert close_code(ws) == 1001


def test_a_turn_that_does_not_end_is_interrupted(gate: GatedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "GRACE_SECONDS", 0.2)
    settings = Settings(agents=[gate.agent], socket_seconds=0.3)
    with run_server(settings) as address, ws_client(address) as ws:
        events = ws.turn(model="gate")
        assert events[-1]["type"] == "response.failed"
        assert envelope_error(ws.receive()) == LIMIT
        assert close_code(ws) == 1001


def test_a_stopping_server_finishes_turns_and_starts_none(gate: GatedModel) -> None:
    app = create_app(without_store(Settings(agents=[gate.agent])))
    with run_server(app) as address, ws_client(address) as idle, ws_client(address) as ws:
        ws.create(model="gate", input="running")
        assert ws.receive()["type"] == "response.created"
        drain(app, gate)
        assert close_code(idle) == 1001
        ws.create(stream_id="new")
        refused = ws.receive_turn()[-1]
        assert envelope_error(refused) == (503, "server_error", "server_stopping")
        assert refused["error"]["headers"] == {"retry-after": "1"}
        with pytest.raises(InvalidStatus) as unwelcome, ws_client(address):
            pass
        assert unwelcome.value.response.status_code == 503
        gate.release.set()
        assert response_text(ws.receive_turn()[-1]["response"]) == "running."
        assert close_code(ws) == 1001


def test_a_stopping_server_interrupts_what_does_not_end(gate: GatedModel) -> None:
    app = create_app(without_store(Settings(agents=[gate.agent], drain_seconds=0.1)))
    with run_server(app) as address, ws_client(address) as ws:
        ws.create(model="gate")
        assert ws.receive()["type"] == "response.created"
        drain(app, gate)
        failed = ws.receive_turn()[-1]
        assert failed["type"] == "response.failed"
        assert "server stopped" in failed["response"]["error"]["message"]
        assert close_code(ws) == 1012


def drain(app: Starlette, gate: GatedModel) -> None:
    """Tell a server to stop."""
    assert gate.loop is not None
    asyncio.run_coroutine_threadsafe(app.state.service.drain(), gate.loop)


def test_turns_and_connections_are_logged_without_content(server: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "antiphon.access"):
        with ws_client(server, additional_headers={"X-Request-Id": "req_mine"}) as ws:
            assert ws.socket.response is not None
            ws.completed_response(input="secret")
            ws.error_message(model="secret")
        wait_until(lambda: len(caplog.messages) == 3)
    lines = [re.sub(r"[\d.]+ms", "0ms", line) for line in caplog.messages]
    assert lines[:2] == ["TURN /v1/responses 200 0ms req_mine", "TURN /v1/responses 404 0ms req_mine"]
    assert re.fullmatch(r"WEBSOCKET /v1/responses 101 0ms \d+B req_mine", lines[2])
