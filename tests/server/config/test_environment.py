"""Providers that are configured by the environment alone."""

from pathlib import Path

import pytest

from antiphon.adapters.base import Provider
from antiphon.adapters.registry import BUILT_IN
from antiphon.server.config.load import GatewayConfig, parse_config
from antiphon.server.settings import Settings
from tests.adapters.provider_servers import SCENE_MODULES, whole_answer
from tests.http_client import post_response
from tests.run_server import run_server
from tests.scripted_upstream import scripted_upstream

OLLAMA = Provider(name="ollama", adapter="ollama")

UNSET = {
    "openai": "OPENAI_API_KEY is not set",
    "azure": "AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY are not set",
    "anthropic": "ANTHROPIC_API_KEY is not set",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK is not set",
    "google": "GEMINI_API_KEY is not set",
    "writer": "WRITER_API_KEY is not set",
    "responses": "OPENRESPONSES_API_KEY is not set",
}


def test_without_configuration_only_the_local_provider_is_available() -> None:
    assert parse_config("", {}) == GatewayConfig(providers={"ollama": OLLAMA}, reasons=UNSET)
    assert {"ollama", *UNSET} == BUILT_IN.keys()


AZURE = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com"}
VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "True", "GOOGLE_CLOUD_PROJECT": "p"}
AWS = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "s"}

HERE = "http://127.0.0.1:1"

