"""`antiphon serve`, run as a user would."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from antiphon import __version__
from antiphon.cli.load import TargetLoader
from antiphon.cli.serve import ServeOptions, StartupError, banner_lines, serve
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.asgi import AsgiApp
from antiphon.server.settings import Settings
from tests.http_client import http_client, post_response
from tests.run_server import run_command

AGENTS = """
from antiphon import Settings, Turn, agent, create_app


@agent("my-agent")
async def my_agent(turn: Turn):
    yield "You said: "
    yield turn.text


@my_agent.entry("loud")
async def loud(turn: Turn):
    yield turn.text.upper()


@agent("other")
def other():
    return "other"


both = [my_agent, other]
by_name = {"Second name": my_agent, "other": other}
nobody = []
_hidden = agent("hidden")(other)
settings = Settings(agents=[my_agent], demo=False)
locked = Settings(agents=[my_agent], api_key="in-settings")
app = create_app(Settings(agents=[other], demo=False))
number = 5
words = ["my-agent"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a user's folder: agents, and modules that are of no use."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(AGENTS)
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("import surely_not_installed")
    (folder / "unextra.py").write_text("from xaibo.core import Xaibo")
    return folder


def run(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command to its end; return its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"} | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def load_targets(targets: list[str]) -> Settings | AsgiApp:
    """Load what --app names."""
    return TargetLoader().load(targets)


def models(address: str) -> list[str]:
    """Return the names of a server's models."""
    with http_client(address) as http:
        return [model["id"] for model in http.get("/v1/models").json()["data"]]


def test_the_version_is_printed() -> None:
    assert run("--version") == (0, f"antiphon {__version__}\n")


def test_help_shows_every_option() -> None:
    code, output = run("serve", "--help")
    assert code == 0
    options = "--host --port --app --agents --config --data --api-key ANTIPHON_API_KEY --no-auth --reload".split()
    for option in options:
        assert option in output

    # Typer writes the line of --help.
    assert [line for line in output.splitlines() if "bool" in line and "--help" not in line] == []


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["serve", "-h"], ["models", "-h"]])
def test_help_is_printed(arguments: list[str]) -> None:
    code, output = run(*arguments)
    assert code == 0
    assert f"Usage: {' '.join(['antiphon', *arguments[:-1]])} " in output.replace("python -m antiphon", "antiphon")


def test_the_banner_shows_the_address_and_an_example() -> None:
    with run_command() as (address, process):
        assert process.stdout
        models_line, providers_line, stored_line, *to_try = [process.stdout.readline().rstrip() for _ in range(5)]
        assert models_line == "models: demo, echo"
        assert re.fullmatch(r"providers: (\w+, )*ollama \(if it runs\)(, \w+)*", providers_line)
        assert re.fullmatch(
            "stored: in .+, until 30 days after the end of a response or of one that continues it", stored_line
        )
        assert to_try == [
            f"try:    curl -N {address}/v1/responses -H 'Content-Type: application/json' \\",
            """          -d '{"model": "demo", "input": "Hello!", "stream": true}'""",
        ]
        assert models(address) == ["demo", "echo"]
        assert post_response(address).status_code == 200


@pytest.mark.parametrize(("seconds", "days"), [(0, "0"), (43200, "0.5"), (604800, "7")])
def test_the_banner_says_how_long_responses_are_kept(seconds: float, days: str) -> None:
    lines = banner_lines(Settings(responses_dir=None, response_seconds=seconds), "http://127.0.0.1:1")
    assert lines[-2].startswith(f"stored: in memory only, until {days} days after the end of a response")


def test_the_example_in_the_banner_has_the_key_if_one_is_set() -> None:
    *_, example = banner_lines(Settings(api_key="sk-secret"), "http://127.0.0.1:1")
    assert '-H "Authorization: Bearer $ANTIPHON_API_KEY" \\\n' in example
    assert "sk-secret" not in example
    assert "Authorization" not in banner_lines(Settings(), "http://127.0.0.1:1")[-1]


