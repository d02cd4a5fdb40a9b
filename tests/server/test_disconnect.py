"""A disconnect cancels the work for that client, and nothing else."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from antiphon.protocol.errors import RequestError
from antiphon.server.asgi import WATCH_AFTER_SECONDS, ClientDisconnected
from antiphon.server.service import Service
from antiphon.server.settings import Settings

pytestmark = pytest.mark.anyio


class FakeClient:
    """A client that disconnects, or whose `receive` fails."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.error: Exception | None = None

    async def receive(self) -> MutableMapping[str, Any]:
        """Wait for the disconnect."""
        await self.left.wait()
        if self.error:
            raise self.error
        return {"type": "http.disconnect"}


async def waiting() -> str:
    """Work that never ends by itself."""
    await asyncio.Event().wait()
    return "made"


def service() -> Service:
    """Make a service without providers."""
    return Service(Settings(responses_dir=None, drain_seconds=0))


def depth() -> int:
    """Tell how often this task has been asked to stop."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


@pytest.mark.parametrize("error", [None, OSError("lost"), RuntimeError("what is this?")])
async def test_a_task_is_cancelled_when_its_client_disconnects(error: Exception | None) -> None:
    visitor = FakeClient()
    visitor.error = error
    asyncio.get_running_loop().call_soon(visitor.left.set)
    with pytest.raises(ClientDisconnected):
        await service().run_until_disconnect(waiting(), visitor.receive)
    assert depth() == 0


async def test_a_disconnect_at_the_end_of_a_task_cancels_nothing_else() -> None:
    visitor = FakeClient()

    async def work() -> str:
        await asyncio.sleep(0)
        visitor.left.set()
        return "made"

    assert await service().run_until_disconnect(work(), visitor.receive) == "made"
    for _ in range(5):
        await asyncio.sleep(0)
    assert depth() == 0


async def test_the_end_of_the_server_is_a_503() -> None:
    server_url = service()
    asyncio.get_running_loop().call_soon(asyncio.ensure_future, server_url.drain())
    with pytest.raises(RequestError) as raised:
        await server_url.run_until_disconnect(waiting(), FakeClient().receive)
    assert (raised.value.payload.code, depth()) == ("server_stopping", 0)
    with pytest.raises(RequestError, match="server is stopping"):
        await server_url.run_until_disconnect(waiting(), FakeClient().receive)


async def test_other_cancellations_are_not_swallowed() -> None:
    task = asyncio.create_task(service().run_until_disconnect(waiting(), FakeClient().receive))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_ends_at_once_is_not_watched() -> None:
    received = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal received
        received = True
        return {"type": "http.disconnect"}

    async def work() -> str:
        await asyncio.sleep(0)
        return "made"

    assert await service().run_until_disconnect(work(), receive) == "made"
    await asyncio.sleep(2 * WATCH_AFTER_SECONDS)
    assert not received
