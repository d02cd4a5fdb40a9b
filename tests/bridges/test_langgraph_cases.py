"""`assistant` in LangGraph: the shared cases."""

from collections.abc import Iterator

import pytest

from tests.bridges.cases import AssistantCases
from tests.bridges.serve_assistant import Assistant, serve_assistant


@pytest.fixture(scope="module", params=["assistant", "handwritten"])
def assistant(request: pytest.FixtureRequest) -> Iterator[Assistant]:
    """Serve an agent of `create_agent`, then a graph that is written by hand."""
    with serve_assistant(f"tests.bridges.agents.langgraph_agent:{request.param}") as served:
        yield served


class TestLangGraph(AssistantCases):
    """The shared cases."""
