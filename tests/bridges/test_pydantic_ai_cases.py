"""`assistant` with Pydantic AI: the shared cases."""

from collections.abc import Iterator

import pytest

from tests.bridges.cases import AssistantCases
from tests.bridges.serve_assistant import Assistant, serve_assistant


@pytest.fixture(scope="module")
def assistant() -> Iterator[Assistant]:
    with serve_assistant("tests.bridges.agents.pydantic_ai_agent:assistant") as served:
        yield served


class TestPydanticAI(AssistantCases):
    """The shared cases."""
