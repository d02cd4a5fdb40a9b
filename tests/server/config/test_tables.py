"""Every mistake in `antiphon.toml`, and its complete error message."""

import re
import sys
from pathlib import Path

import pytest

from antiphon.server.config.load import ConfigError, parse_config
from antiphon.server.config.tables import parse_provider_table

TABLE = "[providers.local]\n"
OPENAI = TABLE + 'adapter = "openai"\n'
SMALL = OPENAI + "[providers.local.models.small]\n"
NAMES = "openai, azure, anthropic, bedrock, google, ollama, writer, responses"
EXAMPLE = 'base_url = "http://127.0.0.1:9100/v1"'
NO_KEY = (
    "keys must not be stored in the file. Put it into an environment variable and name the "
    'variable here: api_key_env = "LOCAL_API_KEY".'
)
NO_VARIABLE = (
    "this is not the name of an environment variable. If it is the key itself, put it into a "
    'variable and name that here: api_key_env = "LOCAL_KEY".'
)

MISTAKES: list[tuple[str, str]] = [
    ("[providers", "this is not TOML: Expected ']' at the end of a table declaration (at end of document)."),
    ("[models]\n\na = = 1", "this is not TOML: Invalid value (at line 3, column 5)."),
    ("[provider.x]", "provider: there is no such key. Did you mean 'providers'?"),
    ("port = 1", "port: there is no such key. There are models, providers, server."),
    ("providers = 1", 'providers: expected a table, got 1. Write [providers.local] and adapter = "openai" below it.'),
    ("models = []", 'models: expected a table, got an array. Write [models] and fast = "local/small" below it.'),
    (
        "[providers]\nlocal = 1",
        'providers.local: expected a table, got 1. Write [providers.local] and adapter = "openai" below it.',
    ),
    (TABLE, f'providers.local.adapter: this key is missing. Write adapter = "openai", or another of {NAMES}.'),
    (TABLE + 'adapter = "opnai"', "providers.local.adapter: there is no adapter 'opnai'. Did you mean 'openai'?"),
    (TABLE + 'adapter = "cohere"', f"providers.local.adapter: there is no adapter 'cohere'. Use one of {NAMES}."),
    (
        TABLE + "adapter = 1",
        'providers.local.adapter: expected a string that is not empty, got 1. Write adapter = "openai".',
    ),
    (OPENAI + "base_url = 1", f"providers.local.base_url: expected a string, got 1. Write {EXAMPLE}."),
    (
        OPENAI + 'base_url = "localhost:80"',
        f"providers.local.base_url: 'localhost:80' is not an http(s) URL. Write {EXAMPLE}.",
    ),
    (OPENAI + 'base_url = ""', f"providers.local.base_url: '' is not an http(s) URL. Write {EXAMPLE}."),
    (OPENAI + 'base_url = "http://"', f"providers.local.base_url: 'http://' is not an http(s) URL. Write {EXAMPLE}."),
    (
        OPENAI + 'base_url = "http://a:x"',
        f"providers.local.base_url: 'http://a:x' is not an http(s) URL. Write {EXAMPLE}.",
    ),
    (
        OPENAI + 'base_url = "https://a.b/v1?k=1"',
        f"providers.local.base_url: 'https://a.b/v1?k=1' has a query or a fragment. Write {EXAMPLE}.",
    ),
    (
        OPENAI + 'base_url = "https://me:secret@a.b"',
        "providers.local.base_url: contains a user name or "
        "password. Put the key into an environment variable and name it in api_key_env.",
    ),
    (OPENAI + 'base_ur = "http://a"', "providers.local.base_ur: there is no such key. Did you mean 'base_url'?"),
    (
        OPENAI + "colour = 1",
        "providers.local.colour: there is no such key. There are adapter, "
        "api_key_env, api_version, base_url, endpoint, headers, location, models, profile, "
        "project, region, strict, timeouts, transform_request.",
    ),
    (
        OPENAI + "timeouts = 5",
        "providers.local.timeouts: expected a table, got 5. Write timeouts = { first_byte = 60 }.",
    ),
    (
        OPENAI + "timeouts = { firstbyte = 5 }",
        "providers.local.timeouts.firstbyte: there is no such key. Did you mean 'first_byte'?",
    ),
    (
        OPENAI + "timeouts = { read = 5 }",
        "providers.local.timeouts.read: there is no such key. There are connect, first_byte, idle, total.",
    ),
    (
        OPENAI + 'timeouts = { idle = "5s" }',
        "providers.local.timeouts.idle: expected a number, above 0 and at most 86400, got a string. Write idle = 60.",
    ),
    *(
        (
            OPENAI + f"timeouts = {{ connect = {seconds} }}",
            "providers.local.timeouts.connect: expected a number, above 0 and at most 86400, "
            f"got {shown}. Write connect = 60.",
        )
        for seconds, shown in (("0", "0"), ("-1", "-1"), ("nan", "a number"))
    ),
    (
        OPENAI + "timeouts = { total = inf }",
        "providers.local.timeouts.total: expected a number, above 0 and at most 86400, got a number. Write total = 60.",
    ),
    (OPENAI + 'api_key = "sk-hidden"', f"providers.local.api_key: {NO_KEY}"),
    (OPENAI + 'token = "sk-hidden"', f"providers.local.token: {NO_KEY}"),
    (OPENAI + 'api_key_env = "sk-hidden"', f"providers.local.api_key_env: {NO_VARIABLE}"),
    *(
        (OPENAI + f'api_key_env = "{key}"', f"providers.local.api_key_env: {NO_VARIABLE}")
        for key in (
            "a3f4c0ffee15badc0ffee15badc0ffee",  # as Azure's are
            "AIzaSyAhiddenhiddenhiddenhiddenhidden_x",
            "AKIAHIDDENHIDDENHIDD",
            "hiddenHIDDENhiddenHIDDEN1",
        )
    ),
    (OPENAI + 'api_key_env = ""', f"providers.local.api_key_env: {NO_VARIABLE}"),
    (
        OPENAI + 'headers = ["x"]',
        'providers.local.headers: expected a table, got an array. Write headers = { x-team = "a" }.',
    ),
    (
        OPENAI + "headers = { x-a = 1 }",
        'providers.local.headers.x-a: expected a string, got 1. Write headers = { x-team = "a" }.',
    ),
    (
        OPENAI + 'headers = { "x a" = "1" }',
        'providers.local.headers."x a": this is not a valid header name. Use a-z and -.',
    ),
    (
        OPENAI + 'headers = { x = "1\\n2" }',
        "providers.local.headers.x: this is not a valid header value. Use printable ASCII characters.",
    ),
    *(
        (
            OPENAI + f'headers = {{ {name} = "x" }}',
            f"providers.local.headers.{name}: this header is set by the HTTP client for each request. Leave it out.",
        )
        for name in ("Host", "connection", "content-length", "Transfer-Encoding")
    ),
    (
        OPENAI + 'region = "x"',
        "providers.local.region: the adapter 'openai' does not read this, only bedrock. Leave it out.",
    ),
    (
        TABLE + 'adapter = "azure"\nendpoint = "x"',
        "providers.local.endpoint: 'x' is not an http(s) URL. Write endpoint = \"https://NAME.openai.azure.com\".",
    ),
    (
        TABLE + 'adapter = "azure"',
        'providers.local.endpoint: this key is missing. Write endpoint = "https://NAME.openai.azure.com".',
    ),
    (
        TABLE + 'adapter = "azure"\nendpoint = "https://a.b"\nbase_url = "https://a.b"',
        "providers.local.endpoint: base_url says already where to ask. Give only one of them.",
    ),
    (
        "[providers.azure]",
        "providers.azure.endpoint: this key is missing. "
        'Write endpoint = "https://NAME.openai.azure.com", or set AZURE_OPENAI_ENDPOINT.',
    ),
    (TABLE + 'adapter = "azure"\nprofile = "x"', 'providers.local.profile: for azure there is only profile = "entra".'),
    (
        TABLE + 'adapter = "google"\nlocation = "europe-west1"',
        'providers.local.location: this has no effect without a project. Write project = "my-project" beside it.',
    ),
    (
        TABLE + 'adapter = "responses"\nstrict = "yes"',
        "providers.local.strict: expected true or false, got a string. Write strict = true.",
    ),
    (
        TABLE + 'adapter = "bedrock"\nregion = ""',
        "providers.local.region: expected a string that is not empty, got ''. Write region = \"eu-central-1\".",
    ),
    (
        OPENAI + 'transform_request = "hook"',
        "providers.local.transform_request: 'hook' does not have the form \"module:function\".",
    ),
    (
        OPENAI + 'transform_request = "json:nothing"',
        "providers.local.transform_request: json has no function 'nothing'.",
    ),
    (
        '["providers"."a/b"]',
        'providers."a/b": the name of a provider must not contain a slash; a slash '
        "separates a provider from its model. Choose another name.",
    ),
    ('["providers".""]', 'providers."": the name of a provider must be one word. Choose another name.'),
    (
        SMALL + "window = 0",
        "providers.local.models.small.window: expected a whole number between 1 and 1000000000000, "
        "got 0. Write window = 8192.",
    ),
    (
        SMALL + 'window = "8k"',
        "providers.local.models.small.window: expected a whole number between 1 and 1000000000000, "
        "got a string. Write window = 8192.",
    ),
    (SMALL + "windw = 1", "providers.local.models.small.windw: there is no such key. Did you mean 'window'?"),
    (
        SMALL + 'lacks = ["images", "image"]',
        "providers.local.models.small.lacks[1]: there is no feature 'image'. Did you mean 'images'?",
    ),
    (
        SMALL + 'lacks = "images"',
        'providers.local.models.small.lacks: expected an array, got a string. Write lacks = ["images", "json_schema"].',
    ),
    (
        OPENAI + '[providers.local.models]\n"q2.5" = 1',
        'providers.local.models."q2.5": expected a '
        'table, got 1. Write [providers.local.models."q2.5"] and window = 8192 below it.',
    ),
    (
        "[models]\na = 1",
        'models.a: expected an array that is not empty, got 1. Write a = "local/small", or a list of such names.',
    ),
    (
        "[models]\na = []",
        "models.a: expected an array that is not empty, got an array. "
        'Write a = "local/small", or a list of such names.',
    ),
    ("[models]\na = [1]", 'models.a[0]: expected a string, got 1. Write a = "local/small", or a list of such names.'),
    (
        "[models.small]\nwindow = 1",
        "models.small: an alias is a name, or a list of names: "
        '"local/small". Capabilities of a model belong in [providers.NAME.models.small].',
    ),
    (
        '[models]\n"a/b" = "ollama/x"',
        'models."a/b": the name of an alias must not contain a slash; a slash '
        "separates a provider from its model. Choose another name.",
    ),
    (
        '[models]\na = "olama/x"',
        "models.a: 'olama/x' does not exist: there is no provider or alias 'olama'. Did you mean 'ollama'?",
    ),
    (
        '[models]\na = ["ollama/x", "b"]',
        "models.a[1]: 'b' does not exist: there is no provider or alias 'b'. "
        "There are a, anthropic, azure, bedrock, google, ollama, openai, responses, writer.",
    ),
    ('[models]\na = "ollama"', "models.a: 'ollama' names a provider without a model. Write ollama/NAME."),
    ('[models]\na = "ollama/"', "models.a: 'ollama/' names a provider without a model. Write ollama/NAME."),
    ('[models]\na = "ollama/../x"', "models.a: '../x' is not a valid model name. Write ollama/NAME."),
    (
        '[models]\na = ["ollama/x", "ollama/y\\\\.."]',
        "models.a[1]: 'y\\..' is not a valid model name. Write ollama/NAME.",
    ),
    ('[models]\na = "a"', "models.a: circular alias: a -> a. Name a model instead."),
    (
        '[models]\na = "b"\nb = ["ollama/x", "c"]\nc = "b"',
        "models.b: circular alias: b -> c -> b. Name a model instead.",
    ),
    ('[models]\nollama = "ollama/x"', "models.ollama: a provider has this name already. Choose another name."),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_names_the_file_the_key_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {}, source=Path("some/antiphon.toml"))
    assert str(caught.value) == f"some/antiphon.toml: {message}"


