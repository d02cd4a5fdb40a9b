"""How the readers of a response hear that there is something new.

A bell is there only while somebody listens to it, so that nothing grows.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

POLL_SECONDS = 1.0
"""How long a reader waits at most: what another process wrote rings no bell here."""


class Notifier:
    """One bell for each response that somebody listens to."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._subscribers)

    def notify(self, id: str) -> None:
        """Wake everybody who listens to a response."""
        for listener in self._subscribers.get(id, ()):
            if not listener.done():
                listener.set_result(None)

    @contextmanager
    def subscribe(self, id: str) -> Generator[asyncio.Future[None]]:
        """Hear every ring from now on; give what is done when it rings."""
        listener = asyncio.get_running_loop().create_future()
        listeners = self._subscribers.setdefault(id, set())
        listeners.add(listener)
        try:
            yield listener
        finally:
            listeners.discard(listener)
            if not listeners:
                self._subscribers.pop(id, None)


async def wait_for_notification(notification: asyncio.Future[None]) -> None:
    """Wait for the ring, but not for ever."""
    await asyncio.wait([notification], timeout=POLL_SECONDS)
