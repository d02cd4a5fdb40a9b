"""Every example in the README, run as it is written (but for the port)."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.serving import ROOT, command

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


def test_the_agent_is_a_model_for_any_openai_client(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(block("python", "# hello.py"))
    line = block("sh", "--app hello").partition("#")[0].split()
    assert line[:2] == [".venv/bin/antiphon", "serve"]
    with command(*line[2:], cwd=tmp_path) as (address, _):
        client = openai.OpenAI(base_url=f"{address}/openai/v1", api_key="none", max_retries=0)
        assert client.responses.create(model="hello", input="Ah.").output_text == "You said: Ah."
        assert client.responses.create(model="hello/loud", input="Ah.").output_text == "AH."
        client.close()


def test_every_file_the_documents_link_to_is_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())
        if "://" not in link
    ]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
