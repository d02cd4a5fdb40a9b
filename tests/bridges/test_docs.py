"""The page about the frameworks says what the bridges do."""

import re

import pytest

from antiphon.agents.agent import Agent
from antiphon.bridges import openai_agents, pydantic_ai
from antiphon.bridges.conversation import MODEL_FIELDS
from tests.run_server import ROOT

PAGE = (ROOT / "docs" / "frameworks.md").read_text()


def test_the_table_of_fields_says_what_reaches_the_model() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    chat = openai_agents.SUPPORTED_IN_CHAT - openai_agents.SUPPORTED
    always = {*pydantic_ai.SETTINGS, "text.format"}
    assert [name for name, *_ in rows] == list(MODEL_FIELDS)
    for name, of_sdk, of_pydantic in rows:
        assert of_sdk == support(name, openai_agents.SUPPORTED, chat, "Chat Completions only")
        assert of_pydantic == support(name, always, {*pydantic_ai.OPENAI_SETTINGS}, "OpenAI's models only")


def support(name: str, always: set[str] | frozenset[str], seldom: set[str] | frozenset[str], when: str) -> str:
    """Return what the table says about a field."""
    return "yes" if name in always else when if name in seldom else "a warning"


@pytest.mark.parametrize("title", ["OpenAI Agents SDK", "Pydantic AI", "LangGraph and LangChain"])
def test_the_code_of_a_section_makes_models(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    names: list[str] = []
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        namespace: dict[str, object] = {}
        exec(code, namespace)
        agent = namespace["assistant"]
        assert isinstance(agent, Agent)
        names.append(agent.name)
    assert names == ["assistant", "helper"]
