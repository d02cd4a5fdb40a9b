"""Sealed content: `encrypted_content` that clients send back and only this server can read.

A reasoning item's seal holds the provider's own encrypted content, the raw reasoning, and its origin: only a model of
the same origin gets them back. Every other model reads the summary, and a seal that is not ours reaches no model. A
compaction's seal holds a summary, or items, that every model may read; one that cannot be opened is an error, because
without it the conversation has no beginning. Items are stored and listed sealed.

Seals are authenticated, so clients can neither read nor change them. Keys rotate: the first one
encrypts, every one decrypts. A key is 32 random bytes in base64, URL-safe or not.
"""

import base64
import hashlib
import logging
import os
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.protocol.errors import RequestError, StoreError
from antiphon.protocol.items import Compaction, InputText, Item, Message, Reasoning, ReasoningText, content_text
from antiphon.protocol.struct import decode_as, to_builtins

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

logger = logging.getLogger("antiphon.engine")

SEAL_PREFIX = "ant1_"
"""Distinguishes our seals from the encrypted content of providers."""

KEY_BYTES = 32
KEY_FILE = "seal.keys"
TO_URL_SAFE = str.maketrans("+/", "-_")

SUMMARY_INTRODUCTION = "The conversation before this point was made shorter. This is what was said and done in it:"
SEALED_TYPES = frozenset({Reasoning, Compaction})


class KeyRing:
    """Encrypts and decrypts with a list of keys, newest first."""

    def __init__(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        self._keys = [key.translate(TO_URL_SAFE) for key in keys]

    @classmethod
    def ephemeral(cls) -> "KeyRing":
        """Use a new key that is not saved: seals become unreadable when the process ends."""
        return cls([new_key()])

    @classmethod
    def from_folder(cls, folder: Path) -> "KeyRing":
        """Read a folder's `seal.keys`, one key a line, newest first; create it if missing. Raises StoreError."""
        path = folder / KEY_FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                _create_key_file(path)
            if path.stat().st_mode & 0o077:
                logger.warning("%s can be read by others. Try: chmod 600 %s", path, path)
            return cls(path.read_text("ascii").split())
        except OSError as error:
            reason = f"{error.strerror}."
        except UnicodeError:
            reason = "it is not text."
        except ValueError as error:
            reason = f"{error} Restore the file from a copy; without it, what was sealed stays sealed."
        raise StoreError(f"The seal's keys in {path} cannot be used: {reason}")

    @property
    def fingerprints(self) -> list[str]:
        """A hash of each key, by which servers compare their keys."""
        return [hashlib.sha256(key.encode()).hexdigest()[:16] for key in self._keys]

    def encrypt(self, content: object) -> str:
        """Encrypt a JSON value."""
        return SEAL_PREFIX + self._fernet.encrypt(msgspec.json.encode(content)).decode()

    def decrypt(self, sealed: str) -> object | None:
        """Return the JSON value; None for a seal that is not ours or was changed."""
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
        # Imported at first use: the import takes longer than the rest of the start-up.
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(key) for key in self._keys])


def new_key() -> str:
    """Return a new random key."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def check_keys(keys: Sequence[str]) -> None:
    """Raise ValueError unless these are valid keys. No message contains a key."""
    if not keys:
        raise ValueError("There are no keys.")
    for number, key in enumerate(keys, start=1):
        try:
            size = len(base64.b64decode(key.translate(TO_URL_SAFE), b"-_", validate=True))
        except ValueError:
            size = 0
        if size != KEY_BYTES:
            raise ValueError(f"Key {number} is not {KEY_BYTES} bytes in base64.")


def _create_key_file(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces the file of a process that was faster.
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    if os.name == "posix":
        # Whatever is sealed from now on must find its key after a power cut.
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


class SealedReasoning(Struct, frozen=True, tag="thought"):
    """The content of a reasoning item's seal."""

    tenant: str
    origin: str
    content: str | None
    text: list[str]


class SealedSummary(Struct, frozen=True, tag="gist"):
    """The content of a compaction's seal: a summary or, if it is empty, items as JSON."""

    tenant: str
    summary: str
    items: list[dict[str, object]]


