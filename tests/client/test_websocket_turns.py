"""WebSocket turns with slow, leaving, cancelled or collected readers."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from antiphon.client import websocket as sessions
from antiphon.client.websocket import MAX_BATCH_MESSAGES, MAX_UNREAD_BYTES, Session, TurnBuffer
from antiphon.protocol.errors import RemoteProtocolError, UpstreamError
from antiphon.protocol.events import OutputTextDelta
from antiphon.transport.connection import Timeouts
from tests.client.websocket_server import ServerSide, created, delta, serve_websocket, terminal, turn_messages

pytestmark = pytest.mark.anyio

PIECE = "x" * 10_000
ENOUGH = 3_000
"""How many pieces are far more than we and the system keep."""


class StreamingServer:
    """A server that sends long responses and counts what it sent."""

    def __init__(self) -> None:
        self.sent = 0

    async def __call__(self, peer: ServerSide) -> None:
        """Answer one turn after another."""
        while True:
            asked = await peer.receive()
            lane, model = asked.get("stream_id", ""), asked["model"]
            await peer.send(created(model), lane=lane)
            for number in range(1, int(asked["metadata"]["pieces"]) + 1):
                await peer.send(delta(PIECE, number), lane=lane)
                self.sent += 1
            await peer.send(terminal(model, number=self.sent + 1), lane=lane)


@pytest.fixture
def streaming_server() -> StreamingServer:
    return StreamingServer()


@pytest.fixture
async def session(streaming_server: StreamingServer) -> AsyncIterator[Session]:
    async with serve_websocket(streaming_server) as url, Session(url) as session:
        yield session


def stream_request(pieces: int = ENOUGH) -> dict[str, str]:
    """Build a request for a number of deltas."""
    return {"pieces": str(pieces)}


async def wait_until_stable(count: Callable[[], int]) -> int:
    """Wait until a count stops growing, and return it."""
    before = -1
    async with asyncio.timeout(10):
        while count() != before:
            before = count()
            await asyncio.sleep(0.1)
    return before


async def test_an_idle_reader_pauses_the_connection(session: Session, streaming_server: StreamingServer) -> None:
    async with session.stream(model="m", metadata=stream_request()) as stream:
        stopped = await wait_until_stable(lambda: streaming_server.sent)
        assert MAX_UNREAD_BYTES < stopped * len(PIECE) < len(PIECE) * ENOUGH
        texts = [text async for text in stream.text]
        assert texts == [PIECE] * ENOUGH
    assert streaming_server.sent == ENOUGH


async def test_a_slow_reader_pauses_all_lanes_until_it_catches_up(
    session: Session, streaming_server: StreamingServer
) -> None:
    async with session.stream(lane="slow", model="m", metadata=stream_request()) as slow:
        await wait_until_stable(lambda: streaming_server.sent)
        quick = asyncio.create_task(session.stream(lane="quick", model="q", metadata=stream_request(1)).final())
        done, _ = await asyncio.wait([quick], timeout=0.1)
        assert not done
        await slow.final()
        assert (await quick).id == "q"


async def test_a_reader_slower_than_the_ping_interval_is_not_disconnected(
    streaming_server: StreamingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PING_INTERVAL", 0.02)
    async with (
        serve_websocket(streaming_server) as url,
        Session(url) as session,
        session.stream(model="m", metadata=stream_request()) as stream,
    ):
        await wait_until_stable(lambda: streaming_server.sent)
        await asyncio.sleep(0.2)
        assert len([text async for text in stream.text]) == ENOUGH


async def test_messages_are_returned_in_limited_batches() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        pieces = [delta("x", number) for number in range(1, 501)]
        await peer.send(created(), *pieces, terminal(number=501))
        stopped.set()

    stopped = asyncio.Event()
    async with serve_websocket(meet) as url, Session(url) as session, session.stream(model="m") as stream:
        await stopped.wait()
        await asyncio.sleep(0.1)
        batches = [batch async for batch in stream.batches()]
    sizes = [len(batch) for batch in batches]
    assert sizes == [MAX_BATCH_MESSAGES + 2, 502 - MAX_BATCH_MESSAGES]  # two openings were missing
    texts = [e.delta for batch in batches for e in batch if isinstance(e, OutputTextDelta)]
    assert texts == ["x"] * 500


async def test_the_rest_of_an_abandoned_turn_is_dropped(session: Session, streaming_server: StreamingServer) -> None:
    async for text in session.stream(model="m", metadata=stream_request()).text:
        assert text == PIECE
        break
    again = await session.stream(model="again", metadata=stream_request(2)).final()
    assert again.id == "again"
    assert streaming_server.sent == ENOUGH + 2


async def test_a_closed_stream_delivers_nothing_more(session: Session) -> None:
    async with session.stream(model="m", metadata=stream_request()) as stream:
        await anext(aiter(stream))
        await stream.close()
        await stream.close()
        assert [event async for event in stream] == []
    assert (await session.stream(model="again", metadata=stream_request(1)).final()).id == "again"


async def test_closing_a_stream_wakes_its_reader() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created())
        await peer.receive()

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
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send("no JSON")
        await peer.receive()

    patience = Timeouts(idle=0.1)
    async with serve_websocket(meet) as url, Session(url, strict=True, timeout=patience) as session:
        source = await session.lane("").open_source({"model": "m"})
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await source.next_batch()
        with pytest.raises(UpstreamError, match="did not end the previous turn"):
            await session.lane("").open_source({"model": "m"})


async def test_a_cancelled_read_loses_no_messages() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created())
        await go_on.wait()
        await peer.send(delta("Yes."), terminal())

    go_on = asyncio.Event()
    async with serve_websocket(meet) as url, Session(url) as session:
        source = await session.lane("").open_source({"model": "m"})
        await source.next_batch()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.next_batch(), 0.02)
        go_on.set()
        events = [event for _ in range(2) for event in await source.next_batch()]
        assert [event.type for event in events if isinstance(event, OutputTextDelta)] == ["response.output_text.delta"]


async def test_a_request_cancelled_in_the_queue_is_not_sent() -> None:
    async def meet(peer: ServerSide) -> None:
        while True:
            buffer.append((await peer.receive())["model"])
            await peer.send(created())
            await go_on.wait()
            await peer.send(terminal())

    buffer: list[str] = []
    go_on = asyncio.Event()
    async with serve_websocket(meet) as url, Session(url) as session:
        first, second, third = (asyncio.create_task(session.stream(model=name).final()) for name in "abc")
        await asyncio.sleep(0.05)
        second.cancel()
        go_on.set()
        await first
        await third
        assert second.cancelled()
    assert buffer == ["a", "c"]


async def test_a_request_cancelled_while_sending_leaves_the_lane_usable() -> None:
    async def meet(peer: ServerSide) -> None:
        peer.socket.transport.pause_reading()
        await asyncio.wait_for(go_on.wait(), 5)
        peer.socket.transport.resume_reading()
        await peer.receive()
        pieces = [delta(PIECE, number) for number in range(1, ENOUGH)]
        await peer.send(created(), *pieces, terminal())
        await peer.receive()
        await peer.send(*turn_messages("Yes.", "resp_1"))

    go_on = asyncio.Event()
    async with serve_websocket(meet, max_size=None) as url, Session(url) as session:
        sending = asyncio.create_task(session.lane("").open_source({"model": "a", "input": "x" * 20_000_000}))
        await asyncio.sleep(0.2)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        go_on.set()
        assert (await session.stream(model="b").final()).id == "resp_1"


async def test_messages_before_a_failure_are_delivered() -> None:
    buffer = TurnBuffer("")
    buffer.put(b"1")
    buffer.end(UpstreamError("gone"))
    assert await buffer.next_messages(1) == [b"1"]
    for _ in range(2):
        with pytest.raises(UpstreamError, match="gone"):
            await buffer.next_messages(1)


async def test_an_ended_turn_is_never_full() -> None:
    buffer = TurnBuffer("")
    buffer.put(b"x" * (MAX_UNREAD_BYTES + 1))
    assert buffer.full
    buffer.end()
    assert not buffer.full


async def test_a_reader_with_a_backlog_lets_other_tasks_run() -> None:
    buffer, others = TurnBuffer(""), list[str]()
    buffer.put(b"1")
    asyncio.get_running_loop().call_soon(others.append, "went")
    assert await buffer.next_messages(1) == [b"1"]
    assert others == ["went"]
