"""`antiphon.toml` combined with the environment, and where both are read from."""

import logging
import re
import sys
from pathlib import Path

import pytest

from antiphon import agent
from antiphon.adapters.base import Capabilities, Provider
from antiphon.adapters.features import ALL_FEATURES
from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.server.config.load import ConfigError, GatewayConfig, load_config, parse_config
from antiphon.server.config.tables import MODEL_KEYS, provider_keys
from antiphon.server.settings import Settings
from tests.run_server import ROOT
from tests.server.config.test_environment import AZURE, OLLAMA, UNSET


def only(text: str, name: str, environ: dict[str, str] | None = None) -> Provider:
    """Read a configuration and return one of its providers."""
    return parse_config(text, environ or {}).providers[name]


LOCAL = """
[providers.local]
adapter = "openai"
base_url = "http://127.0.0.1:9100/v1"
api_key_env = "LOCAL_KEY"
headers = { x-team = "a" }

[providers.local.models.small]
window = 8192
max_output_tokens = 4096
lacks = ["images", "json_schema"]

[models]
fast = "local/small"
best = ["anthropic/claude-x", "fast", "local/big", "local/small"]
"""


def test_a_file_adds_origins_to_those_of_the_settings() -> None:
    config = parse_config('[server]\nallowed_origins = ["https://a.example"]\nlist_threads = true', {})
    settings = Settings(allowed_origins=["https://b.example"]).with_config(config)
    assert (settings.allowed_origins, settings.list_threads) == (["https://b.example", "https://a.example"], True)


def test_a_file_names_providers_their_models_and_aliases() -> None:
    small = Capabilities(window=8192, max_output_tokens=4096, lacks=frozenset({"images", "json_schema"}))
    config = parse_config(LOCAL, {"LOCAL_KEY": "k"})
    assert config == GatewayConfig(
        providers={
            "local": Provider(
                name="local",
                adapter="openai",
                base_url="http://127.0.0.1:9100/v1",
                api_key_env="LOCAL_KEY",
                headers={"x-team": "a"},
                models={"small": small},
            ),
            "anthropic": Provider(name="anthropic", adapter="anthropic", api_key_env="ANTHROPIC_API_KEY"),
            "ollama": OLLAMA,
        },
        keys={"local": "k"},
        models={"fast": ["local/small"], "best": ["anthropic/claude-x", "local/small", "local/big"]},
        reasons=UNSET,
    )
    assert Settings().with_config(config).ready == ["local", "ollama"]


def test_a_providers_timeouts_are_read_from_the_file() -> None:
    output = "[providers.ollama]\ntimeouts = { connect = 5, first_byte = 60.5, idle = 30, total = 600 }"
    (found,) = parse_config(output, {}).providers.values()
    assert found.timeouts == {"connect": 5.0, "first_byte": 60.5, "idle": 30.0, "total": 600.0}


def test_a_provider_without_its_key_is_not_ready() -> None:
    for environ in ({}, {"LOCAL_KEY": ""}):
        config = parse_config(LOCAL, environ)
        assert "local" in config.providers
        assert config.reasons["local"] == "LOCAL_KEY is not set"
        assert Settings().with_config(config).ready == ["ollama"]


def test_keys_are_never_shown() -> None:
    config = parse_config(LOCAL, {"LOCAL_KEY": "sk-hidden"})
    settings = Settings().with_config(config)
    assert config.keys == settings.keys == {"local": "sk-hidden"}
    assert "sk-hidden" not in repr(config) + repr(settings)


def test_a_file_wins_over_the_environment() -> None:
    environ = {"OPENAI_API_KEY": "theirs", "OPENAI_BASE_URL": "https://theirs.example/v1"}
    text = '[providers.openai]\nbase_url = "https://mine.example/v1"\n'
    named = text + 'api_key_env = "MY_KEY"\n'
    config = parse_config(named, environ | {"MY_KEY": "mine"})
    assert config.keys == {"openai": "mine"}
    assert config.providers["openai"] == Provider(
        name="openai", adapter="openai", base_url="https://mine.example/v1", api_key_env="MY_KEY"
    )


def test_a_key_is_only_sent_where_it_belongs() -> None:
    environ = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "https://theirs.example/v1"}
    elsewhere = parse_config('[providers.openai]\nbase_url = "https://mine.example/v1"\n', environ)
    assert (elsewhere.keys, "openai" in Settings().with_config(elsewhere).ready) == ({}, True)
    other = parse_config('[providers.other]\nadapter = "openai"\n', environ)
    assert other.providers["other"].base_url is None
    assert other.keys == {"other": "secret", "openai": "secret"}


