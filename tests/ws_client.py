"""A plain WebSocket client for tests: sends messages and reads the answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.http_client import WAIT

Json = dict[str, Any]

TERMINAL_TYPES = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""The types of messages that end a turn."""


class WsClient:
    """One WebSocket connection."""

    def __init__(self, socket: Connection) -> None:
        self.socket = socket

    def create(self, **fields: object) -> None:
        """Send `response.create`, to `demo` unless the fields name another model."""
        asked = {"type": "response.create", "model": "demo", "input": "Hi!", "store": False}
        self.socket.send(json.dumps(asked | fields))

    def receive(self) -> Json:
        """Return the next message."""
        text = self.socket.recv(WAIT)
        assert isinstance(text, str)
        return json.loads(text)

    def receive_turn(self) -> list[Json]:
        """Return the messages of one turn, up to its terminal message."""
        heard = [self.receive()]
        while heard[-1]["type"] not in TERMINAL_TYPES:
            heard.append(self.receive())
        return heard

    def turn(self, **fields: object) -> list[Json]:
        """Create a response and return its messages."""
        self.create(**fields)
        return self.receive_turn()

    def completed_response(self, **fields: object) -> Json:
        """Create a response and return it; assert that it is completed."""
        last = self.turn(**fields)[-1]
        assert last["type"] == "response.completed", last
        return last["response"]

    def error_message(self, **fields: object) -> Json:
        """Send an invalid request; return the one error message."""
        (only,) = self.turn(**fields)
        assert only["type"] == "error"
        return only


@contextmanager
def ws_client(address: str, door: str = "/v1", **options: Any) -> Iterator[WsClient]:
    """Open a WebSocket."""
    url = address.replace("http", "ws", 1) + f"{door}/responses"
    with connect(url, proxy=None, compression=None, **options) as socket:
        yield WsClient(socket)


def response_text(response: Json) -> str:
    """Return the text of a response."""
    return "".join(part["text"] for item in response["output"] for part in item["content"])
