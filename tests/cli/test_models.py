"""`antiphon models`, and providers in `antiphon serve`, run as a user would."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.adapters.registry import ENTRY_POINT_GROUP
from antiphon.cli.models import ModelsReport, format_report
from antiphon.server.provider_probe import ProbeResult
from tests.http_client import http_client
from tests.run_server import run_command
from tests.scripted_upstream import ScriptedUpstream, json_answer, scripted_upstream

VARIABLES = re.compile(r"OPENAI|AZURE|ANTHROPIC|AWS|GOOGLE|GEMINI|OLLAMA|WRITER|OPENRESPONSES|PROXY")
LIST = json_answer({"data": [{"id": "small"}, {"id": "org/huge:1"}, {"no": "id"}, {"id": "\x1b[31m"}]})
REFUSAL = json_answer({"error": {"message": "Wrong key: sk-abcdefghijklm.", "code": "no"}}, 401)


def closed() -> str:
    """Return an address without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment(**variables: str) -> dict[str, str]:
    """Return an environment without the variables of any other provider."""
    bare = {name: value for name, value in os.environ.items() if not VARIABLES.search(name)}
    return bare | {"COLUMNS": "200", "NO_COLOR": "1", "OLLAMA_HOST": closed()} | variables


def models(*arguments: str, cwd: Path, **variables: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, its output and its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "models", *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def as_json(*arguments: str, cwd: Path, **variables: str) -> dict:
    """Run the command with --json."""
    code, output, complaint = models("--json", *arguments, cwd=cwd, **variables)
    assert (code, complaint) == (0, "")
    return json.loads(output)


def local(provider: ScriptedUpstream, adapter: str = "openai", more: str = "") -> str:
    """Write the table of a provider."""
    return f'[providers.local]\nadapter = "{adapter}"\nbase_url = "{provider.url}/v1"\n{more}\n'


def ended(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `antiphon serve` with a wrong configuration; return the ended process."""
    return subprocess.run(
        [sys.executable, "-m", "antiphon", "serve", "--port", "0", *arguments],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )


def test_everything_is_listed_with_its_state_and_its_reason(tmp_path: Path) -> None:
    nobody = closed()
    with scripted_upstream(LIST) as provider, scripted_upstream(REFUSAL) as locked:
        (tmp_path / "antiphon.toml").write_text(
            local(provider, more='api_key_env = "LOCAL_KEY"\nheaders = { x-team = "a" }')
            + f'[providers.locked]\nadapter = "openai"\nbase_url = "{locked.url}/v1"\n'
            + 'api_key_env = "LOCKED_KEY"\n[models]\n'
            + 'fast = "local/small"\nbest = ["anthropic/claude-x", "fast"]\n'
            + 'never = ["anthropic/claude-x", "locked/x"]\n'
        )
        keys = {"LOCAL_KEY": "sk-local", "LOCKED_KEY": "sk-locked", "OLLAMA_HOST": nobody}
        code, output, complaint = models(cwd=tmp_path, **keys)
        requested = provider.requests[0]
    assert (code, complaint) == (0, "")
    assert output.splitlines() == [
        "configuration: antiphon.toml",
        "",
        "agents",
        "  demo       ready",
        "  echo       ready",
        "",
        "aliases",
        "  fast       ready      local/small",
        "  best       ready      anthropic/claude-x | local/small  (not ready: anthropic/claude-x)",
        "  never      not ready  anthropic/claude-x | locked/x",
        "",
        "providers",
        f"  local      ready      3 models at {provider.url}/v1",
        "    local/small",
        "    local/org/huge:1",
        "    local/?[31m",
        f"  locked     not ready  401 from {locked.url}/v1/models: Wrong key: [redacted]; check LOCKED_KEY",
        "  anthropic  not ready  ANTHROPIC_API_KEY is not set",
        f"  ollama     not ready  cannot be reached at {nobody}: connection refused",
        "  openai     not ready  OPENAI_API_KEY is not set",
        "  azure      not ready  AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY are not set",
        "  bedrock    not ready  AWS_BEARER_TOKEN_BEDROCK is not set",
        "  google     not ready  GEMINI_API_KEY is not set",
        "  writer     not ready  WRITER_API_KEY is not set",
        "  responses  not ready  OPENRESPONSES_API_KEY is not set",
    ]
    assert (requested.method, requested.path) == ("GET", "/v1/models")
    assert (requested.headers["authorization"], requested.headers["x-team"]) == ("Bearer sk-local", "a")


def test_the_json_output_has_the_same_content(tmp_path: Path) -> None:
    with scripted_upstream(LIST) as provider:
        file = tmp_path / "mine.toml"
        file.write_text(local(provider) + '[models]\nfast = ["local/small", "demo"]\n')
        result = as_json("--config", str(file), cwd=tmp_path)
    assert result["config"] == str(file)
    assert result["agents"] == ["demo", "echo"]
    assert result["aliases"] == [{"name": "fast", "status": "ready", "targets": ["local/small", "demo"], "reason": ""}]
    assert result["providers"][0] == {
        "name": "local",
        "adapter": "openai",
        "status": "ready",
        "reason": "",
        "url": f"{provider.url}/v1",
        "models": ["local/small", "local/org/huge:1", "local/\x1b[31m"],
    }
    assert [one["name"] for one in result["providers"] if one["status"] == "ready"] == ["local"]
    assert result["problems"] == []


def test_slow_credentials_time_out(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile slow]\ncredential_process = sleep 90\n")
    (tmp_path / "antiphon.toml").write_text(
        '[providers.aws]\nadapter = "bedrock"\nregion = "eu-west-1"\nprofile = "slow"\n'
    )
    # The command has a timeout of 60 seconds here: it must not wait for the credentials.
    result = as_json(cwd=tmp_path, AWS_CONFIG_FILE=str(tmp_path / "config"))["providers"][0]
    assert result["status"] == "not ready"
    assert result["reason"] == "no credentials within 5 seconds"


def test_the_environment_alone_is_enough(tmp_path: Path) -> None:
    with scripted_upstream(LIST) as provider:
        url = f"{provider.url}/v1"
        code, output, _ = models(cwd=tmp_path, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
    assert code == 0
    assert output.startswith("configuration: the environment alone\n")
    assert f"\n  openai     ready      3 models at {url}\n    openai/small\n" in output


def test_unprintable_names_do_not_break_the_output(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('["providers"."é"]\nadapter = "openai"\n', encoding="utf-8")
    code, output, complaint = models(cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (code, complaint) == (0, "")
    assert "  ?          not ready  OPENAI_API_KEY is not set\n" in output
    file.write_text('["providers"."é"]\nadapter = "none"\n', encoding="utf-8")
    code, _, complaint = models(cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (code, "Traceback" in complaint) == (2, False)
    file.write_text('["models"]\n"é" = "demo"\n', encoding="utf-8")
    with run_command(cwd=tmp_path, env=bare(PYTHONIOENCODING="ascii")) as (_, process):
        assert process.stdout
        assert process.stdout.readline() == "models: demo, echo, ?\n"


def test_a_bad_configuration_is_one_line_and_a_code(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[models]\na = "a"\n')
    circle = "models.a: circular alias: a -> a. Name a model instead."
    output = f"antiphon: antiphon.toml: {circle}\n"
    assert models(cwd=tmp_path) == (2, "", output)
    absent = "antiphon: none.toml: there is no such file. Check --config.\n"
    assert models("--config", "none.toml", cwd=tmp_path) == (2, "", absent)
    for file, complaint in (("antiphon.toml", output), ("none.toml", absent)):
        served = ended(tmp_path, "--config", file)
        assert (served.returncode, served.stdout, served.stderr) == (2, "", complaint)
    (tmp_path / "prod.py").write_text("from antiphon import Settings\nsettings = Settings.from_config()")
    served = ended(tmp_path, "--app", "prod:settings")
    assert (served.returncode, served.stdout, served.stderr) == (2, "", output)


def test_a_link_that_leads_nowhere_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").symlink_to("gone.toml")
    output = "antiphon: antiphon.toml: this link is broken. Fix or remove it.\n"
    assert models(cwd=tmp_path) == (2, "", output)


AGENTS = """
from antiphon import Settings, agent, create_app
from antiphon.adapters.base import Provider

@agent("mine")
def mine():
    return "hi"

own = Settings(
    agents=[mine],
    providers=[Provider(name="far", adapter="openai", api_key_env="FAR_KEY")],
    aliases={"me": ["mine"]},
)
app = create_app(Settings(agents=[mine], demo=False))
"""


def test_a_users_agents_and_settings_are_listed(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "antiphon.toml").write_text('[models]\nalso = "mine"\n')
    result = as_json("--app", "agents:mine", cwd=tmp_path)
    assert result["agents"] == ["demo", "echo", "mine"]
    assert [alias["name"] for alias in result["aliases"]] == ["also"]
    own = as_json("--app", "agents:own", cwd=tmp_path)
    assert (own["config"], [alias["name"] for alias in own["aliases"]]) == (None, ["me"])
    (far,) = own["providers"]
    assert (far["name"], far["reason"]) == ("far", "FAR_KEY is not set")


def install(site: Path, adapter: str) -> str:
    """Install a package that brings an adapter; return the path that finds it."""
    info = site / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nacme = {adapter}\n")
    return os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))


def test_an_adapter_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = install(tmp_path, "acme_nowhere:Acme")
    code, output, _ = models(cwd=tmp_path, PYTHONPATH=path)
    assert code == 0
    assert output.endswith(
        "\nadapters that cannot be used\n  the adapter 'acme' of acme 1.0 cannot be loaded: "
        "ModuleNotFoundError: No module named 'acme_nowhere'\n"
    )


def test_failing_adapters_are_listed(tmp_path: Path) -> None:
    path = install(tmp_path, "acme_mine:Acme")
    (tmp_path / "acme_mine.py").write_text("raise SystemExit(3)")
    code, output, complaint = models(cwd=tmp_path, PYTHONPATH=path)
    assert (code, complaint) == (0, "")
    assert output.endswith("\n  the adapter 'acme' of acme 1.0 cannot be loaded: SystemExit: 3\n")
    (tmp_path / "acme_mine.py").write_text(
        "from antiphon.adapters.openai import OpenAI\n"
        "class Acme(OpenAI):\n    def models_request(self):\n        raise ValueError('no luck')\n"
    )
    (tmp_path / "antiphon.toml").write_text('[providers.acme]\nbase_url = "http://127.0.0.1:9"\n')
    code, output, complaint = models(cwd=tmp_path, PYTHONPATH=path)
    assert (code, complaint) == (0, "")
    assert "  acme       not ready  its adapter failed: ValueError: no luck\n" in output


@pytest.mark.parametrize("table", ["[providers.acme]", '[providers.x]\nadapter = "acme"'])
def test_an_adapter_that_cannot_be_loaded_is_no_slip_of_the_pen(tmp_path: Path, table: str) -> None:
    path = install(tmp_path, "acme_nowhere:Acme")
    (tmp_path / "antiphon.toml").write_text(table)
    name = "acme" if "acme]" in table else "x"
    output = (
        f"antiphon: antiphon.toml: providers.{name}.adapter: the adapter 'acme' of acme 1.0 cannot "
        "be loaded: ModuleNotFoundError: No module named 'acme_nowhere'.\n"
    )
    assert models(cwd=tmp_path, PYTHONPATH=path) == (2, "", output)


def test_a_terminal_is_shown_colours() -> None:
    found = [
        ProbeResult(name="a", adapter="openai", status="ready", url="http://a"),
        ProbeResult(name="b", adapter="openai", status="reached", reason="why"),
        ProbeResult(name="c", adapter="openai", status="not ready", reason="why"),
    ]
    overview = ModelsReport(config=None, agents=[], aliases=[], providers=found, problems=[])
    assert list(format_report(overview, coloured=True))[2:] == [
        "  a  \x1b[32mready\x1b[0m      0 models at http://a",
        "  b  \x1b[33mreached\x1b[0m    why",
        "  c  \x1b[31mnot ready\x1b[0m  why",
    ]


def bare(**variables: str) -> dict[str, str]:
    """Return what takes every provider out of the environment, for `command`."""
    hidden = {name: "" for name in os.environ if VARIABLES.search(name)}
    return hidden | {"OLLAMA_HOST": closed()} | variables


def test_the_banner_lists_the_ready_providers(tmp_path: Path) -> None:
    with scripted_upstream(LIST) as provider:
        file = tmp_path / "mine.toml"
        more = 'api_key_env = "LOCAL_KEY"\n[providers.other]\nadapter = "anthropic"\n'
        file.write_text(local(provider, more=more) + '[models]\nfast = "local/small"\n')
        arguments = ("--config", str(file))
        with run_command(*arguments, env=bare(LOCAL_KEY="k")) as (address, process):
            assert process.stdout
            output = [process.stdout.readline() for _ in range(2)]
            with http_client(address) as http:
                names = [model["id"] for model in http.get("/v1/models").json()["data"]]
    assert output == ["models: demo, echo, fast\n", "providers: local, ollama (if it runs)\n"]
    assert names[:3] == ["demo", "echo", "fast"]
    assert {name.partition("/")[0] for name in names[3:]} == {"local"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_write_errors_of_the_output_are_reported(tmp_path: Path, form: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "antiphon", "models", *form],
            cwd=tmp_path,
            env=environment(OLLAMA_HOST=closed()),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("antiphon: cannot write the output: ")
    assert "No space left on device" in done.stderr


def test_unavailable_providers_are_logged_at_startup(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[providers.mine]\nadapter = "anthropic"\n')
    done = ended(tmp_path, "--data", "/dev/null")
    warning = "WARNING antiphon.config.providers provider mine is unavailable: ANTHROPIC_API_KEY"
    assert done.stderr.count(warning) == 1
    # Settings that were read from the same file in Python.
    (tmp_path / "prod.py").write_text("from antiphon import Settings\nsettings = Settings.from_config()")
    done = ended(tmp_path, "--app", "prod:settings", "--data", "/dev/null")
    assert done.stderr.count(warning) == 1
    assert models("--app", "prod:settings", cwd=tmp_path)[::2] == (0, "")


def test_an_alias_with_an_agents_name_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[models]\ndemo = "ollama/x"\n')
    code, output, log = models(cwd=tmp_path)
    assert code == 0
    assert "\n  demo       ready      (hidden by the alias of this name)\n" in output
    assert log.startswith("antiphon.toml: models.demo: this alias hides the agent 'demo'")
    with run_command(cwd=tmp_path, env=bare()) as (_, process):
        assert process.stdout
        assert process.stdout.readline() == "models: demo, echo\n"


def test_a_key_on_an_open_road_is_warned_of_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(
        '[providers.far]\nadapter = "openai"\nbase_url = "http://far.example/v1"\napi_key_env = "FAR_KEY"\n'
    )
    done = ended(tmp_path, "--data", "/dev/null", FAR_KEY="sk-hidden")
    assert "WARNING antiphon.config far: the key in FAR_KEY is sent to http://far" in done.stderr
    assert "sk-hidden" not in done.stderr


def test_settings_that_name_providers_are_served_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "antiphon.toml").write_text('[models]\nfast = "ollama/x"\n')
    output: list[str] = []
    for arguments in (["--app", "agents:own"], ["--app", "agents:own", "--config", "antiphon.toml"]):
        with run_command(*arguments, cwd=tmp_path, env=bare()) as (_, process):
            assert process.stdout
            output.append(process.stdout.readline())
    assert output == ["models: demo, echo, mine, me\n", "models: demo, echo, mine, fast\n"]


def test_a_users_application_has_its_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "antiphon.toml").write_text("not toml, and never read")
    with run_command("--app", "agents:app", cwd=tmp_path, env=bare()) as (address, _), http_client(address) as http:
        names = [model["id"] for model in http.get("/v1/models").json()["data"]]
    assert names == ["mine"]
