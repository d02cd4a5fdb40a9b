"""Run a real server for tests: in a thread of this process, or as a process."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from antiphon.server.app import create_app
from antiphon.server.asgi import AsgiApp
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.server import uvicorn_config

ROOT = Path(__file__).resolve().parent.parent


def without_store(settings: Settings | None) -> Settings:
    """Disable the store unless a test sets a folder."""
    settings = settings or Settings()
    default = settings.responses_dir == Settings().responses_dir
    return replace(settings, responses_dir=None) if default else settings


@contextmanager
def run_server(served: Settings | AsgiApp | None = None, *, connections: Settings | None = None) -> Iterator[str]:
    """Serve an application or settings on a free port; give the address.

    `connections` are the settings of the server below the application, which are the defaults otherwise.
    """
    app = create_app(without_store(served)) if not callable(served) else served
    server = uvicorn.Server(uvicorn_config(app, "127.0.0.1", 0, connections))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server did not start in time"
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def run_command(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, python: str = sys.executable
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `antiphon serve` on a free port as a user would; give its address and its process.

    It runs in a temporary folder unless a test sets `cwd`, and in the environment of this Python unless it names one.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tempfile.TemporaryDirectory()
    process = subprocess.Popen(
        [python, "-m", "antiphon", "serve", "--port", str(port), *arguments],
        cwd=cwd or folder.name,
        env=os.environ | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    before: list[str] = []
    try:
        while not (line := process.stdout.readline()).startswith("Antiphon serves"):
            before.append(line)  # of the log
            assert line, "".join(before)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
        folder.cleanup()
