"""Recovery after a crash, and removal of expired data."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.agents.agent import Function
from antiphon.engine.engine import Engine, IdempotencyKeyTaken
from antiphon.engine.maintenance import Maintenance, Retention
from antiphon.engine.models import Model, Models
from antiphon.engine.persistence import Context, replay_response
from antiphon.engine.run import INTERNAL_ERROR, SERVER_STOPPED_ERROR, SERVER_STOPPING
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import StoreError
from antiphon.protocol.fold import fold
from antiphon.protocol.items import Message, OutputText
from antiphon.protocol.parts import Call, Text
from antiphon.protocol.response import ResponseError
from antiphon.protocol.struct import encode
from antiphon.store.base import IdempotencyRecord, Store, StoredResponse
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from antiphon.wire import json
from tests.engine.builders import FailingStore, make_engine, make_request, read_log, wait_for_end
from tests.protocol.builders import event_types, make_response, make_synth, synthesize
from tests.store.builders import NOW, ended_response, user_message

pytestmark = pytest.mark.anyio

KEPT = Retention(response_seconds=1000, event_seconds=100, sweep_seconds=0.01)
STOPPED = ResponseError(code="server_error", message=SERVER_STOPPED_ERROR.message, type="server_error")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Give each kind of store."""
    return SqliteStore(tmp_path) if request.param == "sqlite" else MemoryStore()


async def model() -> AsyncIterator[str]:
    """Say hello."""
    yield "Hello"


async def start_maintenance(store: Store, function: Function = model) -> tuple[Engine, Maintenance]:
    """Start a server's engine on a store that may have been through a crash."""
    engine = make_engine(function, store)
    maintenance = Maintenance(engine, KEPT, lambda: NOW)
    await maintenance.start()
    return engine, maintenance


async def leave_interrupted(store: Store, count: int) -> None:
    """Leave a background response as a crash would, after a number of its events."""
    queued = make_response(status="queued", background=True)
    made = make_synth(queued)
    events = [*made.start(), *made.mark_in_progress(), *made.feed(Text("Hel")), *made.feed(Text("lo"))]
    events += made.end()
    await store.begin(queued, [user_message("m")], request=encode(make_request(background=True)))
    epoch = await store.claim("resp_0")
    assert epoch
    await store.append("resp_0", epoch, -1, [encode(event) for event in events[:count]])


@pytest.mark.parametrize("count", range(11))
async def test_a_running_response_ends_as_failed_and_keeps_its_output(store: Store, count: int) -> None:
    await leave_interrupted(store, count)
    before = await read_log(store, "resp_0")
    engine, maintenance = await start_maintenance(store)
    response = await wait_for_end(store, "resp_0")
    events = await read_log(store, "resp_0")
    assert (response.status, response.error) == ("failed", STOPPED)
    assert response.output_text == "Hello"[: 3 * (count > 5) + 2 * (count > 6)]
    assert events[: len(before)] == before
    assert find_violations(events) == []
    assert fold(events) == response
    assert response.usage
    assert len(engine.background) == 0
    await maintenance.stop()


async def test_a_running_foreground_response_ends_as_failed(store: Store) -> None:
    await store.begin(make_response(), [user_message("m")])
    _, maintenance = await start_maintenance(store)
    response = await wait_for_end(store, "resp_0")
    assert (response.status, response.error) == ("failed", STOPPED)
    assert await read_log(store, "resp_0") == []
    await maintenance.stop()


@pytest.mark.parametrize("announced", [False, True])
async def test_a_queued_response_is_run(store: Store, announced: bool) -> None:
    queued = make_response(status="queued", background=True)
    await store.begin(queued, [user_message("m")], request=encode(make_request(background=True)))
    if announced:
        events = synthesize(response=queued)[:2]
        await store.append("resp_0", 0, -1, [encode(event) for event in events])
    _, maintenance = await start_maintenance(store)
    response = await wait_for_end(store, "resp_0")
    assert (response.status, response.output_text) == ("completed", "Hello")
    events = await read_log(store, "resp_0")
    assert find_violations(events) == []
    assert event_types(events)[:3] == ["response.created", "response.queued", "response.in_progress"]
    await maintenance.stop()


