"""A provider's events are forwarded in the same iteration of the loop, in order."""

import asyncio
import json
import socket
import time
from collections.abc import Callable

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.adapters.base import Provider
from antiphon.protocol.events import Event, ExtensionEvent
from antiphon.protocol.fast_text import TextFastPath
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from antiphon.server.streaming.event_stream import EventStream
from antiphon.wire.openresponses import Dialect
from tests.http_client import stream_events
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedUpstream, scripted_upstream, sse_answer
from tests.server.streaming.test_event_stream import received, visiting

pytestmark = pytest.mark.anyio


def event(number: int) -> Event:
    return ExtensionEvent(type="test:event", sequence_number=number)


def written(*numbers: int) -> bytes:
    return b"".join(Dialect().encode_sse(event(number)) for number in numbers)


class FakeConnection:
    """What was sent, and by which way."""

    def __init__(self, *, open: bool = True) -> None:
        self.open = open
        self.sent: list[tuple[str, bytes]] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.sent.append(("task", message["body"]))

    def direct(self, chunk: bytes) -> bool:
        if self.open:
            self.sent.append(("direct", chunk))
        return self.open


async def run_in_loop(work: Callable[[], None]) -> None:
    """Do something as the loop itself does it, outside of any task."""
    asyncio.get_running_loop().call_soon(work)
    await asyncio.sleep(0)


async def test_direct_writes_wake_no_task() -> None:
    wire = FakeConnection()
    stream = EventStream(Dialect(), 10_000, wire.direct)
    stream.write([event(0)])
    sending = asyncio.create_task(stream.send(wire.send, 60))
    await asyncio.sleep(0.01)
    await run_in_loop(lambda: stream.write([event(1), event(2)]))
    stream.write([event(3)])
    await asyncio.sleep(0.01)
    stream.close()
    await sending
    assert wire.sent == [
        ("task", written(0)),
        ("direct", written(1, 2)),
        ("direct", written(3)),
        ("task", b"data: [DONE]\n\n"),
    ]


async def test_direct_writes_do_not_overtake_buffered_chunks() -> None:
    wire = FakeConnection(open=False)
    stream = EventStream(Dialect(), 10_000, wire.direct)
    sending = asyncio.create_task(stream.send(wire.send, 60))
    await asyncio.sleep(0.01)
    stream.write([event(0)])  # which waits for the sending task
    wire.open = True
    stream.write([event(1)])
    await asyncio.sleep(0.01)
    stream.close()
    await sending
    assert b"".join(chunk for _, chunk in wire.sent) == written(0, 1) + b"data: [DONE]\n\n"


async def test_a_busy_transport_is_awaited() -> None:
    wire = FakeConnection(open=False)
    stream = EventStream(Dialect(), 10_000, wire.direct)
    sending = asyncio.create_task(stream.send(wire.send, 60))
    await asyncio.sleep(0.01)
    await run_in_loop(lambda: stream.write([event(0)]))
    await asyncio.sleep(0.01)
    stream.close()
    await sending
    assert wire.sent == [("task", written(0)), ("task", b"data: [DONE]\n\n")]


def local(provider: ScriptedUpstream) -> Settings:
    return Settings(providers=[Provider(name="local", adapter="openai", base_url=f"{provider.url}/v1")])


def texts(count: int, size: int = 10) -> bytes:
    """Return a completion with many deltas that all differ."""
    chunks = ({"choices": [{"index": 0, "delta": {"content": f"{number:>{size}}"}}]} for number in range(count))
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in (*chunks, end)]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


@pytest.mark.parametrize("alone", [False, True], ids=["cut", "one by one"])
def test_a_client_that_pauses_loses_nothing(alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count, size = (300, 3000) if alone else (3000, 2000)
    output = texts(count, size)
    swift: list[int] = []

    def add(flow: TextFastPath, texts: list[str]) -> int:
        swift.append(len(texts))
        return plain_add(flow, texts)

    plain_add = TextFastPath.append
    monkeypatch.setattr(TextFastPath, "append", add)
    pace = {"chunk_size": output.index(b"\n\n") + 2, "pause": 0.002} if alone else {"chunk_size": 4096}
    with scripted_upstream(sse_answer(output, **pace)) as provider, run_server(local(provider)) as url:
        body = {"model": "local/m", "input": "Hi", "stream": True, "store": False}
        with visiting(url, body, buffer=4096) as connection:
            data = received(connection, b"response.output_text.delta")
            time.sleep(1.0)  # while much more comes than any buffer holds
            data += receive_until_closed(connection)
    deltas = [
        json.loads(line.removeprefix(b"data: "))
        for line in dechunked(data).split(b"\n")
        if line.startswith(b"data: {") and b'"response.output_text.delta"' in line
    ]
    assert "".join(delta["delta"] for delta in deltas) == "".join(f"{number:>{size}}" for number in range(count))
    numbers = [delta["sequence_number"] for delta in deltas]
    assert numbers == list(range(numbers[0], numbers[0] + count))
    assert sum(swift) > 50 or not alone  # words that come alone go past the parts


def receive_until_closed(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def dechunked(data: bytes) -> bytes:
    """Take a body out of its HTTP chunks."""
    rest, body = data.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return body


class UppercaseMiddleware:
    """A middleware of the user's own that changes what is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shout(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": message["body"].replace(b"word", b"WORD")}
            await send(message)

        await self._app(scope, receive, shout)


@pytest.mark.parametrize("inside", [True, False])
def test_a_users_middleware_sees_every_chunk(inside: bool) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    output = f"data: {json.dumps(chunk)}\n\n".encode()
    answer = output * 20 + texts(0)
    with scripted_upstream(sse_answer(answer, chunk_size=len(output), pause=0.01)) as provider:
        app = create_app(local(provider))
        if inside:
            app.router.middleware_stack = UppercaseMiddleware(app.router.middleware_stack)
        else:
            app.add_middleware(UppercaseMiddleware)
        with run_server(app) as url:
            events = stream_events(url, model="local/m", store=False)
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "WORD " * 20
    assert all(e["delta"] == "WORD " for e in events if e["type"].endswith("output_text.delta"))
