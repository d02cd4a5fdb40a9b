"""The agents of other frameworks are recognised without importing a framework."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.agent import WrapperAgent

from agents import Agent as OpenAIAgent
from antiphon.agents.agent import Agent
from antiphon.bridges.frameworks import (
    find_extra,
    find_framework,
    is_complete_agent,
    to_agent_name,
    wrap_framework_agents,
)


def increment(state: int) -> int:
    """Add one."""
    return state + 1


def compile_graph() -> object:
    graph: StateGraph[Any] = StateGraph(MessagesState)
    graph.add_node("increment", lambda state: state)
    graph.add_edge(START, "increment")
    return graph.compile()


AGENTS: dict[str, tuple[Callable[[], object], str]] = {
    "openai-agents": (lambda: OpenAIAgent(name="Triage agent"), "openai-agents"),
    "pydantic-ai": (lambda: PydanticAgent("test"), "pydantic-ai"),
    "a wrapped one of pydantic-ai": (lambda: WrapperAgent(PydanticAgent("test")), "pydantic-ai"),
    "LangGraph": (compile_graph, "langgraph"),
}


@pytest.mark.parametrize("kind", AGENTS)
def test_an_agent_of_a_framework_is_recognised(kind: str) -> None:
    build, extra = AGENTS[kind]
    framework = find_framework(value := build())
    assert framework is not None
    assert framework.extra == extra
    assert is_complete_agent(value)


@pytest.mark.parametrize("value", [RunnableLambda(increment), ChatPromptTemplate([("user", "{question}")])])
def test_a_runnable_is_recognised_but_may_be_a_part_of_an_agent(value: object) -> None:
    assert find_framework(value)
    assert not is_complete_agent(value)


# An author's own class, in a module of a package called `agents`.
Namesake = type("Agent", (), {"__module__": "agents.agent"})


@pytest.mark.parametrize("value", [None, "agent", 5, increment, OpenAIAgent, StateGraph(MessagesState), Namesake()])
def test_other_objects_are_not_agents(value: object) -> None:
    assert wrap_framework_agents(value, "name") is None
    assert not is_complete_agent(value)


def test_an_agent_of_our_own_keeps_its_name() -> None:
    own = Agent("own", increment)
    assert wrap_framework_agents(own, "other") == [own]
    assert is_complete_agent(own)


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("triage", "triage"),
        ("Triage", "Triage"),
        ("Triage agent", "triage-agent"),
        (" Sales / Support\n", "sales-support"),
        ("café", "café"),
        ("bell\x07", "bell"),
        ("/", ""),
        ("", ""),
    ],
)
def test_a_name_is_made_legal(name: str, legal: str) -> None:
    assert to_agent_name(name) == legal
    if legal:
        assert Agent(legal, increment).name == legal


def test_no_framework_is_imported_to_recognise_an_object() -> None:
    code = (
        "import sys; from antiphon.bridges.frameworks import wrap_framework_agents as wrap;"
        "assert wrap(object(), 'name') is None; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"agents", "langchain_core", "langgraph", "pydantic_ai", "xaibo"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize(("package", "extra"), [("agents", "openai-agents"), ("langgraph", "langgraph"), ("x", None)])
def test_a_missing_framework_has_an_extra(package: str, extra: str | None) -> None:
    assert find_extra(package) == extra
