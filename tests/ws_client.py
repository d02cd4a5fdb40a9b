"""A plain client of a WebSocket, for tests: it sends messages and reads what comes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.http_client import WAIT

Json = dict[str, Any]

TERMINAL_TYPES = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "error"}
)
"""The types of messages that end a turn."""


class WsClient:
    """One connection."""

    def __init__(self, socket: Connection) -> None:
        self.socket = socket

    def create(self, **fields: object) -> None:
        """Ask for a response; of `demo`, unless the fields say otherwise."""
        asked = {"type": "response.create", "model": "demo", "input": "Hi!", "store": False}
        self.socket.send(json.dumps(asked | fields))

    def receive(self) -> Json:
        """Return the next message."""
        text = self.socket.recv(WAIT)
        assert isinstance(text, str)
        return json.loads(text)

    def receive_turn(self) -> list[Json]:
        """Return the messages of one turn, to its end."""
        heard = [self.receive()]
        while heard[-1]["type"] not in TERMINAL_TYPES:
            heard.append(self.receive())
        return heard

    def turn(self, **fields: object) -> list[Json]:
        """Ask for a response, and return its messages."""
        self.create(**fields)
        return self.receive_turn()

    def completed_response(self, **fields: object) -> Json:
        """Ask for a response, and return it when it is completed."""
        last = self.turn(**fields)[-1]
        assert last["type"] == "response.completed", last
        return last["response"]

    def error_message(self, **fields: object) -> Json:
        """Ask for what is refused; return the one message that says so."""
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
    """Return what a response says."""
    return "".join(part["text"] for item in response["output"] for part in item["content"])
