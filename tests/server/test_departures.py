"""Everything that is written in one turn of the loop leaves at its end, a client's row at once."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.server.departures import MAX_WEIGHT, Departures, DirectWay

pytestmark = pytest.mark.anyio


@dataclass
class Cycle:
    """What uvicorn knows of one answer, as far as it is asked here."""

    disconnected: bool = False
    chunked_encoding: bool = True
    written: list[bytes] = field(default_factory=list[bytes])
    flow: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(write_paused=False))

    @property
    def transport(self) -> SimpleNamespace:
        return SimpleNamespace(write=self.written.append)

    def way(self, departures: Departures) -> DirectWay:
        return DirectWay(cast("Any", self), departures, asyncio.get_running_loop())


async def test_what_is_written_in_a_turn_leaves_at_its_end_in_one_chunk() -> None:
    departures, cycle = Departures(), Cycle()
    way = cycle.way(departures)
    assert way.write(b"one")
    assert way.write(b"two")
    assert cycle.written == []
    await asyncio.sleep(0)
    assert cycle.written == [b"6\r\nonetwo\r\n"]
    assert way.size == 6
    await asyncio.sleep(0)
    assert len(cycle.written) == 1


async def test_every_client_has_its_own_and_the_next_turn_is_another() -> None:
    departures, first, second = Departures(), Cycle(), Cycle()
    ways = first.way(departures), second.way(departures)
    for way in (ways[0], *ways):
        assert way.write(b"x")
    await asyncio.sleep(0)
    assert ways[1].write(b"yy")
    await asyncio.sleep(0)
    assert first.written == [b"2\r\nxx\r\n"]
    assert second.written == [b"1\r\nx\r\n", b"2\r\nyy\r\n"]


async def test_what_a_task_writes_that_never_lets_the_loop_turn_does_not_gather_for_ever() -> None:
    departures, cycle = Departures(), Cycle()
    way = cycle.way(departures)
    piece = b"x" * 1000
    for _ in range(MAX_WEIGHT // len(piece)):
        assert way.write(piece)
    assert cycle.written == []
    assert way.write(piece)
    assert len(cycle.written) == 1  # too much has gathered: it leaves now, and may fill a buffer
    assert way.write(piece)
    assert len(cycle.written) == 1  # and gathering begins anew
    cycle.flow.write_paused = True
    assert not way.write(piece)
    await asyncio.sleep(0)
    assert cycle.written[1:] == [b"3e8\r\n%b\r\n" % piece]


async def test_a_piece_larger_than_that_leaves_alone() -> None:
    cycle = Cycle()
    assert cycle.way(Departures()).write(b"x" * (MAX_WEIGHT + 1))
    await asyncio.sleep(0)
    assert len(cycle.written) == 1


@pytest.mark.parametrize("behind", ["paused", "gone", "unchunked"])
async def test_a_client_that_is_behind_or_gone_is_sent_nothing(behind: str) -> None:
    cycle = Cycle(disconnected=behind == "gone", chunked_encoding=behind != "unchunked")
    cycle.flow.write_paused = behind == "paused"
    assert not cycle.way(Departures()).write(b"x")
    await asyncio.sleep(0)
    assert cycle.written == []


async def test_a_client_that_leaves_within_the_turn_is_sent_nothing() -> None:
    cycle = Cycle()
    assert cycle.way(Departures()).write(b"x")
    cycle.disconnected = True
    await asyncio.sleep(0)
    assert cycle.written == []
