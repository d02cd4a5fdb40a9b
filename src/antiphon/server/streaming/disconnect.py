"""Stops the model when its client disconnects, so that nobody pays for unread tokens."""

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
    """Cancel a task when the client disconnects."""
    with suppress(OSError, RuntimeError):  # servers raise these after a disconnect
        await wait_for_disconnect(receive)
    task.cancel()


async def run_until_disconnect(
    service: Service, coroutine: Coroutine[object, object, T], receive: Receive
) -> T:
    """Run a coroutine in this task; raises ClientDisconnected, or a 503 if the server stops."""
    task: asyncio.Task[Any] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
    watcher = asyncio.create_task(cancel_on_disconnect(receive, task))
    try:
        return await service.run_in_task(coroutine)
    except asyncio.CancelledError:
        if watcher.done():
            raise ClientDisconnected from None
        raise
    finally:
        # The cancellation was ours: the server must not take the task for cancelled.
        if watcher.done():
            task.uncancel()
        watcher.cancel()


class StreamTask(Generic[T]):
    """A task that produces a stream while the current task sends it."""

    def __init__(self, task: asyncio.Task[T], receive: Receive, stream: EventStream) -> None:
        self._task = task
        self._watcher = asyncio.create_task(cancel_on_disconnect(receive, task))
        # However the task ends, the sender must not wait for more.
        self._task.add_done_callback(lambda _: stream.close())

    async def __aenter__(self) -> "StreamTask[T]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watcher.cancel()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # mark as retrieved, or asyncio logs it when it is freed

    def check_connected(self) -> None:
        """Raise ClientDisconnected if the client has disconnected."""
        if self._watcher.done() and self._task.cancelled():
            raise ClientDisconnected

    async def result(self) -> T:
        """Return the task's result; raises its error, ClientDisconnected, or a 503."""
        try:
            return await self._task
        except asyncio.CancelledError:
            self.check_connected()
            if self._task.cancelled():
                raise server_stopping_error() from None
            raise

    async def wait_started(self, run: Run, seconds: float) -> bool:
        """Wait until the model starts to answer; return whether there is a stream to send.

        If the model fails before, its error is sent with an HTTP status instead. After `seconds`
        the stream starts anyway, so that the client gets its headers and heartbeats.
        """
        try:
            async with asyncio.timeout(seconds):
                await run.started.wait()
        except TimeoutError:
            run.answering = run.answering or run.error is None
        if run.error and not run.answering:
            await asyncio.wait([self._task])  # it only has to delete the stored response
        return run.answering or not self._has_no_stream()

    def _has_no_stream(self) -> bool:
        return self._task.cancelled() or isinstance(self._task.exception(), AntiphonError)
