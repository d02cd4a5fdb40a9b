"""Servers in processes of their own, on a socket that their parent keeps: `--reload` and `--workers`."""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnProcess

from antiphon.cli.main import StartupError, report_startup_errors
from antiphon.cli.serve import ServeOptions, log_to_stderr, open_socket, serve
from antiphon.server.settings import Settings

FORCED_STOP_SECONDS = 3.0
"""How long an interrupted server may take to store what it has."""

STARTUP_ERROR = 2
"""The exit code of a server that cannot start."""

RESTART_SECONDS = 1.0
"""The least time between two starts of a worker that ends by itself."""


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt at SIGTERM and SIGHUP too."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, signal.default_int_handler)


def serve_with_workers(options: ServeOptions, count: int) -> None:
    """Serve with several processes behind one port until a signal arrives; raises StartupError.

    A process that ends by itself is replaced.
    """
    interrupt_on_signals()
    seconds = Settings.drain_seconds if options.drain_seconds is None else options.drain_seconds
    with open_socket(options.host, options.port) as listener:
        workers = [ServerProcess(options, listener, seconds, is_shared=True, announce=n == 0) for n in range(count)]
        try:
            for worker in workers:
                worker.start()
            while True:
                connection.wait([worker.sentinel for worker in workers])
                for worker in workers:
                    worker.replace_if_ended()
        except KeyboardInterrupt:
            pass
        finally:
            stop_all(workers)


def stop_all(workers: list["ServerProcess"]) -> None:
    """Drain all workers at the same time."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        # A second Ctrl-C has reached the workers themselves, too.
        with suppress(KeyboardInterrupt):
            worker.stop()


@dataclass
class ServerProcess:
    """A server in a process of its own, on a socket that outlives it."""

    options: ServeOptions
    listener: socket.socket
    drain_seconds: float
    """How long it may take to stop before it is interrupted."""
    is_shared: bool = False
    """Whether other processes serve the same port, so that they have to share a store."""
    announce: bool = True
    until_changed: bool = False
    """Whether it is started again when a file changes."""
    process: SpawnProcess | None = None
    started_at: float = 0

    def start(self) -> None:
        # Spawned and not forked: a forked process would have this one's modules.
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(
            target=run_server,
            args=(self.options, self.listener),
            kwargs={"is_shared": self.is_shared, "announce": self.announce, "until_changed": self.until_changed},
        )
        self.process.start()
        self.started_at = time.monotonic()

    @property
    def sentinel(self) -> int:
        """What `multiprocessing.connection.wait` waits for."""
        return self.process.sentinel if self.process else -1

    def replace_if_ended(self) -> None:
        """Start the server again if it has ended by itself; raises StartupError if it could not start."""
        if self.process is None or self.process.is_alive():
            return
        code = self.process.exitcode
        if code == STARTUP_ERROR:
            raise StartupError("a worker could not start; see above.")
        print(f"antiphon: a worker has ended with code {code}; another one is started", file=sys.stderr, flush=True)
        time.sleep(max(0, self.started_at + RESTART_SECONDS - time.monotonic()))
        self.announce = False
        self.start()

    def terminate(self) -> None:
        """Ask the server to drain."""
        if self.process is not None:
            self.process.terminate()

    def stop(self) -> None:
        """Drain the server, and interrupt it if that takes longer than it may."""
        if self.process is None:
            return
        try:
            self.process.terminate()
            self.process.join(self.drain_seconds)
            if self.process.is_alive() and self.process.pid:
                os.kill(self.process.pid, signal.SIGINT)  # the second signal: it waits no longer
        finally:
            self.process.join(FORCED_STOP_SECONDS)
            self.process.kill()
            self.process.join()


def run_server(
    options: ServeOptions, listener: socket.socket, *, is_shared: bool, announce: bool, until_changed: bool
) -> None:
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
            serve(options, listener, is_shared=is_shared, announce=announce)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except SystemExit:
        if until_changed:
            print("antiphon: waiting until a file changes", file=sys.stderr, flush=True)
        raise
