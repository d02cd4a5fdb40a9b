"""A piece that comes alone leaves at once, and those in a row when the loop turns, as one."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.server.uvicorn.direct_write import COALESCE_SECONDS, MAX_BUFFERED_BYTES, ChunkWriter

pytestmark = pytest.mark.anyio


@dataclass
class FakeCycle:
    """What uvicorn knows of one answer, as far as it is asked here."""

    disconnected: bool = False
    chunked_encoding: bool = True
    written: list[bytes] = field(default_factory=list[bytes])
    flow: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(write_paused=False))

    @property
    def transport(self) -> SimpleNamespace:
        return SimpleNamespace(write=self.written.append)


class FakeLoop:
    """The loop, with a time that stands still until it is told."""

    def __init__(self) -> None:
        self.call_soon = asyncio.get_running_loop().call_soon
        self.now = 1.0

    def time(self) -> float:
        return self.now


def chunk_writer(cycle: FakeCycle) -> tuple[ChunkWriter, FakeLoop]:
    clock = FakeLoop()
    return ChunkWriter(cast("Any", cycle), cast("Any", clock)), clock


async def test_pieces_that_come_alone_leave_at_once() -> None:
    cycle = FakeCycle()
    way, clock = chunk_writer(cycle)
    for piece in (b"one", b"three"):
        clock.now += 2 * COALESCE_SECONDS
        assert way.write(piece)
    assert cycle.written == [b"3\r\none\r\n", b"5\r\nthree\r\n"]
    assert way.size == 8
    await asyncio.sleep(0)
    assert len(cycle.written) == 2


async def test_what_follows_in_a_row_leaves_when_the_loop_turns_in_one_chunk() -> None:
    cycle = FakeCycle()
    way, clock = chunk_writer(cycle)
    for piece in (b"one", b"two", b"three"):
        assert way.write(piece)
    clock.now += 2 * COALESCE_SECONDS
    assert way.write(b"!")  # which overtakes nothing
    assert cycle.written == [b"3\r\none\r\n"]
    await asyncio.sleep(0)
    assert cycle.written[1:] == [b"9\r\ntwothree!\r\n"]
    assert way.size == 12
    await asyncio.sleep(0)
    assert way.write(b"more")
    assert cycle.written[2:] == [b"4\r\nmore\r\n"]


async def test_every_client_has_its_own_row_whoever_speaks_between() -> None:
    first, second = FakeCycle(), FakeCycle()
    ways = chunk_writer(first)[0], chunk_writer(second)[0]
    for way in ways * 3:
        assert way.write(b"x")
    await asyncio.sleep(0)
    assert first.written == second.written == [b"1\r\nx\r\n", b"2\r\nxx\r\n"]


async def test_what_a_task_writes_that_never_lets_the_loop_turn_does_not_gather_for_ever() -> None:
    cycle = FakeCycle()
    way, _ = chunk_writer(cycle)
    piece = b"x" * 1000
    assert way.write(piece)
    for _ in range(MAX_BUFFERED_BYTES // len(piece)):
        assert way.write(piece)
    assert len(cycle.written) == 1
    assert way.write(piece)
    assert len(cycle.written) == 2  # too much has gathered: it leaves now, and may fill a buffer
    assert way.write(piece)
    assert len(cycle.written) == 2  # and gathering begins anew
    cycle.flow.write_paused = True
    assert not way.write(piece)
    await asyncio.sleep(0)
    assert cycle.written[2:] == [b"3e8\r\n%b\r\n" % piece]


async def test_a_piece_larger_than_that_leaves_alone() -> None:
    cycle = FakeCycle()
    way, _ = chunk_writer(cycle)
    for _ in range(2):
        assert way.write(b"x" * (MAX_BUFFERED_BYTES + 1))
    assert len(cycle.written) == 2
    await asyncio.sleep(0)
    assert len(cycle.written) == 2


@pytest.mark.parametrize("behind", ["paused", "gone", "unchunked"])
async def test_a_client_that_is_behind_or_gone_is_sent_nothing(behind: str) -> None:
    cycle = FakeCycle(disconnected=behind == "gone", chunked_encoding=behind != "unchunked")
    cycle.flow.write_paused = behind == "paused"
    assert not chunk_writer(cycle)[0].write(b"x")
    await asyncio.sleep(0)
    assert cycle.written == []


async def test_a_client_that_leaves_within_the_turn_is_sent_no_more() -> None:
    cycle = FakeCycle()
    way, _ = chunk_writer(cycle)
    assert way.write(b"x")
    assert way.write(b"y")
    cycle.disconnected = True
    await asyncio.sleep(0)
    assert cycle.written == [b"1\r\nx\r\n"]
