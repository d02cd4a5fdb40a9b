"""Turns and their readers: slow ones, ones that leave, ones that are cancelled or forgotten."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from antiphon.client import websocket as sessions
from antiphon.client.websocket import (
    MAX_BATCH_MESSAGES,
    MAX_UNREAD_BYTES,
    Session,
    TurnBuffer,
)
from antiphon.protocol.errors import RemoteProtocolError, UpstreamError
from antiphon.protocol.events import OutputTextDelta
from antiphon.transport.connection import Timeouts
from tests.client.websocket_server import (
    ServerSide,
    created,
    delta,
    serve_websocket,
    terminal,
    turn_messages,
)

pytestmark = pytest.mark.anyio

PIECE = "x" * 10_000
ENOUGH = 3_000
"""How many pieces are far more than we and the system keep."""


class StreamingServer:
    """A server that tells long stories, and counts what it got rid of."""

    def __init__(self) -> None:
        self.sent = 0

    async def __call__(self, visitor: ServerSide) -> None:
        """Answer one turn in a lane after the other."""
        while True:
            asked = await visitor.receive()
            lane, model = asked.get("stream_id", ""), asked["model"]
            await visitor.send(created(model), lane=lane)
            for number in range(1, int(asked["metadata"]["pieces"]) + 1):
                await visitor.send(delta(PIECE, number), lane=lane)
                self.sent += 1
            await visitor.send(terminal(model, number=self.sent + 1), lane=lane)


@pytest.fixture
def talker() -> StreamingServer:
    return StreamingServer()


@pytest.fixture
async def session(talker: StreamingServer) -> AsyncIterator[Session]:
    async with serve_websocket(talker) as url, Session(url) as session:
        yield session


def stream_request(pieces: int = ENOUGH) -> dict[str, str]:
    """Ask for so many pieces."""
    return {"pieces": str(pieces)}


async def wait_until_stable(count: Callable[[], int]) -> int:
    """Wait until a number grows no more, and return it."""
    before = -1
    async with asyncio.timeout(10):
        while count() != before:
            before = count()
            await asyncio.sleep(0.1)
    return before


# --- slow readers -----------------------------------------------------------------------------


async def test_an_idle_reader_pauses_the_connection(
    session: Session, talker: StreamingServer
) -> None:
    async with session.stream(model="m", metadata=stream_request()) as stream:
        said = await wait_until_stable(lambda: talker.sent)
        assert MAX_UNREAD_BYTES < said * len(PIECE) < len(PIECE) * ENOUGH
        texts = [text async for text in stream.text]
        assert texts == [PIECE] * ENOUGH
    assert talker.sent == ENOUGH


async def test_a_slow_reader_pauses_all_lanes_until_it_catches_up(
    session: Session, talker: StreamingServer
) -> None:
    async with session.stream(lane="slow", model="m", metadata=stream_request()) as slow:
        await wait_until_stable(lambda: talker.sent)
        quick = asyncio.create_task(
            session.stream(lane="quick", model="q", metadata=stream_request(1)).final()
        )
        done, _ = await asyncio.wait([quick], timeout=0.1)
        assert not done
        await slow.final()
        assert (await quick).id == "q"


async def test_a_reader_slower_than_the_ping_interval_is_not_disconnected(
    talker: StreamingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PING_INTERVAL", 0.02)
    async with (
        serve_websocket(talker) as url,
        Session(url) as session,
        session.stream(model="m", metadata=stream_request()) as stream,
    ):
        await wait_until_stable(lambda: talker.sent)
        await asyncio.sleep(0.2)
        assert len([text async for text in stream.text]) == ENOUGH


async def test_messages_are_returned_in_limited_batches() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        pieces = [delta("x", number) for number in range(1, 501)]
        await visitor.send(created(), *pieces, terminal(number=501))
        said.set()

    said = asyncio.Event()
    async with (
        serve_websocket(meet) as url,
        Session(url) as session,
        session.stream(model="m") as stream,
    ):
        await said.wait()
        await asyncio.sleep(0.1)
        batches = [batch async for batch in stream.batches()]
    sizes = [len(batch) for batch in batches]
    assert sizes == [MAX_BATCH_MESSAGES + 2, 502 - MAX_BATCH_MESSAGES]  # two openings were missing
    texts = [e.delta for batch in batches for e in batch if isinstance(e, OutputTextDelta)]
    assert texts == ["x"] * 500


# --- readers who leave ------------------------------------------------------------------------


async def test_the_rest_of_an_abandoned_turn_is_dropped(
    session: Session, talker: StreamingServer
) -> None:
    async for text in session.stream(model="m", metadata=stream_request()).text:
        assert text == PIECE
        break
    again = await session.stream(model="again", metadata=stream_request(2)).final()
    assert again.id == "again"
    assert talker.sent == ENOUGH + 2


async def test_a_closed_stream_delivers_nothing_more(session: Session) -> None:
    async with session.stream(model="m", metadata=stream_request()) as stream:
        await anext(aiter(stream))
        await stream.close()
        await stream.close()
        assert [event async for event in stream] == []
    assert (await session.stream(model="again", metadata=stream_request(1)).final()).id == "again"


async def test_closing_a_stream_wakes_its_reader() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created())
        await visitor.receive()

    async with serve_websocket(meet) as url, Session(url) as session:
        source = await session.lane("").open_source({"model": "m"})
        assert [event.type for event in await source.next_batch()] == ["response.created"]
        waiting = asyncio.create_task(source.next_batch())
        await asyncio.sleep(0.01)
        await source.close()
        assert await waiting == []


async def test_a_garbage_collected_stream_does_not_block_its_lane(session: Session) -> None:
    stream = session.stream(model="m", metadata=stream_request())
    await anext(aiter(stream))
    await stream.__aenter__()
    del stream
    gc.collect()
    async with asyncio.timeout(10):
        again = await session.stream(model="again", metadata=stream_request(1)).final()
    assert again.id == "again"


async def test_an_error_abandons_the_turn() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send("no JSON")
        await visitor.receive()

    patience = Timeouts(idle=0.1)
    async with serve_websocket(meet) as url, Session(url, strict=True, timeout=patience) as session:
        source = await session.lane("").open_source({"model": "m"})
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await source.next_batch()
        with pytest.raises(UpstreamError, match="did not end the previous turn"):
            await session.lane("").open_source({"model": "m"})


# --- readers who are cancelled ----------------------------------------------------------------


async def test_a_cancelled_read_loses_no_messages() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created())
        await go_on.wait()
        await visitor.send(delta("Yes."), terminal())

    go_on = asyncio.Event()
    async with serve_websocket(meet) as url, Session(url) as session:
        source = await session.lane("").open_source({"model": "m"})
        await source.next_batch()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.next_batch(), 0.02)
        go_on.set()
        events = [event for _ in range(2) for event in await source.next_batch()]
        assert [event.type for event in events if isinstance(event, OutputTextDelta)] == [
            "response.output_text.delta"
        ]


async def test_a_request_cancelled_in_the_queue_is_not_sent() -> None:
    async def meet(visitor: ServerSide) -> None:
        while True:
            heard.append((await visitor.receive())["model"])
            await visitor.send(created())
            await go_on.wait()
            await visitor.send(terminal())

    heard: list[str] = []
    go_on = asyncio.Event()
    async with serve_websocket(meet) as url, Session(url) as session:
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


async def test_a_request_cancelled_while_sending_leaves_the_lane_usable() -> None:
    async def meet(visitor: ServerSide) -> None:
        visitor.socket.transport.pause_reading()
        await asyncio.wait_for(go_on.wait(), 5)
        visitor.socket.transport.resume_reading()
        await visitor.receive()
        pieces = [delta(PIECE, number) for number in range(1, ENOUGH)]
        await visitor.send(created(), *pieces, terminal())
        await visitor.receive()
        await visitor.send(*turn_messages("Yes.", "resp_1"))

    go_on = asyncio.Event()
    async with serve_websocket(meet, max_size=None) as url, Session(url) as session:
        sending = asyncio.create_task(
            session.lane("").open_source({"model": "a", "input": "x" * 20_000_000})
        )
        await asyncio.sleep(0.2)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        go_on.set()
        assert (await session.stream(model="b").final()).id == "resp_1"


# --- the buffer itself ------------------------------------------------------------------------


async def test_messages_before_a_failure_are_delivered() -> None:
    heard = TurnBuffer("", lambda: None)
    heard.put(b"1")
    heard.end(UpstreamError("gone"))
    assert await heard.next_messages(1) == [b"1"]
    for _ in range(2):
        with pytest.raises(UpstreamError, match="gone"):
            await heard.next_messages(1)


async def test_an_ended_turn_is_never_full() -> None:
    heard = TurnBuffer("", lambda: None)
    heard.put(b"x" * (MAX_UNREAD_BYTES + 1))
    assert heard.full
    heard.end()
    assert not heard.full


async def test_a_reader_with_a_backlog_lets_other_tasks_run() -> None:
    heard, others = TurnBuffer("", lambda: None), list[str]()
    heard.put(b"1")
    asyncio.get_running_loop().call_soon(others.append, "went")
    assert await heard.next_messages(1) == [b"1"]
    assert others == ["went"]
