"""Send requests to a server and parse its streams, for tests."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

DOORS = ["/v1", "/openai/v1", "/openai"]
"""Every prefix under which the Responses API is served."""

WAIT = 20.0
"""Timeout in seconds for everything that tests wait for."""


@contextmanager
def http_client(address: str) -> Iterator[httpx.Client]:
    """Give an HTTP client of one server."""
    with httpx.Client(base_url=address, timeout=WAIT, trust_env=False, verify=False) as http:
        yield http


def post_response(address: str, door: str = "/v1", **body: object) -> httpx.Response:
    """Post a request, to `demo` unless the body names another model."""
    with http_client(address) as http:
        return http.post(f"{door}/responses", json={"model": "demo", "input": "Hi!", **body})


def stream_events(address: str, door: str = "/v1", **body: object) -> list[dict[str, Any]]:
    """Post a streaming request and return its events."""
    return parse_stream(post_response(address, door, **(body | {"stream": True})).text)


def parse_stream(text: str) -> list[dict[str, Any]]:
    """Parse a complete SSE stream; assert that it ends with `[DONE]`."""
    *frames, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [parse_event(frame) for frame in frames if not frame.startswith(":")]


def parse_event(frame: str) -> dict[str, Any]:
    """Parse one SSE frame; assert that its event line names its type."""
    first, second = frame.split("\n")
    event = json.loads(second.removeprefix("data: "))
    assert first == f"event: {event['type']}"
    return event


def event_types(events: list[dict[str, Any]]) -> list[str]:
    """Return the types of events."""
    return [event["type"] for event in events]


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT
    while not happened():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)
