"""The queue of background responses: any process with room takes from it, and what was interrupted may come back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.agent import Agent
from antiphon.engine.engine import Engine
from antiphon.engine.maintenance import Maintenance
from antiphon.engine.models import Models
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import StoreError
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Text
from antiphon.protocol.struct import encode
from antiphon.store.base import Store, StoredResponse
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from tests.engine.builders import make_engine, make_request, read_log, wait_for_end
from tests.engine.test_maintenance import KEPT, STOPPED, model, start_maintenance
from tests.protocol.builders import make_response, make_synth
from tests.store.builders import NOW, user_message

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Give each kind of store."""
    return SqliteStore(tmp_path) if request.param == "sqlite" else MemoryStore()


async def leave_begun(store: Store, count: int, **options: Any) -> None:
    """Leave a background response of an idempotent agent as a crash would, after a number of its events."""
    request = make_request(background=True, **options)
    queued = make_response(status="queued", background=True)
    made = make_synth(queued)
    events = [*made.start(), *made.mark_in_progress(), *made.feed(Text("Hel"))]
    await store.begin(queued, [user_message("m")], request=encode(request))
    epoch = await store.claim("resp_0", queued=True)
    assert epoch
    await store.append("resp_0", epoch, -1, [encode(event) for event in events[:count]])


@pytest.mark.parametrize("count", range(6))
async def test_a_begun_response_of_an_idempotent_agent_is_made_again_unless_it_has_output(
    store: Store, count: int
) -> None:
    await leave_begun(store, count)
    engine = Engine(Models([Agent("m", model, idempotent=True)]), store=store)
    maintenance = Maintenance(engine, KEPT, lambda: NOW)
    await maintenance.start()
    response = await wait_for_end(store, "resp_0")
    events = await read_log(store, "resp_0")
    assert response.status == ("completed" if count <= 3 else "failed")
    assert find_violations(events) == []
    assert fold(events) == response
    await maintenance.stop()


async def test_a_response_is_made_three_times_at_most(store: Store) -> None:
    await leave_begun(store, 2)
    for epoch in (1, 3):
        assert await store.requeue("resp_0", epoch) or await store.requeue("resp_0", epoch + 1)
        await store.claim_queued(1)
        await store.claim("resp_0")
    stored = await store.find("resp_0")
    assert stored
    assert stored.attempts == 3
    maintenance = Maintenance(Engine(Models([Agent("m", model, idempotent=True)]), store=store), KEPT, lambda: NOW)
    await maintenance.start()
    assert (await wait_for_end(store, "resp_0")).error == STOPPED
    await maintenance.stop()


