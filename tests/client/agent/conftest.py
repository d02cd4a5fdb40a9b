"""What the tests of the agent loop share: a server in an arena, and a client of it."""

import pytest

from antiphon.client.async_client import AsyncClient
from tests.client.agent.faulty_server import FaultyServer, serve_worker


@pytest.fixture
def server():
    """Give a worker behind a gate."""
    with serve_worker() as made:
        yield made


@pytest.fixture
async def client(server: FaultyServer):
    """Give a client of it."""
    async with AsyncClient(server.url) as made:
        yield made
