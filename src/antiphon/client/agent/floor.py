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

from antiphon.core.errors import RequestError

KEPT: ContextVar[frozenset["Floor"]] = ContextVar("KEPT", default=frozenset())
"""The floors of the runs that wait for this code."""


class Floor:
    """What the run that speaks holds: `async with floor`, in whatever loop."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Future[None]] = deque()
        self.taken = False
        """Whether a run speaks."""

    async def __aenter__(self) -> None:
        if self in KEPT.get():
            message = "A tool cannot run an agent in its own conversation: both would wait."
            raise RequestError(message, param="conversation")
        await self._taken()

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    @contextmanager
    def kept(self) -> Generator[None]:
        """Let what is called meanwhile not wait for a floor that is kept until it is done."""
        before = KEPT.set(KEPT.get() | {self})
        try:
            yield
        finally:
            KEPT.reset(before)

    async def _taken(self) -> None:
        with self._mutex:
            if not self.taken:
                self.taken = True
                return
            turn = Future[None]()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel():  # it had just come
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the floor to the first who still waits for it."""
        with self._mutex:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self.taken = False
