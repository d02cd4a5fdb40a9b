"""The retry delays of a run."""

import pytest

from antiphon.client.agent.conversation import Conversation
from antiphon.client.agent.loop import RunSpec
from antiphon.client.agent.run import AgentOptions
from antiphon.client.agent.transports import AgentTransport, Recovery
from antiphon.client.async_client import AsyncClient
from antiphon.protocol.errors import UpstreamError


def retry_delays(error: UpstreamError, options: AgentOptions) -> list[float | None]:
    """Return the delay of each retry, until there is none."""

    async def tell(_: object) -> None:
        pass

    brief = RunSpec(prompt=[], model="m", tools=[], instructions=None, conversation=Conversation(), options=options)
    recovery = Recovery(brief, AgentTransport(AsyncClient("http://127.0.0.1:1/v1"), options), tell)
    found: list[float | None] = []
    while not found or found[-1] is not None:
        found.append(recovery._retry_delay(error))
        recovery._attempts += 1
    return found


def test_retry_delays_double_up_to_30_seconds_with_jitter():
    busy = UpstreamError("Later.", status=429, retryable=True)
    *tries, last = retry_delays(busy, AgentOptions(max_retries=7))
    assert last is None
    for wait, expected in zip(tries, [1, 2, 4, 8, 16, 30, 30], strict=True):
        assert wait is not None
        assert expected <= wait <= min(30, expected * 1.1)


def test_there_are_three_retries_by_default():
    assert len(retry_delays(UpstreamError("Later.", status=503, retryable=True), AgentOptions())) == 4


@pytest.mark.parametrize(("asked", "wait"), [("7", 7.0), ("0.5", 0.5), ("30", 30.0), ("31", None)])
def test_retry_after_is_obeyed_up_to_a_limit(asked: str, wait: float | None):
    busy = UpstreamError("Later.", status=429, retryable=True, headers={"retry-after": asked})
    assert retry_delays(busy, AgentOptions())[0] == wait


def test_a_permanent_error_is_not_retried():
    assert retry_delays(UpstreamError("No.", status=400), AgentOptions()) == [None]
