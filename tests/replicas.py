"""Several servers and workers on one PostgreSQL database, as processes, and nginx in front of the servers."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.http_client import WAIT
from tests.postgres_server import free_port

NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; "" ""; }}
    upstream antiphon {{ {servers} keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://antiphon;
            proxy_http_version 1.1;
            proxy_set_header Host $host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_buffering off;
            proxy_read_timeout 1h;
            proxy_send_timeout 1h;
            client_max_body_size 64m;
        }}
    }}
}}
"""


class Process:
    """One server (`port` is set) or worker; its output goes to a file."""

    def __init__(self, folder: Path, name: str, store: str, *, port: int | None = None) -> None:
        self.folder = folder
        self.name = name
        self.port = port
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of a server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What all runs of this process have written."""
        return (self.folder / f"{self.name}.log").read_text()

    def start(self) -> None:
        """Start it; `wait` waits until it is ready."""
        kind, app = ("serve", "front:settings") if self.port else ("worker", "back:settings")
        arguments = [kind, "--app", app, "--store", self._store, *(["--port", str(self.port)] if self.port else [])]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "antiphon", *arguments], cwd=self.folder, stdout=log, stderr=log
            )

    def is_ready(self) -> bool:
        """Tell whether a server answers, or a worker has begun."""
        assert self._process
        assert self._process.poll() is None, self.log
        if self.port is None:
            return "Antiphon runs" in self.log
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def wait(self) -> None:
        """Wait until it is ready."""
        deadline = time.monotonic() + 3 * WAIT
        while not self.is_ready():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; SIGKILL also waits for the end."""
        assert self._process
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait(WAIT)

    def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(WAIT)


@contextmanager
def run_replicas(folder: Path, store: str, servers: int = 2, workers: int = 2) -> Iterator[list[Process]]:
    """Run servers with the settings in `front.py`, and workers with those in `back.py`; the servers come first."""
    processes = [Process(folder, f"server{n}", store, port=free_port()) for n in range(servers)]
    processes += [Process(folder, f"worker{n}", store) for n in range(workers)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait()
        yield processes
    finally:
        for process in processes:
            process.stop()


@contextmanager
def run_nginx(folder: Path, servers: list[Process]) -> Iterator[str]:
    """Run nginx in front of servers; give its address."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program, "nginx is missing: run scripts/setup-nginx as root, or: sudo apt-get install nginx-light"
    port, config = free_port(), folder / "nginx.conf"
    named = " ".join(f"server 127.0.0.1:{one.port} max_fails=1 fail_timeout=1s;" for one in servers)
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(user + NGINX.format(folder=folder, servers=named, port=port))
    process = subprocess.Popen([program, "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log")])
    try:
        deadline = time.monotonic() + WAIT
        while True:
            assert process.poll() is None, (folder / "nginx.log").read_text()
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=WAIT)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(WAIT)