SEVERAL = """
[server]
port = 1
[providers.local]
adapter = "opnai"
base_ur = "http://a"
timeouts = 5
[providers.other]
adapter = "openai"
base_url = "ftp://x"
api_key_env = "not a name"
headers = { host = "a" }
timeouts = { read = 5, idle = 0 }
[providers.other.models.small]
window = 0
[providers.leaky]
api_key = "sk-hidden"
base_ur = "sk-hidden"
[providers.work]
adapter = "azure"
[models]
a = "b"
b = "a"
c = "a"
d = "nowhere/x"
e = ["d", "local/x", "broken"]
broken = 1
"""


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(SEVERAL, {}, source=Path("antiphon.toml"))
    first, *lines = str(caught.value).splitlines()
    assert first == "antiphon.toml: 15 mistakes:"
    assert [re.match(r"  (\S+): ", line)[1] for line in lines] == [  # pyright: ignore[reportOptionalSubscript]
        "server.port",
        "providers.local.base_ur",
        "providers.local.timeouts",
        "providers.local.adapter",
        "providers.other.base_url",
        "providers.other.headers.host",
        "providers.other.api_key_env",
        "providers.other.timeouts.read",
        "providers.other.timeouts.idle",
        "providers.other.models.small.window",
        "providers.leaky.api_key",
        "models.broken",
        "models.a",
        "models.d",
        "providers.work.endpoint",
    ]
    assert "sk-hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["KEY", "_k2", "AZURE_OPENAI_API_KEY_2", "MYCOMPANYOPENAIAPIKEY"])
