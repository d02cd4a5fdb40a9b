"""Settings: invalid numbers are rejected."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from antiphon.adapters.base import Provider
from antiphon.agents.agent import agent
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.settings import Settings
from tests.http_client import post_response
from tests.run_server import run_server

NUMBERS = {choice.name: choice.default for choice in fields(Settings) if type(choice.default) in (int, float)}
"""Every numeric setting and its default."""

NEVER_NONE = {
    "agent_threads",
    "answer_bytes",
    "body_limit",
    "total_body_limit",
    "max_connections",
    "heartbeat_seconds",
    "sweep_seconds",
    "socket_seconds",
    "connect_seconds",
    "first_byte_seconds",
    "idle_seconds",
    "answer_seconds",
    "lease_seconds",
}
"""The settings that must not be zero."""


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -1, -0.5, True, "5", None, 10**30])
@pytest.mark.parametrize("name", NUMBERS)
def test_an_invalid_number_is_rejected_by_name(name: str, value: Any) -> None:
    default = NUMBERS[name]
    for choose in (lambda: Settings(**{name: value}), lambda: replace(Settings(), **{name: value})):
        with pytest.raises(InvalidValueError) as refused:
            choose()
        assert refused.value.path == name
        assert str(refused.value).startswith(f"{name}: expected ")
        assert str(refused.value).endswith(f". Write {name} = {default}.")


@pytest.mark.parametrize("name", NUMBERS)
def test_zero_and_large_numbers_are_accepted_where_valid(name: str) -> None:
    kind = type(NUMBERS[name])
    assert replace(Settings(), **{name: kind(10**12)})
    if name in NEVER_NONE:
        with pytest.raises(InvalidValueError, match=f"^{name}: "):
            Settings(**{name: 0})  # pyright: ignore[reportArgumentType]
    else:
        assert Settings(**{name: 0}) != Settings(**{name: 1})  # pyright: ignore[reportArgumentType]


def test_a_server_with_the_most_of_everything_serves_and_stops() -> None:
    most = {name: type(default)(10**12) for name, default in NUMBERS.items()}
    with run_server(Settings(**most)) as address:  # pyright: ignore[reportArgumentType]
        assert post_response(address).status_code == 200
        assert post_response(address, stream=True).status_code == 200


@pytest.mark.parametrize(
    ("timeouts", "place"), [({"first": 3}, "first"), ({"first_byte": "3"}, "first_byte"), ({"idle": 0}, "idle")]
)
def test_an_invalid_timeout_of_a_provider_is_rejected(timeouts: Any, place: str) -> None:
    good = Provider(name="a", adapter="openai", timeouts={"connect": 5, "total": 0.5})
    odd = Provider(name="b", adapter="openai", timeouts=timeouts)
    with pytest.raises(InvalidValueError, match=rf"^providers\[1\]\.timeouts\.{place}\b"):
        Settings(providers=[good, odd])


def test_two_agents_of_one_name_are_rejected() -> None:
    first, second = (agent("twin")(lambda: "hello") for _ in range(2))
    with pytest.raises(InvalidValueError, match=r"two agents are called 'twin'\. Rename"):
        Settings(agents=[first, second])
    assert Settings(agents=[first, first]).agents == [first, first]


def test_an_agent_replaces_a_built_in_one_of_its_name() -> None:
    own = agent("demo")(lambda: "mine")
    assert [each.name for each in Settings(agents=[own]).all_agents] == ["echo", "demo"]
    assert Settings(agents=[own]).all_agents[-1] is own
