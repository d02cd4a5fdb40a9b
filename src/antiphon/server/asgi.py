"""Requests and answers at the level of ASGI: reading a body, sending JSON, noticing a departure."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

from antiphon.protocol.errors import RequestError
from antiphon.wire import json

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
WriteChunk = Callable[[bytes], bool]
"""Sends a piece of a body at once; tells whether it could."""

DIRECT_WRITE_KEY = "antiphon.direct"
"""Where a server offers a way to send at once: what it stands for, and the way."""


HEADERS_KEY = "antiphon.headers"
"""Where the headers of a request are kept by name, once one was asked for."""


class DirectWriter(Protocol):
    """A way to send at once, past `send`."""

    @property
    def size(self) -> int:
        """How many bytes of the body went this way."""
        ...

    def write(self, chunk: bytes) -> bool:
        """Send a piece of the body; tell whether it could be."""
        ...


AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed that nobody may open."""


class ClientDisconnected(Exception):
    """The client left before it was answered."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a request header; of several, the first."""
    headers: dict[bytes, bytes] | None = scope.get(HEADERS_KEY)
    if headers is None:
        headers = scope[HEADERS_KEY] = dict(reversed(list(scope["headers"])))
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Read a JSON body; refuses other types, and more than the limit."""
    kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(
            f"The body must be JSON. Send 'Content-Type: application/json', not '{kind}'.",
            code="unsupported_media_type",
            status=415,
        )
    if (coding := header(scope, b"content-encoding") or "identity") != "identity":
        raise RequestError(
            f"The body must not be compressed ('{coding[:80]}'). Send it as it is.",
            code="unsupported_media_type",
            status=415,
        )
    length = header(scope, b"content-length")
    if length and length.isdigit() and int(length) > limit:
        raise body_too_large_error(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise body_too_large_error(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def body_too_large_error(limit: int) -> RequestError:
    """Say that a body is more than we read."""
    return RequestError(
        f"The body is larger than {limit} bytes. Send less, or files by URL.",
        code="request_too_large",
        status=413,
    )


async def read_json(scope: Scope, receive: Receive, limit: int) -> object:
    """Read and parse a JSON body."""
    body = await read_body(scope, receive, limit)
    try:
        return json.decode(body)
    except json.JSONError as error:
        raise RequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def http_send(scope: Scope, send: Send) -> Send:
    """Return a way to answer like HTTP, also to whoever wants to open a WebSocket."""
    if scope["type"] == "http":
        return send
    can_answer = "websocket.http.response" in (scope.get("extensions") or {})

    async def answer(message: Message) -> None:
        if not message["type"].startswith("http."):
            await send(message)
        elif can_answer:
            await send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    return answer


async def send_json(
    send: Send, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole JSON answer."""
    lines = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    lines += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
