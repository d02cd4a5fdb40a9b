"""Ids that cannot be guessed."""

import secrets

from antiphon.core.value import encode

BYTES = 24


def new_id(prefix: str) -> str:
    """Return a prefix, an underscore and 192 random bits."""
    return f"{prefix}_{secrets.token_hex(BYTES)}"


def padding(text: str) -> str:
    """Return noise that hides how long a delta is: together they fill a multiple of 16 bytes."""
    missing = 16 - len(encode(text)) % 16
    return secrets.token_urlsafe(missing)[:missing]