ENVIRONMENTS: list[tuple[str, dict[str, str], dict[str, str], str | None]] = [
    ("openai", {"OPENAI_API_KEY": "k"}, {"api_key_env": "OPENAI_API_KEY"}, "k"),
    (
        "openai",
        {"OPENAI_API_KEY": " k\n", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
        {"api_key_env": "OPENAI_API_KEY", "base_url": "http://127.0.0.1:1/v1"},
        "k",
    ),
    ("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, {"base_url": "http://127.0.0.1:1/v1"}, None),
    ("anthropic", {"ANTHROPIC_API_KEY": "k"}, {"api_key_env": "ANTHROPIC_API_KEY"}, "k"),
    ("anthropic", {"ANTHROPIC_AUTH_TOKEN": "t"}, {"api_key_env": "ANTHROPIC_AUTH_TOKEN"}, "t"),
    ("anthropic", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t"}, {"api_key_env": "ANTHROPIC_API_KEY"}, "k"),
    ("anthropic", {"ANTHROPIC_BASE_URL": HERE}, {"base_url": HERE}, None),
    ("writer", {"WRITER_BASE_URL": HERE}, {"base_url": HERE}, None),
    ("google", {"GOOGLE_GEMINI_BASE_URL": HERE}, {"base_url": HERE}, None),
    ("google", VERTEX | {"GOOGLE_GEMINI_BASE_URL": HERE}, {"project": "p"}, None),
    ("writer", {"WRITER_API_KEY": "k"}, {"api_key_env": "WRITER_API_KEY"}, "k"),
    ("azure", AZURE, {"api_key_env": "AZURE_OPENAI_API_KEY", "endpoint": "https://me.openai.azure.com"}, "k"),
    (
        "azure",
        AZURE | {"OPENAI_API_VERSION": "2025-04-01-preview"},
        {
            "api_key_env": "AZURE_OPENAI_API_KEY",
            "endpoint": "https://me.openai.azure.com",
            "api_version": "2025-04-01-preview",
        },
        "k",
    ),
    ("google", {"GOOGLE_API_KEY": "k"}, {"api_key_env": "GOOGLE_API_KEY"}, "k"),
    ("google", {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}, {"api_key_env": "GEMINI_API_KEY"}, "a"),
    ("google", VERTEX, {"project": "p"}, None),
    (
        "google",
        VERTEX | {"GOOGLE_CLOUD_LOCATION": "europe-west1", "GEMINI_API_KEY": "unused"},
        {"project": "p", "location": "europe-west1"},
        None,
    ),
    ("bedrock", {"AWS_BEARER_TOKEN_BEDROCK": "k"}, {"api_key_env": "AWS_BEARER_TOKEN_BEDROCK"}, "k"),
    ("bedrock", AWS, {"region": "eu-west-1"}, None),
    ("bedrock", AWS | {"AWS_REGION": "us-west-2"}, {"region": "us-west-2"}, None),
    (
        "responses",
        {"OPENRESPONSES_BASE_URL": "https://o.example/v1", "OPENRESPONSES_API_KEY": "k"},
        {"base_url": "https://o.example/v1", "api_key_env": "OPENRESPONSES_API_KEY"},
        "k",
    ),
    ("responses", {"OPENRESPONSES_BASE_URL": "https://o.example"}, {"base_url": "https://o.example"}, None),
]


@pytest.mark.parametrize(
    ("name", "key", "address", "path", "shown"),
    [
        ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "/v1/messages", "x-api-key"),
        ("anthropic", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "/v1/messages", "authorization"),
        ("google", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "/v1beta/models/m:generateContent", "x-goog-api-key"),
        ("writer", "WRITER_API_KEY", "WRITER_BASE_URL", "/v1/chat", "authorization"),
    ],
)
def test_the_base_url_is_read_from_the_providers_variable(
    name: str, key: str, address: str, path: str, shown: str
) -> None:
    with scripted_upstream(whole_answer(SCENE_MODULES[name].SCENES["text"])) as played:
        config = parse_config("", {key: "some-secret", address: played.url})
        with run_server(Settings().with_config(config)) as here:
            assert post_response(here, model=f"{name}/m").status_code == 200
    (sent,) = played.requests
    prefix = "Bearer " if shown == "authorization" else ""
    assert (sent.path, sent.headers[shown]) == (path, f"{prefix}some-secret")
    assert "some-secret" not in str({n: v for n, v in sent.headers.items() if n != shown})


@pytest.mark.parametrize(
    ("table", "base_url"),
    [
        ('api_key_env = "MINE"', HERE),
        ('api_key_env = "MINE"\nbase_url = "https://mine.example"', "https://mine.example"),
        ('project = "p"', None),
    ],
)
def test_the_file_overrides_vertex_variables_of_the_environment(table: str, base_url: str | None) -> None:
    config = parse_config(f"[providers.google]\n{table}\n", {"GOOGLE_GEMINI_BASE_URL": HERE})
    assert config.providers["google"].base_url == base_url


def test_a_profile_that_names_its_region_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("[profile me]\nregion = eu-central-1\n")
    config = parse_config("", {"AWS_PROFILE": "me", "AWS_CONFIG_FILE": str(file)})
    assert config.providers["bedrock"].region == "eu-central-1"
    assert "bedrock" in Settings().with_config(config).ready


@pytest.mark.parametrize(("name", "environ", "fields", "key"), ENVIRONMENTS)
def test_a_providers_own_variables_suffice(
    name: str, environ: dict[str, str], fields: dict[str, str], key: str | None
) -> None:
    config = parse_config("", environ)
    provider = Provider(name=name, adapter=name, **fields)  # type: ignore[arg-type]
    assert config.providers == {name: provider, "ollama": OLLAMA}
    assert config.keys == ({name: key} if key else {})
    assert config.reasons == {other: UNSET[other] for other in UNSET if other != name}


@pytest.mark.parametrize(
    ("environ", "name", "reason"),
    [
        ({"OPENAI_API_KEY": "  "}, "openai", "OPENAI_API_KEY is not set"),
        ({"AZURE_OPENAI_API_KEY": "k"}, "azure", "AZURE_OPENAI_ENDPOINT is not set"),
        ({"AZURE_OPENAI_ENDPOINT": "https://a.b"}, "azure", "AZURE_OPENAI_API_KEY is not set"),
        ({"AWS_PROFILE": "me"}, "bedrock", "AWS_REGION is not set"),
        ({"AWS_REGION": "eu-west-1"}, "bedrock", "AWS_BEARER_TOKEN_BEDROCK is not set"),
        ({"GOOGLE_CLOUD_PROJECT": "p"}, "google", "GEMINI_API_KEY is not set"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "1", "GEMINI_API_KEY": "k"}, "google", "GOOGLE_CLOUD_PROJECT is not set"),
        (
            {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_LOCATION": "europe-west1"},
            "google",
            "GOOGLE_CLOUD_PROJECT is not set",
        ),
        ({"OPENRESPONSES_API_KEY": " "}, "responses", "OPENRESPONSES_API_KEY is not set"),
        ({"OPENAI_BASE_URL": "nowhere"}, "openai", "OPENAI_BASE_URL is not an http(s) URL"),
        (
            {"OPENAI_BASE_URL": "http://[::1:8080/v1", "OPENAI_API_KEY": "k"},
            "openai",
            "OPENAI_BASE_URL is not an http(s) URL",
        ),
        ({"OLLAMA_HOST": "a b"}, "ollama", "OLLAMA_HOST is not an http(s) URL"),
        ({"OPENAI_API_KEY": "two\nlines"}, "openai", "OPENAI_API_KEY does not hold a valid key"),
    ],
)
def test_missing_variables_are_named(environ: dict[str, str], name: str, reason: str) -> None:
    config = parse_config("", environ)
    assert config.reasons[name] == reason
    assert name not in config.providers
    assert name not in config.keys
    assert name not in Settings().with_config(config).ready


def test_ollamas_host_needs_neither_scheme_nor_port() -> None:
    config = parse_config("", {"OLLAMA_HOST": "gpu", "OLLAMA_API_KEY": "k"})
    assert config.providers["ollama"] == Provider(
        name="ollama", adapter="ollama", base_url="http://gpu:11434", api_key_env="OLLAMA_API_KEY"
    )
    assert config.warnings == [
        "ollama: the key in OLLAMA_API_KEY is sent to http://gpu:11434 unencrypted, "
        "and can be read on the way. Use https."
    ]
