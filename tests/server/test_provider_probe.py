"""Probes of providers: their lists of models, and every way to fail."""

import pytest

from antiphon.adapters.base import Provider
from antiphon.server import provider_probe
from antiphon.server.provider_probe import ProbeResult, ProviderModelList, probe_providers
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream

pytestmark = pytest.mark.anyio

LIST = json_answer({"data": [{"id": "small"}, {"id": "org/huge:1"}, {"no": "id"}, {"id": "\x1b[31m"}]})


async def probe(url: str, adapter: str = "openai") -> ProbeResult:
    """Probe one provider."""
    provider = Provider(name="local", adapter=adapter, base_url=f"{url}/v1")
    (result,) = await probe_providers([provider], {}, {})
    return result


LISTS = [
    ("openai", LIST, "/v1/models"),
    ("responses", LIST, "/v1/models"),
    ("writer", json_answer({"models": [{"id": "small", "name": "Small"}]}), "/v1/models"),
    ("anthropic", LIST, "/v1/models"),
    ("google", json_answer({"models": [{"name": "models/small"}]}), "/v1/models"),
    ("ollama", json_answer({"models": [{"name": "small"}]}), "/api/tags"),
]


@pytest.mark.parametrize(("adapter", "answer", "path"), LISTS)
async def test_every_adapter_lists_its_models(adapter: str, answer: ScriptedAnswer, path: str) -> None:
    with scripted_upstream(answer) as provider:
        result = await probe(provider.url, adapter)
        requested = provider.requests[0].path
    assert (result.status, result.models[0]) == ("ready", "local/small"), result
    assert requested.startswith(path)


UNEXPECTED = [
    (ScriptedAnswer(status=404), "reached", "URL/v1/models answers 404: no list, or a wrong address"),
    (ScriptedAnswer(b"<html>"), "reached", "URL/v1/models answers with something that is not JSON"),
    (ScriptedAnswer(status=500), "not ready", "500 from URL/v1/models: answered 500 and did not say why"),
    (
        ScriptedAnswer(b"<html>", 301, {"location": "https://me:pw@there.example/v2/models?a=b"}),
        "not ready",
        "answered 301: it has moved to https://there.example/v2. Its base_url should lead there",
    ),
    (ScriptedAnswer(status=301), "not ready", "301 from URL/v1/models: answered 301 and did not say why"),
    (json_answer([]), "ready", ""),
]


@pytest.mark.parametrize(("answer", "status", "reason"), UNEXPECTED)
async def test_unexpected_answers_are_reported(answer: ScriptedAnswer, status: str, reason: str) -> None:
    with scripted_upstream(answer) as provider:
        result = await probe(provider.url)
    assert (result.status, result.models) == (status, [])
    assert result.reason == reason.replace("URL", provider.url)


async def test_unresponsive_providers_are_probed_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_probe, "PROBE_SECONDS", 0.3)
    with scripted_upstream(ScriptedAnswer(delay=50)) as slow:
        providers = [Provider(name=name, adapter="openai", base_url=slow.url) for name in ("a", "b", "c")]
        results = await probe_providers(providers, {}, {})
        assert slow.connections == 3
    assert [result.status for result in results] == ["not ready"] * 3
    reason = f"no response from {slow.url} within 0.3 seconds"
    assert [result.reason for result in results] == [reason] * 3


async def test_lists_are_cached() -> None:
    with scripted_upstream(LIST) as provider:
        local = Provider(name="local", adapter="openai", base_url=f"{provider.url}/v1")
        models = ProviderModelList([local], {})
        names = ["local/small", "local/org/huge:1", "local/\x1b[31m"]
        assert await models.list_models() == await models.list_models() == names
        assert len(provider.requests) == 1
