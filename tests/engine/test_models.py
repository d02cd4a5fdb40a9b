"""Which agent a model name means."""

import pytest

from antiphon.agents.agent import Agent, agent
from antiphon.engine.models import Models


def make_agent(name: str, *entries: str) -> Agent:
    """Make an agent with some entries."""
    one = agent(name, window=len(entries))(lambda: name)
    for entry in entries:
        one.entry(entry)(lambda: name)
    return one


def find(models: Models, name: str) -> list[tuple[str, str, int | None]]:
    """Return the name, the entry and the window of each model that a name means."""
    return [(model.name, model.entry, model.window) for model in models.find(name)]


ALPHA = make_agent("alpha", "loud", "deep/er")
BETA = make_agent("beta")
MODELS = Models([ALPHA, BETA])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("alpha", ("alpha", "__entry__", 2)),
        ("alpha/__entry__", ("alpha", "__entry__", 2)),
        ("alpha/loud", ("alpha", "loud", 2)),
        ("alpha/deep/er", ("alpha", "deep/er", 2)),
        ("beta", ("beta", "__entry__", 0)),
    ],
)
def test_a_name_is_split_at_its_first_slash(name: str, found: tuple[str, str, int]) -> None:
    assert find(MODELS, name) == [found]


@pytest.mark.parametrize(
    "name", ["", "/", "/loud", "alpha/", "alpha/none", "alpha/loud/", "alpha/deep", "beta/loud", "ALPHA"]
)
def test_an_unknown_name_is_not_found(name: str) -> None:
    assert MODELS.find(name) == []


def test_entries_are_listed_in_the_order_of_their_definition() -> None:
    assert MODELS.names == ["alpha", "alpha/loud", "alpha/deep/er", "beta"]


def test_the_last_of_two_agents_with_one_name_wins() -> None:
    models = Models([ALPHA, BETA, make_agent("alpha")])
    assert find(models, "alpha") == [("alpha", "__entry__", 0)]
    assert models.names == ["alpha", "beta"]


def test_without_agents_there_are_no_models() -> None:
    assert (Models().names, Models().find("demo")) == ([], [])


def test_a_model_is_suggested_for_its_name_without_the_provider() -> None:
    models = Models(aliases={"a-long-name-of-a-provider/small": ["demo"]})
    assert models.suggest("small") == " Did you mean 'a-long-name-of-a-provider/small'?"
