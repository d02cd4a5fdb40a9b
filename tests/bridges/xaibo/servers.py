"""Servers of the test agents, each a process in Xaibo's environment."""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.run_server import ROOT

PYTHON = ROOT / ".venv/xaibo/bin/python"
OURS = "antiphon.server.xaibo.OpenAiResponsesApiAdapter"
THEIRS = "xaibo.server.adapters.openai_responses.OpenAiResponsesApiAdapter"


@contextmanager
def run_xaibo(adapter: str, folder: Path) -> Iterator[str]:
    """Serve the test agents with an adapter; give the address."""
    with free_port() as port:
        command = ["-m", "tests.bridges.xaibo.serve", adapter, str(port), str(folder)]
    with run_python(*command, port=port) as address:
        yield address


@contextmanager
def run_python(*arguments: str, port: int, cwd: Path = ROOT) -> Iterator[str]:
    """Run a server in Xaibo's environment; give its address when it answers."""
    assert PYTHON.exists(), "make .venv/xaibo/.ready installs Xaibo"
    with tempfile.TemporaryFile("w+") as log:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
        process = subprocess.Popen([PYTHON, *arguments], cwd=cwd, stdout=log, stderr=subprocess.STDOUT, env=environment)
        address = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 30
            while not answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise AssertionError(log.read())
                time.sleep(0.05)
            yield address
        finally:
            process.terminate()
            process.wait(20)


def answers(address: str) -> bool:
    """Return whether a server answers with any status."""
    try:
        httpx.get(address, trust_env=False)
    except httpx.TransportError:
        return False
    return True


@contextmanager
def free_port() -> Iterator[int]:
    """Give a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]
