"""When to try again: before the first byte of an answer, patiently, and not for ever.

Each wait is random within a range that doubles. A provider's `Retry-After` is obeyed if it is
short, and ends the trying if it is long. A budget bounds how much of the traffic may be retries, so
that a provider in trouble is not kept there by us.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar

from msgspec import Struct

from antiphon.core.errors import UpstreamError

T = TypeVar("T")
May = Callable[[UpstreamError, float], bool]
"""Tells whether it may be tried again, after an error and so many seconds."""


HURRY_SECONDS = 2.0
"""How long is worth waiting for somebody in whose place another may answer."""


class Patience(Struct, frozen=True):
    """How often to try again, how long to wait at first, and how long at most."""

    retries: int = 2
    first: float = 0.5
    longest: float = 8.0

    @property
    def hurried(self) -> "Patience":
        """The same, where another may answer."""
        return Patience(self.retries, self.first, min(self.longest, HURRY_SECONDS))


class Budget:
    """What retries are paid from: every request adds a little, every retry takes a whole."""

    def __init__(self, most: float = 10.0, share: float = 0.2) -> None:
        self._most, self._share = most, share
        self._left = most

    def earn(self) -> None:
        """Take note of a request."""
        self._left = min(self._most, self._left + self._share)

    def spend(self) -> bool:
        """Pay for a retry; tell whether there was enough."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


async def patiently(
    attempt: Callable[[], Awaitable[T]], patience: Patience, may: May | None = None
) -> T:
    """Try, again and again while that is of use; raises the last UpstreamError."""
    tried = 0
    while True:
        try:
            return await attempt()
        except UpstreamError as error:
            wait = delay(error, tried, patience, now=time.time())
            if wait is None or (may and not may(error, wait)):
                raise
        await asyncio.sleep(wait)
        tried += 1


def delay(
    error: UpstreamError,
    tried: int,
    patience: Patience,
    *,
    now: float,
    chance: Callable[[float, float], float] = random.uniform,
) -> float | None:
    """Return how long to wait before trying again; None if that is of no use.

    `tried` is how often it has failed before this time.
    """
    if not error.retryable or tried >= patience.retries:
        return None
    asked = asked_wait(error.headers, now)
    if asked is not None:
        return asked if asked <= patience.longest else None
    most = min(patience.longest, patience.first * 2**tried)
    return chance(most / 2, most)


def asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Return how long a provider asks us to wait, in seconds."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        when = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    when = when.replace(tzinfo=when.tzinfo or UTC)  # a date of HTTP is always in GMT
    return max(0.0, when.timestamp() - now)
