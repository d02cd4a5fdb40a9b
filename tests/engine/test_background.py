"""Background responses: jobs, readers, cancellation."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.engine import background
from antiphon.engine.background import follow_events
from antiphon.engine.engine import Engine
from antiphon.engine.run import INTERNAL_ERROR, SERVER_STOPPED_ERROR
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import RequestError, StoreError
from antiphon.protocol.events import TERMINAL_EVENTS as ENDINGS
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.response import IncompleteDetails, Response, ResponseError
from antiphon.store.base import LoggedEvents, Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from tests.engine.builders import FailingStore, make_engine, make_request, read_log, wait_for_end
from tests.protocol.builders import event_types, make_response

pytestmark = pytest.mark.anyio

STOPPED = ResponseError(code="server_error", message=SERVER_STOPPED_ERROR.message, type="server_error")


async def say_three_words() -> AsyncIterator[str]:
    """Yield three words with pauses, so that readers get them one by one."""
    for word in ("one ", "two ", "three"):
        await asyncio.sleep(0.03)
        yield word


class Endless:
    """A model that never stops by itself, and knows whether it was stopped."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self) -> AsyncIterator[str]:
        try:
            while True:
                yield "more "
                self.answering.set()
                await asyncio.sleep(0.001)
        finally:
            self.stopped.set()


async def follow_from(store: Store, id: str, after: int = -1) -> list[Event]:
    """Follow a response to its end."""
    return [event async for batch in follow_events(store, id, after) for event in batch]


async def wait_until_idle(engine: Engine) -> None:
    """Wait until nothing runs in the background any more."""
    async with asyncio.timeout(20):
        while len(engine.background):
            await asyncio.sleep(0.001)


async def check_log(store: Store, id: str) -> Response:
    """Wait for the end of a response, and check that its log is valid and folds to it."""
    response = await wait_for_end(store, id)
    events = await read_log(store, id)
    assert find_violations(events) == []
    assert fold(events) == response
    assert sum(isinstance(event, ENDINGS) for event in events) == 1
    return response


async def test_a_background_response_is_stored_at_once_and_run_afterwards() -> None:
    engine = make_engine(say_three_words)
    response = await engine.submit(make_request(background=True))
    assert (response.status, response.background) == ("queued", True)
    stored = await engine.find(response.id)
    assert stored
    assert stored.response == response
    final = await check_log(engine.store, response.id)
    assert (final.status, final.output_text) == ("completed", "one two three")
    assert event_types(await read_log(engine.store, response.id))[:3] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]


async def test_a_running_background_response_is_in_progress() -> None:
    model = Endless()
    engine = make_engine(model)
    response = await engine.submit(make_request(background=True))
    await model.answering.wait()
    stored = await engine.find(response.id)
    assert stored
    assert stored.response.status == "in_progress"
    await engine.cancel(response.id)


