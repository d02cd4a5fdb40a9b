"""A provider's stream is told in the same bytes whether its words go past the parts or not."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.chat.answer import ChatDecoder
from antiphon.agents.turn import Turn
from antiphon.core.errors import UpstreamError
from antiphon.core.request import Request
from antiphon.engine.run import Run
from antiphon.engine.upstream import Hearing
from antiphon.server.stream import EventStream
from antiphon.transport.exchange import Exchange
from antiphon.wire.chat import ChatDialect
from antiphon.wire.dialects import DIALECTS, Dialect
from tests.adapters.scripts.openai import chunk, frame
from tests.adapters.test_refrain import CHAT, STREAMS, event, plain
from tests.core.making import synth


class Line:
    """A connection that is never full."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...
    def release(self, exchange: Exchange) -> None: ...


class Outlet(EventStream):
    """A stream that counts how often words went past the parts."""

    swift = 0

    def flow(self, flow: Any) -> Any:
        told = super().flow(flow)

        def go_on(said: list[str]) -> bool:
            self.swift += 1
            return told is not None and told(said)

        return told and go_on


async def told(decoder: ChatDecoder, dialect: Dialect, pieces: list[bytes]) -> tuple[bytes, int]:
    """Return how a stream is told of which every piece comes alone, and how many were swift."""
    exchange = Exchange(Line(), "local")
    exchange.head_received(200, {"content-type": "text/event-stream"})
    stream = Outlet(dialect, 1 << 20)
    turn = Turn(request=Request(model="m", stream=True), input=[], response_id="resp_0")

    async def answer(turn: Turn, run: Any) -> None:
        del turn
        hearing = Hearing(exchange, decoder, run, lambda words: words)
        listening = asyncio.create_task(hearing.hear(streamed=True))
        await asyncio.sleep(0)
        for piece in pieces:
            try:
                exchange.body_received(piece)
            except UpstreamError as error:
                exchange.broke(error)
        exchange.end()
        await listening

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    run = Run(answer, turn, synth(), stream)
    run.begin()
    await run.drive()
    stream.close()
    await stream.send(send, heartbeat=60)
    return b"".join(sent), stream.swift


DOORS = st.sampled_from([*DIALECTS.values(), ChatDialect])


@given(STREAMS, DOORS)
def test_every_door_tells_the_same_as_when_every_chunk_is_read(
    pieces: list[bytes], door: type[Dialect]
):
    swiftly, _ = asyncio.run(told(ChatDecoder(CHAT), door(), pieces))
    slowly, swift = asyncio.run(told(plain(), door(), pieces))
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


@pytest.mark.parametrize("door", DIALECTS.values())
def test_words_go_past_the_parts_where_a_text_goes_on(door: type[Dialect]):
    swiftly, swift = asyncio.run(told(ChatDecoder(CHAT), door(), PIECES))
    slowly, _ = asyncio.run(told(plain(), door(), PIECES))
    assert swiftly == slowly
    assert swift == 4  # "lo", two words in a row, " 100%", and "d"
