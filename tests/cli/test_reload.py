"""`antiphon serve --reload`, run as a user would."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from antiphon.cli.reload import FileWatcher
from tests.http_client import WAIT, parse_stream, post_response, wait_until
from tests.run_server import run_command

AGENT = """
import asyncio
import os
from antiphon import agent

@agent("mine")
async def mine(turn):
    if turn.text == "pid":
        yield str(os.getpid())
    while turn.text == "endless":
        yield "x"
        await asyncio.sleep(0.01)
    yield "{}"
"""


@contextmanager
def reloading(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str], IO[str]]]:
    """Serve `mine.py` with --reload; give the address, the process and its output."""
    (folder / "mine.py").write_text(AGENT.format("one"))
    with run_command("--reload", "--app", "mine", *arguments, cwd=folder) as (address, process):
        assert process.stdout
        yield address, process, process.stdout


def ask(address: str, text: str = "Hi!") -> str:
    """Return the agent's answer."""
    return post_response(address, model="mine", input=text).json()["output"][0]["content"][0]["text"]


def read_until(output: IO[str], text: str) -> str:
    """Return the line of the output that contains a text."""
    while text not in (line := output.readline()):
        assert line, f"the output ended without {text!r}"
    return line


def test_a_change_restarts_the_server_and_a_mistake_waits_for_its_correction(tmp_path: Path) -> None:
    with reloading(tmp_path) as (address, _, output):
        assert ask(address) == "one"
        (tmp_path / "notes.txt").write_text("not watched")
        # As long as before, and within the same second: Python's cache alone would not notice it.
        (tmp_path / "mine.py").write_text(AGENT.format("two"))
        assert read_until(output, "antiphon:") == "antiphon: mine.py changed, restarting\n"
        read_until(output, "Antiphon serves")
        assert ask(address) == "two"
        (tmp_path / "mine.py").write_text("import surely_not_installed")
        read_until(output, "mine.py, line 1: 'surely_not_installed' is not installed.")
        read_until(output, "antiphon: waiting until a file changes")
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(ask(address)))
        asking.start()
        (tmp_path / "mine.py").write_text(AGENT.format("three"))
        asking.join(WAIT)
        assert answers == ["three"]


def test_a_restart_interrupts_what_takes_long(tmp_path: Path) -> None:
    with reloading(tmp_path, "--drain-seconds", "0.2") as (address, _, output):
        body = {"model": "mine", "input": "endless", "stream": True}
        with httpx.stream("POST", f"{address}/v1/responses", json=body, timeout=WAIT, trust_env=False) as stream:
            chunks = stream.iter_text()
            text = next(chunks)
            (tmp_path / "mine.py").write_text(AGENT.format("two"))
            text += "".join(chunks)
        events = parse_stream(text)
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["error"]["code"] == "server_error"
        read_until(output, "Antiphon serves")
        assert ask(address) == "two"


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_both_processes(tmp_path: Path, number: signal.Signals) -> None:
    with reloading(tmp_path) as (address, process, _):
        server = int(ask(address, "pid").removesuffix("one"))
        assert server != process.pid
        assert is_alive(server)
        os.kill(process.pid, number)
        process.wait(WAIT)
        wait_until(lambda: not is_alive(server))
        with pytest.raises(httpx.ConnectError):
            ask(address)


def test_only_the_users_code_and_configuration_are_watched(tmp_path: Path) -> None:
    watcher = FileWatcher([tmp_path])
    changes = watcher.changes()
    for name in (".hidden/a.py", "node_modules/a.py", "env/lib/a.py", "env/pyvenv.cfg", "data.json", "sub/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "agent.yaml").touch()
    assert next(changes) == [f"{tmp_path}/agent.yaml", f"{tmp_path}/sub/b.py"]
    (tmp_path / "agent.yaml").unlink()
    assert next(changes) == [f"{tmp_path}/agent.yaml"]
