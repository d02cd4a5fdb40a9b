"""ASGI helpers: read a body, send JSON, wait for a disconnect."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from antiphon.protocol.errors import RequestError
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire import json

T = TypeVar("T")
D = TypeVar("D", bytes, str | bytes)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
WriteChunk = Callable[[bytes], bool]
"""Writes a chunk of a body at once; returns False if `send` must be used."""

DIRECT_WRITE_KEY = "antiphon.direct"
"""Key of the scope: a `send`, and the `DirectWriter` that may replace it. The middleware puts its own
`send` there, so that both are used only if no other middleware wraps it."""

BODY_BUDGET_KEY = "antiphon.body_budget"
"""Key of the scope: the `BudgetShare` for the body of the request, or for the messages of a WebSocket."""

HEADERS_KEY = "antiphon.headers"
"""Key of the scope: the request's headers by name, cached."""

access_log = logging.getLogger("antiphon.access")
"""One line per HTTP request and per turn of a WebSocket."""

MAX_LOOP_BYTES = 256 * 1024
"""How much data is parsed in the event loop, and not in a thread."""

CLIENT_CLOSED_REQUEST = 499
"""The status in the access log if the client disconnected before the response; never sent."""


class DirectWriter(Protocol):
    """Writes body chunks directly, bypassing `send`."""

    size: int
    """How many bytes of the body were written."""

    def write(self, chunk: bytes) -> bool:
        """Write a chunk of the body; return False if `send` must be used."""
        ...


class ByteBudget:
    """How many bytes of requests the whole application may hold at the same time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class BudgetShare:
    """The part of a budget that one request uses."""

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.size = 0
        """How many bytes it uses."""

    def resize(self, size: int) -> None:
        """Use `size` bytes from now on; raises a 503 if the budget has no room for more."""
        used = self.budget.used + size - self.size
        if size > self.size and used > self.budget.limit:
            raise server_busy_error("too many large requests at the same time")
        self.budget.used, self.size = used, size


def server_busy_error(reason: str) -> RequestError:
    message = f"The server has {reason}. Try again in a moment."
    return RequestError(message, type="server_error", code="server_busy", status=503).with_retry_after(1)


class ClientDisconnected(Exception):
    """The client disconnected before the response was complete."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first value of a request header, or None."""
    headers: dict[bytes, bytes] | None = scope.get(HEADERS_KEY)
    if headers is None:
        # Reversed, so that the first of several lines with the same name wins.
        headers = scope[HEADERS_KEY] = dict(reversed(list(scope["headers"])))
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return a JSON body; raises RequestError for other types and for a body over the limit."""
    # Also a protection against other web pages: without a preflight, which is not answered here, a
    # browser sends forms and plain text only.
    kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = f"The body must be JSON. Send 'Content-Type: application/json', not '{kind}'."
        raise RequestError(message, code="unsupported_media_type", status=415)
    # A small compressed body could inflate to gigabytes.
    if (coding := header(scope, b"content-encoding") or "identity") != "identity":
        message = f"The body must not be compressed ('{coding[:80]}'). Send it uncompressed."
        raise RequestError(message, code="unsupported_media_type", status=415)
    # Reject before reading. A chunked body has no length, so its bytes are counted as well.
    length = header(scope, b"content-length")
    if length and length.isdigit() and int(length) > limit:
        raise body_too_large_error(limit)
    share: BudgetShare | None = scope.get(BODY_BUDGET_KEY)
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = event.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise body_too_large_error(limit)
        if share:
            share.resize(size)
        chunks.append(chunk)
        if not event.get("more_body", False):
            return b"".join(chunks)


def body_too_large_error(limit: int) -> RequestError:
    message = f"The body is larger than {limit} bytes. Send less, or files by URL."
    return RequestError(message, code="request_too_large", status=413)


async def read_json(
    scope: Scope,
    receive: Receive,
    limit: int,
    convert: Callable[[object], T],
    repair: Callable[[bytes], bytes] | None = None,
) -> T:
    """Return the JSON body, converted from builtins to something else; raises RequestError.

    A large body is parsed and converted in a thread, after `repair` has changed its bytes.
    """

    def parse(body: bytes) -> T:
        try:
            return convert(json.decode_unique(repair(body) if repair else body))
        except json.JSONError as error:
            raise RequestError(f"The body is not valid JSON: {error}", param=error.key, code="invalid_json") from None
        except InvalidValueError as error:
            raise RequestError.from_invalid_value(error) from None

    return await decode(parse, await read_body(scope, receive, limit))


async def decode(decoder: Callable[[D], T], data: D) -> T:
    """Call a decoder, for large data in a thread: to parse megabytes would block the event loop."""
    return decoder(data) if len(data) <= MAX_LOOP_BYTES else await asyncio.to_thread(decoder, data)


WATCH_AFTER_SECONDS = 0.1
"""After how long a request is watched for a disconnect. To watch takes a task; a quick response needs none."""


class DisconnectWatcher:
    """Cancels a task when the client disconnects; a disconnect before WATCH_AFTER_SECONDS is noticed then."""

    def __init__(self, receive: Receive, task: asyncio.Task[Any]) -> None:
        self.disconnected = False
        self._receive, self._task = receive, task
        self._watching: asyncio.Task[None] | None = None
        self._timer = task.get_loop().call_later(WATCH_AFTER_SECONDS, self._start)

    def stop(self) -> None:
        """Let the task go on, whatever the client does."""
        self._timer.cancel()
        if self._watching:
            self._watching.cancel()

    def _start(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        with suppress(OSError, RuntimeError):  # servers raise these after a disconnect
            while (await self._receive())["type"] != "http.disconnect":
                pass
        self.disconnected = True
        self._task.cancel()


def http_send(scope: Scope, send: Send) -> Send:
    """Return a `send` that accepts HTTP messages, also in response to a WebSocket handshake."""
    if scope["type"] == "http":
        return send
    # Without this extension of ASGI a handshake can only be closed, which servers send as a 403.
    can_send_http = "websocket.http.response" in (scope.get("extensions") or {})

    async def translate(message: Message) -> None:
        if not message["type"].startswith("http."):
            await send(message)
        elif can_send_http:
            await send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await send({"type": "websocket.close", "code": 1008})  # policy violation

    return translate


async def send_json(send: Send, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Send a complete JSON response."""
    lines = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    lines += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
