"""The text fast path from the socket to the client, and back-pressure."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.openai_chat.decode import ChatDecoder
from antiphon.agents.turn import Turn
from antiphon.engine.provider_model import ResponseReader
from antiphon.engine.run import Run
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.request import Request
from antiphon.server.streaming.event_stream import EventStream
from antiphon.transport.response import HttpResponse
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.openai import OpenAIDialect
from antiphon.wire.openresponses import Dialect
from tests.adapters.openai_chat.test_fast_text import CHAT, STREAMS, event, slow_decoder
from tests.adapters.scenes.openai import chunk, frame
from tests.protocol.builders import make_synth


class FakeConnection:
    """A connection that only takes note of whether it is read."""

    def __init__(self) -> None:
        self.read = True

    def pause(self) -> None:
        self.read = False

    def resume(self) -> None:
        self.read = True

    def close(self) -> None: ...
    def release(self, response: HttpResponse) -> None: ...


class CountingStream(EventStream):
    """A stream that counts how often words went past the parts."""

    swift = 0

    def text_fast_path(self, fast_path: Any) -> Any:
        told = super().text_fast_path(fast_path)

        def go_on(said: list[str]) -> bool:
            self.swift += 1
            return told is not None and told(said)

        return told and go_on


async def stream_bytes(
    decoder: ChatDecoder, dialect: Dialect, pieces: list[bytes]
) -> tuple[bytes, int]:
    """Return how a stream is told of which every piece comes alone, and how many were swift."""
    exchange = HttpResponse(FakeConnection(), "local")
    exchange.head_received(200, {"content-type": "text/event-stream"})
    stream = CountingStream(dialect, 1 << 20)
    turn = Turn(request=Request(model="m", stream=True), input=[], response_id="resp_0")

    async def answer(turn: Turn, run: Any) -> None:
        del turn
        hearing = ResponseReader(exchange, decoder, run, lambda words: words)
        listening = asyncio.create_task(hearing.read(streaming=True))
        await asyncio.sleep(0)
        for piece in pieces:
            try:
                exchange.body_received(piece)
            except UpstreamError as error:
                exchange.fail_in_reader(error)
        exchange.end()
        await listening

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    run = Run(answer, turn, make_synth(), stream)
    run.mark_answering()
    await run.execute()
    stream.close()
    await stream.send(send, heartbeat=60)
    return b"".join(sent), stream.swift


DOORS = st.sampled_from([Dialect, OpenAIDialect, ChatDialect])


@given(STREAMS, DOORS)
def test_the_fast_path_sends_the_same_bytes_as_the_decoder_in_every_dialect(
    pieces: list[bytes], door: type[Dialect]
):
    swiftly, _ = asyncio.run(stream_bytes(ChatDecoder(CHAT), door(), pieces))
    slowly, swift = asyncio.run(stream_bytes(slow_decoder(), door(), pieces))
    assert swiftly == slowly
    assert swift == 0


PIECES = [
    event("Hel"),
    event("lo"),
    event(" wör") + event("ld"),
    event('"'),
    event(" 100%"),
    frame(chunk({"reasoning_content": "Hm."})),
    event("c"),
    event("d"),
    frame(chunk({}, "stop")),
]


@pytest.mark.parametrize("door", [Dialect, OpenAIDialect])
def test_continued_text_takes_the_fast_path(door: type[Dialect]):
    swiftly, swift = asyncio.run(stream_bytes(ChatDecoder(CHAT), door(), PIECES))
    slowly, _ = asyncio.run(stream_bytes(slow_decoder(), door(), PIECES))
    assert swiftly == slowly
    assert swift == 4  # "lo", two words in a row, " 100%", and "d"


@pytest.mark.anyio
async def test_a_provider_is_not_read_while_the_client_does_not_read() -> None:
    line = FakeConnection()
    exchange = HttpResponse(line, "local")
    exchange.head_received(200, {"content-type": "text/event-stream"})
    stream = CountingStream(Dialect(), limit=5000)
    turn = Turn(request=Request(model="m", stream=True), input=[], response_id="resp_0")

    async def answer(turn: Turn, run: Any) -> None:
        del turn
        await ResponseReader(exchange, ChatDecoder(CHAT), run, str).read(streaming=True)

    async def send(message: Any) -> None:
        del message

    driving = asyncio.create_task(Run(answer, turn, make_synth(), stream).execute())
    await asyncio.sleep(0.01)
    count = 0
    while line.read and count < 1000:
        exchange.body_received(event("word"))
        count += 1
    assert 10 < stream.swift < count < 50
    await asyncio.sleep(0.01)
    assert not line.read
    sending = asyncio.create_task(stream.send(send, heartbeat=60))
    await asyncio.sleep(0.01)
    assert line.read
    exchange.body_received(frame(chunk({}, "stop")))
    exchange.end()
    await driving
    stream.close()
    await sending