class SealedProviderCompaction(Struct, frozen=True, tag="relayed"):
    """The content of the seal of a compaction that a provider made."""

    tenant: str
    origin: str
    content: str


SealedContent = SealedReasoning | SealedSummary | SealedProviderCompaction


class ItemSealer(Struct, frozen=True):
    """Seals and unseals the items of one model and one tenant.

    With `seal_all_reasoning`, reasoning is sealed even if the provider did not encrypt any.
    """

    key_ring: KeyRing
    origin: str
    tenant: str = ""
    seal_all_reasoning: bool = False

    def seal_item(self, item: Item) -> Item:
        """Seal an item that the model produced."""
        match item:
            case Reasoning() if item.encrypted_content or (self.seal_all_reasoning and item.content):
                text = [content_text(part) for part in item.content or []]
                content = SealedReasoning(self.tenant, self.origin, item.encrypted_content or None, text)
            case Compaction():
                content = SealedProviderCompaction(self.tenant, self.origin, item.encrypted_content)
            case _:
                return item
        return replace(item, encrypted_content=self.key_ring.encrypt(content))

    def seal_compaction(self, summary: str | list[Item], id: str) -> Compaction:
        """Return a compaction item with a summary, or with items that replace the conversation."""
        text, items = (summary, []) if isinstance(summary, str) else ("", summary)
        content = SealedSummary(self.tenant, text, cast("list[dict[str, object]]", to_builtins(items)))
        return Compaction(id=id, encrypted_content=self.key_ring.encrypt(content))

    def unseal_items(self, items: Sequence[Item], param: str) -> list[Item]:
        """Return the items as the model may read them; raises RequestError.

        `param` names a compaction that cannot be opened; `{}` in it is replaced by its index.
        """
        # Most conversations have no sealed item, and some have thousands of items.
        if SEALED_TYPES.isdisjoint(map(type, items)):
            return list(items)
        opened: list[Item] = []
        for index, item in enumerate(items):
            match item:
                case Reasoning() if item.encrypted_content is not UNSET:
                    opened += self._unseal_reasoning(item, item.encrypted_content)
                case Compaction():
                    opened += self._unseal_compaction(item, param.format(index))
                case _:
                    opened.append(item)
        return opened

    def _unseal_reasoning(self, item: Reasoning, sealed: str) -> list[Item]:
        content = self._decrypt(sealed)
        if isinstance(content, SealedReasoning) and content.origin == self.origin:
            # The sealed text replaces what the client sent: the signature is for exactly that.
            raw = [ReasoningText(text=text) for text in content.text] or item.content
            return [replace(item, encrypted_content=content.content or UNSET, content=raw)]
        if item.summary or item.content:
            return [replace(item, encrypted_content=UNSET)]
        return []

    def _unseal_compaction(self, item: Compaction, param: str) -> list[Item]:
        match self._decrypt(item.encrypted_content):
            case SealedSummary(summary=summary, items=[]):
                text = f"{SUMMARY_INTRODUCTION}\n\n{summary}"
                return [Message(id=item.id, role="developer", content=[InputText(text=text)])]
            case SealedSummary(items=items):
                return [cast("Item", decode_as(Item, raw)) for raw in items]
            case SealedProviderCompaction(origin=origin, content=content) if origin == self.origin:
                return [replace(item, encrypted_content=content)]
            case SealedProviderCompaction():
                problem = "can only be read by the model that made it. Use that model"
            case _:
                problem = "was not made here, or was changed on its way. Send it back as it came"
        message = f"This compaction {problem}, or send the items that it stands for."
        raise RequestError(message, param=param, code="invalid_encrypted_content")

    def _decrypt(self, sealed: str) -> SealedContent | None:
        value = self.key_ring.decrypt(sealed)
        try:
            content = msgspec.convert(value, SealedContent)
        except msgspec.ValidationError:
            return None
        # A seal copied from another tenant's response is as good as none.
        return content if content.tenant == self.tenant else None
