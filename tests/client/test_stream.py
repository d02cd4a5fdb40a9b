"""Streams over a scripted source, and event buffers."""

import asyncio

import pytest

from antiphon.client.stream import EventBuffer, Stream
from antiphon.protocol.errors import AntiphonError, UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.response import Response
from tests.protocol.broken_streams import LEGAL

pytestmark = pytest.mark.anyio


class ScriptedSource:
    """A source that returns batches of a given size, and may raise after them."""

    def __init__(self, size: int = 4, error: UpstreamError | None = None) -> None:
        self.response: Response | None = None
        self.opened = self.closed = self.asked = 0
        self._events = list(LEGAL)
        self._size = size
        self._error = error

    async def open(self) -> "ScriptedSource":
        """Count how often it is opened."""
        self.opened += 1
        return self

    async def next_batch(self) -> list[Event]:
        """Return some events."""
        self.asked += 1
        await asyncio.sleep(0)
        batch, self._events = self._events[: self._size], self._events[self._size :]
        if self._error and not self._events:
            raise self._error
        self.response = fold(LEGAL[: len(LEGAL) - len(self._events)])
        return batch

    async def close(self) -> None:
        """Count how often it is closed."""
        self.closed += 1


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_iteration_yields_the_events_in_order(size: int):
    source = ScriptedSource(size)
    stream = Stream(source.open)
    assert repr(stream) == "<Stream: not sent>"
    assert [event async for event in stream] == LEGAL
    assert (source.opened, source.closed) == (1, 1)
    assert stream.response == fold(LEGAL)
    assert repr(stream) == "<Stream: ended>"


async def test_batches_are_those_of_the_source():
    batches = [batch async for batch in Stream(ScriptedSource(5).open).batches()]
    assert [event for batch in batches for event in batch] == LEGAL
    assert {len(batch) for batch in batches[:-1]} == {5}


async def test_pending_events_are_returned_without_waiting():
    source = ScriptedSource(100)
    async with Stream(source.open) as stream:
        async for _ in stream:
            assert source.asked == 1
            if _ is LEGAL[-1]:
                break


async def test_the_request_is_sent_on_the_first_read():
    source = ScriptedSource()
    stream = Stream(source.open)
    with pytest.raises(AntiphonError, match="Read it first"):
        _ = stream.response
    await stream.close()
    assert source.opened == 0
    assert [event async for event in stream] == []


async def test_a_closed_stream_has_ended():
    source = ScriptedSource()
    async with Stream(source.open) as stream:
        async for _ in stream:
            break
        assert source.closed == 0
        rest = [event async for event in stream]
        assert rest == LEGAL[1:]
    assert [event async for event in stream] == []
    assert stream.response == fold(LEGAL)


async def test_outside_with_leaving_the_loop_closes_the_stream():
    source = ScriptedSource()
    async for _ in Stream(source.open):
        break
    await asyncio.sleep(0.01)
    assert source.closed == 1


async def test_an_error_is_raised_after_all_events_and_the_snapshot_stays():
    error = UpstreamError("cut")
    source = ScriptedSource(4, error)
    stream = Stream(source.open)
    received: list[Event] = []

    async def listen() -> None:
        async for event in stream:
            received.append(event)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(UpstreamError) as caught:
        await listen()
    assert caught.value is error
    assert received == LEGAL[: len(received)]
    assert len(LEGAL) - len(received) <= 4
    assert stream.response == fold(received)
    assert source.closed == 1


pytestmark = pytest.mark.anyio


async def test_a_buffer_returns_its_events_and_then_the_end():
    buffer = EventBuffer[int](limit=9)
    buffer.write([1, 2])
    buffer.write([3])
    buffer.close()
    assert [await buffer.next_batch(), await buffer.next_batch()] == [[1, 2, 3], []]


async def test_drain_waits_while_the_buffer_is_full():
    buffer = EventBuffer[int](limit=1)
    buffer.write([1])
    assert not buffer.full
    buffer.write([2])
    waiting = asyncio.create_task(buffer.drain())
    await asyncio.sleep(0)
    assert buffer.full
    assert await buffer.next_batch() == [1, 2]
    await waiting


async def test_next_batch_waits_for_events():
    buffer = EventBuffer[int](limit=1)
    reading = asyncio.create_task(buffer.next_batch())
    await asyncio.sleep(0)
    buffer.write([])
    await asyncio.sleep(0)
    buffer.write([1])
    assert await reading == [1]


async def test_bytes_without_a_complete_event_do_not_fill_the_buffer():
    buffer = EventBuffer[int](limit=1)
    buffer.write([], size=1000)
    assert not buffer.full
    buffer.write([1], size=0)
    assert buffer.full


async def test_a_closed_buffer_blocks_nobody():
    buffer = EventBuffer[int](limit=0)
    buffer.write([1])
    waiting = asyncio.create_task(buffer.drain())
    await asyncio.sleep(0)
    buffer.close()
    await waiting
