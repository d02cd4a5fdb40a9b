"""How a run ends: kept before it is told, told whatever happens, and told once."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from antiphon.agents.agent import Function
from antiphon.core import parts
from antiphon.core.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.core.events import Event
from antiphon.core.fold import fold
from antiphon.core.judge import judge
from antiphon.core.response import Response, ResponseError
from antiphon.engine.engine import Engine
from antiphon.engine.run import DRAIN, LOST, UNKEPT, Run
from antiphon.store.base import Stored
from antiphon.store.memory import MemoryStore
from tests.engine.storing import Troubled, asking, engine_of
from tests.engine.telling import Told

pytestmark = pytest.mark.anyio

NO_MORE = ErrorPayload(message="No more.", type="model_error", code="gone")


async def opened(function: Function, store: MemoryStore) -> tuple[Engine, Run, Told]:
    """Begin a response of a model that is one function."""
    outlet = Told()
    engine = engine_of(function, store)
    return engine, await engine.open(asking(), outlet), outlet


async def lawful(engine: Engine, run: Run, outlet: Told) -> Response:
    """Check that what was told is what is kept; return it."""
    assert judge(outlet.events) == []
    assert fold(outlet.events) == run.response
    assert await engine.store.find(run.response.id) == Stored(run.response)
    return run.response


async def hello() -> AsyncIterator[str]:
    """Say hello."""
    yield "Hello"


async def test_a_response_is_there_while_it_is_made_and_when_its_end_is_told() -> None:
    store = MemoryStore()
    kept: list[str] = []

    class Watching(Told):
        """Looks at the store whenever something is told."""

        def write(self, events: list[Event]) -> None:
            """Note how the response is kept at this moment."""
            kept.append(next(iter(store._records.values())).response.status)

    run = await engine_of(hello, store).open(asking(), Watching())
    await run.drive()
    assert kept[0] == "in_progress"
    assert kept[-1] == "completed"


async def test_an_end_that_cannot_be_kept_is_told_as_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Troubled()
    engine, run, outlet = await opened(hello, store)
    store.failures = 1
    with caplog.at_level(logging.ERROR, "antiphon.engine"):
        response = await run.drive()
    assert judge(outlet.events) == []
    assert fold(outlet.events) == response
    assert (response.status, response.output_text) == ("failed", "Hello")
    assert response.error == ResponseError(
        code="store_unavailable", message=UNKEPT.message, type="server_error"
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"{response.id} could not be kept"
    ]
    assert engine.chain.recent.find(response.id) is None


def failing(cleanup: BaseException | None) -> Function:
    """Make a model that says that it failed, and then cleans up for long, or badly."""

    async def model() -> AsyncIterator[object]:
        try:
            yield "Hel"
            yield parts.Failure(NO_MORE)
        finally:
            if cleanup:
                raise cleanup
            await asyncio.sleep(60)

    return model


@pytest.mark.parametrize("error", [RuntimeError("x"), RequestError("x")], ids=type)
async def test_a_failure_is_told_even_if_the_model_breaks_afterwards(error: Exception) -> None:
    engine, run, outlet = await opened(failing(error), MemoryStore())
    await run.drive()
    response = await lawful(engine, run, outlet)
    assert response.error == ResponseError(code="gone", message="No more.", type="model_error")


@pytest.mark.parametrize("why", [None, DRAIN])
async def test_a_failure_is_told_even_if_the_model_is_stopped_afterwards(why: str | None) -> None:
    engine, run, outlet = await opened(failing(None), MemoryStore())
    task = asyncio.create_task(run.drive())
    await run.begun.wait()
    await asyncio.sleep(0.01)
    task.cancel(why)
    with pytest.raises(asyncio.CancelledError):
        await task
    response = await lawful(engine, run, outlet)
    assert response.error == ResponseError(code="gone", message="No more.", type="model_error")


async def test_a_response_that_the_server_interrupts_has_failed_and_is_kept() -> None:
    async def model() -> AsyncIterator[str]:
        yield "Hello"
        await asyncio.sleep(60)

    engine, run, outlet = await opened(model, MemoryStore())
    task = asyncio.create_task(run.drive())
    await run.begun.wait()
    task.cancel(DRAIN)
    with pytest.raises(asyncio.CancelledError):
        await task
    response = await lawful(engine, run, outlet)
    assert (response.status, response.output_text) == ("failed", "Hello")
    assert response.error == ResponseError(
        code="server_error", message=LOST.message, type="server_error"
    )


@pytest.mark.parametrize("stored", [True, False])
async def test_a_refusal_before_any_answer_leaves_nothing_and_frees_its_key(stored: bool) -> None:
    async def model() -> None:
        raise UpstreamError("Slow down.", status=429)

    engine = engine_of(model)
    for _ in range(2):
        run = await engine.open(asking(store=stored), key=("key", "body"))
        with pytest.raises(UpstreamError):
            await run.drive()
        assert await engine.find(run.response.id) is None
        assert engine.chain.recent.find(run.response.id) is None


async def test_a_response_that_was_deleted_while_it_was_made_is_nowhere() -> None:
    store = MemoryStore()
    engine, run, _ = await opened(hello, store)
    [id] = store._records
    assert await engine.delete(id)
    assert (await run.drive()).id == id
    assert await engine.find(id) is None
    assert engine.chain.recent.find(id) is None


async def test_what_continues_a_response_that_is_deleted_meanwhile_ends_the_chain() -> None:
    engine = engine_of(hello)
    parent = await (await engine.open(asking())).drive()
    run = await engine.open(asking(previous_response_id=parent.id))
    assert await engine.delete(parent.id)
    child = await run.drive()
    assert child.status == "completed"
    with pytest.raises(RequestError) as caught:
        await engine.open(asking(previous_response_id=child.id))
    assert caught.value.payload.code == "previous_response_not_found"
