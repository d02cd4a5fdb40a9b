"""The servers of the tests of Xaibo's agents."""

from collections.abc import Iterator

import pytest

from tests.bridges.xaibo.servers import OURS, THEIRS, run_xaibo


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the test agents with our adapter."""
    with run_xaibo(OURS, tmp_path_factory.mktemp("ours")) as address:
        yield address


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the test agents with Xaibo's own adapter."""
    with run_xaibo(THEIRS, tmp_path_factory.mktemp("theirs")) as address:
        yield address
