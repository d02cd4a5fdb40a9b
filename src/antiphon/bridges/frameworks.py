"""Recognises the agents of other frameworks, and makes models of them with the framework's bridge.

An object is recognised by the names of its classes: a framework that is not used is never imported.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from antiphon.agents.agent import Agent


class Framework(NamedTuple):
    """A framework, and how its agents are recognised."""

    extra: str
    """The extra of this package that installs it; with underscores, the module of its bridge."""
    packages: frozenset[str]
    """The packages that its users import."""
    classes: frozenset[str]
    """The classes that an agent's class is or has among its bases."""


RUNNABLE = "langchain_core.runnables.base.Runnable"
GRAPH = "langgraph.pregel.protocol.PregelProtocol"

FRAMEWORKS = (
    # Two classes, because `agents` may also be the name of a user's own package.
    Framework("openai-agents", frozenset({"agents"}), frozenset({"agents.agent.Agent", "agents.agent.AgentBase"})),
    Framework("pydantic-ai", frozenset({"pydantic_ai"}), frozenset({"pydantic_ai.agent.abstract.AbstractAgent"})),
    Framework("langgraph", frozenset({"langgraph", "langchain_core"}), frozenset({RUNNABLE})),
    Framework("xaibo", frozenset({"xaibo"}), frozenset({"xaibo.core.xaibo.Xaibo"})),
)

DEFAULT_GRAPH_NAME = "LangGraph"
"""The name that LangGraph gives to a graph without one."""


def wrap_framework_agents(value: object, name: str) -> list[Agent] | None:
    """Return the models of an agent of any supported framework, or of Antiphon; None for any other object.

    `name` is used if the agent has no name of its own.
    """
    if isinstance(value, Agent):
        return [value]
    framework = find_framework(value)
    if framework is None:
        return None
    bridge = import_module(f"antiphon.bridges.{framework.extra.replace('-', '_')}")
    if framework.extra == "xaibo":
        return cast("Callable[[object], list[Agent]]", bridge.wrap_agents)(value)
    own_name: object = getattr(value, "name", None)
    if not isinstance(own_name, str) or own_name == DEFAULT_GRAPH_NAME:
        own_name = ""
    wrap_agent = cast("Callable[[object, str], Agent]", bridge.wrap_agent)
    return [wrap_agent(value, to_agent_name(own_name) or to_agent_name(name))]


def find_framework(value: object) -> Framework | None:
    """Return the framework of an agent; None for any other object."""
    classes = class_names(value)
    return next((framework for framework in FRAMEWORKS if framework.classes <= classes), None)


def find_extra(package: str) -> str | None:
    """Return the extra that installs a package of a framework."""
    return next((framework.extra for framework in FRAMEWORKS if package in framework.packages), None)


def is_complete_agent(value: object) -> bool:
    """Return whether an object is an agent of its own, and not perhaps a part of one.

    Prompts, tools and chat models of LangChain are runnables as well as its chains.
    """
    if isinstance(value, Agent):
        return True
    classes = class_names(value)
    return find_framework(value) is not None and (RUNNABLE not in classes or GRAPH in classes)


def class_names(value: object) -> frozenset[str]:
    """Return the full names of an object's classes."""
    return frozenset(f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__)


def to_agent_name(name: str) -> str:
    """Return a name as one that a model may have: `Triage agent` becomes `triage-agent`; empty if nothing is left."""
    if re.fullmatch(r"[^\s/]+", name) and name.isprintable():
        return name
    printable = "".join(character if character.isprintable() else " " for character in name)
    return re.sub(r"[\s/]+", "-", printable).strip("-").lower()
