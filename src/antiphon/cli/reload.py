"""`antiphon serve --reload`: a server process that is started again when the user's files change.

This process keeps the listening socket, so that clients who connect meanwhile only wait. Files are compared by
their times and sizes, and not watched: that needs no library, and works on network drives and in containers.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path

from antiphon.cli.load import display_path
from antiphon.cli.processes import ServerProcess, interrupt_on_signals
from antiphon.cli.serve import ServeOptions, open_socket

WATCHED_SUFFIXES = (".py", ".toml", ".yaml", ".yml")
"""The files whose changes matter: an agent may write others itself."""

NOT_WATCHED = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders of files that are not the user's; neither are hidden ones and virtual environments."""

POLL_SECONDS = 0.4
"""How long to wait between two scans of the files; at least ten times as long as a scan takes."""

RELOAD_DRAIN_SECONDS = 2.0
"""How long running responses may take to finish before a restart, unless --drain-seconds says otherwise."""

FileVersions = dict[str, tuple[int, int]]
"""The time and the size of each file."""


def serve_with_reload(options: ServeOptions) -> None:
    """Serve until a signal arrives, and start the server again when a file changes; raises StartupError."""
    interrupt_on_signals()
    drain_seconds = RELOAD_DRAIN_SECONDS if options.drain_seconds is None else options.drain_seconds
    roots = [Path.cwd(), *options.folders, *([options.config] if options.config else [])]
    with open_socket(options.host, options.port) as listener:
        server = ServerProcess(options, listener, drain_seconds, until_changed=True)
        watcher = FileWatcher(roots)
        try:
            server.start()
            for changed in watcher.changes():
                print(f"antiphon: {', '.join(changed)} changed, restarting", file=sys.stderr, flush=True)
                server.stop()
                server.start()
        except KeyboardInterrupt:
            server.stop()


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
