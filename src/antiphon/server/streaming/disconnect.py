"""What is made for a client that may leave: then the model is stopped at once."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from antiphon.engine.run import Run
from antiphon.protocol.errors import AntiphonError
from antiphon.server.asgi import ClientDisconnected, Receive, wait_for_disconnect
from antiphon.server.service import Service, server_stopping_error
from antiphon.server.streaming.event_stream import EventStream

T = TypeVar("T")


async def cancel_on_disconnect(receive: Receive, task: asyncio.Task[Any]) -> None:
    """Stop a task when the client has left."""
    with suppress(OSError, RuntimeError):  # whoever cannot be heard is not there
        await wait_for_disconnect(receive)
    task.cancel()


async def run_until_disconnect(
    service: Service, coroutine: Coroutine[object, object, T], receive: Receive
) -> T:
    """Do work in this very task; raises ClientGone, or a 503 if the server stops."""
    task: asyncio.Task[Any] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
    watching = asyncio.create_task(cancel_on_disconnect(receive, task))
    try:
        return await service.run_in_task(coroutine)
    except asyncio.CancelledError:
        if watching.done():
            raise ClientDisconnected from None
        raise
    finally:
        if watching.done():
            task.uncancel()
        watching.cancel()


class StreamTask(Generic[T]):
    """A stream being made in a task of its own, and sent meanwhile."""

    def __init__(self, task: asyncio.Task[T], receive: Receive, stream: EventStream) -> None:
        self._task = task
        self._watcher = asyncio.create_task(cancel_on_disconnect(receive, task))
        self._task.add_done_callback(lambda _: stream.close())

    async def __aenter__(self) -> "StreamTask[T]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watcher.cancel()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # seen: whoever wants it has asked for the result

    def check_connected(self) -> None:
        """Raise ClientGone if nobody was there any more."""
        if self._watcher.done() and self._task.cancelled():
            raise ClientDisconnected

    async def result(self) -> T:
        """Return what was made; raises what it was refused with, ClientGone, or a 503."""
        try:
            return await self._task
        except asyncio.CancelledError:
            self.check_connected()
            if self._task.cancelled():
                raise server_stopping_error() from None
            raise

    async def wait_started(self, run: Run, seconds: float) -> bool:
        """Wait for the model's first sign; tell whether there is a stream to send.

        A model that fails before it has begun to answer has no stream, if its error has a status.
        """
        try:
            async with asyncio.timeout(seconds):
                await run.started.wait()
        except TimeoutError:
            run.answering = run.answering or run.error is None
        if run.error and not run.answering:
            await asyncio.wait([self._task])  # it only has to be kept
        return run.answering or not self._failed_early()

    def _failed_early(self) -> bool:
        return self._task.cancelled() or isinstance(self._task.exception(), AntiphonError)
