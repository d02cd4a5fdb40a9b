"""Adapters by name, built-in and from installed packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.registry import (
    BUILT_IN,
    ENTRY_POINT_GROUP,
    AdapterError,
    adapter_class,
    adapter_names,
    find_plugin_problems,
    make_adapter,
)
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from tests.http_client import post_response
from tests.run_server import run_server

OURS = ["openai", "azure", "anthropic", "bedrock", "google", "ollama", "writer", "responses"]

ACME = """
from antiphon.adapters.ollama import Ollama

class Acme(Ollama):
    name = "acme"
    default_url = "https://acme.example"
    key_env = ("ACME_KEY",)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder that packages can be installed in; forget what was imported from it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def install(site: Path, package: str, code: str, *adapters: str) -> None:
    """Install a package of one module, as an installer would."""
    (site / f"{package}.py").write_text(code)
    info = site / f"{package}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *adapters]) + "\n")


def provider(adapter: str) -> Provider:
    """Make a provider, with all that some adapters need."""
    return Provider(name="some", adapter=adapter, endpoint="https://a.example", region="eu-central-1")


def test_each_of_ours_is_an_adapter_of_its_name() -> None:
    assert list(BUILT_IN) == OURS
    for name in OURS:
        adapter = make_adapter(provider(name))
        assert (adapter.name, adapter.provider.name) == (name, "some")
        assert isinstance(adapter, Adapter)


def test_the_error_for_an_unknown_adapter_lists_the_known_ones() -> None:
    with pytest.raises(AdapterError) as caught:
        make_adapter(provider("nobody"))
    assert str(caught.value) == f"there is no adapter 'nobody'. Use one of {', '.join(OURS)}"


def test_a_package_brings_an_adapter(site: Path) -> None:
    install(site, "acme_antiphon", ACME, "acme = acme_antiphon:Acme")
    adapter = make_adapter(provider("acme"))
    assert (type(adapter).__name__, adapter.base_url) == ("Acme", "https://acme.example")
    assert adapter_names() == [*OURS, "acme"]
    assert find_plugin_problems() == []


def test_a_broken_package_is_named_and_does_not_affect_others(site: Path) -> None:
    install(site, "acme_antiphon", ACME, "acme = acme_antiphon:Acme")
    install(site, "broken", "raise ValueError('no luck')", "broken = broken:Adapter")
    install(site, "absent", "", "absent = absent:Adapter")
    install(site, "strange", "Adapter = dict", "strange = strange:Adapter")
    install(site, "leaver", "raise SystemExit", "leaver = leaver:Adapter")
    assert adapter_class("acme").name == "acme"
    assert adapter_names() == [*OURS, "absent", "acme", "broken", "leaver", "strange"]
    reasons = {
        "broken": "of broken 1.5 cannot be loaded: ValueError: no luck",
        "absent": "of absent 1.5 cannot be loaded: AttributeError: module 'absent' has no attribute 'Adapter'",
        "leaver": "of leaver 1.5 cannot be loaded: SystemExit",
        "strange": "of strange 1.5 is not an adapter: strange:Adapter is no subclass of Adapter",
    }
    for name, reason in reasons.items():
        with pytest.raises(AdapterError) as caught:
            make_adapter(provider(name))
        assert str(caught.value) == f"the adapter '{name}' {reason}"
    said = {f"the adapter '{name}' {reason}" for name, reason in reasons.items()}
    assert set(find_plugin_problems()) == said


def test_a_package_cannot_replace_one_of_ours(site: Path) -> None:
    install(site, "cuckoo", ACME, "openai = cuckoo:Acme")
    assert adapter_class("openai").__module__ == "antiphon.adapters.openai"
    assert adapter_names() == OURS
    assert find_plugin_problems() == [
        "the adapter of cuckoo 1.5 is not used: 'openai' is Antiphon's own; its author has to choose another name"
    ]


def test_two_packages_with_one_name_are_both_named(site: Path) -> None:
    install(site, "acme_antiphon", ACME, "acme = acme_antiphon:Acme")
    install(site, "other_acme", ACME, "acme = other_acme:Acme")
    said = "both acme_antiphon 1.5 and other_acme 1.5 bring an adapter 'acme'. Uninstall one"
    with pytest.raises(AdapterError) as caught:
        adapter_class("acme")
    assert str(caught.value) == said
    assert find_plugin_problems() == [said]


LUCKLESS = """
from antiphon.adapters.ollama import Ollama

class Luckless(Ollama):
    name = "luckless"

    def __init__(self, provider):
        raise ValueError("no luck")
"""


def test_an_adapter_that_raises_leads_to_the_fallback(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(site, "luckless", LUCKLESS, "luckless = luckless:Luckless")
    settings = Settings(providers=[provider("luckless")], aliases={"best": ["some/large", "echo"]}, responses_dir=None)
    with run_server(create_app(settings)) as address:
        alone = post_response(address, model="some/large")
        instead = post_response(address, model="best")
    error = alone.json()["error"]
    assert (alone.status_code, error["message"]) == (500, "some: its adapter is broken.")
    assert "no luck" in caplog.text
    response = instead.json()
    assert (instead.status_code, response["status"]) == (200, "completed")
    assert [warning["code"] for warning in response["antiphon:warnings"]] == ["fallback"]
