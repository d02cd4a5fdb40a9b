"""Fixtures of the agent loop's tests: a server with faults, and its client."""

import pytest

from antiphon.client.async_client import AsyncClient
from tests.client.agent.faulty_server import FaultyServer, serve_worker


@pytest.fixture
def server():
    """A server with the worker model."""
    with serve_worker() as made:
        yield made


@pytest.fixture
async def client(server: FaultyServer):
    """A client of the server."""
    async with AsyncClient(server.url) as made:
        yield made
