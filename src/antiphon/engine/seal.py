"""Sealed content: what a client carries for us and only this server can read.

Compactions and the thinking of models travel through clients as `encrypted_content`. The seal is
authenticated, so a client can neither read nor change it. Keys rotate: the first key seals, every
key opens, so old seals stay readable.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

PREFIX = "ant1_"
"""Tells our seals from everybody else's."""


class Seal:
    """Closes and opens content with a ring of keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._ring = MultiFernet([Fernet(key) for key in keys])

    @classmethod
    def in_folder(cls, folder: Path) -> "Seal":
        """Use the keys in a folder's `seal.keys`, one a line, newest first; make one if need be."""
        path = folder / "seal.keys"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(descriptor, "w") as file:
                file.write(Fernet.generate_key().decode() + "\n")
        return cls(path.read_text().split())

    @classmethod
    def passing(cls) -> "Seal":
        """Use a key that nobody keeps: seals are readable as long as the process lives."""
        return cls([Fernet.generate_key().decode()])

    def close(self, content: object) -> str:
        """Seal a JSON value."""
        return PREFIX + self._ring.encrypt(msgspec.json.encode(content)).decode()

    def open(self, sealed: str) -> object | None:
        """Return what was sealed; None for what we did not seal, or what was tampered with."""
        if not sealed.startswith(PREFIX):
            return None
        try:
            opened = self._ring.decrypt(sealed.removeprefix(PREFIX).encode())
        except (InvalidToken, UnicodeEncodeError):
            return None
        return msgspec.json.decode(opened)