def test_plausible_variable_names_are_accepted(name: str) -> None:
    config = parse_config(OPENAI + f'api_key_env = "{name}"', {name: "k"})
    assert config.keys == {"local": "k"}


def test_a_hook_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    with pytest.raises(ConfigError) as caught:
        parse_config(OPENAI + 'transform_request = "not_there:f"', {}, source=tmp_path / "a.toml")
    assert str(caught.value) == (
        f"{tmp_path}/a.toml: providers.local.transform_request: 'not_there' cannot be imported: "
        f"No module named 'not_there'. Modules are searched for in {tmp_path} too."
    )


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("def f(:", "SyntaxError: invalid syntax (broken_hook.py, line 1)"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit", "SystemExit"),
        ("import sys; sys.exit('No.')", "SystemExit: No."),
    ],
)
def test_a_hook_whose_module_breaks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "broken_hook.py").write_text(module)
    with pytest.raises(ConfigError) as caught:
        parse_config(OPENAI + 'transform_request = "broken_hook:f"', {}, source=tmp_path / "a.toml")
    assert str(caught.value) == (
        f"{tmp_path}/a.toml: providers.local.transform_request: 'broken_hook' cannot be imported: {reason}. Fix it."
    )


@pytest.mark.parametrize("name", ["ASIA_PACIFIC_OPENAI_KEY", "AZUREOPENAIAPIKEYEU1", "MYCOMPANYOPENAIKEY2024"])
def test_common_names_are_accepted(name: str) -> None:
    table = {"adapter": "openai", "api_key_env": name}
    assert parse_provider_table("local", table, Path(), [])["api_key_env"] == name
