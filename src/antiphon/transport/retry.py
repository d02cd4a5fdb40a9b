"""Retries with exponential backoff, before the first byte of a response.

Each delay is random within a range that doubles. A provider's `Retry-After` is obeyed if it is
short; if it is long, there is no retry. A budget limits the share of retries in the traffic, so
that we do not keep an overloaded provider overloaded.
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
"""Returns whether a retry is allowed, after an error and a delay in seconds."""


MAX_DELAY_BEFORE_FALLBACK = 2.0
"""The longest delay, in seconds, while another model could answer instead."""


class RetryPolicy(Struct, frozen=True):
    """How often to retry, and the first and the longest delay in seconds."""

    retries: int = 2
    first_delay: float = 0.5
    max_delay: float = 8.0

    @property
    def before_fallback(self) -> "RetryPolicy":
        """The policy to use while another model could answer instead."""
        return RetryPolicy(self.retries, self.first_delay, min(self.max_delay, MAX_DELAY_BEFORE_FALLBACK))


class RetryBudget:
    """A retry budget: each request deposits a fraction of a retry, each retry withdraws one."""

    def __init__(self, capacity: float = 10.0, refill: float = 0.2) -> None:
        self._capacity, self._refill = capacity, refill
        self._balance = capacity

    def deposit(self) -> None:
        """Add the share of one request."""
        self._balance = min(self._capacity, self._balance + self._refill)

    def try_withdraw(self) -> bool:
        """Withdraw one retry; return whether the balance sufficed."""
        if self._balance < 1:
            return False
        self._balance -= 1
        return True


async def call_with_retries(
    attempt: Callable[[], Awaitable[T]], policy: RetryPolicy, may_retry: MayRetry | None = None
) -> T:
    """Call a function, and retry as the policy says; raises the last UpstreamError."""
    failures = 0
    while True:
        try:
            return await attempt()
        except UpstreamError as error:
            wait = retry_delay(error, failures, policy, now=time.time())
            if wait is None or (may_retry and not may_retry(error, wait)):
                raise
        await asyncio.sleep(wait)
        failures += 1


def retry_delay(
    error: UpstreamError,
    failures: int,
    policy: RetryPolicy,
    *,
    now: float,
    uniform: Callable[[float, float], float] = random.uniform,
) -> float | None:
    """Return the delay before the next attempt, None for no retry.

    `failures` is the number of failures before this one.
    """
    if not error.retryable or failures >= policy.retries:
        return None
    requested = parse_retry_after(error.headers, now)
    if requested is not None:
        # An earlier retry would be refused again, so a long wait is for the caller to decide.
        return requested if requested <= policy.max_delay else None
    longest = min(policy.max_delay, policy.first_delay * 2**failures)
    # Jitter: without it, clients that failed together would retry together.
    return uniform(longest / 2, longest)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds of `retry-after-ms` or `retry-after`, None if there is neither."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        when = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    when = when.replace(tzinfo=when.tzinfo or UTC)  # HTTP dates are always GMT
    return max(0.0, when.timestamp() - now)