def test_an_empty_data_folder_is_rejected() -> None:
    assert run("serve", "--port", "0", "--data", "") == (
        2,
        "antiphon: --data is empty. Name a folder, or leave --data out.\n",
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", "line 2: invalid syntax. Correct it."),
        (
            "agent('my agent')(print)",
            "line 2: an agent's name is one word without slashes, not 'my agent'.\n    agent('my agent')(print)",
        ),
        ("@agent\ndef f(turn): ...", "line 2: 'f' has @agent without a name. Write @agent('f').\n    @agent"),
        ("import os\nos.environ['NO_KEY']", "line 3: KeyError: 'NO_KEY'.\n    os.environ['NO_KEY']"),
        ("raise SystemExit('no key')", "line 2: SystemExit: no key.\n    raise SystemExit('no key')"),
        (
            "def read(): return {}['key']\nread()",
            "line 2: KeyError: 'key'.\n    mistaken.py, line 3: read()\n"
            "    mistaken.py, line 2: def read(): return {}['key']",
        ),
        (
            "import json\njson.loads('{')",
            "line 3: json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 "
            "(char 1).\n    json.loads('{')",
        ),
    ],
)
def test_a_mistake_in_an_agents_file_is_its_place_its_reason_and_the_users_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "mistaken.py"
    file.write_text(f"from antiphon import agent\n{source}\n")
    with pytest.raises((StartupError, InvalidValueError)) as caught:
        load_targets(["mistaken"])
    assert str(caught.value) == f"mistaken.py, {message}"


def test_an_agent_answers_as_its_author_wrote_it(folder: Path) -> None:
    with run_command("--app", "mine:my_agent", "--app", "mine:both", cwd=folder) as (address, _):
        assert models(address) == ["demo", "echo", "my-agent", "my-agent/loud", "other"]
        plain = post_response(address, "/openai", model="my-agent", input="Hello!").json()
        loud = post_response(address, "/openai", model="my-agent/loud", input="Hello!").json()
    output = [answer["output"][0]["content"][0]["text"] for answer in (plain, loud)]
    assert output == ["You said: Hello!", "HELLO!"]


def test_settings_are_served_as_they_are_and_one_of_their_models_is_to_be_tried(folder: Path) -> None:
    with run_command("--app", "mine:settings", cwd=folder) as (address, process):
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(5)]
        assert models(address) == ["my-agent", "my-agent/loud"]
    assert '"model": "my-agent"' in lines[-1]


def test_a_users_application_is_served_unchanged(folder: Path) -> None:
    with run_command("--app", "mine:app", cwd=folder) as (address, _):
        assert models(address) == ["other"]
        assert post_response(address, model="other").status_code == 200


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("mine:my_agent", ["my-agent"]),
        ("mine:both", ["my-agent", "other"]),
        ("mine:by_name", ["second-name", "other"]),
        ("mine:_hidden", ["hidden"]),
        ("mine", ["my-agent", "other"]),
        ("mine.py", ["my-agent", "other"]),
    ],
)
def test_a_target_is_an_agent_or_several(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, names: list[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = load_targets([target])
    assert isinstance(loaded, Settings)
    assert [agent.name for agent in loaded.agents] == names


def test_agents_of_several_targets_are_served_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for targets in (["mine:my_agent", "mine:both"], ["mine:both", "mine:my_agent"]):
        loaded = load_targets(targets)
        assert isinstance(loaded, Settings)
        assert [agent.name for agent in loaded.all_agents] == ["demo", "echo", "my-agent", "other"]
    assert load_targets([]) == Settings(agents=[])


def test_two_agents_of_one_name_cannot_be_served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "twin.py").write_text("from antiphon import agent\n\n@agent('other')\ndef twin(): return 'twin'\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InvalidValueError, match="two agents are called 'other'"):
        load_targets(["mine", "twin"])


def test_an_application_cannot_be_combined_with_agents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "whole.py").write_text("from antiphon import Settings\nSETTINGS = Settings(demo=False)\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(StartupError, match="whole:SETTINGS is complete in itself"):
        load_targets(["mine", "whole:SETTINGS"])


NO_NAME = "is not a module name. Write it as in an import: package.module."


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere", "no module 'nowhere'. Is nowhere.py in this folder?"),
        ("nowhere.py:app", "no module 'nowhere'. Is nowhere.py in this folder?"),
        ("nowhere.inside", "no module 'nowhere'. Is nowhere.inside.py in this folder?"),
        ("broken", "broken.py, line 1: 'surely_not_installed' is not installed.\n    import surely_not_installed"),
        (
            "unextra",
            "unextra.py, line 1: 'xaibo' is not installed. Install it with: pip install 'antiphon[xaibo]'.\n"
            "    from xaibo.core import Xaibo",
        ),
        ("mine:missing", "mine has no 'missing'."),
        ("empty", "empty has no agents. Make one with @agent('name')."),
        ("mine:number", "mine:number is a int, not an agent, a list or dict of agents, or an app."),
        ("mine:nobody", "mine:nobody is a list, not an agent, a list or dict of agents, or an app."),
        ("mine:words", "mine:words is a list, not an agent, a list or dict of agents, or an app."),
        (":app", f"'' {NO_NAME}"),
        ("./mine", f"'./mine' {NO_NAME}"),
    ],
)
def test_invalid_targets_are_reported(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises((StartupError, InvalidValueError)) as caught:
        load_targets([target])
    assert str(caught.value) == message


def test_an_error_is_one_log_line_without_a_traceback(folder: Path) -> None:
    output = "antiphon: no module 'nowhere'. Is nowhere.py in this folder?\n"
    assert run("serve", "--port", "0", "--app", "nowhere", cwd=folder) == (2, output)


def test_an_invalid_port_is_rejected() -> None:
    code, output = run("serve", "--port", "65536")
    assert code == 2
    assert "--port" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_an_invalid_drain_time_is_rejected(seconds: str) -> None:
    code, output = run("serve", "--port", "0", "--drain-seconds", seconds)
    assert code == 2
    assert "--drain-seconds" in output
    assert "Traceback" not in output


def test_a_port_in_use_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output = run("serve", "--port", str(port), env={"MAKELEVEL": ""})
        assert code == 2
        _, with_make = run("serve", "--port", str(port), env={"MAKELEVEL": "1"})
    message = f"antiphon: port {port} is already in use. Choose another one with"
    assert output == f"{message} --port.\n"
    assert with_make == f"{message} PORT= (make) or --port.\n"


def test_an_address_that_is_none_is_named() -> None:
    code, output = run("serve", "--host", "nowhere.invalid", "--no-auth")
    assert code == 2
    assert output.startswith("antiphon: cannot listen on nowhere.invalid:8000: ")
    assert "Traceback" not in output


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, reason in (
        (tmp_path / "file", "cannot be used: File exists"),
        (tmp_path / "file" / "x", "cannot be created: Not a directory"),
        (Path("/proc/x"), "cannot be created: No such file or directory"),
    ):
        code, output = run("serve", "--port", "0", "--data", str(folder))
        assert code == 2
        assert output == f"antiphon: The folder {folder} {reason}. Choose another folder with --data.\n"


def test_responses_are_kept_in_memory_on_request(tmp_path: Path) -> None:
    with run_command("--data", ":memory:", cwd=tmp_path) as (address, _):
        first = post_response(address).json()["id"]
        with http_client(address) as http:
            assert http.get(f"/v1/responses/{first}").status_code == 200
    assert not list(tmp_path.iterdir())


def refusal(host: str, target: str | None = None, api_key: str | None = None) -> str:
    """Return why a server is not started."""
    with pytest.raises((StartupError, InvalidValueError)) as caught:
        serve(ServeOptions(host=host, port=0, targets=[target] if target else [], api_key=api_key))
    return str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_beyond_this_machine_it_needs_a_key(host: str) -> None:
    assert refusal(host) == (
        f"{host} is reachable from other machines. Set --api-key or ANTIPHON_API_KEY, "
        "or use --no-auth to serve without a key."
    )


def test_serving_other_machines_without_a_key_fails_with_advice() -> None:
    code, output = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, output) == (2, f"antiphon: {refusal('0.0.0.0')}\n")


