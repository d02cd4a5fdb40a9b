"""Ids that cannot be guessed."""

import os
import secrets
import uuid
from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.items import Item
from antiphon.protocol.struct import encode
from antiphon.protocol.synth_items import ID_PREFIXES

ID_BYTES = 24


def new_id(prefix: str) -> str:
    """Return a prefix, an underscore and 192 random bits."""
    return f"{prefix}_{os.urandom(ID_BYTES).hex()}"


def new_uuid(prefix: str) -> str:
    """Return a random UUID, whatever it is for."""
    del prefix
    return str(uuid.uuid4())


def ensure_id(item: Item, ids: Callable[[str], str] = new_id) -> Item:
    """Give an item an id if its sender gave it none."""
    if item.id is not UNSET:
        return item
    return replace(item, id=ids(ID_PREFIXES.get(item.type, "item")))


def random_padding(text: str) -> str:
    """Return noise that hides how long a delta is: together they fill a multiple of 16 bytes."""
    missing = 16 - len(encode(text)) % 16
    return secrets.token_urlsafe(missing)[:missing]
