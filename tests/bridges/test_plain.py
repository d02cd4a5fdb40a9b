"""`assistant` in plain Python: the shared cases."""

from collections.abc import Iterator

import pytest

from tests.bridges.cases import AssistantCases
from tests.bridges.serve_assistant import Assistant, serve_assistant


@pytest.fixture(scope="module")
def assistant() -> Iterator[Assistant]:
    """Serve the agent."""
    with serve_assistant("tests.bridges.agents.plain:assistant") as served:
        yield served


class TestPlainPython(AssistantCases):
    """The shared cases."""
