"""Outgoing WebSocket messages: order, backpressure, and when a response is announced."""

import asyncio
import json

import pytest

from antiphon.agents.agent import Turn
from antiphon.engine.models import PartSink
from antiphon.engine.run import Run
from antiphon.protocol.errors import RequestError
from antiphon.protocol.parts import Text
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.server.asgi import Message
from antiphon.server.middleware import ReportedError
from antiphon.server.streaming.ws_lanes import OutgoingQueue, TurnSink
from antiphon.wire.openresponses import Dialect

pytestmark = pytest.mark.anyio


class FakeReader:
    """Takes messages, as long as it may."""

    def __init__(self) -> None:
        self.read: list[Message] = []
        self.may = asyncio.Event()

    async def send(self, message: Message) -> None:
        await self.may.wait()
        self.read.append(message)

    @property
    def types(self) -> list[str]:
        return [json.loads(message["text"])["type"] for message in self.read]


async def run_pending() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_messages_are_sent_in_order_and_the_connection_is_closed_after_them() -> None:
    outgoing, reader = OutgoingQueue(10), FakeReader()
    reader.may.set()
    outgoing.put(b"one")
    sending = asyncio.create_task(outgoing.run(reader.send))
    await run_pending()
    outgoing.put("zwölf".encode())
    outgoing.close(1001, "Over.")
    outgoing.put(b"too late")
    await sending
    assert reader.read == [
        {"type": "websocket.send", "text": "one"},
        {"type": "websocket.send", "text": "zwölf"},
        {"type": "websocket.close", "code": 1001, "reason": "Over."},
    ]


async def test_a_fast_model_waits_for_the_client() -> None:
    outgoing, reader = OutgoingQueue(10), FakeReader()
    sending = asyncio.create_task(outgoing.run(reader.send))
    outgoing.put(b"x" * 10)
    assert not outgoing.full
    await outgoing.drain()
    outgoing.put(b"y")
    assert outgoing.full
    drained = asyncio.create_task(outgoing.drain())
    flushed = asyncio.create_task(outgoing.flush())
    await run_pending()
    assert not drained.done()
    assert not flushed.done()
    reader.may.set()
    await asyncio.gather(drained, flushed)
    assert len(reader.read) == 2
    sending.cancel()


async def test_closing_wakes_a_waiting_writer() -> None:
    outgoing = OutgoingQueue(10)
    outgoing.put(b"x" * 11)
    waiting = asyncio.gather(outgoing.drain(), outgoing.flush())
    await run_pending()
    outgoing.close(1001, "Over.")
    await waiting


class TurnFixture:
    """A run with a scripted model, and its turn sink."""

    def __init__(self, lane: str = "") -> None:
        self.outgoing, self.reader = OutgoingQueue(10_000), FakeReader()
        self.reader.may.set()
        self.voice = TurnSink(self.outgoing, Dialect(), lane)
        self.says: asyncio.Queue[str | Exception] = asyncio.Queue()
        request = Request.from_message("stage", "Hi!")
        started = Response.new(request, id="resp_1", created_at=0)
        synth = Synth(started, ids=lambda prefix: f"{prefix}_1", clock=lambda: 0.0)
        self.run = Run(self.answer, Turn(request, request.input), synth, self.voice)

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        while output := await self.says.get():
            if isinstance(output, Exception):
                raise output
            sink.feed([Text(output)])

    async def received(self) -> list[str]:
        """Return the types of what has been sent by now."""
        sending = asyncio.create_task(self.outgoing.run(self.reader.send))
        await run_pending()
        sending.cancel()
        return self.reader.types


BEGUN = ["response.created", "response.in_progress"]


async def test_a_response_is_announced_when_its_model_starts() -> None:
    stage = TurnFixture()
    driving = asyncio.create_task(stage.run.execute())
    assert await stage.received() == []
    stage.says.put_nowait("word")
    assert (await stage.received())[:3] == [*BEGUN, "response.output_item.added"]
    assert not stage.voice.ended
    stage.says.put_nowait("")
    await driving
    assert stage.voice.ended
    assert (await stage.received())[-1] == "response.completed"
    assert stage.voice.status == 200


async def test_an_error_before_any_output_drops_the_pending_events() -> None:
    stage = TurnFixture()
    stage.says.put_nowait(RequestError("No."))
    with pytest.raises(RequestError):
        await stage.run.execute()
    assert await stage.received() == []
    assert not stage.voice.ended
    stage.voice.fail(ReportedError(RequestError("No.").payload, 400, {}))
    assert await stage.received() == ["error"]
    assert stage.voice.status == 400


async def test_a_response_that_was_announced_in_time_can_only_fail() -> None:
    stage = TurnFixture("lane")
    driving = asyncio.create_task(stage.run.execute())
    await run_pending()
    stage.voice.commit(stage.run)
    assert await stage.received() == BEGUN
    stage.says.put_nowait(RequestError("No."))
    await driving
    assert await stage.received() == [*BEGUN, "response.failed"]
    assert {json.loads(message["text"])["stream_id"] for message in stage.reader.read} == {"lane"}
    assert stage.voice.status == 500


async def test_a_failed_response_is_not_announced() -> None:
    stage = TurnFixture()
    stage.says.put_nowait(RequestError("No."))
    with pytest.raises(RequestError):
        await stage.run.execute()
    stage.voice.commit(stage.run)
    assert await stage.received() == []
