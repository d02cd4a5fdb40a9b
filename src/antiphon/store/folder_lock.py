"""One housekeeper for a folder: a second would take what the first makes for what a crash left."""

import fcntl
import os
from pathlib import Path

from antiphon.protocol.errors import StoreError

LOCK_FILE = "lock"


class FolderLock:
    """A claim on a folder; it ends with its release, or with the process in whatever way."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.is_held = False
        else:
            self.is_held = True
            """Whether nobody else has the folder."""

    def release(self) -> None:
        """Let others have the folder."""
        os.close(self._descriptor)
