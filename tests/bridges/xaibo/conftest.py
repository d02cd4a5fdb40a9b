"""The server of the tests of Xaibo's agents."""

from collections.abc import Iterator

import pytest

from tests.bridges.xaibo.servers import XaiboServer, run_xaibo


@pytest.fixture(scope="package")
def xaibo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[XaiboServer]:
    """Serve the test agents."""
    with run_xaibo(tmp_path_factory.mktemp("xaibo")) as server:
        yield server


@pytest.fixture
def ours(xaibo: XaiboServer) -> str:
    """Give the address of our adapter."""
    return xaibo.url


@pytest.fixture
def theirs(xaibo: XaiboServer) -> str:
    """Give the address of Xaibo's own adapter."""
    return xaibo.theirs
