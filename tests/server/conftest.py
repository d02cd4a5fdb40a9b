"""Fixtures of the tests of stateful endpoints."""

from collections.abc import Iterator

import pytest

from tests.server.stateful_server import serve_agents


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve with each kind of store."""
    folder = tmp_path_factory.mktemp("data") if request.param == "sqlite" else None
    with serve_agents(folder) as address:
        yield address
