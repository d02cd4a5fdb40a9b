"""A Hashbrown request understood: what it asks for in our words, and where it said so in its own.

Messages become items. A tool's message holds a settled promise, which the model reads as JSON. What
the client shows its user as an error was never said, and is skipped. A call's `metadata` is read as
far as it is ours: the sealed thinking that led to the call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from antiphon.core.content import InputText, OutputText
from antiphon.core.errors import RequestError
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Reasoning
from antiphon.core.items import Message as MessageItem
from antiphon.core.request import (
    Format,
    JsonObjectFormat,
    JsonSchemaFormat,
    Request,
    TextConfig,
    TextFormat,
)
from antiphon.core.response import ResponseWarning
from antiphon.core.threads import BEFORE_CALL, BEFORE_TEXT, OURS, Json, bare, merge, thinking
from antiphon.core.tools import FunctionTool
from antiphon.core.value import ShapeError, decode, encode, read
from antiphon.wire.chat_messages import unused_id
from antiphon.wire.chat_request import unused
from antiphon.wire.hashbrown_body import Body, Message, ToolCall

PLACES = {
    "input": "messages",
    "instructions": "system",
    "tool_choice": "toolChoice",
    "conversation": "threadId",
}
"""Our params, and what Hashbrown calls them."""

ITEM = re.compile(r"^input\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Understood:
    """One request, with the thread that it goes on with if there is one."""

    body: Body
    messages: Sequence[Json]
    """All there is of the conversation, in the client's words and ours."""
    request: Request
    places: Sequence[str]
    """Where each item of the input was said."""
    warnings: Sequence[ResponseWarning]
    """What was said and is not used."""

    @property
    def offered(self) -> frozenset[str]:
        """The functions that the client can call."""
        return frozenset(tool.name for tool in self.body.tools)

    def place(self, param: str) -> str:
        """Return what the client calls one of our params."""
        if (found := ITEM.match(param)) and (index := int(found[1])) < len(self.places):
            return self.places[index]
        if param.startswith("text.format"):
            return "responseFormat"
        return PLACES.get(param, param)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    body: Body
    messages: Sequence[Json]

    def after(self, saved: Sequence[Json]) -> Understood:
        """Go on with what a thread holds; raises RequestError, naming the param."""
        new = merge([bare(message) for message in saved], self.messages)[len(saved) :]
        skipped = len(self.messages) - len(new)
        try:
            earlier = cast("list[Message]", read(list[Message], list(saved)))
        except ShapeError as error:
            reason = f"the thread holds what is no message{error.path}: {error.reason}"
            raise RequestError.of_shape(ShapeError("threadId", reason)) from None
        body = self.body
        said = Transcript()
        for message in earlier:
            said.add(message, "threadId")
        for index, message in enumerate(body.messages[skipped:], skipped):
            said.add(message, f"messages[{index}]")
        unknown = [name for name, value in (body.extra or {}).items() if value is not None]
        return Understood(
            body=body,
            messages=[*saved, *new],
            request=Request(
                model=body.model,
                input=said.items,
                instructions=body.system or None,
                tools=[
                    FunctionTool(
                        name=tool.name, description=tool.description, parameters=tool.parameters
                    )
                    for tool in body.tools
                ],
                tool_choice=body.tool_choice,
                text=TextConfig(format=_format(body)),
                stream=True,
                store=False,
            ),
            places=said.places,
            warnings=[unused(name) for name in (*unknown, *said.unused)],
        )


def read_hashbrown(raw: object) -> Asked:
    """Read a request; raises RequestError, naming the param."""
    try:
        body = decode(Body, raw)
    except ShapeError as error:
        raise RequestError.of_shape(error) from None
    return Asked(body, cast("dict[str, list[Json]]", raw)["messages"])


def _format(body: Body) -> Format:
    if body.response_format_mode == "json":
        return JsonObjectFormat()
    if body.response_format is None:
        return TextFormat()
    return JsonSchemaFormat(name="schema", schema=body.response_format, strict=True)


class Transcript:
    """What was said, as items; raises RequestError, naming the message."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.places: list[str] = []
        """Where each item was said."""
        self.unused: list[str] = []
        """What was said and is not read."""
        self._calls: dict[str, str] = {}
        """What we call the calls that may still be answered, by what the client calls them."""
        self._taken: set[str] = set()

    def add(self, message: Message, path: str) -> None:
        """Take in one message."""
        match message.role:
            case "user":
                if message.content is None:
                    raise RequestError.of_shape(
                        ShapeError(f"{path}.content", "this field is required")
                    )
                words = InputText(text=_text(message.content))
                self._say(MessageItem(role="user", content=[words]), path)
            case "assistant":
                self._assistant(message, path)
            case "tool":
                self._output(message, path)
            case "error":
                pass  # what a client shows its user was said by nobody

    def _say(self, item: Item, path: str) -> None:
        self.items.append(item)
        self.places.append(path)

    def _assistant(self, message: Message, path: str) -> None:
        for call in message.tool_calls:
            self._think(call, BEFORE_TEXT, path)
        if text := _text(message.content):
            words = OutputText(text=text)
            self._say(MessageItem(role="assistant", content=[words]), path)
        for index, call in enumerate(message.tool_calls):
            place = f"{path}.toolCalls[{index}]"
            self._think(call, BEFORE_CALL, place)
            id = self._calls[call.id] = unused_id(call.id, self._taken)
            arguments = _text(call.function.arguments) or "{}"
            self._say(FunctionCall(call_id=id, name=call.function.name, arguments=arguments), place)
            if call.metadata and call.metadata.keys() - {OURS}:
                self.unused.append(f"{place}.metadata")

    def _think(self, call: ToolCall, when: str, path: str) -> None:
        for sealed in thinking(call.metadata, when):
            self._say(Reasoning(encrypted_content=sealed), path)

    def _output(self, message: Message, path: str) -> None:
        if message.tool_call_id is None:
            raise RequestError.of_shape(ShapeError(f"{path}.toolCallId", "this field is required"))
        id = self._calls.get(message.tool_call_id)
        if id is None:
            raise RequestError(
                f"No call '{message.tool_call_id[:80]}' comes before this message. "
                "Send the assistant's message with the call first.",
                param=f"{path}.toolCallId",
                code="function_call_not_found",
            )
        self._say(FunctionCallOutput(call_id=id, output=_text(message.content)), path)


def _text(content: object) -> str:
    """Return content as text; what is none is written as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else encode(content).decode()
