"""What an agent receives: one request, and the conversation that it continues."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from antiphon.agents.ask import Answer, Asker
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCallOutput, InputImage, Item, Message
from antiphon.protocol.request import Request
from antiphon.protocol.struct import InvalidValueError, to_builtins
from antiphon.protocol.tools import FunctionTool, Tool, ToolChoice, callable_tools
from antiphon.wire.openresponses import decode_request

UNSUPPORTED_FIELDS = frozenset({"store", "stream", "stream_options", "background", "conversation"})
"""The fields of a request that make no sense for a model that an agent asks."""


# A dataclass and no msgspec struct: cached properties need an instance dictionary.
@dataclass(frozen=True)
class Turn:
    """One request, and the conversation that it continues.

    `input` holds the items of this request, `history` those before it. `cancelled` is set when nobody waits for the
    answer any more: an agent in a thread should look at it; an async agent is also cancelled as a task.
    """

    request: Request
    input: Sequence[Item]
    history: Sequence[Item] = ()
    entry: str = ""
    response_id: str = ""
    request_id: str = ""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    asker: Asker | None = field(default=None, repr=False, compare=False)

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
    def _last_user_message(self) -> Message | None:
        messages = (item for item in reversed(self.items) if isinstance(item, Message))
        return next((message for message in messages if message.role == "user"), None)

    @cached_property
    def text(self) -> str:
        """The text of the last user message."""
        return self._last_user_message.text if self._last_user_message else ""

    @property
    def images(self) -> list[InputImage]:
        """The images of the last user message."""
        content = self._last_user_message.content if self._last_user_message else ()
        return [part for part in content if isinstance(part, InputImage)]

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

    def ask(self, model: str, input: str | Sequence[Item | Mapping[str, object]], **fields: object) -> Answer:
        """Ask another model of this server; the keyword arguments are fields of the request, such as `instructions`.

        Its tokens are added to those of this agent, and its warnings are passed on. Nothing is stored. Reading the
        answer raises RequestError or UpstreamError.
        """
        if self.asker is None:
            raise RuntimeError(
                "turn.ask works in an agent that a server runs, not in one made by hand or counted only."
            )
        if unsupported := UNSUPPORTED_FIELDS & fields.keys():
            name = min(unsupported)
            raise TypeError(f"turn.ask has no '{name}': the answer is streamed to the agent, and never stored.")
        items = input if isinstance(input, str) else list(input)
        given: dict[str, object] = {"model": model, "input": items, **fields, "store": False}
        try:
            request = decode_request({name: to_builtins(value) for name, value in given.items()})
        except InvalidValueError as error:
            message = f"The agent's request to '{model}' is not valid: {error.path}: {error.reason}."
            raise RequestError(message, code="invalid_value") from None
        return self.asker.ask(request)
