"""`GET /models` with providers: what they list is listed, and asked for only now and then."""

import httpx

from antiphon.adapters.base import Capabilities, Provider
from antiphon.server.settings import Settings
from tests.serving import serving
from tests.upstream import upstream, whole


def listed(address: str, door: str = "/v1") -> list[str]:
    answer = httpx.get(f"{address}{door}/models", timeout=20).json()
    return [model["id"] for model in answer["data"]]


def test_what_providers_list_is_listed_beside_what_is_configured() -> None:
    with upstream(whole({"data": [{"id": "small"}, {"id": "big"}]})) as provider:
        configured = Provider(
            name="local",
            adapter="openai",
            base_url=f"{provider.url}/v1",
            models={"small": Capabilities(window=10)},
        )
        gone = Provider(name="gone", adapter="openai", base_url="http://127.0.0.1:9/v1")
        settings = Settings(providers=[configured, gone], aliases={"fast": ["local/small"]})
        with serving(settings) as address:
            names = ["demo", "echo", "fast", "local/small", "local/big"]
            assert listed(address) == names
            assert listed(address, "/openai/v1") == names
        assert [request.path for request in provider.requests] == ["/v1/models"]


def test_half_a_character_in_a_name_is_mended() -> None:
    with upstream(whole({"data": [{"id": "half\ud800"}, {"id": "good"}]})) as provider:
        local = Provider(name="local", adapter="openai", base_url=f"{provider.url}/v1")
        with serving(Settings(providers=[local])) as address:
            assert listed(address) == ["demo", "echo", "local/half\ufffd", "local/good"]


def test_a_model_need_not_be_listed_to_be_known() -> None:
    provider = Provider(name="gone", adapter="openai", base_url="http://127.0.0.1:9/v1")
    with serving(Settings(providers=[provider])) as address:
        answer = httpx.get(f"{address}/v1/models/gone/anything")
        assert answer.json()["id"] == "gone/anything"
        assert httpx.get(f"{address}/v1/models/nobody/x").status_code == 404
