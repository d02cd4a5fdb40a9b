"""Helpers for tests with a scripted server."""

from collections.abc import Callable
from typing import Any

from antiphon.client.async_client import AsyncClient
from antiphon.protocol.events import Event
from antiphon.protocol.struct import encode
from antiphon.wire import sse

ClientFactory = Callable[..., AsyncClient]
"""Makes a client of a scripted server, with options."""

REQUEST: Any = {"model": "m", "input": "Hi!"}


def encode_sse(events: list[Event] | list[dict[str, Any]], done: bool = True) -> bytes:
    """Encode events as Server-Sent Events."""
    body = b"".join(b"data: %b\n\n" % encode(event) for event in events)
    return body + (sse.DONE_FRAME if done else b"")
