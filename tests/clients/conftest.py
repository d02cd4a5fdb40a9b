"""Clients of openai-python, at every door."""

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI, OpenAI

DOORS = ["/openai/v1", "/openai", "/v1"]


@pytest.fixture(params=DOORS)
def client(request: pytest.FixtureRequest, server: str) -> Iterator[OpenAI]:
    """Return a client at each door in turn."""
    with OpenAI(base_url=server + request.param, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def openai(server: str) -> Iterator[OpenAI]:
    """Return a client at OpenAI's door."""
    with OpenAI(base_url=f"{server}/openai/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def spec(server: str) -> Iterator[OpenAI]:
    """Return a client at the specification's door."""
    with OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(params=DOORS)
async def async_client(request: pytest.FixtureRequest, server: str, anyio_backend: str) -> AsyncIterator[AsyncOpenAI]:
    """Return an async client at each door in turn."""
    url = server + request.param
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client