def test_vertex_ai_is_never_replaced_by_the_gemini_api() -> None:
    environ = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GEMINI_API_KEY": "k"}
    with pytest.raises(ConfigError) as caught:
        parse_config("[providers.google.models.gemini]\nwindow = 10", environ)
    assert str(caught.value) == (
        "antiphon.toml: providers.google.project: this key is missing. "
        'Write project = "my-project", or set GOOGLE_CLOUD_PROJECT.'
    )
    named = '[providers.google]\napi_key_env = "GEMINI_API_KEY"'
    assert parse_config(named, environ).keys == {"google": "k"}
    other = '[providers.mine]\nadapter = "google"'
    assert parse_config(other, environ).keys == {"mine": "k"}
    there = '[providers.google]\nlocation = "europe-west1"'
    provider = only(there, "google", environ | {"GOOGLE_CLOUD_PROJECT": "p"})
    assert (provider.project, provider.location) == ("p", "europe-west1")


def test_a_provider_called_like_its_adapter_adds_to_the_environment() -> None:
    text = "[providers.azure.models.gpt-5]\nwindow = 400_000"
    assert only(text, "azure", AZURE) == Provider(
        name="azure",
        adapter="azure",
        endpoint="https://me.openai.azure.com",
        api_key_env="AZURE_OPENAI_API_KEY",
        models={"gpt-5": Capabilities(window=400_000)},
    )


FILED: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ('adapter = "anthropic"', {}, {"x": "ANTHROPIC_API_KEY is not set"}),
    ('adapter = "anthropic"\nbase_url = "https://proxy.example"', {}, {}),
    ('adapter = "azure"\nendpoint = "https://a.b"', {}, {"x": "AZURE_OPENAI_API_KEY is not set"}),
    ('adapter = "azure"\nendpoint = "https://a.b"\nprofile = "entra"', {}, {}),
    ('adapter = "bedrock"', {}, {}),
    ('adapter = "google"', {}, {"x": "GEMINI_API_KEY is not set"}),
    ('adapter = "google"\nproject = "p"', {"GEMINI_API_KEY": "k"}, {}),
    ('adapter = "ollama"', {}, {}),
    ('adapter = "responses"', {}, {"x": "OPENRESPONSES_API_KEY is not set"}),
    ('adapter = "responses"\nbase_url = "https://o.example"\nstrict = true', {}, {}),
]


@pytest.mark.parametrize(("table", "environ", "reasons"), FILED)
def test_a_fully_configured_provider_is_ready(table: str, environ: dict[str, str], reasons: dict[str, str]) -> None:
    config = parse_config(f"[providers.x]\n{table}\n", environ)
    assert {name: config.reasons[name] for name in config.reasons if name == "x"} == reasons
    assert ("x" in Settings().with_config(config).ready) is not bool(reasons)


def test_bedrocks_region_and_profile_stand_in_the_file_or_the_environment() -> None:
    environ = {"AWS_REGION": "us-west-2", "AWS_BEARER_TOKEN_BEDROCK": "k"}
    text = '[providers.aws]\nadapter = "bedrock"\n'
    assert only(text, "aws", environ) == Provider(
        name="aws", adapter="bedrock", region="us-west-2", api_key_env="AWS_BEARER_TOKEN_BEDROCK"
    )
    text += 'region = "eu-west-1"\nprofile = "work"\n'
    assert only(text, "aws", environ) == Provider(name="aws", adapter="bedrock", region="eu-west-1", profile="work")


