"""What an agent is given: one turn of a conversation."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from antiphon.protocol.items import FunctionCallOutput, Item, Message
from antiphon.protocol.request import Request
from antiphon.protocol.tools import FunctionTool, Tool, ToolChoice, callable_tools


@dataclass(frozen=True)
class Turn:
    """Everything an agent may know when it is asked to answer.

    `input` is what the client sent now, `history` what came before it. `cancelled` is set when
    nobody waits for the answer any more; an async agent is also cancelled as a task.
    """

    request: Request
    input: Sequence[Item]
    history: Sequence[Item] = ()
    entry: str = ""
    response_id: str = ""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model(self) -> str:
        """The model's name as the client wrote it."""
        return self.request.model or ""

    @property
    def instructions(self) -> str | None:
        """What the client wants of every answer."""
        return self.request.instructions

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools the client offers."""
        return self.request.tools

    @property
    def tool_choice(self) -> ToolChoice:
        """Which of them may or must be called."""
        return self.request.tool_choice

    @cached_property
    def functions(self) -> list[FunctionTool]:
        """The functions that may be called in this turn."""
        return callable_tools(self.request.tools, self.request.tool_choice)

    @property
    def metadata(self) -> dict[str, str]:
        """What the client attached."""
        return self.request.metadata

    @cached_property
    def items(self) -> list[Item]:
        """The whole conversation, oldest first."""
        return [*self.history, *self.input]

    @cached_property
    def text(self) -> str:
        """The words of the last user message."""
        said = (item for item in reversed(self.items) if isinstance(item, Message))
        return next((message.text for message in said if message.role == "user"), "")

    @cached_property
    def tool_outputs(self) -> list[FunctionCallOutput]:
        """The tool outputs that have come since the last user message."""
        outputs: list[FunctionCallOutput] = []
        for item in reversed(self.items):
            if _is_from_user(item):
                break
            if isinstance(item, FunctionCallOutput):
                outputs.append(item)
        return outputs[::-1]


def _is_from_user(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"
