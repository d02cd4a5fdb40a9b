"""A channel between a writer and a reader who may be slower."""

import asyncio

import pytest

from antiphon.client.event_buffer import EventBuffer

pytestmark = pytest.mark.anyio


async def test_what_was_written_is_read_at_once_and_then_the_end():
    channel = EventBuffer[int](limit=9)
    channel.write([1, 2])
    channel.write([3])
    channel.close()
    assert [await channel.next_batch(), await channel.next_batch()] == [[1, 2, 3], []]


async def test_a_writer_waits_for_the_reader_when_too_much_waits():
    channel = EventBuffer[int](limit=1)
    channel.write([1])
    assert not channel.full
    channel.write([2])
    waiting = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    assert channel.full
    assert await channel.next_batch() == [1, 2]
    await waiting


async def test_a_reader_waits_for_the_writer():
    channel = EventBuffer[int](limit=1)
    reading = asyncio.create_task(channel.next_batch())
    await asyncio.sleep(0)
    channel.write([])
    await asyncio.sleep(0)
    channel.write([1])
    assert await reading == [1]


async def test_what_completes_no_event_makes_nobody_wait():
    channel = EventBuffer[int](limit=1)
    channel.write([], size=1000)
    assert not channel.full
    channel.write([1], size=0)
    assert channel.full


async def test_a_closed_channel_holds_up_nobody():
    channel = EventBuffer[int](limit=0)
    channel.write([1])
    waiting = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    channel.close()
    await waiting
