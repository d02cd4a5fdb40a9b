"""Ids of responses, items and conversations: a prefix and random hexadecimal digits."""

import os

# 192 bits: nobody can guess the id of another tenant's response.
ID_BYTES = 24

UNUSED_RANDOM: list[str] = []
"""Random numbers for ids; threads may take them."""
os.register_at_fork(after_in_child=UNUSED_RANDOM.clear)


def new_id(prefix: str) -> str:
    """Return a prefix, an underscore and 192 random bits."""
    try:
        return f"{prefix}_{UNUSED_RANDOM.pop()}"
    except IndexError:
        # One system call for many ids.
        UNUSED_RANDOM.extend(os.urandom(ID_BYTES * 64).hex(" ", ID_BYTES).split())
        return new_id(prefix)
