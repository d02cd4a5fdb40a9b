"""What a run is to do, and what every round of it says to the server."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from antiphon.client.agent.conversation import Thread
from antiphon.client.agent.options import AgentOptions
from antiphon.client.tools.tool import Tool
from antiphon.core.items import Item
from antiphon.core.tools import FunctionTool


class Asked(Struct, frozen=True, kw_only=True):
    """What a run is to do."""

    prompt: list[Item]
    model: str
    tools: Sequence[Tool]
    instructions: str | None
    thread: Thread
    options: AgentOptions


def fields_of(
    asked: Asked, model: str, offered: Sequence[FunctionTool], rounds: int
) -> dict[str, object]:
    """Write the fields that every round of a run sends."""
    fields: dict[str, object] = {"model": model, **asked.options.request}
    instructions = [text for text in (asked.thread.instructions, asked.instructions) if text]
    if instructions:
        fields["instructions"] = "\n\n".join(instructions)
    if offered:
        fields["tools"] = list(offered)
    if rounds and _forces(fields.get("tool_choice")):
        fields.pop("tool_choice", None)  # it was obeyed; forced again, it would never end
    if _thinks(fields.get("reasoning")):
        fields.pop("temperature", None)  # models that think refuse it
    return fields


def _forces(choice: object) -> bool:
    if isinstance(choice, dict):  # a function by name, or a choice of allowed tools
        return cast("dict[str, object]", choice).get("mode", "required") == "required"
    return choice == "required"


def _thinks(reasoning: object) -> bool:
    effort = (
        cast("dict[str, object]", reasoning).get("effort") if isinstance(reasoning, dict) else None
    )
    return effort not in (None, "none")
