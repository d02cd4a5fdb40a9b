"""What is known of a Claude model by its name, since the API refuses what a model does not take.

Dialect notes: thinking began with 3.7; up to 4.5 it has a budget of tokens, from 4.6 on the model
decides by an effort; from 5 on it thinks unless told not to. Sampling ended with 4.6. System
messages amid a conversation began with 4.8, schemas for the answer with 4.5. The newest cannot be
made to call a tool. A name that is not Claude's is taken for one that decides by effort, thinks
only when asked, and takes the rest.
"""

import re
from typing import Literal

from msgspec import Struct

NAME = re.compile(
    r"claude-(?:(?P<family>opus|sonnet|haiku|fable|mythos)-)?"
    r"(?:instant-)?v?(?:(?P<major>\d)(?:[.-](?P<minor>\d{1,2}))?(?!\d)|preview)"
)
"""A name as Anthropic writes it, wherever it stands: clouds put words around it."""

Off = Literal["disabled", "between_tools"]


class Claude(Struct, frozen=True, kw_only=True):
    """What one model takes."""

    thinks: bool = True
    """Whether it can think at all."""
    budgeted: bool = False
    """Whether its thinking has a budget of tokens, and no effort."""
    eager: bool = False
    """Whether it thinks unless told not to."""
    off: Off | None = "disabled"
    """The thinking that is none; there may be no such thing."""
    obeys: bool = True
    """Whether it can be made to call a tool."""
    sampled: bool = True
    """Whether it has a temperature."""
    structured: bool = True
    """Whether its answer, and its calls, can be held to a schema."""
    directed: bool = False
    """Whether system messages may stand amid the conversation."""
    lacks: frozenset[str] = frozenset()
    """The efforts that it does not know."""


def known(model: str) -> Claude:
    """Return what is known of a model."""
    found = NAME.search(model.lower())
    if found is None:
        return Claude()
    family = found["family"] or ""
    version = (int(found["major"] or 5), int(found["minor"] or 0))
    above = family in ("fable", "mythos")
    return Claude(
        thinks=version >= (3, 7),
        budgeted=version < (4, 6),
        eager=version >= (5, 0),
        off=_off(family, version),
        obeys=not (version >= (5, 1) if above else version >= (5, 5) and family != "haiku"),
        sampled=version < (4, 7),
        structured=version >= (4, 5),
        directed=version >= (4, 8),
        lacks=frozenset({"xhigh"} if version < (4, 7) else ()),
    )


def _off(family: str, version: tuple[int, int]) -> Off | None:
    if family in ("fable", "mythos") or (family == "opus" and version >= (5, 5)):
        return None
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"
