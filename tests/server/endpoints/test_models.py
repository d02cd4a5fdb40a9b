"""`GET /models` with providers: their lists are included and cached."""

import asyncio
import logging

import httpx
import pytest
from openai import OpenAI as OpenAIClient

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Capabilities, Provider
from antiphon.adapters.openai import OpenAI
from antiphon.agents.agent import agent
from antiphon.server.provider_probe import ProbeResult, probe_providers
from antiphon.server.settings import Settings
from tests.http_client import post_response
from tests.run_server import run_server
from tests.scripted_upstream import json_answer, scripted_upstream


def listed(address: str, door: str = "/v1") -> list[str]:
    answer = httpx.get(f"{address}{door}/models", timeout=20).json()
    return [model["id"] for model in answer["data"]]


def test_models_of_providers_and_configuration_are_listed() -> None:
    with scripted_upstream(json_answer({"data": [{"id": "small"}, {"id": "big"}]})) as provider:
        configured = Provider(
            name="local", adapter="openai", base_url=f"{provider.url}/v1", models={"small": Capabilities(window=10)}
        )
        gone = Provider(name="gone", adapter="openai", base_url="http://127.0.0.1:9/v1")
        settings = Settings(providers=[configured, gone], aliases={"fast": ["local/small"]})
        with run_server(settings) as address:
            names = ["demo", "echo", "fast", "local/small", "local/big"]
            assert listed(address) == names
            assert listed(address, "/openai/v1") == names
        assert [request.path for request in provider.requests] == ["/v1/models"]


def test_half_a_character_in_a_name_is_mended() -> None:
    with scripted_upstream(json_answer({"data": [{"id": "half\ud800"}, {"id": "good"}]})) as provider:
        local = Provider(name="local", adapter="openai", base_url=f"{provider.url}/v1")
        with run_server(Settings(providers=[local])) as address:
            assert listed(address) == ["demo", "echo", "local/half\ufffd", "local/good"]


def test_an_unlisted_model_can_be_retrieved() -> None:
    provider = Provider(name="gone", adapter="openai", base_url="http://127.0.0.1:9/v1")
    with run_server(Settings(providers=[provider])) as address:
        answer = httpx.get(f"{address}/v1/models/gone/anything")
        assert answer.json()["id"] == "gone/anything"
        assert httpx.get(f"{address}/v1/models/nobody/x").status_code == 404


class FailingConstructor(OpenAI):
    def __init__(self, provider: Provider) -> None:
        raise ValueError("no luck")


class FailingListing(OpenAI):
    def models_request(self) -> None:
        raise ValueError("no luck")


class FailingListed(OpenAI):
    def decode_models(self, body: object) -> list[str]:
        raise ValueError("no luck")


class OddListing(OpenAI):
    def decode_models(self, body: object) -> list[str]:
        return [1]  # type: ignore[list-item]


class UnknownCredential(OpenAI):
    def credential(self) -> None:
        raise SystemExit


BROKEN_ADAPTERS = "its adapter failed: ValueError: no luck"


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (FailingConstructor, BROKEN_ADAPTERS),
        (FailingListing, BROKEN_ADAPTERS),
        (FailingListed, BROKEN_ADAPTERS),
        (UnknownCredential, "its adapter failed: SystemExit"),
        (OddListing, "its adapter failed: AttributeError: "),
    ],
)
def test_a_failing_adapter_does_not_affect_others(
    adapter: type[Adapter], reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours = registry.adapter_class
    monkeypatch.setattr(registry, "adapter_class", lambda name: adapter if name == "broken" else ours(name))
    with scripted_upstream(json_answer({"data": [{"id": "small"}]})) as theirs:
        url = f"{theirs.url}/v1"
        providers = [
            Provider(name="bad", adapter="broken", base_url=url),
            Provider(name="local", adapter="openai", base_url=url),
        ]
        with run_server(Settings(providers=providers)) as address:
            assert listed(address) == ["demo", "echo", "local/small"]
        with caplog.at_level(logging.ERROR, "antiphon.survey"):
            bad, good = asyncio.run(probe_providers(providers, {}, {}))
    assert (bad.status, bad.models) == ("not ready", [])
    assert bad.reason.startswith(reason)
    assert good == ProbeResult(name="local", adapter="openai", status="ready", url=url, models=["local/small"])
    assert [bool(record.exc_info) for record in caplog.records][-1:] == [True]


@agent("planner", description="Plans a trip.", metadata={"team": "travel", "costs": 2}, owned_by="acme", window=9000)
async def planner() -> str:
    """Is not shown."""
    return "Go!"


@planner.entry("city")
async def plan_city() -> str:
    """Plans a day in
    one city.

    And more.
    """
    return "Walk!"


def test_an_agents_entry_describes_it() -> None:
    with run_server(Settings(agents=[planner], demo=False, aliases={"trip": ["planner"]})) as address:
        for door in ("/v1", "/openai/v1"):
            with OpenAIClient(base_url=address + door, api_key="none") as client:
                models = {model.id: model for model in client.models.list()}
                assert client.models.retrieve("planner/city") == models["planner/city"]
    known = {
        "name": "planner",
        "description": "Plans a trip.",
        "entry_points": ["planner", "planner/city"],
        "context_window": 9000,
        "framework": None,
        "metadata": {"team": "travel", "costs": 2},
    }
    extra = {name: model.model_extra for name, model in models.items()}
    assert extra == {
        "planner": {"antiphon:agent": known},
        "planner/city": {"antiphon:agent": known | {"description": "Plans a day in one city."}},
        "trip": {},
    }
    assert [model.owned_by for model in models.values()] == ["acme", "acme", "antiphon"]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("planner/citty", "Did you mean 'planner/city'?"),
        ("planner/under-water-photography", "The agent 'planner' has 'planner', 'planner/city'."),
        ("plannr", "Did you mean 'planner'?"),
    ],
)
def test_an_unknown_entry_is_not_found_with_advice(name: str, advice: str) -> None:
    with run_server(Settings(agents=[planner], demo=False)) as address:
        answers = [httpx.get(f"{address}/v1/models/{name}"), post_response(address, model=name)]
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "model_not_found")
        assert error["message"] == f"The model '{name}' does not exist. {advice} GET /v1/models lists those that do."
