"""Servers with a store, their agents, and requests to them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from antiphon.agents.agent import Turn, agent
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import Message
from antiphon.protocol.parts import Finish
from antiphon.server.settings import Settings
from tests.http_client import WAIT, http_client, parse_stream
from tests.run_server import run_server

DIALECT_DOORS = ["/v1", "/openai/v1"]
"""A door of each dialect."""

UNKNOWN_ID = "resp_" + "0" * 48


class EndlessCounter:
    """What an agent that never stops by itself has done so far."""

    def __init__(self) -> None:
        self.ticks = 0
        self.stopped = 0


ENDLESS_COUNTER = EndlessCounter()


@agent("endless")
async def endless() -> AsyncIterator[str]:
    """Says more and more, until it is stopped."""
    try:
        while True:
            ENDLESS_COUNTER.ticks += 1
            yield "more "
            await asyncio.sleep(0.005)
    finally:
        ENDLESS_COUNTER.stopped += 1


@agent("counter")
async def counter(turn: Turn) -> AsyncIterator[object]:
    """Count to a number, then end as the input requests: completed, failed or truncated."""
    number, _, end = turn.text.partition(" ")
    for word in range(int(number)):
        yield f"{word} "
        await asyncio.sleep(0.002)
    if end == "broken":
        raise RuntimeError("secret")
    if end == "busy":
        raise UpstreamError("Busy.", status=503)
    if end == "cut":
        yield Finish("length")


@agent("mirror")
async def mirror(turn: Turn) -> str:
    """Says what it was given to read, in order, and the instructions."""
    output = [[item.role, item.text] for item in turn.items if isinstance(item, Message)]
    return json.dumps({"instructions": turn.instructions, "said": output})


AGENTS = [endless, counter, mirror]


@contextmanager
def serve_agents(folder: Path | None, **settings: Any) -> Iterator[str]:
    """Serve the agents, with a store in a folder or in memory; give the address."""
    chosen = Settings(agents=AGENTS, responses_dir=folder, drain_seconds=0, **settings)
    with run_server(chosen) as address:
        yield address


Ask = Callable[..., httpx.Response]


def call(address: str, method: str, path: str, **options: Any) -> httpx.Response:
    """Make one request."""
    with http_client(address) as http:
        return http.request(method, path, **options)


def create_response(address: str, model: str, input: object, door: str = "/v1", **body: Any) -> dict[str, Any]:
    """Have a response made, and return it."""
    json = {"model": model, "input": input, **body}
    answer = call(address, "POST", f"{door}/responses", json=json)
    assert answer.status_code == 200, answer.text
    return answer.json()


def get_response(address: str, id: str, door: str = "/v1") -> dict[str, Any]:
    """Read a response."""
    answer = call(address, "GET", f"{door}/responses/{id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def replay(address: str, id: str, after: int | None = None, door: str = "/v1") -> list[Any]:
    """Follow the events of a response to its end, from the beginning or after a number."""
    query: dict[str, Any] = {"stream": "true"}
    if after is not None:
        query["starting_after"] = after
    answer = call(address, "GET", f"{door}/responses/{id}", params=query)
    assert answer.status_code == 200, answer.text
    return parse_stream(answer.text)


def wait_until_ended(address: str, id: str, door: str = "/v1") -> dict[str, Any]:
    """Poll a response until it has ended."""
    for _ in range(int(WAIT * 100)):
        response = get_response(address, id, door)
        if response["status"] not in ("queued", "in_progress"):
            return response
        asyncio.run(asyncio.sleep(0.01))
    raise AssertionError(f"{id} did not end")


def output_text(response: dict[str, Any]) -> str:
    """Return the text of a response."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def error_code(answer: httpx.Response) -> tuple[int, str, str | None]:
    """Return the status, the code and the param of a refusal."""
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]
