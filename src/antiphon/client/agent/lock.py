"""The floor of a conversation: one run has it, the others wait for it in the order they came.

Runs of one conversation may be in several threads, and in one loop after another; asyncio's own
lock belongs to the first loop that waits for it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar

from antiphon.protocol.errors import RequestError

HELD_LOCKS: ContextVar[frozenset["ConversationLock"]] = ContextVar("KEPT", default=frozenset())
"""The floors of the runs that wait for this code."""


class ConversationLock:
    """What the run that speaks holds: `async with floor`, in whatever loop."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiters: deque[Future[None]] = deque()
        self.locked = False
        """Whether a run speaks."""

    async def __aenter__(self) -> None:
        if self in HELD_LOCKS.get():
            message = "A tool cannot run an agent in its own conversation: both would wait."
            raise RequestError(message, param="conversation")
        await self._acquire()

    async def __aexit__(self, *_: object) -> None:
        self._release()

    @contextmanager
    def forbid_reentry(self) -> Generator[None]:
        """Let what is called meanwhile not wait for a floor that is kept until it is done."""
        before = HELD_LOCKS.set(HELD_LOCKS.get() | {self})
        try:
            yield
        finally:
            HELD_LOCKS.reset(before)

    async def _acquire(self) -> None:
        with self._mutex:
            if not self.locked:
                self.locked = True
                return
            turn = Future[None]()
            self._waiters.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel():  # it had just come
                self._release()
            raise

    def _release(self) -> None:
        """Give the floor to the first who still waits for it."""
        with self._mutex:
            while self._waiters:
                turn = self._waiters.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self.locked = False
