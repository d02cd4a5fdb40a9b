"""Sealed content: what a client carries for us and only this server can read.

Compactions and the thinking of models travel through clients as `encrypted_content`. The seal is
authenticated, so a client can neither read nor change it. Keys rotate: the first key seals, every
key opens, so old seals stay readable.

A key is 32 random bytes in base64, URL-safe or not. Nothing here ever shows one.
"""

import base64
import binascii
import logging
import os
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antiphon.protocol.errors import StoreError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

logger = logging.getLogger("antiphon.engine")

SEAL_PREFIX = "ant1_"
"""Tells our seals from everybody else's."""

KEY_BYTES = 32
TO_URL_SAFE = str.maketrans("+/", "-_")
KEY_FILE = "seal.keys"


class KeyRing:
    """Closes and opens content with a ring of keys, the newest first."""

    def __init__(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        self._keys = [key.translate(TO_URL_SAFE) for key in keys]

    @classmethod
    def ephemeral(cls) -> "KeyRing":
        """Use a key that nobody keeps: seals are readable as long as the process lives."""
        return cls([new_key()])

    @classmethod
    def from_folder(cls, folder: Path) -> "KeyRing":
        """Use the keys in a folder's `seal.keys`, one a line, newest first; make one if need be.

        Raises StoreError.
        """
        path = folder / KEY_FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                _create_key_file(path)
            if path.stat().st_mode & 0o077:
                logger.warning("%s can be read by others. Try: chmod 600 %s", path, path)
            keys = path.read_text("ascii").split()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise StoreError(f"The seal's keys in {path} cannot be used: {reason}.") from None
        try:
            return cls(keys)
        except ValueError as error:
            raise StoreError(
                f"The seal's keys in {path} cannot be used: {error} Restore the file from a copy; "
                "without it, what was sealed stays sealed."
            ) from None

    def encrypt(self, content: object) -> str:
        """Seal a JSON value."""
        return SEAL_PREFIX + self._fernet.encrypt(msgspec.json.encode(content)).decode()

    def decrypt(self, sealed: str) -> object | None:
        """Return what was sealed; None for what we did not seal, or what was tampered with."""
        from cryptography.fernet import InvalidToken

        if not (sealed.startswith(SEAL_PREFIX) and sealed.isascii()):
            return None
        try:
            opened = self._fernet.decrypt(sealed.removeprefix(SEAL_PREFIX).encode())
        except InvalidToken:
            return None
        return msgspec.json.decode(opened)

    @cached_property
    def _fernet(self) -> "MultiFernet":
        # Imported when it is first needed: most servers start faster than this import.
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(key) for key in self._keys])


def new_key() -> str:
    """Make a key."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def check_keys(keys: Sequence[str]) -> None:
    """Refuse what cannot be a ring of keys; raises ValueError."""
    if not keys:
        raise ValueError("There are no keys.")
    for number, key in enumerate(keys, start=1):
        if not _is_key(key):
            raise ValueError(f"Key {number} is not {KEY_BYTES} bytes in base64.")


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key.translate(TO_URL_SAFE), b"-_", validate=True)) == KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _create_key_file(path: Path) -> None:
    """Put a new key at a path, whole or not at all; whoever comes second keeps the first's."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)  # what is sealed from now on must find its key after a power cut
        os.close(folder)
