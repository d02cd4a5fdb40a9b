"""The budget of bytes for all requests together, and the cap on connections."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.applications import Starlette

from antiphon.agents.agent import Turn, agent
from antiphon.protocol.errors import RequestError
from antiphon.server.app import create_app
from antiphon.server.asgi import BudgetShare, ByteBudget
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.connection import ConnectionLimits
from antiphon.server.uvicorn.server import uvicorn_config
from tests.http_client import WAIT, http_client, post_response, wait_until
from tests.run_server import run_server, without_store
from tests.server.gated_model import close_code
from tests.server.raw_client import run_server as run_raw_server
from tests.ws_client import ws_client

HALF = "x" * 60_000
BUSY = (503, "server_error", "server_busy")


class Waiting:
    """A server with a budget of 100 kB, and a model that answers when it may."""

    def __init__(self) -> None:
        self.running = 0
        self.release = threading.Event()
        self.app: Starlette = create_app(
            without_store(Settings(agents=[agent("wait")(self.wait)], total_body_limit=100_000))
        )

    def wait(self, turn: Turn) -> str:
        self.running += 1
        self.release.wait(WAIT)
        return turn.text[:3]


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    waiting = Waiting()
    yield waiting
    waiting.release.set()


def test_a_share_that_exceeds_the_budget_keeps_its_size() -> None:
    budget = ByteBudget(100)
    first, second = BudgetShare(budget), BudgetShare(budget)
    first.resize(60)
    with pytest.raises(RequestError):
        second.resize(41)
    second.resize(40)
    assert (first.size, second.size, budget.used) == (60, 40, 100)
    first.resize(0)
    second.resize(100)
    assert budget.used == 100


def test_a_body_beyond_the_budget_gets_a_503_until_another_is_answered(waiting: Waiting) -> None:
    with run_server(waiting.app) as address, http_client(address) as http:
        first = threading.Thread(target=post_response, args=(address,), kwargs={"model": "wait", "input": HALF})
        first.start()
        wait_until(lambda: waiting.running == 1)
        refused = http.post("/v1/responses", json={"model": "demo", "input": HALF})
        error = refused.json()["error"]
        assert (refused.status_code, error["type"], error["code"]) == BUSY
        assert refused.headers["retry-after"] == "1"
        assert post_response(address, input="small").status_code == 200
        waiting.release.set()
        first.join(WAIT)
        assert post_response(address, input=HALF).status_code == 200


def test_messages_of_a_websocket_use_the_same_budget(waiting: Waiting) -> None:
    with run_server(waiting.app) as address, ws_client(address) as ws:
        ws.create(model="wait", input=HALF, stream_id="a")
        wait_until(lambda: waiting.running == 1)
        # A message that does not fit even while it is received closes its own connection.
        with ws_client(address) as other:
            other.create(input=HALF)
            assert close_code(other) == 1013
        ws.create(input="x" * 30_000, stream_id="b")
        assert ws.receive_turn()[-1]["type"] == "response.completed"
        waiting.release.set()
        assert ws.receive_turn()[-1]["type"] == "response.completed"
        wait_until(lambda: post_response(address, input=HALF).status_code == 200)


def test_too_many_connections_get_a_503() -> None:
    get, health = (b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"/", b"/healthz"))
    with run_raw_server(ConnectionLimits(connections=2)) as server, ExitStack() as stack:
        kept = [stack.enter_context(server.connect(get)) for _ in range(2)]
        assert all(client.recv(12) == b"HTTP/1.1 200" for client in kept)
        with server.connect(health) as client:
            assert client.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: len(server.server.server_state.connections) == 2)
        with server.connect(get) as client:
            head, _, body = read_to_end(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in head
        assert json.loads(body)["error"]["code"] == "server_busy"
        kept[0].sendall(get)
        kept[0].close()
        wait_until(lambda: len(server.server.server_state.connections) == 1)
        with server.connect(get) as client:
            assert client.recv(12) == b"HTTP/1.1 200"


def test_the_cap_on_connections_is_a_setting() -> None:
    settings = Settings(max_connections=7)
    protocol: Any = uvicorn_config(create_app(settings), "127.0.0.1", 0, settings).http
    assert protocol.keywords["limits"].connections == 7


def read_to_end(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))
