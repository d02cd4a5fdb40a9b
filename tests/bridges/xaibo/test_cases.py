"""`assistant` with Xaibo: the shared cases."""

from collections.abc import Iterator

import pytest

from tests.bridges.cases import AssistantCases
from tests.bridges.serve_assistant import Assistant, serve_assistant
from tests.bridges.xaibo.servers import PYTHON


@pytest.fixture(scope="module")
def assistant() -> Iterator[Assistant]:
    """Serve the agent in Xaibo's environment."""
    with serve_assistant("tests.bridges.agents.xaibo:xaibo", python=str(PYTHON)) as served:
        yield served


class TestXaibo(AssistantCases):
    """The shared cases."""
