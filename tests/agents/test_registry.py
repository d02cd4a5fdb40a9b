"""Which agent a model's name means."""

import pytest

from antiphon.agents.agent import Agent, agent
from antiphon.agents.registry import AgentRegistry


def make_agent(name: str, *entries: str) -> Agent:
    """Make an agent with some entries."""
    one = agent(name)(lambda: name)
    for entry in entries:
        one.entry(entry)(lambda: name)
    return one


ALPHA = make_agent("alpha", "loud", "deep/er")
BETA = make_agent("beta")
AGENTS = AgentRegistry([ALPHA, BETA])


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("alpha", (ALPHA, "__entry__")),
        ("alpha/__entry__", (ALPHA, "__entry__")),
        ("alpha/loud", (ALPHA, "loud")),
        ("alpha/deep/er", (ALPHA, "deep/er")),
        ("beta", (BETA, "__entry__")),
    ],
)
def test_a_name_is_split_at_its_first_slash(model: str, found: tuple[Agent, str]) -> None:
    assert AGENTS.find(model) == found


@pytest.mark.parametrize(
    "model",
    ["", "/", "/loud", "alpha/", "alpha/none", "alpha/loud/", "alpha/deep", "beta/loud", "ALPHA"],
)
def test_any_other_name_means_nothing(model: str) -> None:
    assert AGENTS.find(model) is None


def test_every_entry_is_listed_in_the_order_in_which_it_was_made() -> None:
    assert AGENTS.models == ["alpha", "alpha/loud", "alpha/deep/er", "beta"]
    assert list(AGENTS) == [ALPHA, BETA]


def test_the_last_of_two_agents_with_one_name_is_the_one() -> None:
    newer = make_agent("alpha")
    agents = AgentRegistry([ALPHA, BETA, newer])
    assert agents.find("alpha") == (newer, "__entry__")
    assert agents.models == ["alpha", "beta"]


def test_no_agents_have_no_models() -> None:
    assert (AgentRegistry().models, AgentRegistry().find("demo")) == ([], None)
