"""What an agent receives: one request, and the conversation that it continues."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from antiphon.protocol.items import FunctionCallOutput, Item, Message
from antiphon.protocol.request import Request
from antiphon.protocol.tools import FunctionTool, Tool, ToolChoice, callable_tools


# A dataclass and no msgspec struct: cached properties need an instance dictionary.
@dataclass(frozen=True)
class Turn:
    """One request, and the conversation that it continues.

    `input` holds the items of this request, `history` those before it. `cancelled` is set when the
    client no longer waits for the answer; an async agent is also cancelled as a task.
    """

    request: Request
    input: Sequence[Item]
    history: Sequence[Item] = ()
    entry: str = ""
    response_id: str = ""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model(self) -> str:
        """The name of the model as the client wrote it."""
        return self.request.model or ""

    @property
    def instructions(self) -> str | None:
        """The instructions of the request."""
        return self.request.instructions

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the client offers."""
        return self.request.tools

    @property
    def tool_choice(self) -> ToolChoice:
        """Which tools may or must be called."""
        return self.request.tool_choice

    @cached_property
    def functions(self) -> list[FunctionTool]:
        """The functions that may be called in this turn."""
        return callable_tools(self.request.tools, self.request.tool_choice)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the request."""
        return self.request.metadata

    @cached_property
    def items(self) -> list[Item]:
        """The whole conversation, oldest first."""
        return [*self.history, *self.input]

    @cached_property
    def text(self) -> str:
        """The text of the last user message."""
        messages = (item for item in reversed(self.items) if isinstance(item, Message))
        return next((message.text for message in messages if message.role == "user"), "")

    @cached_property
    def tool_outputs(self) -> list[FunctionCallOutput]:
        """The tool outputs since the last user message."""
        # Older outputs belong to questions that have been answered.
        outputs: list[FunctionCallOutput] = []
        for item in reversed(self.items):
            if isinstance(item, Message) and item.role == "user":
                break
            if isinstance(item, FunctionCallOutput):
                outputs.append(item)
        return outputs[::-1]
