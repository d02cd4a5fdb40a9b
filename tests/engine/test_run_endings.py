"""The end of a run: stored before it is sent, and sent exactly once."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from antiphon.agents.agent import Function
from antiphon.engine.engine import Engine
from antiphon.engine.run import NOT_STORED_ERROR, SERVER_STOPPED_ERROR, SERVER_STOPPING, Run
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload, RequestError, StoreError, UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.response import Response, ResponseError
from antiphon.store.base import StoredResponse
from antiphon.store.memory import MemoryStore
from tests.engine.builders import FailingStore, make_engine, make_request
from tests.engine.recording_sink import RecordingSink

pytestmark = pytest.mark.anyio

NO_MORE = ErrorPayload(message="No more.", type="model_error", code="gone")


async def open_run(function: Function, store: MemoryStore) -> tuple[Engine, Run, RecordingSink]:
    """Begin a response of a model that is one function."""
    sink = RecordingSink()
    engine = make_engine(function, store)
    return engine, await engine.create_run(make_request(), sink), sink


async def run_and_check(engine: Engine, run: Run, sink: RecordingSink) -> Response:
    """Check that the events fold to the stored response; return it."""
    assert find_violations(sink.events) == []
    assert fold(sink.events) == run.response
    assert await engine.store.find(run.response.id) == StoredResponse(run.response)
    return run.response


async def hello() -> AsyncIterator[str]:
    """Say hello."""
    yield "Hello"


async def test_a_response_is_stored_while_it_runs_and_before_its_end_is_sent() -> None:
    store = MemoryStore()
    statuses: list[str] = []

    class Watching(RecordingSink):
        """Looks at the store whenever events are written."""

        def write(self, events: list[Event]) -> None:
            """Record the stored status."""
            statuses.append(next(iter(store._records.values())).response.status)

    run = await make_engine(hello, store).create_run(make_request(), Watching())
    await run.execute()
    assert statuses[0] == "in_progress"
    assert statuses[-1] == "completed"


async def test_an_end_that_cannot_be_stored_is_sent_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore()
    engine, run, sink = await open_run(hello, store)
    store.failures = 1
    with caplog.at_level(logging.ERROR, "antiphon.engine"):
        response = await run.execute()
    assert find_violations(sink.events) == []
    assert fold(sink.events) == response
    assert (response.status, response.output_text) == ("failed", "Hello")
    assert response.error == ResponseError(
        code="store_unavailable", message=NOT_STORED_ERROR.message, type="server_error"
    )
    assert [record.getMessage() for record in caplog.records] == [f"{response.id} could not be stored"]
    assert engine.history.cache.find(response.id) is None


def failing_model(cleanup: BaseException | None) -> Function:
    """Return a model that yields a failure, and then takes long to clean up, or raises."""

    async def model() -> AsyncIterator[object]:
        try:
            yield "Hel"
            yield parts.Failure(NO_MORE)
        finally:
            if cleanup:
                raise cleanup
            await asyncio.sleep(60)

    return model


@pytest.mark.parametrize(
    "error",
    [RuntimeError("x"), RequestError("x"), SystemExit("x"), BaseExceptionGroup("x", [KeyboardInterrupt()])],
    ids=type,
)
async def test_a_failure_is_sent_even_if_the_model_raises_afterwards(error: BaseException) -> None:
    engine, run, sink = await open_run(failing_model(error), MemoryStore())
    await run.execute()
    response = await run_and_check(engine, run, sink)
    assert response.error == ResponseError(code="gone", message="No more.", type="model_error")


@pytest.mark.parametrize("why", [None, SERVER_STOPPING])
async def test_a_failure_is_sent_even_if_the_model_is_cancelled_afterwards(why: str | None) -> None:
    engine, run, sink = await open_run(failing_model(None), MemoryStore())
    task = asyncio.create_task(run.execute())
    await run.started.wait()
    await asyncio.sleep(0.01)
    task.cancel(why)
    with pytest.raises(asyncio.CancelledError):
        await task
    response = await run_and_check(engine, run, sink)
    assert response.error == ResponseError(code="gone", message="No more.", type="model_error")


async def test_a_response_that_the_shutdown_interrupts_is_stored_as_failed() -> None:
    async def model() -> AsyncIterator[str]:
        yield "Hello"
        await asyncio.sleep(60)

    engine, run, sink = await open_run(model, MemoryStore())
    task = asyncio.create_task(run.execute())
    await run.started.wait()
    task.cancel(SERVER_STOPPING)
    with pytest.raises(asyncio.CancelledError):
        await task
    response = await run_and_check(engine, run, sink)
    assert (response.status, response.output_text) == ("failed", "Hello")
    assert response.error == ResponseError(
        code="server_error", message=SERVER_STOPPED_ERROR.message, type="server_error"
    )


@pytest.mark.parametrize("stored", [True, False])
async def test_an_error_before_any_answer_discards_the_response_and_releases_its_key(stored: bool) -> None:
    async def model() -> None:
        raise UpstreamError("Slow down.", status=429)

    engine = make_engine(model)
    for _ in range(2):
        run = await engine.create_run(make_request(store=stored), key=("key", "body"))
        with pytest.raises(UpstreamError):
            await run.execute()
        assert await engine.find(run.response.id) is None
        assert engine.history.cache.find(run.response.id) is None


async def test_an_error_before_any_answer_is_raised_even_if_the_response_cannot_be_discarded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Undeletable(MemoryStore):
        """Cannot delete."""

        async def delete(self, id: str, *, tenant: str = "") -> bool:
            """Fail."""
            raise StoreError("the disk is full")

    async def model() -> None:
        raise UpstreamError("Slow down.", status=429)

    _, run, _ = await open_run(model, Undeletable())
    with pytest.raises(UpstreamError, match="Slow down"):
        await run.execute()
    assert "could not be discarded" in caplog.text


async def test_a_response_deleted_during_its_run_leaves_nothing() -> None:
    store = MemoryStore()
    engine, run, _ = await open_run(hello, store)
    [id] = store._records
    assert await engine.delete(id)
    assert (await run.execute()).id == id
    assert await engine.find(id) is None
    assert engine.history.cache.find(id) is None


async def test_a_response_whose_parent_was_deleted_cannot_be_continued() -> None:
    engine = make_engine(hello)
    parent = await (await engine.create_run(make_request())).execute()
    run = await engine.create_run(make_request(previous_response_id=parent.id))
    assert await engine.delete(parent.id)
    child = await run.execute()
    assert child.status == "completed"
    with pytest.raises(RequestError) as caught:
        await engine.create_run(make_request(previous_response_id=child.id))
    assert caught.value.payload.code == "previous_response_not_found"