@pytest.mark.parametrize(
    ("table", "environ", "region"),
    [
        ('profile = "work"', {}, "eu-central-1"),
        ("", {}, "ap-south-1"),
        ("", {"AWS_PROFILE": "work"}, "eu-central-1"),
        ('profile = "work"', {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ('profile = "work"\nregion = "eu-west-1"', {}, "eu-west-1"),
        ('profile = "bare"', {}, None),
        ('profile = "nobody"', {}, None),
        ('profile = "work"\nbase_url = "https://proxy.example"', {}, None),
    ],
)
def test_bedrocks_region_can_come_from_the_profile(
    tmp_path: Path, table: str, environ: dict[str, str], region: str | None
) -> None:
    file = tmp_path / "config"
    file.write_text(
        "[default]\nregion = ap-south-1\n[profile work]\nregion = eu-central-1\n[profile bare]\noutput = json\n"
    )
    text = f'[providers.aws]\nadapter = "bedrock"\n{table}\n'
    assert only(text, "aws", environ | {"AWS_CONFIG_FILE": str(file)}).region == region


@pytest.mark.parametrize("broken", ["[profile work\n", None])
def test_aws_files_that_cannot_be_read_name_no_region(tmp_path: Path, broken: str | None) -> None:
    file = tmp_path / "config"
    if broken:
        file.write_text(broken)
    text = '[providers.aws]\nadapter = "bedrock"\nprofile = "work"\n'
    assert only(text, "aws", {"AWS_CONFIG_FILE": str(file)}).region is None


def test_a_hook_lies_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "my_hook_in_a_file.py").write_text("async def change(body): return None\n")
    source = tmp_path / "antiphon.toml"
    source.write_text('[providers.openai]\ntransform_request = "my_hook_in_a_file:change"', encoding="utf-8-sig")
    hook = load_config(source, {}).providers["openai"].transform_request
    assert getattr(hook, "__name__", "") == "change"


def test_an_alias_may_name_an_agent_or_another_alias() -> None:
    text = '[models]\na = ["b", "my-agent/loud"]\nb = ["demo", "ollama/x/y:z"]\n'
    config = parse_config(text, {}, agents=["demo", "my-agent", "my-agent/loud"])
    assert config.models == {"a": ["demo", "ollama/x/y:z", "my-agent/loud"], "b": ["demo", "ollama/x/y:z"]}


def test_an_alias_that_hides_an_agent_is_warned_of() -> None:
    config = parse_config('[models]\ndemo = "ollama/x"\nfast = "ollama/x"\n', {}, agents=["demo", "demo/loud"])
    assert config.warnings == [
        "antiphon.toml: models.demo: this alias hides the agent 'demo': requests for it go to ollama/x. "
        "Rename the alias or the agent to use both."
    ]


def test_an_alias_to_a_provider_without_an_address_leads_on() -> None:
    config = parse_config('[models]\nbest = ["azure/gpt", "ollama/x"]', {})
    assert list(config.providers) == ["ollama"]
    assert config.models == {"best": ["azure/gpt", "ollama/x"]}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes("# Bär".encode("latin-1"))
    reasons = {
        tmp_path / "none.toml": "there is no such file. Check --config.",
        tmp_path: "cannot read the file: Is a directory.",
        latin: "this is not UTF-8. Save it as UTF-8.",
    }
    for path, reason in reasons.items():
        with pytest.raises(ConfigError) as caught:
            load_config(path, {})
        assert str(caught.value) == f"{path}: {reason}"


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://gpu.example/v1", True),
        ("HTTP://10.0.0.1/v1", True),
        ("https://gpu.example/v1", False),
        ("http://localhost:1/v1", False),
        ("http://[::1]:1/v1", False),
    ],
)
def test_a_key_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str, warned: bool
) -> None:
    source = tmp_path / "antiphon.toml"
    source.write_text('[providers.local]\nadapter = "openai"\n' + f'base_url = "{url}"\napi_key_env = "LOCAL_KEY"\n')
    with caplog.at_level(logging.WARNING, "antiphon.config"):
        load_config(source, {"LOCAL_KEY": "sk-hidden"})
        load_config(source, {})
    output = f"local: the key in LOCAL_KEY is sent to {url} unencrypted, and can be read on the way. Use https."
    messages = [record.getMessage() for record in caplog.records if record.name == "antiphon.config"]
    assert messages == ([output] if warned else [])


def test_settings_do_not_read_the_configuration_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*AZURE, "AWS_REGION", "GOOGLE_CLOUD_PROJECT", "OLLAMA_HOST"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "antiphon.toml").write_text(LOCAL)
    monkeypatch.setenv("LOCAL_KEY", "k")
    assert Settings() == Settings(providers=(), keys={}, aliases={})

    @agent("mine")
    def mine() -> str:
        return "hi"

    settings = Settings.from_config(agents=[mine])
    assert settings.aliases == parse_config(LOCAL, {}).models
    assert (settings.keys["local"], settings.agents) == ("k", [mine])
    assert "local" in settings.ready
    (tmp_path / "other.toml").write_text('[models]\nme = "mine"\n')
    assert Settings.from_config("other.toml", agents=[mine]).aliases == {"me": ["mine"]}


def test_the_example_is_read() -> None:
    config = load_config(ROOT / "examples" / "providers" / "antiphon.toml", {"OPEN_KEY": "k"})
    assert list(config.providers) == [*("local", "anthropic", "work", "aws", "vertex", "open", "ollama")]
    assert Settings().with_config(config).ready == ["local", "aws", "vertex", "open", "ollama"]
    assert config.models == {"fast": ["local/small"], "best": ["anthropic/claude-haiku-4-5", "local/small"]}


DOCS = (ROOT / "docs" / "configuration.md").read_text()


def test_every_example_of_the_documentation_is_read() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    read_here = [block for block in blocks if not block.startswith("# its pyproject.toml")]
    assert len(read_here) == len(blocks) - 1 == 4
    for block in read_here:
        parse_config(block, {})


def test_the_documentation_names_every_key_variable_and_feature() -> None:
    kinds = [adapter_class(name) for name in BUILT_IN]
    variables = {name for kind in kinds for names in kind.field_variables.values() for name in names}
    keys = {name for kind in kinds for name in kind.key_env}
    names = {*variables, *keys, *provider_keys(), *MODEL_KEYS, *ALL_FEATURES, *BUILT_IN}
    names -= {"models"}
    assert {name for name in names if f"`{name}" not in DOCS} == set()
