"""Servers of the test agents, each a process in Xaibo's environment."""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.run_server import ROOT

PYTHON = ROOT / ".venv/xaibo/bin/python"
ADAPTER = "antiphon.server.xaibo.OpenAiResponsesApiAdapter"


class XaiboServer(NamedTuple):
    """The test agents behind several adapters, in one process."""

    url: str
    """The address of our adapter."""
    folder: Path
    """The folder in which the process runs."""

    @property
    def theirs(self) -> str:
        """The address of Xaibo's own adapter."""
        return f"{self.url}/theirs"

    def get(self, path: str) -> dict[str, Any]:
        """Return what the process tells about itself."""
        return httpx.get(self.url + path, trust_env=False).json()


@contextmanager
def run_xaibo(folder: Path) -> Iterator[XaiboServer]:
    """Serve the test agents, below a folder."""
    with free_port() as port:
        command = ["-m", "tests.bridges.xaibo.serve", str(port)]
    with run_python(*command, port=port, cwd=folder) as url:
        yield XaiboServer(url, folder)


@contextmanager
def run_python(*arguments: str, port: int, cwd: Path, environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run a server in Xaibo's environment; give its address when it answers."""
    assert PYTHON.exists(), "make .venv/xaibo/.ready installs Xaibo"
    with tempfile.TemporaryFile("w+") as log:
        variables = os.environ | {"PYTHONPATH": str(ROOT), "NO_PROXY": "*"} | (environment or {})
        process = subprocess.Popen([PYTHON, *arguments], cwd=cwd, stdout=log, stderr=subprocess.STDOUT, env=variables)
        address = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 100
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
