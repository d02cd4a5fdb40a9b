"""A model that tests control, and checks of WebSocket messages."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from websockets.exceptions import ConnectionClosed

from antiphon.agents.agent import Agent, Turn, agent
from tests.spec.schema_checks import check_error_body
from tests.ws_client import Json, WsClient


class GatedModel:
    """A model that repeats its input, and ends when the test releases it."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.running = self.most_running = self.deltas_sent = 0
        self.turns: list[Turn] = []
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def agent(self) -> Agent:
        @agent("gate")
        async def gate(turn: Turn) -> AsyncIterator[str]:
            self.turns.append(turn)
            self.loop = asyncio.get_running_loop()
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            try:
                yield turn.text
                while not self.release.is_set():
                    await asyncio.sleep(0.005)
                yield "."
            finally:
                self.running -= 1

        @gate.entry("endless")
        async def endless(turn: Turn) -> AsyncIterator[str]:
            while True:
                self.deltas_sent += 1
                yield "x" * 10_000
                await asyncio.sleep(0)

        return gate


def envelope_error(envelope: Json) -> tuple[int, str, str]:
    """Check an envelope at the specification's door; return its status, type and code."""
    check_error_body(envelope)
    return envelope["status"], envelope["error"]["type"], envelope["error"]["code"]


def close_code(ws: WsClient) -> int | None:
    """Return the code that a connection is closed with, after no further message."""
    with pytest.raises(ConnectionClosed) as ended:
        raise AssertionError(ws.receive())
    return ended.value.rcvd.code if ended.value.rcvd else None
