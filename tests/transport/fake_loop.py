"""A transport and an event loop's time under the test's control."""

import asyncio
from collections.abc import Callable


class NullTransport(asyncio.Transport):
    """A transport that discards everything."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Discard data."""

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing is buffered."""
        return 0

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closed

    def abort(self) -> None:
        """Close."""
        self.closed = True


class FakeLoop:
    """The time and timers of an event loop, advanced by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, asyncio.Handle]] = []

    def time(self) -> float:
        """Return the current time."""
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Schedule a callback."""
        handle = asyncio.Handle(callback, (), asyncio.get_running_loop())
        self.timers.append((when, handle))
        return handle

    def advance(self, seconds: float, early: float = 0) -> None:
        """Let time pass, and run what is due, or soon will be."""
        self.now += seconds
        due = [handle for when, handle in self.timers if when <= self.now + early]
        self.timers = [timer for timer in self.timers if timer[0] > self.now + early]
        for handle in due:
            if not handle.cancelled():
                handle._run()
