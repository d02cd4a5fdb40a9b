"""Calls of a history whose tools are not offered any more.

Anthropic and Bedrock refuse to read of calls where no tool is shown. So what was called is shown by
its name alone, to a model that may not call it; if it does so all the same, nobody hears of it.
"""

from antiphon.adapters.base import Prompt
from antiphon.adapters.story import make_legal_name
from antiphon.core import parts
from antiphon.core.items import FunctionCall
from antiphon.core.schema import Schema

EMPTY_SCHEMA: Schema = {"type": "object", "properties": {}}
"""What a function is called with that takes nothing, or nobody knows what."""


def history_tool_names(prompt: Prompt, limit: int = 64) -> list[str]:
    """Return the names to show for the sake of the history alone; none beside real tools."""
    if prompt.request.tools:
        return []
    called = [item.name for item in prompt.items if isinstance(item, FunctionCall)]
    return list(dict.fromkeys(make_legal_name(name, limit) for name in called))


def dropped_call_warning(name: str) -> parts.Warn:
    """Say that a call of such a name was left out."""
    message = f"The model called '{name[:80]}', which it may not; the call was left out."
    return parts.Warn("dropped_call", message)
