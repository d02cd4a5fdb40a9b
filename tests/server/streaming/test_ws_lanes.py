"""Lanes: order within a lane, concurrency between lanes, limits."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from antiphon.protocol.errors import RequestError
from antiphon.server.streaming.ws_lanes import MAX_ACTIVE_LANES, MAX_NAMED_LANES, MAX_QUEUED, LaneScheduler

pytestmark = pytest.mark.anyio


class JobLog:
    """Makes work that writes down when it is done, and waits to be let go on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.go = asyncio.Event()

    def work(self, name: str) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            self.lines.append(f"{name} begins")
            await self.go.wait()
            self.lines.append(f"{name} ends")

        return work


async def run_pending() -> None:
    """Let everything happen that can."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_within_a_lane_one_thing_is_done_after_the_other() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    for name in "abc":
        lanes.add("", diary.work(name), 0)
    await run_pending()
    assert diary.lines == ["a begins"]
    assert lanes.is_busy("")
    diary.go.set()
    await lanes.wait_idle()
    assert diary.lines == [f"{name} {step}" for name in "abc" for step in ("begins", "ends")]
    assert not lanes.is_busy("")


async def test_lanes_go_side_by_side() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    for name in ["", "one", "two"]:
        lanes.add(name, diary.work(name), 0)
    await run_pending()
    assert diary.lines == [" begins", "one begins", "two begins"]
    await lanes.stop()


async def test_only_so_many_are_at_work_at_once() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    for index in range(MAX_ACTIVE_LANES + 3):
        lanes.add(f"lane{index}", diary.work(str(index)), 0)
    await run_pending()
    assert diary.lines == [f"{index} begins" for index in range(MAX_ACTIVE_LANES)]
    diary.go.set()
    await lanes.wait_idle()
    assert len(diary.lines) == 2 * (MAX_ACTIVE_LANES + 3)


async def test_waiting_lanes_start_before_a_lane_continues() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    for index in range(MAX_ACTIVE_LANES):
        lanes.add(f"lane{index}", diary.work("early"), 0)
        lanes.add(f"lane{index}", diary.work("later"), 0)
        await run_pending()
    lanes.add("other", diary.work("other"), 0)
    await run_pending()
    diary.go.set()
    await lanes.wait_idle()
    assert diary.lines.index("other begins") < diary.lines.index("later begins")


async def test_named_lanes_are_limited() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    diary.go.set()
    for index in range(MAX_NAMED_LANES):
        lanes.add(f"lane{index}", diary.work(str(index)), 0)
        await run_pending()
    with pytest.raises(RequestError) as refused:
        lanes.add("another", diary.work("another"), 0)
    assert refused.value.payload.code == "websocket_stream_limit_reached"
    assert (refused.value.payload.param, refused.value.status) == ("stream_id", 400)
    lanes.add("lane0", diary.work("again"), 0)
    lanes.add("", diary.work("unnamed"), 0)
    await lanes.wait_idle()
    assert diary.lines[-2:] == ["unnamed begins", "unnamed ends"]


async def test_queued_turns_are_limited() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    for _ in range(1 + MAX_QUEUED):
        lanes.add("", diary.work("x"), 0)
        await run_pending()
    with pytest.raises(RequestError) as refused:
        lanes.add("elsewhere", diary.work("y"), 0)
    assert (refused.value.payload.code, refused.value.status) == ("websocket_queue_full", 429)
    diary.go.set()
    await lanes.wait_idle()
    lanes.add("elsewhere", diary.work("y"), 0)
    await lanes.wait_idle()
    assert diary.lines.count("x ends") == 1 + MAX_QUEUED
    assert diary.lines[-1] == "y ends"


async def test_queued_bytes_are_limited() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    lanes.add("", diary.work("a"), 100)
    await run_pending()
    lanes.add("", diary.work("b"), 60)
    with pytest.raises(RequestError, match="Too many turns are waiting"):
        lanes.add("", diary.work("c"), 60)
    lanes.add("", diary.work("d"), 40)
    diary.go.set()
    await lanes.wait_idle()
    assert [line for line in diary.lines if "ends" in line] == ["a ends", "b ends", "d ends"]


async def test_stopping_cancels_running_jobs_and_drops_queued_ones() -> None:
    diary, lanes = JobLog(), LaneScheduler(100)
    lanes.add("", diary.work("a"), 0)
    lanes.add("", diary.work("b"), 0)
    await run_pending()
    await lanes.stop()
    diary.go.set()
    await run_pending()
    assert diary.lines == ["a begins"]
    assert not lanes.is_busy("")
