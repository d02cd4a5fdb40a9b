"""The event log of a background run: batches, retries, fencing."""

import asyncio

import pytest

from antiphon.engine import background as log_module
from antiphon.engine.background import EventLog, FencedError
from antiphon.protocol.checker import find_violations
from antiphon.protocol.parts import Text
from tests.engine.builders import FailingStore, read_log, wait_for_end
from tests.protocol.builders import final_response, make_response, synthesize

pytestmark = pytest.mark.anyio

ID = "resp_0"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not let the tests wait for long."""
    monkeypatch.setattr(log_module, "RETRY_SECONDS", (0.001, 0.002))


async def open_log(store: FailingStore) -> EventLog:
    """Begin a response, and return its log."""
    await store.begin(make_response(), [])
    epoch = await store.claim(ID)
    assert epoch
    return EventLog(store, ID, epoch, -1)


async def test_events_written_together_are_appended_together() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(*(Text(f"{number} ") for number in range(40)))

    async def work() -> None:
        for event in events[:-1]:
            log.write([event])
        await asyncio.sleep(0.1)
        await log.append(events[-1:], final_response(events))

    await log.append_during(work())
    assert store.appends == [len(events) - 1, 1]
    assert await read_log(store, ID) == events


async def test_a_batch_is_appended_at_sixty_four_events() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(*(Text(f"{number} ") for number in range(1000)))

    async def work() -> None:
        for event in events[:-1]:
            log.write([event])
            await asyncio.sleep(0)
        await log.append(events[-1:], final_response(events))

    await log.append_during(work())
    assert await read_log(store, ID) == events
    assert len(store.appends) >= len(events) // 80
    assert max(store.appends) < 80  # a few more may come while an append is on its way


async def test_a_single_event_is_appended_after_the_batch_delay() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(Text("hello"))

    async def work() -> None:
        for count, event in enumerate(events[:-1], 1):
            log.write([event])
            async with asyncio.timeout(5):
                while len(await read_log(store, ID)) < count:
                    await asyncio.sleep(0.001)
        await log.append(events[-1:], final_response(events))

    await log.append_during(work())
    assert store.appends == [1] * len(events)


@pytest.mark.parametrize("failures", [1, 2, 7])
async def test_a_failing_store_loses_no_events(failures: int) -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(*(Text(f"{number} ") for number in range(200)))

    async def work() -> None:
        for number, event in enumerate(events[:-1]):
            if number in (0, 100):
                store.failures = failures
            log.write([event])
            await asyncio.sleep(0.0005)
        store.failures = failures
        await log.append(events[-1:], final_response(events))

    await log.append_during(work())
    assert await read_log(store, ID) == events
    assert find_violations(await read_log(store, ID)) == []
    assert (await wait_for_end(store, ID)) == final_response(events)


async def test_the_model_waits_while_the_store_fails() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(*(Text(f"{number} ") for number in range(3000)))
    written = 0

    async def work() -> None:
        nonlocal written
        for event in events[:-1]:
            log.write([event])
            written += 1
            if log.full:
                await log.drain()
        await log.append(events[-1:], final_response(events))

    store.failures = 10**9
    working = asyncio.create_task(log.append_during(work()))
    await asyncio.sleep(0.2)
    assert written <= 2 * (log_module.MAX_PENDING_EVENTS + 1)
    assert not working.done()
    store.failures = 0
    await working
    assert await read_log(store, ID) == events


async def test_a_worker_that_was_replaced_is_stopped_and_appends_nothing() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(Text("hello"))
    stopped: list[str] = []

    async def work() -> None:
        log.write(events[:2])
        await asyncio.sleep(0.05)
        assert await store.claim(ID)  # somebody else takes over
        log.write(events[2:3])
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(log.append_during(work()))
    assert stopped == ["stopped"]
    assert await read_log(store, ID) == events[:2]


async def test_nothing_can_be_appended_to_a_response_that_has_ended() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(Text("hello"))
    await log.append(events, final_response(events))
    with pytest.raises(FencedError):
        await log.append(events[-1:])
    assert await read_log(store, ID) == events


async def test_cancelled_work_does_not_interrupt_an_append() -> None:
    store = FailingStore()
    log = await open_log(store)
    events = synthesize(*(Text(f"{number} ") for number in range(100)))

    async def work() -> None:
        log.write(events[:50])
        await asyncio.sleep(60)

    store.failures = 5
    working = asyncio.create_task(log.append_during(work()))
    while store.failures == 5:  # until the append is being tried
        await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await read_log(store, ID) == events[:50]
    await log.append(events[50:], final_response(events))
    assert await read_log(store, ID) == events