async def test_a_queued_response_runs_in_a_process_with_room(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        await gate.wait()
        yield "Hello"

    busy = make_engine(slow, SqliteStore(tmp_path), background_slots=1)
    first = (await busy.submit(make_request(background=True))).id
    second = (await busy.submit(make_request(background=True))).id
    free, maintenance = await start_maintenance(SqliteStore(tmp_path))
    assert (await wait_for_end(free.store, second)).output_text == "Hello"
    gate.set()
    assert (await wait_for_end(free.store, first)).output_text == "Hello"
    assert find_violations(await read_log(free.store, second)) == []
    async with asyncio.timeout(20):
        while len(busy.background):
            await asyncio.sleep(0.001)
    await maintenance.stop()
    await busy.store.close()


async def test_a_process_forgets_what_another_one_has_taken(tmp_path: Path) -> None:
    front = make_engine(model, SqliteStore(tmp_path), background_slots=0)
    id = (await front.submit(make_request(background=True))).id
    async with asyncio.timeout(20):
        while not await read_log(front.store, id):  # otherwise the other process may write the first events
            await asyncio.sleep(0.001)
    back, maintenance = await start_maintenance(SqliteStore(tmp_path))
    assert (await wait_for_end(back.store, id)).output_text == "Hello"
    assert len(front.background) == 1
    await front.poll_queue()
    async with asyncio.timeout(20):
        while len(front.background):
            await asyncio.sleep(0.001)
    await maintenance.stop()
    await front.store.close()


async def test_a_drain_leaves_what_waits_in_the_queue(store: Store) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        await gate.wait()
        yield "Hello"

    engine = make_engine(slow, store, background_slots=1)
    first = (await engine.submit(make_request(background=True))).id
    second = (await engine.submit(make_request(background=True))).id
    async with asyncio.timeout(20):
        while first not in engine.background.claims:
            await asyncio.sleep(0.001)
    engine.background.release_waiting()
    gate.set()
    assert (await wait_for_end(store, first)).status == "completed"
    await engine.poll_queue()
    assert [stored.response.id for _, stored in await store.claim_queued(5)] == [second]
    await store.close()


async def test_a_response_that_another_process_cancels_or_deletes_stops_here(tmp_path: Path) -> None:
    stopped: list[str] = []

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "more "
                await asyncio.sleep(3600)
        finally:
            stopped.append("stopped")

    here, there = make_engine(endless, SqliteStore(tmp_path)), make_engine(endless, SqliteStore(tmp_path))
    maintenance = Maintenance(here, KEPT, lambda: NOW)
    await maintenance.start()
    for number, stop in enumerate((there.cancel, there.delete), 1):
        id = (await here.submit(make_request(background=True))).id
        async with asyncio.timeout(20):
            while not any(isinstance(event, OutputTextDelta) for event in await read_log(there.store, id)):
                await asyncio.sleep(0.01)
        assert await stop(id)
        async with asyncio.timeout(20):
            while len(stopped) < number or len(here.background):
                await asyncio.sleep(0.01)
    await maintenance.stop()
    await there.store.close()


class ForgetfulStore(MemoryStore):
    """Claims from the queue, and does not say so the first time: the connection broke before the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 1

    async def claim_queued(self, limit: int) -> list[tuple[str, StoredResponse]]:
        """Claim, and fail if something was claimed."""
        found = await super().claim_queued(limit)
        if found and self.failures:
            self.failures -= 1
            raise StoreError("the connection broke")
        return found


async def test_a_claim_whose_answer_was_lost_strands_no_response() -> None:
    store = ForgetfulStore()
    await store.begin(
        make_response(status="queued", background=True), [], request=encode(make_request(background=True))
    )
    engine = Engine(Models([Agent("m", model, idempotent=True)]), store=store)
    maintenance = Maintenance(engine, KEPT, lambda: NOW)
    with pytest.raises(StoreError):
        await engine.poll_queue()
    await maintenance.start()
    assert (await wait_for_end(store, "resp_0")).status == "completed"
    assert store.failures == 0
    await maintenance.stop()


class SlowStore(SqliteStore):
    """Lets another process recover what this one has found abandoned, before this one does."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def take_abandoned(self, running: Collection[str]) -> list[tuple[str, StoredResponse]]:
        """Find, then wait."""
        found = await super().take_abandoned(running)
        if found and self.meanwhile:
            await self.meanwhile()
        return found


async def test_a_response_that_another_process_has_recovered_is_left_to_it(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        yield "Hel"
        await gate.wait()
        yield "lo"

    left = SqliteStore(tmp_path)
    await leave_begun(left, 2)
    await left.close()
    there = Engine(Models([Agent("m", slow, idempotent=True)]), store=SqliteStore(tmp_path))
    others = Maintenance(there, KEPT, lambda: NOW)
    store = SlowStore(tmp_path)

    async def recover_there() -> None:
        await others.start()
        async with asyncio.timeout(20):
            while not any(isinstance(event, OutputTextDelta) for event in await read_log(there.store, "resp_0")):
                await asyncio.sleep(0.01)

    store.meanwhile = recover_there
    here = Maintenance(Engine(Models([Agent("m", model, idempotent=True)]), store=store), KEPT, lambda: NOW)
    await here.start()
    gate.set()
    response = await wait_for_end(store, "resp_0")
    assert (response.status, response.output_text) == ("completed", "Hello")
    await here.stop()
    await others.stop()


async def test_the_queue_may_give_a_response_back_to_its_process_before_its_first_event_is_stored() -> None:
    class GreedyStore(MemoryStore):
        """Claims a response at the moment at which its first events are appended."""

        async def append(self, id: str, epoch: int, *args: Any, **options: Any) -> bool:
            if epoch == 0:
                await engine.poll_queue()
            return await super().append(id, epoch, *args, **options)

    gate = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        await gate.wait()
        yield "Hello"

    store = GreedyStore()
    engine = make_engine(slow, store)
    id = (await engine.submit(make_request(background=True))).id
    async with asyncio.timeout(20):
        while id not in engine.background.claims:
            await asyncio.sleep(0.001)
    for _ in range(20):
        await asyncio.sleep(0)
    # The job that runs it is the one that can be cancelled and drained.
    assert id in engine.background
    assert engine.background.claims == {id: 1}
    gate.set()
    assert (await wait_for_end(store, id)).output_text == "Hello"
    assert find_violations(await read_log(store, id)) == []
