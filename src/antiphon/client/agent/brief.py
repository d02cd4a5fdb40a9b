"""What a run is to do, and what every round of it says to the server."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.adapters.json_access import as_object
from antiphon.client.agent.conversation import Conversation
from antiphon.client.agent.options import AgentOptions
from antiphon.client.params import to_json_value
from antiphon.client.tools.tool import Tool
from antiphon.protocol.items import Item
from antiphon.protocol.tools import FunctionTool


class RunSpec(Struct, frozen=True, kw_only=True):
    """What a run is to do."""

    prompt: list[Item]
    model: str
    tools: Sequence[Tool]
    instructions: str | None
    conversation: Conversation
    options: AgentOptions

    def request_fields(
        self, model: str, definitions: Sequence[FunctionTool], rounds: int
    ) -> dict[str, object]:
        """Write the fields that every round sends; so many rounds have gone before."""
        fields: dict[str, object] = {
            "model": model,
            **as_object(to_json_value(self.options.request)),
        }
        instructions = filter(None, (self.conversation.instructions, self.instructions))
        if text := "\n\n".join(instructions):
            fields["instructions"] = text
        if definitions:
            fields["tools"] = list(definitions)
        if rounds and _forces_tool(fields.get("tool_choice")):
            del fields["tool_choice"]  # it was obeyed; forced again, it would never end
        if as_object(fields.get("reasoning")).get("effort") not in (None, "none"):
            fields.pop("temperature", None)  # models that think refuse it
        return fields


def _forces_tool(choice: object) -> bool:
    if named := as_object(choice):  # a function by name, or a choice of allowed tools
        return named.get("mode", "required") == "required"
    return choice == "required"
