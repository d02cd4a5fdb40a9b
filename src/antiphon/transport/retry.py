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

from antiphon.protocol.errors import UpstreamError

T = TypeVar("T")
MayRetry = Callable[[UpstreamError, float], bool]
"""Tells whether it may be tried again, after an error and so many seconds."""


MAX_DELAY_BEFORE_FALLBACK = 2.0
"""How long is worth waiting for somebody in whose place another may answer."""


class RetryPolicy(Struct, frozen=True):
    """How often to try again, how long to wait at first, and how long at most."""

    retries: int = 2
    first_delay: float = 0.5
    max_delay: float = 8.0

    @property
    def before_fallback(self) -> "RetryPolicy":
        """The same, where another may answer."""
        return RetryPolicy(
            self.retries, self.first_delay, min(self.max_delay, MAX_DELAY_BEFORE_FALLBACK)
        )


class RetryBudget:
    """What retries are paid from: every request adds a little, every retry takes a whole."""

    def __init__(self, capacity: float = 10.0, refill: float = 0.2) -> None:
        self._capacity, self._refill = capacity, refill
        self._balance = capacity

    def deposit(self) -> None:
        """Take note of a request."""
        self._balance = min(self._capacity, self._balance + self._refill)

    def try_withdraw(self) -> bool:
        """Pay for a retry; tell whether there was enough."""
        if self._balance < 1:
            return False
        self._balance -= 1
        return True


async def call_with_retries(
    attempt: Callable[[], Awaitable[T]], policy: RetryPolicy, may_retry: MayRetry | None = None
) -> T:
    """Try, again and again while that is of use; raises the last UpstreamError."""
    tried = 0
    while True:
        try:
            return await attempt()
        except UpstreamError as error:
            wait = retry_delay(error, tried, policy, now=time.time())
            if wait is None or (may_retry and not may_retry(error, wait)):
                raise
        await asyncio.sleep(wait)
        tried += 1


def retry_delay(
    error: UpstreamError,
    failures: int,
    policy: RetryPolicy,
    *,
    now: float,
    uniform: Callable[[float, float], float] = random.uniform,
) -> float | None:
    """Return how long to wait before trying again; None if that is of no use.

    `tried` is how often it has failed before this time.
    """
    if not error.retryable or failures >= policy.retries:
        return None
    asked = parse_retry_after(error.headers, now)
    if asked is not None:
        return asked if asked <= policy.max_delay else None
    most = min(policy.max_delay, policy.first_delay * 2**failures)
    return uniform(most / 2, most)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
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
