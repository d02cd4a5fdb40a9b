"""`antiphon serve --reload`: a server process that is started again when the user's files change.

This process keeps the listening socket, so that clients who connect meanwhile only wait. Files are compared by
their times and sizes, and not watched: that needs no library, and works on network drives and in containers.
"""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from multiprocessing.context import SpawnProcess
from pathlib import Path

from antiphon.cli.load import display_path
from antiphon.cli.main import report_startup_errors
from antiphon.cli.serve import ServeOptions, log_to_stderr, open_socket, serve

WATCHED_SUFFIXES = (".py", ".toml", ".yaml", ".yml")
"""The files whose changes matter: an agent may write others itself."""

NOT_WATCHED = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders of files that are not the user's; neither are hidden ones and virtual environments."""

POLL_SECONDS = 0.4
"""How long to wait between two scans of the files; at least ten times as long as a scan takes."""

RELOAD_DRAIN_SECONDS = 2.0
"""How long running responses may take to finish before a restart, unless --drain-seconds says otherwise."""

FORCED_STOP_SECONDS = 3.0
"""How long an interrupted server may take to store what it has."""

FileVersions = dict[str, tuple[int, int]]
"""The time and the size of each file."""


def serve_with_reload(options: ServeOptions) -> None:
    """Serve until a signal arrives, and start the server again when a file changes; raises StartupError."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, signal.default_int_handler)  # so that each of them ends the loop below
    roots = [Path.cwd(), *options.folders, *([options.config] if options.config else [])]
    with open_socket(options.host, options.port) as listener:
        server = ReloadedServer(options, listener)
        watcher = FileWatcher(roots)
        try:
            server.start()
            for changed in watcher.changes():
                print(f"antiphon: {', '.join(changed)} changed, restarting", file=sys.stderr, flush=True)
                server.stop()
                server.start()
        except KeyboardInterrupt:
            server.stop()


@dataclass
class ReloadedServer:
    """A server in a process of its own, on a socket that outlives it."""

    options: ServeOptions
    listener: socket.socket
    process: SpawnProcess | None = None

    def start(self) -> None:
        # Spawned and not forked: a forked process would have this one's modules.
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=run_server, args=(self.options, self.listener))
        self.process.start()

    def stop(self) -> None:
        """Drain the server, and interrupt it if that takes long."""
        if self.process is None:
            return
        drain_seconds = self.options.drain_seconds
        try:
            self.process.terminate()
            self.process.join(RELOAD_DRAIN_SECONDS if drain_seconds is None else drain_seconds)
            if self.process.is_alive() and self.process.pid:
                os.kill(self.process.pid, signal.SIGINT)  # the second signal: it waits no longer
        finally:
            self.process.join(FORCED_STOP_SECONDS)
            self.process.kill()
            self.process.join()


def run_server(options: ServeOptions, listener: socket.socket) -> None:
    """Serve in a process of its own, for as long as its parent runs."""
    parent = multiprocessing.parent_process()

    def stop_with_parent() -> None:
        if parent:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    log_to_stderr()
    try:
        with report_startup_errors():
            serve(options, listener)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except SystemExit:
        print("antiphon: waiting until a file changes", file=sys.stderr, flush=True)
        raise


class FileWatcher:
    """Finds the files of the user that have changed."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._versions = self._scan()

    def changes(self) -> Iterator[list[str]]:
        """Yield the names of files that were changed, added or removed."""
        while True:
            started = time.monotonic()
            versions = self._scan()
            if versions == self._versions:
                time.sleep(max(POLL_SECONDS, 10 * (time.monotonic() - started)))
                continue
            # Somebody may be saving many files.
            while (later := self._scan()) != versions:
                versions = later
                time.sleep(POLL_SECONDS / 8)
            changed = {path for path, _ in self._versions.items() ^ versions.items()}
            self._versions = versions
            for path in changed:
                # Python compares whole seconds and sizes: it could take old byte code for current.
                if path.endswith(".py"):
                    Path(cache_from_source(path)).unlink(missing_ok=True)
            yield sorted(map(display_path, changed))

    def _scan(self) -> FileVersions:
        versions: FileVersions = {}
        for root in self._roots:
            for path in find_files(root) if root.is_dir() else [root]:
                try:
                    status = Path(path).stat()
                except OSError:
                    continue  # it has just been removed
                versions[str(path)] = status.st_mtime_ns, status.st_size
        return versions


def find_files(folder: Path) -> Iterator[str]:
    """Yield the paths of the user's files in a folder and its subfolders."""
    for parent, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in NOT_WATCHED]
        yield from (f"{parent}/{name}" for name in files if name.endswith(WATCHED_SUFFIXES))
