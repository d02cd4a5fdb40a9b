"""A loop of its own in a thread of its own, which blocking code calls into.

So the synchronous client needs no loop of the caller's, and works where one is running already: in
a notebook, in a callback, in many threads at once.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from antiphon.core.errors import AntiphonError

T = TypeVar("T")


class Portal:
    """The way into a loop that runs in a thread; both begin when they are first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: weakref.finalize[[asyncio.AbstractEventLoop, threading.Thread], Portal] | None
        self._stop = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for some work; whatever it raises is raised here. Ctrl-C stops the work."""
        loop = self._begun()
        try:
            if asyncio.get_running_loop() is loop:
                work.close()
                raise AntiphonError("This is the client's own thread. Use AsyncClient here.")
        except RuntimeError:
            pass  # no loop runs in the caller's thread, or another
        waiting = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return waiting.result()
        finally:
            waiting.cancel()  # if it was not the work that ended the waiting

    def each(self, entries: AsyncIterator[T]) -> Iterator[T]:
        """Give what an asynchronous iterator gives."""
        while found := self.run(_next(entries)):
            yield from found

    def close(self) -> None:
        """End the thread, and all that is under way in it."""
        with self._lock:
            if self._stop is not None:
                self._stop()
            self._loop = self._stop = None

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._loop.run_forever, name="antiphon-client", daemon=True
                )
                thread.start()
                self._stop = weakref.finalize(self, _end, self._loop, thread)
            return self._loop


async def _next(entries: AsyncIterator[T]) -> list[T]:
    try:
        return [await anext(entries)]
    except StopAsyncIteration:
        return []


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _cancel_all() -> None:
    """Cancel every task of this loop but this one, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
