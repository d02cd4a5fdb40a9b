"""A WebSocket server scripted by the test, in the same event loop."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import Message, OutputText
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins

Json = dict[str, Any]
Handler = Callable[["ServerSide"], Awaitable[None]]


class ServerSide:
    """The server's side of a connection."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    async def receive(self) -> Json:
        """Return the next message."""
        return json.loads(await self.socket.recv())

    async def send(self, *messages: Json | str | bytes, lane: str = "") -> None:
        """Send messages; in a lane, if one is named."""
        for message in messages:
            if isinstance(message, dict):
                message = json.dumps(message | ({"stream_id": lane} if lane else {}))
            await self.socket.send(message)


@asynccontextmanager
async def serve_websocket(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """Run a server; yield the URL of its responses."""

    async def visit(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            await handler(ServerSide(socket))

    async with serve(visit, "127.0.0.1", 0, compression=None, **options) as server:
        scheme = "https" if options.get("ssl") else "http"
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"{scheme}://127.0.0.1:{port}/v1/responses"


def response(id: str = "resp_0", status: str = "in_progress", **changes: object) -> Json:
    """Build a response."""
    fields = to_builtins(Response(id=id, created_at=1, model="m"))
    assert isinstance(fields, dict)
    return fields | {"status": status} | changes


def created(id: str = "resp_0") -> Json:
    """Build the first event of a turn."""
    return {"type": "response.created", "sequence_number": 0, "response": response(id)}


def delta(text: str, number: int = 1) -> Json:
    """Build a text delta; the client adds the missing `added` events."""
    return {
        "type": "response.output_text.delta",
        "sequence_number": number,
        "item_id": "msg_0",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
    }


def terminal(id: str = "resp_0", status: str = "completed", number: int = 2) -> Json:
    """Build the terminal event of a turn."""
    body = response(id, status)
    return {"type": f"response.{status}", "sequence_number": number, "response": body}


def turn_messages(text: str, id: str = "resp_0") -> list[Json]:
    """Build all events of a turn."""
    return [created(id), delta(text), terminal(id)]


def error(code: str, status: int | None = 400, **fields: object) -> Json:
    """Build an error message."""
    body = {"type": "invalid_request_error", "code": code, "message": f"{code}."} | fields
    return {"type": "error", "error": body} | ({"status": status} if status else {})


def text_of(answer: Response) -> str:
    """Return the text of a response."""
    (message,) = answer.output
    assert isinstance(message, Message)
    assert not isinstance(message.content, str)
    return "".join(part.text for part in message.content if isinstance(part, OutputText))


def status_and_code(failure: UpstreamError) -> tuple[int, str | None]:
    """Return the status and the code of an error."""
    return failure.status, failure.payload.code
