"""Every example in the README, run as it is written (but for the port)."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.adapters.scenes import anthropic
from tests.adapters.scenes import openai as chat
from tests.http_client import post_response
from tests.run_server import ROOT, run_command
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream

README = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """Return the README's code block that contains something."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return next(text for text in blocks if containing in text)


@contextmanager
def make_serve() -> Iterator[str]:
    """Run `make serve`, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    line = block("sh", "make serve").partition("#")[0].split()
    process = subprocess.Popen(
        [*line, f"PORT={port}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    assert process.stdout is not None
    try:
        assert f"http://127.0.0.1:{port}" in process.stdout.readline()
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Give the port of a server that `make serve` started."""
    with make_serve() as port:
        yield port


def test_the_two_commands_give_a_streamed_story(port: str) -> None:
    script = block("sh", "curl").replace(":8000", f":{port}")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("event: response.created\ndata: {")
    assert done.stdout.count("event: response.output_text.delta\n") >= 60
    assert done.stdout.endswith("data: [DONE]\n\n")


def test_an_agent_of_fifteen_lines_uses_both_its_tools(port: str) -> None:
    script = block("python", "run_agent")
    assert len([line for line in script.splitlines() if line.strip()]) <= 15
    assert run_python(script, port) == "weather says: sunny in Paris\npopulation says: 2100000\n"


def test_the_client_asks_and_hears(port: str) -> None:
    heard = run_python(block("python", "import Client"), port)
    assert "You said: Hello!\nOnce upon a time" in heard


@pytest.mark.parametrize("page", ["client", "agent", "hashbrown"])
def test_the_examples_of_the_guides_run(page: str, port: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for script in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        assert run_python(script, port)


def run_python(script: str, port: str) -> str:
    """Run an example against the server; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script.replace(":8000", f":{port}")],
        capture_output=True,
        text=True,
        env=os.environ | {"ANTIPHON_BASE_URL": f"http://127.0.0.1:{port}/v1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_one_piece(body: bytes) -> ScriptedAnswer:
    """Play a whole answer."""
    return ScriptedAnswer(body, headers={"content-type": "application/json"})


def test_a_key_in_the_environment_makes_a_provider(tmp_path: Path) -> None:
    export, models, serve = block("sh", "export").splitlines()
    variable = export.removeprefix("export ").removesuffix("=...")
    env = {variable: "secret"}
    text = anthropic.SCENES["text"]
    with scripted_upstream(json_answer({"data": [{"id": "claude-9"}]}), in_one_piece(text.whole)) as provider:
        # The example's only difference: the provider is here, and not where it really is.
        place = f'[providers.anthropic]\nbase_url = "{provider.url}"\napi_key_env = "{variable}"\n'
        (tmp_path / "antiphon.toml").write_text(place)
        listed = subprocess.run(
            [ROOT / ".venv/bin/antiphon", *models.partition("#")[0].split()[1:]],
            cwd=tmp_path,
            env=os.environ | env,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert serve.partition("#")[0].split() == [".venv/bin/antiphon", "serve"]
        with run_command(cwd=tmp_path, env=env) as (address, _):
            answer = post_response(address, model="anthropic/claude-9").json()
    assert "    anthropic/claude-9\n" in listed.stdout
    assert answer["output"][0]["content"][0]["text"] == text.expected.text
    assert {request.headers["x-api-key"] for request in provider.requests} == {"secret"}


def test_every_model_answers_at_every_door_and_an_alias_falls_back(tmp_path: Path) -> None:
    text = chat.SCENES["text"]
    with scripted_upstream(in_one_piece(text.whole)) as local:
        file = block("toml", "[providers.local]").replace(":9100", f":{local.port}")
        (tmp_path / "antiphon.toml").write_text(file)
        with run_command(cwd=tmp_path, env={"ANTHROPIC_API_KEY": ""}) as (address, _):
            script = block("python", "chat.completions").replace("http://127.0.0.1:8000", address)
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
            answer = post_response(address, model="best").json()
    assert done.stdout == f"{text.expected.text} {text.expected.text}\n"
    assert {request.json["model"] for request in local.requests} == {"small"}
    (warning,) = answer["antiphon:warnings"]
    assert (warning["code"], warning["param"]) == ("fallback", "model")
    assert "no API key" in warning["message"]


def test_the_agent_is_a_model_for_any_openai_client(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(block("python", "# hello.py"))
    line = block("sh", "--app hello").partition("#")[0].split()
    assert line[:2] == [".venv/bin/antiphon", "serve"]
    with run_command(*line[2:], cwd=tmp_path) as (address, _):
        client = openai.OpenAI(base_url=f"{address}/openai/v1", api_key="none", max_retries=0)
        assert client.responses.create(model="hello", input="Ah.").output_text == "You said: Ah."
        assert client.responses.create(model="hello/loud", input="Ah.").output_text == "AH."
        client.close()


def test_every_file_the_documents_link_to_is_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if "://" not in link
    ]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
