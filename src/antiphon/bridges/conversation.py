"""What every bridge to an agent framework needs: a model name, the conversation, the client's functions."""

import re
from collections.abc import Collection

from antiphon.agents.agent import Turn
from antiphon.protocol.context import find_unpaired_call_ids, repair_unpaired
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.tools import FunctionTool, may_call


def choose_name(name: str | None, own_name: str | None, default: str) -> str:
    """Return the given name, or else the framework agent's own as one word without slashes.

    >>> choose_name(None, "Weather bot / v2", "agent"), choose_name("meteo", "Weather bot", "agent")
    ('Weather-bot-v2', 'meteo')
    """
    return name or re.sub(r"[^\w.-]+", "-", own_name or "").strip("-") or default


def paired_items(turn: Turn) -> list[Item]:
    """Return the whole conversation, in which every call has its output: most models reject a call without one."""
    return repair_unpaired(turn.items, find_unpaired_call_ids(turn.items))


def client_functions(turn: Turn, own_names: Collection[str]) -> list[FunctionTool]:
    """Return the functions of the client that may be called.

    Raises RequestError if one has the name of a tool of the agent: a call could mean either.
    """
    for index, tool in enumerate(turn.tools):
        if isinstance(tool, FunctionTool) and tool.name in own_names and may_call(tool, turn.tool_choice):
            raise RequestError(
                f"The agent has a tool '{tool.name}' of its own. Offer yours under another name.",
                param=f"tools[{index}].name",
                code="duplicate_tool",
            )
    return turn.functions
