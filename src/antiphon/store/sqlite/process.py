"""This process among those that use one data folder: which of them live, and notifications between them.

Each process holds a lock on a file of its own for as long as it lives; the operating system releases it even after a
crash. So a process is gone exactly if somebody else can take its lock.
"""

import asyncio
import fcntl
import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from antiphon.protocol.errors import StoreError

PREFIX, SUFFIX = "process-", ".lock"

PEERS_SECONDS = 0.5
"""How long the list of the other processes is used before the folder is read again."""

MAX_MESSAGE = 256
"""The most bytes of a notification: the id of a response."""


class Process:
    """This process's lock file, and its socket for notifications."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.id = os.urandom(12).hex()
        self._sender: socket.socket | None = None
        self._socket: socket.socket | None = None
        try:
            self._descriptor = os.open(self._lock_file(self.id), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise StoreError(f"The folder {folder} cannot be used: {error.strerror}.") from error
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        # Names of sockets are short: the folder's may not fit.
        self._namespace = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._peers: list[str] = []
        self._peers_read_at = -PEERS_SECONDS

    def _lock_file(self, id: str) -> Path:
        return self._folder / f"{PREFIX}{id}{SUFFIX}"

    def is_alive(self, id: str | None) -> bool:
        """Tell whether a process lives; the lock file of one that is gone is deleted."""
        if id is None:  # of a version without lock files
            return False
        path = self._lock_file(id)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # when in doubt its responses are left alone
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)

    def listen(self, notify: Callable[[str], None]) -> None:
        """Call `notify` with the ids that other processes send, on the running event loop; Linux only.

        Elsewhere readers of responses that another process makes poll.
        """
        if self._socket is not None or sys.platform != "linux":
            return
        receiver = open_socket()
        receiver.bind(self._address(self.id))
        self._socket, self._loop = receiver, asyncio.get_running_loop()

        def receive() -> None:
            with suppress(BlockingIOError):
                while message := receiver.recv(MAX_MESSAGE):
                    notify(message.decode(errors="replace"))

        self._loop.add_reader(receiver, receive)

    def _address(self, id: str) -> str:
        # In the abstract namespace: nothing to delete after a crash.
        return f"\0antiphon-{self._namespace}-{id}"

    def send(self, id: str) -> None:
        """Tell the other processes that a response has news. It is a hint: one that cannot be sent is dropped."""
        if (now := time.monotonic()) - self._peers_read_at > PEERS_SECONDS:
            self._peers, self._peers_read_at = self._find_peers(), now
        if self._peers and self._sender is None:
            self._sender = open_socket()
        for peer in self._peers:
            with suppress(OSError):
                cast("socket.socket", self._sender).sendto(id.encode(), self._address(peer))

    def _find_peers(self) -> list[str]:
        names = [path.name for path in self._folder.glob(f"{PREFIX}*{SUFFIX}")]
        ids = [name.removeprefix(PREFIX).removesuffix(SUFFIX) for name in names]
        return [id for id in ids if id != self.id]

    def __del__(self) -> None:
        # A store that was not closed leaves no open sockets.
        for one in (self._socket, self._sender):
            if one is not None:
                one.close()

    def close(self) -> None:
        """Release the lock and close the socket."""
        if self._socket is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._sender is not None:
            self._sender.close()
        with suppress(OSError):
            self._lock_file(self.id).unlink(missing_ok=True)
            os.close(self._descriptor)


def open_socket() -> socket.socket:
    """Return a socket for datagrams that never blocks."""
    new = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    new.setblocking(False)
    return new