def test_a_users_application_has_its_own_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert refusal("0.0.0.0", "mine:app") == (
        "0.0.0.0 is reachable from other machines. Use --no-auth if your application checks keys itself, or needs none."
    )
    given = (
        "mine:app is an ASGI application: set the configuration, the key, the data folder and "
        "the drain time in its own Settings."
    )
    assert refusal("127.0.0.1", "mine:app", "key") == given


def test_an_empty_key_is_rejected() -> None:
    empty = "the API key is empty. Set ANTIPHON_API_KEY to a secret, or unset it."
    assert refusal("127.0.0.1", api_key="") == empty


@pytest.mark.parametrize("key", ["two words", "clé", "tab\t", " secret"])
def test_a_key_that_no_header_can_hold_is_rejected(key: str) -> None:
    expected = "api_key: expected ASCII letters, digits and signs without blanks. Choose another key."
    assert refusal("127.0.0.1", api_key=key) == expected
    with pytest.raises(InvalidValueError, match=r"^api_key: "):
        Settings(api_key=key)


def asked_with(address: str, key: str | None) -> httpx.Response:
    """Ask for the models, with or without a key."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with http_client(address) as http:
        return http.get("/v1/models", headers=headers)


KEYED: list[tuple[list[str], dict[str, str], str]] = [
    (["--host", "0.0.0.0", "--api-key", "by-option"], {}, "by-option"),
    (["--host", "0.0.0.0"], {"ANTIPHON_API_KEY": "by-env"}, "by-env"),
    (["--host", "0.0.0.0", "--app", "mine:locked"], {}, "in-settings"),
    (["--app", "mine:locked", "--api-key", "by-option"], {"ANTIPHON_API_KEY": "e"}, "by-option"),
]


@pytest.mark.parametrize(("arguments", "env", "key"), KEYED)
def test_an_api_key_can_be_set_by_option_variable_and_settings(
    folder: Path, arguments: list[str], env: dict[str, str], key: str
) -> None:
    with run_command(*arguments, cwd=folder, env=env) as (address, _):
        given = [None, "wrong", key]
        assert [asked_with(address, one).status_code for one in given] == [401, 401, 200]


def test_no_auth_opens_the_server_to_everyone() -> None:
    with run_command("--host", "0.0.0.0", "--no-auth") as (address, _):
        assert asked_with(address, None).status_code == 200


def test_the_key_and_the_content_are_never_logged() -> None:
    with run_command("--api-key", "sk-hidden") as (address, process):
        asked_with(address, "sk-hidden")
        asked_with(address, "sk-hidden-too")
        with http_client(address) as http:
            http.post(
                "/v1/responses?private=1",
                json={"model": "demo", "input": "the secret FAIL"},
                headers={"authorization": "Bearer sk-hidden"},
            )
        process.terminate()
        assert process.stdout
        output = process.stdout.read()
    line = r"^[\d-]{10} [\d:]{8},\d{3} INFO antiphon.access (GET|POST) /v1/\w+ (200|401|500) "
    assert len(re.findall(line, output, re.MULTILINE)) == 3
    assert not [word for word in ("sk-hidden", "secret", "private") if word in output]


@pytest.fixture
def default_hangup() -> Iterator[None]:
    """Let servers receive SIGHUP: under `nohup` they would inherit that it is ignored."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_server(number: signal.Signals) -> None:
    with run_command() as (address, process):
        assert post_response(address).status_code == 200
        process.send_signal(number)
        process.wait(20)  # less than the drain time of 25 seconds


