"""The text fast path from the socket to the client, and back-pressure."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.openai_chat.decode import ChatDecoder
from antiphon.agents.agent import Turn
from antiphon.engine.provider_model import ResponseReader
from antiphon.engine.run import Run
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.request import Request
from antiphon.server.streaming.event_stream import EventStream
from antiphon.transport.response import HttpResponse
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.openresponses import Dialect, OpenAIDialect
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
    """A stream that counts how often the fast path was used."""

    fast_count = 0

    def text_fast_path(self, fast_path: Any) -> Any:
        write = super().text_fast_path(fast_path)

        def count_and_write(texts: list[str]) -> bool:
            self.fast_count += 1
            return write is not None and write(texts)

        return write and count_and_write


async def stream_bytes(decoder: ChatDecoder, dialect: Dialect, pieces: list[bytes]) -> tuple[bytes, int]:
    """Return the bytes sent for a stream in single pieces, and the uses of the fast path."""
    response = HttpResponse(FakeConnection(), "local")
    response.head_received(200, {"content-type": "text/event-stream"})
    stream = CountingStream(dialect, 1 << 20)
    turn = Turn(request=Request(model="m", stream=True), input=[], response_id="resp_0")

    async def answer(turn: Turn, run: Any) -> None:
        del turn
        reader = ResponseReader(response, decoder, run, lambda words: words)
        listening = asyncio.create_task(reader.read(streaming=True))
        await asyncio.sleep(0)
        for piece in pieces:
            try:
                response.body_received(piece)
            except UpstreamError as error:
                response.fail_in_reader(error)
        response.end()
        await listening

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    run = Run(answer, turn, make_synth(), stream)
    run.mark_answering()
    await run.execute()
    stream.close()
    await stream.send(send, heartbeat=60)
    return b"".join(sent), stream.fast_count


DOORS = st.sampled_from([Dialect, OpenAIDialect, ChatDialect])


@given(STREAMS, DOORS)
def test_the_fast_path_sends_the_same_bytes_as_the_decoder_in_every_dialect(pieces: list[bytes], door: type[Dialect]):
    with_fast_path, _ = asyncio.run(stream_bytes(ChatDecoder(CHAT), door(), pieces))
    without_fast_path, fast_count = asyncio.run(stream_bytes(slow_decoder(), door(), pieces))
    assert with_fast_path == without_fast_path
    assert fast_count == 0


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
    with_fast_path, fast_count = asyncio.run(stream_bytes(ChatDecoder(CHAT), door(), PIECES))
    without_fast_path, _ = asyncio.run(stream_bytes(slow_decoder(), door(), PIECES))
    assert with_fast_path == without_fast_path
    assert fast_count == 4  # "lo", two words in a row, " 100%", and "d"


@pytest.mark.anyio
async def test_a_provider_is_not_read_while_the_client_does_not_read() -> None:
    line = FakeConnection()
    response = HttpResponse(line, "local")
    response.head_received(200, {"content-type": "text/event-stream"})
    stream = CountingStream(Dialect(), limit=5000)
    turn = Turn(request=Request(model="m", stream=True), input=[], response_id="resp_0")

    async def answer(turn: Turn, run: Any) -> None:
        del turn
        await ResponseReader(response, ChatDecoder(CHAT), run, str).read(streaming=True)

    async def send(message: Any) -> None:
        del message

    driving = asyncio.create_task(Run(answer, turn, make_synth(), stream).execute())
    await asyncio.sleep(0.01)
    count = 0
    while line.read and count < 1000:
        response.body_received(event("word"))
        count += 1
    assert 10 < stream.fast_count < count < 50
    await asyncio.sleep(0.01)
    assert not line.read
    sending = asyncio.create_task(stream.send(send, heartbeat=60))
    await asyncio.sleep(0.01)
    assert line.read
    response.body_received(frame(chunk({}, "stop")))
    response.end()
    await driving
    stream.close()
    await sending
