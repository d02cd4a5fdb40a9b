"""Threads for plain functions and generators, which may block."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from typing import NamedTuple

DEFAULT_SIZE = 64


class _Call(NamedTuple):
    """A call to make in a thread, and the future of its result."""

    future: "asyncio.Future[object]"
    function: Callable[..., object]
    arguments: tuple[object, ...]


class AgentThread:
    """One thread that makes calls in order.

    A run keeps its thread from start to end, because some objects, such as sqlite3 connections, must be used in the
    thread that made them.
    """

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._on_exit = on_exit
        context = contextvars.copy_context()
        # A daemon thread: an agent that blocks for ever must not keep the process from exiting.
        threading.Thread(target=context.run, args=(self._run,), name="antiphon-agent", daemon=True).start()

    def call(self, function: Callable[..., object], *arguments: object) -> "asyncio.Future[object]":
        """Call a function after the calls before it; the result need not be awaited."""
        future = self._loop.create_future()
        self._calls.put(_Call(future, function, arguments))
        return future

    def close(self) -> None:
        """End the thread after the last call; does not wait for it."""
        self._calls.put(None)

    def _run(self) -> None:
        # The loop may be closed before a blocking call returns.
        with suppress(RuntimeError):
            while call := self._calls.get():
                self._loop.call_soon_threadsafe(_resolve, call.future, *_make_call(call))
                del call  # or the last result would stay in memory while this thread waits
            self._loop.call_soon_threadsafe(self._on_exit)


def _make_call(call: _Call) -> tuple[object, BaseException | None]:
    try:
        return call.function(*call.arguments), None
    except StopIteration as error:
        # A future cannot hold StopIteration in Python 3.11: the caller would wait for ever.
        wrapped = RuntimeError("the agent raised StopIteration")
        wrapped.__cause__ = error
        return None, wrapped
    except BaseException as error:  # noqa: BLE001 - raised again in the caller's task
        return None, error


def _resolve(future: "asyncio.Future[object]", result: object, error: BaseException | None) -> None:
    if future.done():  # the caller has left
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class AgentThreads:
    """A limited number of threads; an abandoned call keeps its thread until it returns."""

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self._slots = asyncio.Semaphore(size)

    @asynccontextmanager
    async def open_thread(self) -> AsyncGenerator[AgentThread]:
        """Wait for a free slot and give a thread; it ends after its last call."""
        await self._slots.acquire()
        thread = AgentThread(on_exit=self._slots.release)
        try:
            yield thread
        finally:
            thread.close()
