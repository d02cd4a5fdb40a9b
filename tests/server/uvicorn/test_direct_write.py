"""Direct writes: single chunks at once, chunks in quick succession joined."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.server.uvicorn.direct_write import COALESCE_SECONDS, MAX_JOINED_BYTES, ChunkWriter

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
    """The event loop, with a clock that the test sets."""

    def __init__(self) -> None:
        self.call_soon = asyncio.get_running_loop().call_soon
        self.now = 1.0

    def time(self) -> float:
        return self.now


def chunk_writer(cycle: FakeCycle) -> tuple[ChunkWriter, FakeLoop]:
    clock = FakeLoop()
    return ChunkWriter(cast("Any", cycle), cast("Any", clock)), clock


async def test_single_chunks_are_written_at_once() -> None:
    cycle = FakeCycle()
    writer, clock = chunk_writer(cycle)
    for piece in (b"one", b"three"):
        clock.now += 2 * COALESCE_SECONDS
        assert writer.write(piece)
    assert cycle.written == [b"3\r\none\r\n", b"5\r\nthree\r\n"]
    assert writer.size == 8
    await asyncio.sleep(0)
    assert len(cycle.written) == 2


async def test_chunks_in_quick_succession_are_joined() -> None:
    cycle = FakeCycle()
    writer, clock = chunk_writer(cycle)
    for piece in (b"one", b"two", b"three"):
        assert writer.write(piece)
    clock.now += 2 * COALESCE_SECONDS
    assert writer.write(b"!")  # which overtakes nothing
    assert cycle.written == [b"3\r\none\r\n"]
    await asyncio.sleep(0)
    assert cycle.written[1:] == [b"9\r\ntwothree!\r\n"]
    assert writer.size == 12
    await asyncio.sleep(0)
    assert writer.write(b"more")
    assert cycle.written[2:] == [b"4\r\nmore\r\n"]


async def test_chunks_of_different_clients_are_not_joined() -> None:
    first, second = FakeCycle(), FakeCycle()
    ways = chunk_writer(first)[0], chunk_writer(second)[0]
    for writer in ways * 3:
        assert writer.write(b"x")
    await asyncio.sleep(0)
    assert first.written == second.written == [b"1\r\nx\r\n", b"2\r\nxx\r\n"]


async def test_the_buffer_of_a_task_that_never_yields_is_bounded() -> None:
    cycle = FakeCycle()
    writer, _ = chunk_writer(cycle)
    piece = b"x" * 1000
    assert writer.write(piece)
    for _ in range(MAX_JOINED_BYTES // len(piece)):
        assert writer.write(piece)
    assert len(cycle.written) == 1
    assert writer.write(piece)
    assert len(cycle.written) == 2  # too much has gathered: it leaves now, and may fill a buffer
    assert writer.write(piece)
    assert len(cycle.written) == 2  # and gathering begins anew
    cycle.flow.write_paused = True
    assert not writer.write(piece)
    await asyncio.sleep(0)
    assert cycle.written[2:] == [b"3e8\r\n%b\r\n" % piece]


async def test_a_chunk_above_the_buffer_limit_is_written_at_once() -> None:
    cycle = FakeCycle()
    writer, _ = chunk_writer(cycle)
    for _ in range(2):
        assert writer.write(b"x" * (MAX_JOINED_BYTES + 1))
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


async def test_buffered_chunks_are_dropped_after_a_disconnect() -> None:
    cycle = FakeCycle()
    writer, _ = chunk_writer(cycle)
    assert writer.write(b"x")
    assert writer.write(b"y")
    cycle.disconnected = True
    await asyncio.sleep(0)
    assert cycle.written == [b"1\r\nx\r\n"]
