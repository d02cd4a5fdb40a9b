"""Turns and their readers: slow ones, ones that leave, ones that are cancelled or forgotten."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from antiphon.client import socket as sessions
from antiphon.client.inbox import MAX_BATCH, MAX_UNREAD, Inbox
from antiphon.client.socket import Session
from antiphon.core.errors import RemoteProtocolError, UpstreamError
from antiphon.core.events import OutputTextDelta
from antiphon.transport.connection import Timeouts
from tests.client.scripted import Visitor, created, delta, last, scripted, turn

pytestmark = pytest.mark.anyio

PIECE = "x" * 10_000
ENOUGH = 3_000
"""How many pieces are far more than we and the system keep."""


class Talker:
    """A server that tells long stories, and counts what it got rid of."""

    def __init__(self) -> None:
        self.said = 0

    async def __call__(self, visitor: Visitor) -> None:
        """Answer one turn in a lane after the other."""
        while True:
            asked = await visitor.hear()
            lane, model = asked.get("stream_id", ""), asked["model"]
            await visitor.say(created(model), lane=lane)
            for number in range(1, int(asked["metadata"]["pieces"]) + 1):
                await visitor.say(delta(PIECE, number), lane=lane)
                self.said += 1
            await visitor.say(last(model, number=self.said + 1), lane=lane)


@pytest.fixture
def talker() -> Talker:
    return Talker()


@pytest.fixture
async def session(talker: Talker) -> AsyncIterator[Session]:
    async with scripted(talker) as url, Session(url) as session:
        yield session


def story(pieces: int = ENOUGH) -> dict[str, str]:
    """Ask for so many pieces."""
    return {"pieces": str(pieces)}


async def still(count: Callable[[], int]) -> int:
    """Wait until a number grows no more, and return it."""
    before = -1
    async with asyncio.timeout(10):
        while count() != before:
            before = count()
            await asyncio.sleep(0.1)
    return before


# --- slow readers -----------------------------------------------------------------------------


async def test_a_reader_who_does_not_read_makes_the_server_wait(
    session: Session, talker: Talker
) -> None:
    async with session.stream(model="m", metadata=story()) as stream:
        said = await still(lambda: talker.said)
        assert MAX_UNREAD < said * len(PIECE) < len(PIECE) * ENOUGH
        texts = [text async for text in stream.text]
        assert texts == [PIECE] * ENOUGH
    assert talker.said == ENOUGH


async def test_a_slow_reader_on_one_lane_holds_up_the_others_and_no_longer(
    session: Session, talker: Talker
) -> None:
    async with session.stream(lane="slow", model="m", metadata=story()) as slow:
        await still(lambda: talker.said)
        quick = asyncio.create_task(
            session.stream(lane="quick", model="q", metadata=story(1)).final()
        )
        done, _ = await asyncio.wait([quick], timeout=0.1)
        assert not done
        await slow.final()
        assert (await quick).id == "q"


async def test_a_reader_who_is_slower_than_pings_is_not_taken_for_gone(
    talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PING_SECONDS", 0.02)
    async with (
        scripted(talker) as url,
        Session(url) as session,
        session.stream(model="m", metadata=story()) as stream,
    ):
        await still(lambda: talker.said)
        await asyncio.sleep(0.2)
        assert len([text async for text in stream.text]) == ENOUGH


async def test_what_has_come_is_handed_over_in_batches() -> None:
    async def meet(visitor: Visitor) -> None:
        await visitor.hear()
        pieces = [delta("x", number) for number in range(1, 501)]
        await visitor.say(created(), *pieces, last(number=501))
        said.set()

    said = asyncio.Event()
    async with (
        scripted(meet) as url,
        Session(url) as session,
        session.stream(model="m") as stream,
    ):
        await said.wait()
        await asyncio.sleep(0.1)
        batches = [batch async for batch in stream.batches()]
    sizes = [len(batch) for batch in batches]
    assert sizes == [MAX_BATCH + 2, 502 - MAX_BATCH]  # two openings were missing
    texts = [e.delta for batch in batches for e in batch if isinstance(e, OutputTextDelta)]
    assert texts == ["x"] * 500


# --- readers who leave ------------------------------------------------------------------------


async def test_the_rest_of_a_turn_is_dropped_when_its_reader_leaves(
    session: Session, talker: Talker
) -> None:
    async for text in session.stream(model="m", metadata=story()).text:
        assert text == PIECE
        break
    again = await session.stream(model="again", metadata=story(2)).final()
    assert again.id == "again"
    assert talker.said == ENOUGH + 2


async def test_a_stream_that_was_closed_is_read_no_further(session: Session) -> None:
    async with session.stream(model="m", metadata=story()) as stream:
        await anext(aiter(stream))
        await stream.close()
        await stream.close()
        assert [event async for event in stream] == []
    assert (await session.stream(model="again", metadata=story(1)).final()).id == "again"


async def test_closing_a_stream_wakes_whoever_reads_it() -> None:
    async def meet(visitor: Visitor) -> None:
        await visitor.hear()
        await visitor.say(created())
        await visitor.hear()

    async with scripted(meet) as url, Session(url) as session:
        source = await session.lane("").source({"model": "m"})
        assert [event.type for event in await source.batch()] == ["response.created"]
        waiting = asyncio.create_task(source.batch())
        await asyncio.sleep(0.01)
        await source.close()
        assert await waiting == []


async def test_a_stream_that_is_forgotten_holds_up_nobody(session: Session) -> None:
    stream = session.stream(model="m", metadata=story())
    await anext(aiter(stream))
    await stream.__aenter__()
    del stream
    gc.collect()
    async with asyncio.timeout(10):
        again = await session.stream(model="again", metadata=story(1)).final()
    assert again.id == "again"


async def test_a_reader_that_has_raised_has_left() -> None:
    async def meet(visitor: Visitor) -> None:
        await visitor.hear()
        await visitor.say("no JSON")
        await visitor.hear()

    patience = Timeouts(idle=0.1)
    async with scripted(meet) as url, Session(url, strict=True, timeout=patience) as session:
        source = await session.lane("").source({"model": "m"})
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await source.batch()
        with pytest.raises(UpstreamError, match="did not end the turn before"):
            await session.lane("").source({"model": "m"})


# --- readers who are cancelled ----------------------------------------------------------------


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    async def meet(visitor: Visitor) -> None:
        await visitor.hear()
        await visitor.say(created())
        await go_on.wait()
        await visitor.say(delta("Yes."), last())

    go_on = asyncio.Event()
    async with scripted(meet) as url, Session(url) as session:
        source = await session.lane("").source({"model": "m"})
        await source.batch()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.batch(), 0.02)
        go_on.set()
        events = [event for _ in range(2) for event in await source.batch()]
        assert [event.type for event in events if isinstance(event, OutputTextDelta)] == [
            "response.output_text.delta"
        ]


async def test_whoever_is_cancelled_before_its_turn_has_asked_for_nothing() -> None:
    async def meet(visitor: Visitor) -> None:
        while True:
            heard.append((await visitor.hear())["model"])
            await visitor.say(created())
            await go_on.wait()
            await visitor.say(last())

    heard: list[str] = []
    go_on = asyncio.Event()
    async with scripted(meet) as url, Session(url) as session:
        first, second, third = (
            asyncio.create_task(session.stream(model=name).final()) for name in "abc"
        )
        await asyncio.sleep(0.05)
        second.cancel()
        go_on.set()
        await first
        await third
        assert second.cancelled()
    assert heard == ["a", "c"]


async def test_whoever_is_cancelled_while_sending_leaves_a_lane_that_works() -> None:
    async def meet(visitor: Visitor) -> None:
        visitor.socket.transport.pause_reading()
        await asyncio.wait_for(go_on.wait(), 5)
        visitor.socket.transport.resume_reading()
        await visitor.hear()
        pieces = [delta(PIECE, number) for number in range(1, ENOUGH)]
        await visitor.say(created(), *pieces, last())
        await visitor.hear()
        await visitor.say(*turn("Yes.", "resp_1"))

    go_on = asyncio.Event()
    async with scripted(meet, max_size=None) as url, Session(url) as session:
        sending = asyncio.create_task(
            session.lane("").source({"model": "a", "input": "x" * 20_000_000})
        )
        await asyncio.sleep(0.2)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        go_on.set()
        assert (await session.stream(model="b").final()).id == "resp_1"


# --- the buffer itself ------------------------------------------------------------------------


async def test_a_turn_keeps_what_came_before_its_failure() -> None:
    heard = Inbox("", lambda: None)
    heard.put(b"1")
    heard.end(UpstreamError("gone"))
    assert await heard.take(1) == [b"1"]
    for _ in range(2):
        with pytest.raises(UpstreamError, match="gone"):
            await heard.take(1)


async def test_a_turn_that_is_over_is_never_full() -> None:
    heard = Inbox("", lambda: None)
    heard.put(b"x" * (MAX_UNREAD + 1))
    assert heard.full
    heard.end()
    assert not heard.full


async def test_a_reader_that_is_behind_lets_others_go_first() -> None:
    heard, others = Inbox("", lambda: None), list[str]()
    heard.put(b"1")
    asyncio.get_running_loop().call_soon(others.append, "went")
    assert await heard.take(1) == [b"1"]
    assert others == ["went"]
