"""Retry delays and the retry budget."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.retry import (
    MAX_DELAY_BEFORE_FALLBACK,
    RetryBudget,
    RetryPolicy,
    call_with_retries,
    parse_retry_after,
    retry_delay,
)

NOW = 1_700_000_000.0
PATIENCE = RetryPolicy(retries=3, first_delay=0.5, max_delay=2.0)


def make_error(headers: dict[str, str] | None = None, *, retryable: bool = True) -> UpstreamError:
    """Return an UpstreamError."""
    return UpstreamError("no", status=503, retryable=retryable, headers=headers)


@pytest.mark.parametrize(("tried", "least", "most"), [(0, 0.25, 0.5), (1, 0.5, 1.0), (2, 1.0, 2.0)])
def test_each_delay_is_random_within_a_range_that_doubles(tried: int, least: float, most: float) -> None:
    error = make_error()
    assert retry_delay(error, tried, PATIENCE, now=NOW, uniform=lambda a, b: a) == least
    assert retry_delay(error, tried, PATIENCE, now=NOW, uniform=lambda a, b: b) == most
    wait = retry_delay(error, tried, PATIENCE, now=NOW)
    assert wait is not None
    assert least <= wait <= most


def test_no_delay_exceeds_the_longest() -> None:
    patience = RetryPolicy(retries=100, first_delay=0.5, max_delay=2.0)
    assert retry_delay(make_error(), 60, patience, now=NOW, uniform=lambda a, b: b) == 2.0


def test_retries_are_limited() -> None:
    assert retry_delay(make_error(), 3, PATIENCE, now=NOW) is None
    assert retry_delay(make_error(), 0, RetryPolicy(retries=0), now=NOW) is None


def test_an_error_that_is_not_retryable_is_not_retried() -> None:
    assert retry_delay(make_error(retryable=False), 0, PATIENCE, now=NOW) is None
    assert retry_delay(make_error({"retry-after": "1"}, retryable=False), 0, PATIENCE, now=NOW) is None


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "2.1"}, None),
        ({"retry-after": "3600"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "3600"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": formatdate(NOW + 2, usegmt=True)}, 2.0),
        ({"retry-after": formatdate(NOW + 3, usegmt=True)}, None),
        ({"retry-after": formatdate(NOW - 60, usegmt=True)}, 0.0),
    ],
)
def test_a_short_retry_after_is_obeyed(headers: dict[str, str], wait: float | None) -> None:
    assert retry_delay(make_error(headers), 0, PATIENCE, now=NOW) == wait


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("Tue, 14 Nov 2023 22:13:25 GMT", 5.0),
        ("Tue, 14 Nov 2023 22:13:25 -0000", 5.0),
        ("Tue, 14 Nov 2023 23:13:25 +0100", 5.0),
        ("-5", 0.0),
        ("nan", 0.0),
        ("", None),
        ("soon", None),
        ("Tue, 99 Nov 2023 22:13:25 GMT", None),
    ],
)
def test_unusual_retry_after_values_are_parsed_or_ignored(value: str, wait: float | None) -> None:
    assert parse_retry_after({"retry-after": value}, NOW) == wait


def test_without_retry_after_there_is_none() -> None:
    assert parse_retry_after({}, NOW) is None


@given(st.text(), st.text())
def test_any_retry_after_is_a_number_or_ignored(seconds: str, milliseconds: str) -> None:
    wait = parse_retry_after({"retry-after": seconds, "retry-after-ms": milliseconds}, NOW)
    assert wait is None or wait >= 0


@given(
    st.from_regex(
        r"[A-Z][a-z]{2}, [0-9]{1,3} (Jan|Nov|Xyz) [0-9]{1,6} [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2} "
        r"(GMT|[+-][0-9]{1,9}|)",
        fullmatch=True,
    )
)
def test_any_date_is_a_number_or_ignored(date: str) -> None:
    wait = parse_retry_after({"retry-after": date}, NOW)
    assert wait is None or wait >= 0


def test_a_budget_limits_the_share_of_retries() -> None:
    budget = RetryBudget(capacity=3, refill=0.2)
    assert [budget.try_withdraw() for _ in range(5)] == [True, True, True, False, False]
    retries = 0
    for _ in range(100):
        budget.deposit()
        retries += budget.try_withdraw()
    assert 19 <= retries <= 20


def test_a_budget_does_not_exceed_its_capacity() -> None:
    budget = RetryBudget(capacity=2, refill=1)
    for _ in range(100):
        budget.deposit()
    assert [budget.try_withdraw() for _ in range(3)] == [True, True, False]


@pytest.mark.anyio
@pytest.mark.parametrize(("allowed", "attempts"), [(True, 3), (False, 1)])
async def test_a_call_is_retried_while_policy_and_caller_allow_it(allowed: bool, attempts: int) -> None:
    calls: list[int] = []

    async def attempt() -> None:
        calls.append(1)
        raise make_error()

    policy = RetryPolicy(retries=2, first_delay=0, max_delay=0)
    with pytest.raises(UpstreamError):
        await call_with_retries(attempt, policy, lambda error, delay: allowed)
    assert len(calls) == attempts


def test_delays_are_shorter_while_another_model_could_answer() -> None:
    assert RetryPolicy(3, 0.5, 60).before_fallback == RetryPolicy(3, 0.5, MAX_DELAY_BEFORE_FALLBACK)
    assert RetryPolicy(3, 0.5, 1).before_fallback == RetryPolicy(3, 0.5, 1)
