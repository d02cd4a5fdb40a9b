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

CLAUDE_NAME = re.compile(
    r"claude-(?:(?P<family>opus|sonnet|haiku|fable|mythos)-)?"
    r"(?:instant-)?v?(?:(?P<major>\d)(?:[.-](?P<minor>\d{1,2}))?(?!\d)|preview)"
)
"""A name as Anthropic writes it, wherever it stands: clouds put words around it."""

DisabledThinking = Literal["disabled", "between_tools"]


class Claude(Struct, frozen=True, kw_only=True):
    """What one model takes."""

    supports_thinking: bool = True
    """Whether it can think at all."""
    uses_thinking_budget: bool = False
    """Whether its thinking has a budget of tokens, and no effort."""
    thinks_by_default: bool = False
    """Whether it thinks unless told not to."""
    disabled_thinking: DisabledThinking | None = "disabled"
    """The thinking that is none; there may be no such thing."""
    supports_forced_tools: bool = True
    """Whether it can be made to call a tool."""
    supports_sampling: bool = True
    """Whether it has a temperature."""
    supports_schemas: bool = True
    """Whether its answer, and its calls, can be held to a schema."""
    supports_system_messages: bool = False
    """Whether system messages may stand amid the conversation."""
    unsupported_efforts: frozenset[str] = frozenset()
    """The efforts that it does not know."""


def lookup_claude(model: str) -> Claude:
    """Return what is known of a model."""
    found = CLAUDE_NAME.search(model.lower())
    if found is None:
        return Claude()
    family = found["family"] or ""
    version = (int(found["major"] or 5), int(found["minor"] or 0))
    above = family in ("fable", "mythos")
    return Claude(
        supports_thinking=version >= (3, 7),
        uses_thinking_budget=version < (4, 6),
        thinks_by_default=version >= (5, 0),
        disabled_thinking=_disabled_thinking(family, version),
        supports_forced_tools=not (
            version >= (5, 1) if above else version >= (5, 5) and family != "haiku"
        ),
        supports_sampling=version < (4, 7),
        supports_schemas=version >= (4, 5),
        supports_system_messages=version >= (4, 8),
        unsupported_efforts=frozenset({"xhigh"} if version < (4, 7) else ()),
    )


def _disabled_thinking(family: str, version: tuple[int, int]) -> DisabledThinking | None:
    if family in ("fable", "mythos") or (family == "opus" and version >= (5, 5)):
        return None
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"