async def test_background_responses_wait_for_a_free_slot() -> None:
    running = most = 0

    async def model() -> AsyncIterator[str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        yield "done"
        running -= 1

    engine = make_engine(model, background_slots=3)
    responses = [await engine.submit(make_request(background=True)) for _ in range(12)]
    for response in responses:
        assert (await check_log(engine.store, response.id)).status == "completed"
    assert most == 3
    await wait_until_idle(engine)


async def test_a_reader_gets_every_event_after_its_number_during_the_run_and_later() -> None:
    engine = make_engine(say_three_words)
    id = (await engine.submit(make_request(background=True))).id
    live = [asyncio.create_task(follow_from(engine.store, id, n)) for n in range(-1, 14)]
    tails = await asyncio.gather(*live)
    events = await read_log(engine.store, id)
    for n, tail in enumerate(tails, -1):
        assert tail == events[n + 1 :]
        assert await follow_from(engine.store, id, n) == tail


async def test_a_failing_model_fails_its_response() -> None:
    async def model() -> AsyncIterator[str]:
        yield "Hello"
        raise RuntimeError("secret")

    engine = make_engine(model)
    response = await check_log(engine.store, (await engine.submit(make_request(background=True))).id)
    assert (response.status, response.output_text) == ("failed", "Hello")
    assert response.error
    assert "secret" not in response.error.message


async def test_an_error_with_a_status_fails_a_background_response() -> None:
    async def model() -> None:
        raise RequestError("Not that.", code="nope")

    engine = make_engine(model)
    response = await check_log(engine.store, (await engine.submit(make_request(background=True))).id)
    assert response.error == ResponseError(code="nope", message="Not that.", type="invalid_request")


async def test_a_background_response_survives_failures_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", (0.001, 0.002))
    store = FailingStore()

    async def model() -> AsyncIterator[str]:
        for number in range(20):
            store.failures = 2
            yield f"{number} "
            await asyncio.sleep(0.003)

    engine = make_engine(model, store)
    id = (await engine.submit(make_request(background=True))).id
    store.failures = 5  # its announcement, and its beginning
    response = await check_log(store, id)
    assert response.output_text == "".join(f"{number} " for number in range(20))


async def test_cancelling_stops_the_model_and_keeps_its_output() -> None:
    model = Endless()
    engine = make_engine(model)
    id = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    begun = asyncio.get_running_loop().time()
    cancelled = await engine.cancel(id)
    assert asyncio.get_running_loop().time() - begun < 1
    assert model.stopped.is_set()
    assert cancelled
    assert cancelled == await check_log(engine.store, id)
    assert cancelled.status == "cancelled"
    assert cancelled.incomplete_details == IncompleteDetails(reason="cancelled")
    assert cancelled.output_text.startswith("more ")
    assert [item.status for item in cancelled.output] == ["incomplete"]  # pyright: ignore
    assert cancelled.usage
    assert cancelled.usage.output_tokens > 0
    assert event_types(await read_log(engine.store, id))[-1] == "response.incomplete"


async def test_a_waiting_response_can_be_cancelled() -> None:
    model = Endless()
    engine = make_engine(model, background_slots=1)
    first = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    second = (await engine.submit(make_request(background=True))).id
    for pause in (0, 0.01):
        await asyncio.sleep(pause)
        cancelled = await engine.cancel(second)
        assert cancelled
        assert cancelled == await check_log(engine.store, second)
        assert (cancelled.status, cancelled.output) == ("cancelled", [])
    await engine.cancel(first)
    await wait_until_idle(engine)


async def test_a_response_cancelled_at_once_has_a_complete_log() -> None:
    engine = make_engine(say_three_words)
    id = (await engine.submit(make_request(background=True))).id
    await engine.cancel(id)
    assert (await check_log(engine.store, id)).status == "cancelled"
    assert event_types(await read_log(engine.store, id)) == [
        "response.created",
        "response.queued",
        "response.incomplete",
    ]


async def test_concurrent_cancellations_return_the_same_response() -> None:
    model = Endless()
    engine = make_engine(model)
    id = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    answers = await asyncio.gather(*(engine.cancel(id) for _ in range(20)))
    assert answers == [await check_log(engine.store, id)] * 20
    assert await engine.cancel(id) == answers[0]


async def test_cancelling_does_not_change_a_response_that_has_ended() -> None:
    engine = make_engine(say_three_words)
    id = (await engine.submit(make_request(background=True))).id
    response = await check_log(engine.store, id)
    assert await engine.cancel(id) == response
    assert (await check_log(engine.store, id)).status == "completed"


async def test_an_unknown_response_cannot_be_cancelled() -> None:
    assert await make_engine(say_three_words).cancel("resp_x") is None


async def test_a_foreground_response_cannot_be_cancelled() -> None:
    engine = make_engine(say_three_words)
    response = await (await engine.create_run(make_request())).execute()
    with pytest.raises(RequestError) as caught:
        await engine.cancel(response.id)
    assert caught.value.payload.code == "not_a_background_response"


async def test_a_waiting_response_that_another_process_has_deleted_is_not_run() -> None:
    model = Endless()
    engine = make_engine(model, background_slots=1)
    first = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    second = (await engine.submit(make_request(background=True))).id
    await asyncio.sleep(0.01)
    assert await engine.store.delete(second)
    await engine.cancel(first)
    model.answering.clear()
    await wait_until_idle(engine)
    assert not model.answering.is_set()
    assert await engine.find(second) is None


async def test_a_job_that_breaks_ends_its_response_as_failed() -> None:
    async def announce() -> None:
        """Log nothing."""

    async def work() -> None:
        raise RuntimeError("a mistake of ours")

    engine = make_engine(say_three_words)
    await engine.store.begin(make_response(background=True), [])
    for id in ("resp_0", "resp_deleted"):
        engine.background.start(id, announce, work)
    response = await check_log(engine.store, "resp_0")
    assert response.status == "failed"
    assert response.error
    assert response.error.message == INTERNAL_ERROR.message
    await wait_until_idle(engine)


async def test_a_response_whose_log_cannot_be_read_now_is_not_ended_without_it() -> None:
    class Unreadable(MemoryStore):
        """Cannot read its events for now."""

        async def read(self, id: str, after: int, *, limit: int = 512, tenant: str = "") -> LoggedEvents | None:
            """Fail."""
            raise StoreError("the disk is slow")

    store = Unreadable()
    await store.begin(make_response(background=True), [])
    with pytest.raises(StoreError, match="slow"):
        await make_engine(say_three_words, store).cancel("resp_0")
    stored = await store.find("resp_0")
    assert stored
    assert stored.response.status == "in_progress"


async def test_deleting_a_response_stops_it_and_removes_everything() -> None:
    model = Endless()
    engine = make_engine(model)
    id = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    assert await engine.delete(id)
    await asyncio.wait_for(model.stopped.wait(), 1)
    assert await follow_from(engine.store, id) == []
    assert await engine.find(id) is None
    await wait_until_idle(engine)
    assert len(engine.history.cache) == 0


async def test_a_tenant_cannot_stop_the_response_of_another() -> None:
    model = Endless()
    engine = make_engine(model)
    id = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    assert not await engine.delete(id, "t")
    assert await engine.cancel(id, "t") is None
    assert not model.stopped.is_set()
    await engine.cancel(id)


async def test_too_many_waiting_responses_are_rejected_with_a_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_WAITING", 2)
    engine = make_engine(Endless(), background_slots=1)
    ids = [(await engine.submit(make_request(background=True))).id for _ in range(3)]
    with pytest.raises(RequestError) as caught:
        await engine.submit(make_request(background=True))
    assert (caught.value.status, caught.value.headers) == (429, {"retry-after": "1"})
    for id in ids:
        await engine.cancel(id)
    await engine.submit(make_request(background=True))
    await engine.background.stop_all()


async def test_at_shutdown_running_responses_fail_and_waiting_ones_stay_queued() -> None:
    model = Endless()
    engine = make_engine(model, background_slots=1)
    running = (await engine.submit(make_request(background=True))).id
    await model.answering.wait()
    waiting = (await engine.submit(make_request(background=True))).id
    await asyncio.sleep(0.01)
    await engine.background.stop_all()
    response = await check_log(engine.store, running)
    assert (response.status, response.error) == ("failed", STOPPED)
    assert response.output_text.startswith("more ")
    assert response.usage
    stored = await engine.find(waiting)
    assert stored
    assert stored.response.status == "queued"


async def race(engine: Engine, seed: int) -> str:
    """Let the end of a response and its cancellation meet; return which came first."""
    chance = random.Random(seed)
    id = (await engine.submit(make_request(str(chance.randrange(4)), background=True))).id
    reader = asyncio.create_task(follow_from(engine.store, id))
    for _ in range(chance.randrange(30)):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.03)
    elif chance.random() < 0.1:
        await asyncio.wait([reader])  # a slow disk would never let an end come first
    answers = [engine.cancel(id) for _ in range(chance.randrange(1, 3))]
    seen = await asyncio.gather(*answers)
    final = await check_log(engine.store, id)
    assert seen == [final] * len(seen)
    assert await engine.cancel(id) == final
    assert await reader == await read_log(engine.store, id)
    return final.status


async def run_together(store: Store, count: int, together: int) -> set[str]:
    """Run many races, some at a time; return how they ended."""

    async def model(turn: object) -> AsyncIterator[str]:
        for number in range(int(turn.text)):  # pyright: ignore[reportAttributeAccessIssue]
            yield f"{number} "
            await asyncio.sleep(0)

    engine = make_engine(model, store)
    statuses: set[str] = set()
    for first in range(0, count, together):
        races = [race(engine, first + number) for number in range(together)]
        statuses |= set(await asyncio.gather(*races))
    await wait_until_idle(engine)
    return statuses


async def test_a_race_of_end_and_cancellation_has_one_final_result() -> None:
    assert await run_together(MemoryStore(), 2000, 100) == {"completed", "cancelled"}


async def test_a_race_of_end_and_cancellation_has_one_final_result_on_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert await run_together(store, 200, 20) == {"completed", "cancelled"}
    await store.close()
