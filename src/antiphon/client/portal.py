"""A loop of its own in a thread of its own, which blocking code calls into.

So the synchronous client needs no loop of the caller's, and works where one is running already: in
a notebook, in a callback, in many threads at once.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from antiphon.protocol.errors import AntiphonError

T = TypeVar("T")


class EventLoopThread:
    """The way into a loop that runs in a thread; both begin when they are first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: (
            weakref.finalize[[asyncio.AbstractEventLoop, threading.Thread], EventLoopThread] | None
        )
        self._finalizer = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for some work; whatever it raises is raised here. Ctrl-C stops the work."""
        loop = self._ensure_started()
        try:
            if asyncio.get_running_loop() is loop:
                coroutine.close()
                raise AntiphonError("This is the client's own thread. Use AsyncClient here.")
        except RuntimeError:
            pass  # no loop runs in the caller's thread, or another
        waiting = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return waiting.result()
        finally:
            waiting.cancel()  # if it was not the work that ended the waiting

    def iterate(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        """Give what an asynchronous iterator gives."""
        while found := self.run(_next_or_empty(iterator)):
            yield from found

    def close(self) -> None:
        """End the thread, and all that is under way in it."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
            self._loop = self._finalizer = None

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A fork takes no threads along: the child begins anew.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=[self._loop], name="antiphon-client", daemon=True
                )
                self._thread.start()
                self._finalizer = weakref.finalize(self, _stop_loop, self._loop, self._thread)
                self._finalizer.atexit = False  # whoever says goodbye then still needs it
            return self._loop


async def _next_or_empty(iterator: AsyncIterator[T]) -> list[T]:
    try:
        return [await anext(iterator)]
    except StopAsyncIteration:
        return []


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped; the end of the program is raised to whoever waits for it."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
        return


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not thread.is_alive():
        return  # it is the parent's, of a process that was forked
    if thread is threading.current_thread():  # where the garbage was collected
        threading.Thread(target=_stop_loop, args=[loop, thread]).start()
        return
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
