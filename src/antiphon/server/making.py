"""What is made for a client that may leave: then the model is stopped at once."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from antiphon.core.errors import AntiphonError
from antiphon.engine.run import Run
from antiphon.server.http import ClientGone, Receive, disconnected
from antiphon.server.service import Service, stopping
from antiphon.server.stream import EventStream

T = TypeVar("T")


async def watch(receive: Receive, work: asyncio.Task[Any]) -> None:
    """Stop a task when the client has left."""
    with suppress(OSError, RuntimeError):  # whoever cannot be heard is not there
        await disconnected(receive)
    work.cancel()


async def attended(service: Service, work: Coroutine[object, object, T], receive: Receive) -> T:
    """Do work in this very task; raises ClientGone, or a 503 if the server stops."""
    task: asyncio.Task[Any] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
    watching = asyncio.create_task(watch(receive, task))
    try:
        return await service.do(work)
    except asyncio.CancelledError:
        if watching.done():
            raise ClientGone from None
        raise
    finally:
        if watching.done():
            task.uncancel()
        watching.cancel()


class Making(Generic[T]):
    """A stream being made in a task of its own, and sent meanwhile."""

    def __init__(self, work: asyncio.Task[T], receive: Receive, stream: EventStream) -> None:
        self._work = work
        self._watch = asyncio.create_task(watch(receive, work))
        self._work.add_done_callback(lambda _: stream.close())

    async def __aenter__(self) -> "Making[T]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        if not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work])
        if not self._work.cancelled():
            self._work.exception()  # seen: whoever wants it has asked for the result

    def check(self) -> None:
        """Raise ClientGone if nobody was there any more."""
        if self._watch.done() and self._work.cancelled():
            raise ClientGone

    async def result(self) -> T:
        """Return what was made; raises what it was refused with, ClientGone, or a 503."""
        try:
            return await self._work
        except asyncio.CancelledError:
            self.check()
            if self._work.cancelled():
                raise stopping() from None
            raise

    async def begun(self, run: Run, seconds: float) -> bool:
        """Wait for the model's first sign; tell whether there is a stream to send.

        A model that fails before it has begun to answer has no stream, if its error has a status.
        """
        try:
            async with asyncio.timeout(seconds):
                await run.begun.wait()
        except TimeoutError:
            run.answering = run.answering or run.refusal is None
        if run.refusal and not run.answering:
            await asyncio.wait([self._work])  # it only has to be kept
        return run.answering or not self._refused()

    def _refused(self) -> bool:
        return self._work.cancelled() or isinstance(self._work.exception(), AntiphonError)
