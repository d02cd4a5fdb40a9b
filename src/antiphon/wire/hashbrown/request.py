"""A Hashbrown request understood: what it asks for in our words, and where it said so in its own.

Messages become items. A tool's message holds a settled promise, which the model reads as JSON. What
the client shows its user as an error was never said, and is skipped. A call's `metadata` is read as
far as it is ours: the sealed thinking that led to the call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from antiphon.protocol.content import InputText, OutputText
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Reasoning,
)
from antiphon.protocol.items import Message as MessageItem
from antiphon.protocol.request import (
    JsonObjectFormat,
    JsonSchemaFormat,
    OutputFormat,
    Request,
    TextConfig,
    TextFormat,
)
from antiphon.protocol.response import ResponseWarning
from antiphon.protocol.struct import (
    InvalidValueError,
    decode,
    decode_as,
    encode,
)
from antiphon.protocol.tools import FunctionTool
from antiphon.wire.chat.messages import unique_call_id
from antiphon.wire.chat.request import unused_parameter_warning
from antiphon.wire.hashbrown.threads import (
    BEFORE_CALL,
    BEFORE_TEXT,
    METADATA_KEY,
    Json,
    merge_messages,
    sealed_reasoning,
    strip_metadata,
)
from antiphon.wire.hashbrown.wire_types import HashbrownBody, HashbrownMessage, HashbrownToolCall

PARAM_NAMES = {
    "input": "messages",
    "instructions": "system",
    "tool_choice": "toolChoice",
    "conversation": "threadId",
}
"""Our params, and what Hashbrown calls them."""

ITEM_PARAM = re.compile(r"^input\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class HashbrownRequest:
    """One request, with the thread that it goes on with if there is one."""

    body: HashbrownBody
    messages: Sequence[Json]
    """All there is of the conversation, in the client's words and ours."""
    request: Request
    item_paths: Sequence[str]
    """Where each item of the input was said."""
    warnings: Sequence[ResponseWarning]
    """What was said and is not used."""

    @property
    def offered_functions(self) -> frozenset[str]:
        """The functions that the client can call."""
        return frozenset(tool.name for tool in self.body.tools)

    def param_name(self, param: str) -> str:
        """Return what the client calls one of our params."""
        if (found := ITEM_PARAM.match(param)) and (index := int(found[1])) < len(self.item_paths):
            return self.item_paths[index]
        if param.startswith("text.format"):
            return "responseFormat"
        return PARAM_NAMES.get(param, param)


@dataclass(frozen=True, slots=True)
class IncomingHashbrownRequest:
    """A request as it came."""

    body: HashbrownBody
    messages: Sequence[Json]

    def continue_thread(self, saved: Sequence[Json]) -> HashbrownRequest:
        """Go on with what a thread holds; raises RequestError, naming the param."""
        new = merge_messages([strip_metadata(message) for message in saved], self.messages)[
            len(saved) :
        ]
        skipped = len(self.messages) - len(new)
        try:
            earlier = cast("list[Message]", decode_as(list[HashbrownMessage], list(saved)))
        except InvalidValueError as error:
            reason = f"the thread holds what is no message{error.path}: {error.reason}"
            raise RequestError.from_invalid_value(InvalidValueError("threadId", reason)) from None
        body = self.body
        said = HashbrownTranscript()
        for message in earlier:
            said.add_message(message, "threadId")
        for index, message in enumerate(body.messages[skipped:], skipped):
            said.add_message(message, f"messages[{index}]")
        unknown = [name for name, value in (body.extra or {}).items() if value is not None]
        return HashbrownRequest(
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
                text=TextConfig(format=_convert_format(body)),
                stream=True,
                store=False,
            ),
            item_paths=said.item_paths,
            warnings=[unused_parameter_warning(name) for name in (*unknown, *said.unused_fields)],
        )


def decode_hashbrown(raw: object) -> IncomingHashbrownRequest:
    """Read a request; raises RequestError, naming the param."""
    try:
        body = decode(HashbrownBody, raw)
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None
    return IncomingHashbrownRequest(body, cast("dict[str, list[Json]]", raw)["messages"])


def _convert_format(body: HashbrownBody) -> OutputFormat:
    if body.response_format_mode == "json":
        return JsonObjectFormat()
    if body.response_format is None:
        return TextFormat()
    return JsonSchemaFormat(name="schema", schema=body.response_format, strict=True)


class HashbrownTranscript:
    """What was said, as items; raises RequestError, naming the message."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.item_paths: list[str] = []
        """Where each item was said."""
        self.unused_fields: list[str] = []
        """What was said and is not read."""
        self._calls: dict[str, str] = {}
        """What we call the calls that may still be answered, by what the client calls them."""
        self._used_ids: set[str] = set()

    def add_message(self, message: HashbrownMessage, path: str) -> None:
        """Take in one message."""
        match message.role:
            case "user":
                if message.content is None:
                    raise RequestError.from_invalid_value(
                        InvalidValueError(f"{path}.content", "this field is required")
                    )
                words = InputText(text=_to_text(message.content))
                self._add_item(MessageItem(role="user", content=[words]), path)
            case "assistant":
                self._convert_assistant(message, path)
            case "tool":
                self._convert_tool_message(message, path)
            case "error":
                pass  # what a client shows its user was said by nobody

    def _add_item(self, item: Item, path: str) -> None:
        self.items.append(item)
        self.item_paths.append(path)

    def _convert_assistant(self, message: HashbrownMessage, path: str) -> None:
        for call in message.tool_calls:
            self._add_reasoning(call, BEFORE_TEXT, path)
        if text := _to_text(message.content):
            words = OutputText(text=text)
            self._add_item(MessageItem(role="assistant", content=[words]), path)
        for index, call in enumerate(message.tool_calls):
            place = f"{path}.toolCalls[{index}]"
            self._add_reasoning(call, BEFORE_CALL, place)
            id = self._calls[call.id] = unique_call_id(call.id, self._used_ids)
            arguments = _to_text(call.function.arguments) or "{}"
            self._add_item(
                FunctionCall(call_id=id, name=call.function.name, arguments=arguments), place
            )
            if call.metadata and call.metadata.keys() - {METADATA_KEY}:
                self.unused_fields.append(f"{place}.metadata")

    def _add_reasoning(self, call: HashbrownToolCall, when: str, path: str) -> None:
        for sealed in sealed_reasoning(call.metadata, when):
            self._add_item(Reasoning(encrypted_content=sealed), path)

    def _convert_tool_message(self, message: HashbrownMessage, path: str) -> None:
        if message.tool_call_id is None:
            raise RequestError.from_invalid_value(
                InvalidValueError(f"{path}.toolCallId", "this field is required")
            )
        id = self._calls.get(message.tool_call_id)
        if id is None:
            raise RequestError(
                f"No call '{message.tool_call_id[:80]}' comes before this message. "
                "Send the assistant's message with the call first.",
                param=f"{path}.toolCallId",
                code="function_call_not_found",
            )
        self._add_item(FunctionCallOutput(call_id=id, output=_to_text(message.content)), path)


def _to_text(content: object) -> str:
    """Return content as text; what is none is written as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else encode(content).decode()
