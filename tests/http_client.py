"""How tests ask a server, and read what it says."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

DOORS = ["/v1", "/openai/v1", "/openai"]
"""Every prefix at which responses are made."""

WAIT = 20.0
"""Seconds after which something that should have happened has not."""


@contextmanager
def http_client(address: str) -> Iterator[httpx.Client]:
    """Give an HTTP client of one server."""
    with httpx.Client(base_url=address, timeout=WAIT, trust_env=False, verify=False) as http:
        yield http


def post_response(address: str, door: str = "/v1", **body: object) -> httpx.Response:
    """Ask for a response; of `demo`, unless the body says otherwise."""
    with http_client(address) as http:
        return http.post(f"{door}/responses", json={"model": "demo", "input": "Hi!", **body})


def stream_events(address: str, door: str = "/v1", **body: object) -> list[dict[str, Any]]:
    """Ask for a stream, and return its events."""
    return parse_stream(post_response(address, door, **(body | {"stream": True})).text)


def parse_stream(text: str) -> list[dict[str, Any]]:
    """Read a whole stream that is framed as it should be."""
    *frames, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [parse_event(frame) for frame in frames if not frame.startswith(":")]


def parse_event(frame: str) -> dict[str, Any]:
    """Read one event, whose first line must name its type."""
    first, second = frame.split("\n")
    event = json.loads(second.removeprefix("data: "))
    assert first == f"event: {event['type']}"
    return event


def event_types(events: list[dict[str, Any]]) -> list[str]:
    """Return only the names of some events."""
    return [event["type"] for event in events]


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    deadline = time.monotonic() + WAIT
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
