"""Fixtures of the client's tests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.client.async_client import AsyncClient
from tests.client.client_factory import ClientFactory
from tests.scripted_upstream import ScriptedUpstream

NO_RETRIES: dict[str, Any] = {"retries": 0}


@pytest.fixture
async def make_client(anyio_backend: str) -> AsyncIterator[ClientFactory]:
    """A factory of clients without retries."""
    made: list[AsyncClient] = []

    def ask(server: ScriptedUpstream, **options: Any) -> AsyncClient:
        made.append(AsyncClient(f"{server.url}/v1", **(NO_RETRIES | options)))
        return made[-1]

    yield ask
    for client in made:
        await client.close()
