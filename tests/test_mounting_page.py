"""The files and commands of docs/mounting.md, as they are written."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon import Antiphon, Settings
from antiphon.cli.load import TargetLoader
from tests.http_client import http_client, post_response
from tests.run_server import ROOT, run_command, run_server

PAGE = (ROOT / "docs" / "mounting.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = dict(re.findall(r"^\| `antiphon serve (.*?)` \| (.*) \|$", PAGE, re.MULTILINE))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the current folder, with the files of the page and a folder of agents; forget the modules afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "agents").mkdir()
    for name, source in FILES.items():
        (tmp_path / name).write_text(source)
    (tmp_path / "agents" / "team.py").write_text(FILES["team.py"])
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_serves_the_models_beside_it(arguments: str) -> None:
    options = list(zip(arguments.split()[::2], arguments.split()[1::2], strict=True))
    targets = [value for name, value in options if name == "--app"]
    folders = [Path(value) for name, value in options if name == "--agents"]
    loaded = TargetLoader().load(targets, folders)
    assert isinstance(loaded, Settings)
    expected = re.findall(r"`(.*?)`", COMMANDS[arguments]) or ["parrot", "triage-agent"]
    assert loaded.agent_models == ["demo", "echo", *expected]


def test_a_process_serves_them(folder: Path) -> None:
    with run_command("--app", "team", cwd=folder) as (address, _):
        assert post_response(address, model="parrot", input="Hi!").json()["status"] == "completed"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("target", "prefix"), [("own_app:app", "/ai"), ("mounting_app:app", "/ai"), ("mounting_app:ai", "")]
)
def test_an_application_answers_at_its_endpoints(target: str, prefix: str) -> None:
    app = TargetLoader().load([target])
    assert callable(app)
    assert isinstance(app, Antiphon) == target.endswith(":ai")
    with run_server(app) as address, http_client(address) as http:
        answer = post_response(address, f"{prefix}/v1", model="parrot", input="Hi!").json()
        assert answer["output"][0]["content"][0]["text"] == "Hi! Hi!"
        if target == "own_app:app":
            assert http.get("/hello").json() == "Hello from the application."
            assert http.get("/ai/v1/nothing").json() == {"detail": "Not Found"}
