"""Notifications within one process: readers of a response wait here for new events."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

POLL_SECONDS = 1.0
"""The longest wait for a notification. Other processes do not notify us, so readers also poll."""


class Notifier:
    """The subscribers of each response. A response without subscribers takes no memory."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._subscribers)

    def notify(self, id: str) -> None:
        """Wake all subscribers of a response."""
        for future in self._subscribers.get(id, ()):
            if not future.done():
                future.set_result(None)

    @contextmanager
    def subscribe(self, id: str) -> Generator[asyncio.Future[None]]:
        """Yield a future that is done at the next notification for a response."""
        # A future per wait, not an event per response: nothing has to be reset between two waits.
        future = asyncio.get_running_loop().create_future()
        subscribers = self._subscribers.setdefault(id, set())
        subscribers.add(future)
        try:
            yield future
        finally:
            subscribers.discard(future)
            if not subscribers:
                self._subscribers.pop(id, None)


async def wait_for_notification(notification: asyncio.Future[None]) -> None:
    """Wait for a notification, for at most POLL_SECONDS."""
    await asyncio.wait([notification], timeout=POLL_SECONDS)