@pytest.mark.parametrize(
    "request_kept",
    [
        encode(replace(make_request(background=True), model="gone")),
        encode(make_request(background=True, previous_response_id="gone")),
        b'{"model": 5}',
        b'{"model": "m", ',
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_a_queued_response_that_cannot_be_run_any_more_ends_as_failed(
    store: Store, request_kept: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    queued = make_response(status="queued", background=True)
    await store.begin(queued, [user_message("m")], request=request_kept)
    _, maintenance = await start_maintenance(store)
    response = await wait_for_end(store, "resp_0")
    assert (response.status, response.error) == ("failed", STOPPED)
    assert find_violations(await read_log(store, "resp_0")) == []
    assert "resp_0 cannot be run any more" in caplog.text
    await maintenance.stop()


LARGE = Message(role="assistant", content=[OutputText(text="a")] * 60_000)
"""A message whose normalised JSON exceeds the limits of the HTTP endpoints."""


async def test_a_queued_request_that_exceeds_the_limits_of_http_requests_is_run(store: Store) -> None:
    queued = make_response(status="queued", background=True)
    request = encode(replace(make_request(background=True), input=[LARGE, user_message("m")]))
    with pytest.raises(json.JSONError):
        json.decode(request)
    await store.begin(queued, [user_message("m")], request=request)
    _, maintenance = await start_maintenance(store)
    assert (await wait_for_end(store, "resp_0")).status == "completed"
    await maintenance.stop()


async def test_an_orphaned_response_to_a_large_request_can_be_cancelled(store: Store) -> None:
    queued = make_response(status="queued", background=True)
    request = encode(replace(make_request(background=True), input=[LARGE]))
    await store.begin(queued, [LARGE], request=request)
    cancelled = await make_engine(model, store).cancel("resp_0")
    assert cancelled
    assert cancelled.status == "cancelled"
    assert cancelled.usage
    assert cancelled.usage.input_tokens > 60_000
    await store.close()


BAD_LOGS = {
    "no JSON": [b"{"],
    "no event": [b"{}"],
    "no beginning": [encode(event) for event in synthesize(Text("a"))[3:5]],
}


@pytest.mark.parametrize("bad", BAD_LOGS.values(), ids=BAD_LOGS)
async def test_a_response_with_unreadable_events_ends_as_failed_like_the_others(
    store: Store, bad: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        response = make_response(id=f"resp_{number}", background=True)
        await store.begin(response, [user_message(f"m_{number}")])
        epoch = await store.claim(response.id)
        assert epoch
        assert number != 1 or await store.append(response.id, epoch, -1, bad)
    _, maintenance = await start_maintenance(store)
    for number in range(3):
        response = await wait_for_end(store, f"resp_{number}")
        assert (response.status, response.error) == ("failed", STOPPED)
    assert "the events of resp_1 cannot be read" in caplog.text
    await maintenance.stop()


async def test_a_response_with_unreadable_events_can_be_cancelled(store: Store) -> None:
    await store.begin(make_response(background=True), [user_message("m")])
    assert await store.append("resp_0", 0, -1, [b"{"])
    cancelled = await make_engine(model, store).cancel("resp_0")
    assert cancelled
    assert cancelled.status == "cancelled"
    await store.close()


async def test_a_queued_response_that_cannot_be_resumed_ends_as_failed(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Models):
        """Breaks where it should find a model."""

        def find(self, name: str) -> list[Model]:
            """Break."""
            raise RuntimeError(name)

    queued = make_response(status="queued", background=True)
    await store.begin(queued, [user_message("m")], request=encode(make_request(background=True)))
    maintenance = Maintenance(Engine(Broken(), store=store), KEPT, lambda: NOW)
    await maintenance.start()
    response = await wait_for_end(store, "resp_0")
    assert response.error == ResponseError(
        **{name: getattr(INTERNAL_ERROR, name) for name in ("code", "message", "type")}
    )
    assert "resp_0 broke" in caplog.text
    await maintenance.stop()


async def test_recovery_is_idempotent(store: Store) -> None:
    await leave_interrupted(store, 5)
    await (await start_maintenance(store))[1]._engine.background.stop_all()
    first = await wait_for_end(store, "resp_0")
    _, maintenance = await start_maintenance(store)
    assert await wait_for_end(store, "resp_0") == first
    await maintenance.stop()


async def test_a_sweep_removes_expired_responses_only(store: Store) -> None:
    for number in range(20):
        response = make_response(id=f"resp_{number}")
        await store.begin(response, [user_message(f"msg_{number}")])
        await store.end(ended_response(response, at=NOW - 100 * number))
    engine = make_engine(model, store)
    maintenance = Maintenance(engine, KEPT, lambda: NOW)
    assert await maintenance.sweep() == 9
    left = [number for number in range(20) if await store.find(f"resp_{number}")]
    assert left == list(range(11))
    assert await maintenance.sweep() == 0
    await maintenance.stop()


async def test_nothing_is_removed_while_the_clock_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.engine")
    store, passed, jump = MemoryStore(), 0.0, 0.0
    for number, age in enumerate([0, 2000]):
        await store.begin(make_response(id=f"resp_{number}"), [])
        await store.end(ended_response(make_response(id=f"resp_{number}"), at=NOW - age))
    maintenance = Maintenance(
        make_engine(model, store), KEPT, lambda: NOW + passed + jump, monotonic=lambda: 5.0 + passed
    )
    jump = 40 * 24 * 3600.0
    for _ in range(5):
        passed += 60
        assert await maintenance.sweep() == 0
    jump = 0.0
    passed += 60
    assert await maintenance.sweep() == 0
    assert [record.getMessage()[:30] for record in caplog.records] == [
        "the clock was set by +3456000s",
        "the clock was set by -3456000s",
    ]
    caplog.clear()
    # An hour without another jump, and the clock is trusted again; it may be a little slow or fast.
    passed += 3600
    jump = 30.0
    assert await maintenance.sweep() == 2
    assert "2 expired rows" in caplog.text


async def test_the_time_that_a_machine_sleeps_is_believed_after_an_hour() -> None:
    store, passed, asleep = MemoryStore(), 0.0, 0.0
    await store.begin(make_response(), [])
    await store.end(ended_response(make_response(), at=NOW))
    maintenance = Maintenance(make_engine(model, store), KEPT, lambda: NOW + passed + asleep, monotonic=lambda: passed)
    asleep = 5000.0
    assert await maintenance.sweep() == 0
    passed = 3600
    assert await maintenance.sweep() == 1


async def test_unfinished_responses_of_another_process_are_recovered_when_it_is_gone(tmp_path: Path) -> None:
    reached, release = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        yield "Hel"
        reached.set()
        await release.wait()
        yield "lo"

    other, store = SqliteStore(tmp_path), SqliteStore(tmp_path)
    await other.begin(make_response(), [user_message("m")])
    engine = make_engine(slow, store)
    maintenance = Maintenance(engine, KEPT, lambda: NOW)
    await maintenance.start()
    own = await engine.create_run(make_request())
    running = asyncio.create_task(own.execute())
    job = (await engine.submit(make_request(background=True))).id
    await reached.wait()
    await asyncio.sleep(0.1)
    assert len(await store.list_unfinished()) == 3
    await other.close()
    assert (await wait_for_end(store, "resp_0")).error == STOPPED
    release.set()
    assert (await running).output_text == "Hello"
    assert (await wait_for_end(store, own.response_id)).status == "completed"
    assert (await wait_for_end(store, job)).status == "completed"
    await maintenance.stop()


async def test_a_sweep_removes_expired_contexts_from_the_cache() -> None:
    engine = make_engine(model)
    engine.history.cache.add("a", Context().extend([user_message("m")], "a"))
    engine.history.cache._max_age_seconds = -1
    await Maintenance(engine, KEPT).sweep()
    assert len(engine.history.cache) == 0


async def test_the_sweep_goes_on_after_a_failure_of_the_store() -> None:
    class Failing(MemoryStore):
        """Fails to sweep a few times."""

        sweeps = 0

        async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
            """Fail at first."""
            self.sweeps += 1
            if self.sweeps < 3:
                raise StoreError("the disk is full")
            return 0

    store = Failing()
    _, maintenance = await start_maintenance(store)
    async with asyncio.timeout(5):
        while store.sweeps < 5:
            await asyncio.sleep(0.01)
    await maintenance.stop()


async def test_a_response_whose_end_was_not_stored_is_ended_when_the_store_works_again() -> None:
    store = FailingStore()
    engine, maintenance = await start_maintenance(store)
    run = await engine.create_run(make_request())
    store.failures = 3
    response = await run.execute()
    assert response.error
    assert response.error.code == "store_unavailable"
    async with asyncio.timeout(5):
        while not (stored := await store.find(response.id)) or stored.response.status != "failed":
            await asyncio.sleep(0.01)
    assert stored.response.error == response.error
    assert not engine.orphans
    await maintenance.stop()


async def test_an_unreadable_response_holds_up_neither_other_orphans_nor_the_sweep() -> None:
    class Holed(MemoryStore):
        """Cannot read one of its responses."""

        async def find(self, id: str, *, tenant: str = "") -> StoredResponse | None:
            """Find any other."""
            if id == "bad":
                raise StoreError("the row cannot be read")
            return await super().find(id, tenant=tenant)

    store = Holed()
    await store.begin(make_response(id="old"), [])
    await store.end(ended_response(make_response(id="old"), at=NOW - 2000))
    engine, maintenance = await start_maintenance(store)
    await store.begin(make_response(), [])
    engine.add_orphan("bad")
    engine.add_orphan("resp_0")
    assert (await wait_for_end(store, "resp_0")).status == "failed"
    async with asyncio.timeout(5):
        while await store.find("old"):
            await asyncio.sleep(0.01)
    assert list(engine.orphans) == [("", "bad")]
    await maintenance.stop()


async def test_an_orphan_that_was_never_stored_is_forgotten() -> None:
    engine = make_engine(model)
    engine.add_orphan("never_stored")
    await Maintenance(engine, KEPT).end_orphans()
    assert not engine.orphans


async def test_a_response_whose_request_is_cancelled_while_it_is_stored_is_ended() -> None:
    class Slow(MemoryStore):
        """Stores a beginning, and does not tell."""

        async def begin(self, *args: Any, **options: Any) -> IdempotencyRecord | None:
            """Wait for ever afterwards."""
            await super().begin(*args, **options)
            begun.set()
            await asyncio.Event().wait()

    begun = asyncio.Event()
    engine = make_engine(model, Slow())
    creating = asyncio.create_task(engine.create_run(make_request()))
    await begun.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    [(_, id)] = engine.orphans
    await Maintenance(engine, KEPT).end_orphans()
    assert (await wait_for_end(engine.store, id)).status == "failed"


async def test_the_output_of_a_foreground_response_survives_a_crash_up_to_its_last_checkpoint(store: Store) -> None:
    release = asyncio.Event()

    async def slow() -> AsyncIterator[object]:
        yield Call("1", "f", "{}", call_id="c")
        yield "Hel"
        await release.wait()
        yield "lo"

    engine = make_engine(slow, store)
    maintenance = Maintenance(engine, KEPT)
    run = await engine.create_run(make_request())
    running = asyncio.create_task(run.execute())
    await run.started.wait()
    async with asyncio.timeout(20):
        while run.response.output_text != "Hel":
            await asyncio.sleep(0.001)
    # In its first second a response is not written: most end before.
    await maintenance.write_checkpoints()
    assert await store.find(run.response_id) == StoredResponse(replace(run.response, output=[]))
    run.checkpoint_at = 0
    await maintenance.write_checkpoints()
    assert run.checkpoint_at > 0
    assert await store.find(run.response_id) == StoredResponse(run.response)
    # Another process finds it after a crash.
    await Maintenance(make_engine(model, store), KEPT).recover()
    response = await wait_for_end(store, run.response_id)
    assert (response.status, response.error, response.output_text) == ("failed", STOPPED, "Hel")
    assert [getattr(item, "status", None) for item in response.output] == ["completed", "incomplete"]
    assert response.usage
    assert find_violations(replay_response(response)) == []
    release.set()
    await running
    await store.close()


async def test_a_checkpoint_is_written_only_if_something_has_changed(tmp_path: Path) -> None:
    step = asyncio.Queue[str]()

    async def slow() -> AsyncIterator[str]:
        while word := await step.get():
            yield word

    store = SqliteStore(tmp_path)
    engine = make_engine(slow, store)
    maintenance = Maintenance(engine, KEPT)
    run = await engine.create_run(make_request())
    running = asyncio.create_task(run.execute())
    commits: list[int] = []
    for word in ("one", "two"):
        step.put_nowait(word)
        await run.started.wait()
        async with asyncio.timeout(20):
            while not run.response.output_text.endswith(word):
                await asyncio.sleep(0.001)
        for _ in range(3):
            run.checkpoint_at = 0
            await maintenance.write_checkpoints()
        commits.append(store.database.writer.commits)
    assert commits == [2, 3]
    step.put_nowait("")
    response = await running
    run.checkpoint_at = 0
    await maintenance.write_checkpoints()
    assert store.database.writer.commits == 4
    assert await store.find(response.id) == StoredResponse(response)
    await store.close()


async def test_runs_that_are_gone_are_not_checkpointed() -> None:
    engine = make_engine(model)
    for store in (True, False):
        run = await engine.create_run(make_request(store=store))
        assert len(engine.foreground) == store
        await run.execute()
        del run
        assert len(engine.foreground) == 0


KEY = ("key", "print")


async def test_the_key_of_a_response_that_a_crash_interrupted_can_be_used_again(store: Store) -> None:
    await store.begin(make_response(), [user_message("m")], key=KEY)
    engine, maintenance = await start_maintenance(store)
    assert (await wait_for_end(store, "resp_0")).status == "failed"
    retry = await engine.create_run(make_request(), key=KEY)
    assert (await retry.execute()).status == "completed"
    with pytest.raises(IdempotencyKeyTaken) as taken:
        await engine.create_run(make_request(), key=KEY)
    assert taken.value.claim.response_id == retry.response_id
    await maintenance.stop()


@pytest.mark.parametrize("background", [False, True])
async def test_the_key_of_a_response_that_a_drain_interrupted_can_be_used_again(store: Store, background: bool) -> None:
    async def endless() -> AsyncIterator[str]:
        yield "more"
        await asyncio.Event().wait()

    engine = make_engine(endless, store)
    request = make_request(background=background)
    if background:
        id = (await engine.submit(request, key=KEY)).id
        async with asyncio.timeout(20):
            while not (stored := await store.find(id)) or stored.last_sequence < 5:
                await asyncio.sleep(0.001)
        await engine.background.stop_all()
    else:
        run = await engine.create_run(request, key=KEY)
        task = asyncio.create_task(run.execute())
        await run.started.wait()
        task.cancel(SERVER_STOPPING)
        await asyncio.wait([task])
        id = run.response_id
    assert (await wait_for_end(store, id)).error == STOPPED
    assert (await engine.create_run(make_request(), key=KEY)).response_id != id
    await store.close()


async def test_the_key_of_a_response_that_its_agent_failed_stays_taken(store: Store) -> None:
    async def broken() -> str:
        raise RuntimeError

    engine = make_engine(broken, store)
    run = await engine.create_run(make_request(), key=KEY)
    assert (await run.execute()).status == "failed"
    with pytest.raises(IdempotencyKeyTaken):
        await engine.create_run(make_request(), key=KEY)
    await store.close()