def deltas(address: str, model: str = "demo") -> Iterator[str]:
    """Give a slow stream, chunk by chunk."""
    with (
        http_client(address) as http,
        http.stream("POST", "/v1/responses", json={"model": model, "input": "SLOW", "stream": True}) as answer,
    ):
        yield from answer.iter_text()


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_running_responses_finish_before_the_exit(number: signal.Signals) -> None:
    with run_command() as (address, process):
        stream = deltas(address)
        text = next(stream)
        process.send_signal(number)
        text += "".join(stream)
        process.wait(20)
    assert "event: response.completed" in text
    assert text.endswith("data: [DONE]\n\n")


HANGS = """
import asyncio
from antiphon import agent

@agent("hangs")
async def hangs(turn):
    yield "Well, "
    await asyncio.sleep(60)

@agent("deaf")
async def deaf(turn):
    yield "Well, "
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""


@pytest.mark.parametrize("times", [2, 5])
def test_a_second_interrupt_stops_at_once_and_ends_the_streams(tmp_path: Path, times: int) -> None:
    (tmp_path / "mine.py").write_text(HANGS)
    with run_command("--app", "mine", cwd=tmp_path) as (address, process):
        stream = deltas(address, "hangs")
        text = next(stream)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        text += "".join(stream)
        assert process.wait(20) == 130  # less than the drain time of 25 seconds
        assert process.stdout
        output = process.stdout.read()
    assert "event: response.failed" in text
    assert "The server stopped while this response was being made." in text
    assert text.endswith("data: [DONE]\n\n")
    assert "Traceback" not in output


def test_a_second_interrupt_does_not_wait_for_stuck_tasks(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HANGS)
    with run_command("--app", "mine", cwd=tmp_path) as (address, process):
        stream = deltas(address, "deaf")
        next(stream)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.wait(20) == 130  # less than the drain time of 25 seconds
        with pytest.raises(httpx.RemoteProtocolError):
            list(stream)
        assert process.stdout
        assert "Traceback" not in process.stdout.read()


@pytest.mark.parametrize(
    ("prepare", "advice"),
    [
        (lambda path: path.write_text("no database" * 100), "not a database. Choose another folder with --data.\n"),
        (
            lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 999"),
            "Use a newer Antiphon, or another folder.\n",
        ),
    ],
)
def test_the_advice_about_an_unusable_database_is_given_once(
    tmp_path: Path, prepare: Callable[[Path], object], advice: str
) -> None:
    prepare(tmp_path / "responses.db")
    code, output = run("serve", "--port", "0", "--data", str(tmp_path))
    assert code == 2
    assert output.endswith(advice)
    assert output.count("another folder") == 1


def test_pages_of_an_allowed_origin_may_use_the_server() -> None:
    with run_command("--allow-origin", "https://app.example", "--allow-origin", "https://b.example") as (address, _):
        for origin, allowed in (("https://b.example", "https://b.example"), ("https://evil.example", None)):
            answer = httpx.get(f"{address}/v1/models", headers={"origin": origin}, timeout=20)
            assert answer.headers.get("access-control-allow-origin") == allowed
