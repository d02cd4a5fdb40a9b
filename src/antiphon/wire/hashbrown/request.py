"""Hashbrown requests: the body as its clients send it, and its conversion to a `Request`.

Messages become items. The content of a `tool` message is a settled promise
(`{"status": "fulfilled", "value": …}`), which the model gets as JSON. `error` messages are skipped:
they are what the client showed its user. Of a call's `metadata` only our own key is read, which
holds the encrypted reasoning that preceded the call. Stored threads are merged with the messages of
a request.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from msgspec import UNSET, Meta, field

from antiphon.protocol import items
from antiphon.protocol.errors import RequestError
from antiphon.protocol.json_schema import is_array, is_object
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat, OutputFormat, Request, TextConfig, TextFormat
from antiphon.protocol.response import ResponseWarning
from antiphon.protocol.struct import (
    InvalidValueError,
    ProtocolStruct,
    as_array,
    as_object,
    decode,
    decode_as,
    drop_none,
    encode,
    omit,
)
from antiphon.protocol.tools import FunctionTool, ToolChoiceMode
from antiphon.wire import json
from antiphon.wire.chat.request import Transcript, make_unused_warning
from antiphon.wire.chat.wire_types import MAX_MESSAGES

Json = dict[str, object]

METADATA_KEY = "antiphon"
BEFORE_TEXT, BEFORE_CALL = "before_text", "before_call"
"""The position of reasoning: before the message's text, or before the call it is stored with."""


def merge_messages(saved: Sequence[Json], incoming: Sequence[Json]) -> list[Json]:
    """Return a thread's messages and the new ones; the longest overlap is included once."""
    return [*saved, *incoming[count_overlap(saved, incoming) :]]


def count_overlap(saved: Sequence[Json], incoming: Sequence[Json]) -> int:
    """Return the length of the longest end of `saved` that is also a start of `incoming`.

    This is the prefix function of the Knuth-Morris-Pratt algorithm. It takes linear time, also for
    a client that sends the same message thousands of times.
    """
    shared = min(len(saved), len(incoming))
    # Only the last messages of the thread can overlap with the first ones of the request. None is
    # equal to no message, so no match goes on from one to the other.
    sequence = [*incoming[:shared], None, *saved[len(saved) - shared :]]
    matches = [0]
    for message in sequence[1:]:
        size = matches[-1]
        while not (same := is_same_json(message, sequence[size])) and size:
            size = matches[size - 1]
        matches.append(size + 1 if same else 0)
    return matches[-1]


def is_same_json(one: object, other: object) -> bool:
    """Return whether two values are the same JSON; unlike in Python, true is not 1."""
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(is_same_json(one[name], other[name]) for name in one)
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def assistant_message(output: Sequence[items.Item]) -> Json:
    """Return a response's items, in the order of their appearance, as an assistant message.

    Calls that the response itself answers, and incomplete calls, are left out.
    """
    answered = {item.call_id for item in output if isinstance(item, items.FunctionCallOutput)}
    text = ""
    calls: list[Json] = []
    before_text: list[str] = []
    before_call: list[str] = []
    for item in output:
        match item:
            case items.Message():
                # The reasoning so far preceded the text, not a call.
                if item.text and not (text or calls):
                    before_text, before_call = before_call, []
                text += item.text
            case items.Reasoning(encrypted_content=str(sealed)):
                before_call.append(sealed)
            case items.FunctionCall() if item.call_id not in answered and item.status != "incomplete":
                reasoning = {BEFORE_TEXT: before_text, BEFORE_CALL: before_call}
                calls.append(_encode_call(len(calls), item, reasoning))
                before_text, before_call = [], []
            case _:
                pass
    return {"role": "assistant", "content": text, "toolCalls": calls}


def is_usable(message: Json) -> bool:
    """Return whether Hashbrown's client keeps an assistant's message, and does not report an error instead."""
    calls = [as_object(call) for call in as_array(message.get("toolCalls"))]
    return bool(message.get("content") or calls) and all(_has_json_arguments(call) for call in calls)


def _has_json_arguments(call: Json) -> bool:
    try:
        json.decode_lenient(str(as_object(call.get("function")).get("arguments")).encode())
    except json.JSONError:
        return False
    return True


def _encode_call(index: int, call: items.FunctionCall, reasoning: Mapping[str, list[str]]) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    encoded: Json = {"index": index, "id": call.call_id, "type": "function", "function": function}
    stored = {place: sealed for place, sealed in reasoning.items() if sealed}
    return encoded | {"metadata": {METADATA_KEY: stored}} if stored else encoded


def read_sealed_reasoning(metadata: object, place: str) -> list[str]:
    """Return the encrypted reasoning that is stored with a call for one position."""
    stored = as_object(as_object(metadata).get(METADATA_KEY))
    return [entry for entry in as_array(stored.get(place)) if isinstance(entry, str)]


def strip_metadata(message: Json) -> Json:
    """Return a message without our own metadata, as the client knows it."""
    calls = message.get("toolCalls")
    if not is_array(calls):
        return message
    return message | {"toolCalls": [_strip_call_metadata(call) for call in calls]}


def _strip_call_metadata(call: object) -> object:
    metadata = as_object(as_object(call).get("metadata"))
    if METADATA_KEY not in metadata:
        return call
    rest = omit(metadata, {METADATA_KEY})
    others = omit(as_object(call), {"metadata"})
    return others | {"metadata": rest} if rest else others


NonEmpty = Annotated[str, Meta(min_length=1)]


class HashbrownFunction(ProtocolStruct):
    """A called function; its arguments are JSON, or JSON in a string."""

    name: NonEmpty
    arguments: object = ""


class HashbrownToolCall(ProtocolStruct):
    """A tool call of the assistant."""

    id: NonEmpty
    function: HashbrownFunction
    index: int | None = None
    type: str = "function"
    metadata: dict[str, object] | None = None


class HashbrownMessage(ProtocolStruct):
    """A message; what its role requires is checked by `HashbrownTranscript`."""

    role: Literal["user", "assistant", "tool", "error"]
    content: object = None
    tool_calls: list[HashbrownToolCall] = field(default_factory=list[HashbrownToolCall], name="toolCalls")
    tool_call_id: NonEmpty | None = field(default=None, name="toolCallId")
    tool_name: str | None = field(default=None, name="toolName")


class HashbrownTool(ProtocolStruct):
    """A function that the client runs."""

    name: items.FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None


class HashbrownBody(ProtocolStruct):
    """The body of a request (`Chat.Api.CompletionCreateParams`); other fields go to `extra`."""

    model: NonEmpty
    messages: Annotated[list[HashbrownMessage], Meta(max_length=MAX_MESSAGES)]
    operation: Literal["generate", "load-thread"] = "generate"
    system: str = ""
    tools: Annotated[list[HashbrownTool], Meta(max_length=512)] = field(default_factory=list[HashbrownTool])
    tool_choice: ToolChoiceMode = field(default="auto", name="toolChoice")
    response_format: dict[str, object] | None = field(default=None, name="responseFormat")
    response_format_mode: Literal["schema", "json"] = field(default="schema", name="responseFormatMode")
    thread_id: NonEmpty | None = field(default=None, name="threadId")


PARAM_NAMES = {"input": "messages", "instructions": "system", "tool_choice": "toolChoice", "conversation": "threadId"}
"""Our parameters, and Hashbrown's names for them."""

ITEM_PARAM = re.compile(r"^input\[(\d+)\]")
PARAM_IN_TEXT = re.compile(
    r"(?<=')(?:input|instructions|conversation)(?=')|\binput\[\d+\]|\btool_choice\b|\btext\.format(?:\.\w+)*"
)
"""Our parameters where an error message names them."""


@dataclass(frozen=True, slots=True)
class HashbrownRequest:
    """A request with the thread it continues, if any."""

    body: HashbrownBody
    messages: Sequence[Json]
    """The whole conversation as Hashbrown messages, with our metadata."""
    request: Request
    item_paths: Sequence[str]
    """The path in the body of each input item."""
    warnings: Sequence[ResponseWarning]
    """Warnings about fields that are not used."""
    call_ids: frozenset[str]
    """The ids of all calls in the conversation: a new call must have another."""

    @property
    def client_functions(self) -> frozenset[str]:
        """The functions that the client can run."""
        return frozenset(tool.name for tool in self.body.tools)

    def param_name(self, param: str) -> str:
        """Return the client's name for one of our parameters."""
        if (found := ITEM_PARAM.match(param)) and (index := int(found[1])) < len(self.item_paths):
            return self.item_paths[index]
        if param.startswith("text.format"):
            return "responseFormat"
        return PARAM_NAMES.get(param, param)

    def translate_message(self, message: str) -> str:
        """Return one of our messages with the client's names for our parameters."""
        return PARAM_IN_TEXT.sub(lambda found: self.param_name(found[0]), message)


def decode_hashbrown(raw: object) -> tuple[HashbrownBody, Sequence[Json]]:
    """Return the body of a request, and its messages as they were sent; raises RequestError."""
    try:
        return decode(HashbrownBody, raw), cast("dict[str, list[Json]]", raw)["messages"]
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None


def continue_thread(body: HashbrownBody, sent: Sequence[Json], saved: Sequence[Json]) -> HashbrownRequest:
    """Return the request with a thread's messages before those that were sent; raises RequestError."""
    visible = [strip_metadata(message) for message in saved]
    # Errors must name the message by its index in the body, so overlapping ones are counted.
    skipped = count_overlap(visible, sent)
    try:
        # A `threads` object of the user's own may return anything.
        earlier = cast("list[HashbrownMessage]", decode_as(list[HashbrownMessage], list(saved)))
    except InvalidValueError as error:
        reason = f"the thread contains an invalid message{error.path}: {error.reason}"
        raise RequestError.from_invalid_value(InvalidValueError("threadId", reason)) from None
    transcript = HashbrownTranscript()
    for message in earlier:
        transcript.add_message(message, "threadId")
    for index, message in enumerate(body.messages[skipped:], skipped):
        transcript.add_message(message, f"messages[{index}]")
    unused = (*drop_none(body.extra or {}), *transcript.unused_fields)
    return HashbrownRequest(
        body=body,
        messages=[*saved, *sent[skipped:]],
        request=Request(
            model=body.model,
            input=transcript.items,
            instructions=body.system or None,
            tools=[
                FunctionTool(name=tool.name, description=tool.description, parameters=tool.parameters)
                for tool in body.tools
            ],
            tool_choice=body.tool_choice,
            text=TextConfig(format=_convert_format(body)),
            stream=True,
            store=False,
        ),
        item_paths=transcript.item_paths,
        warnings=[make_unused_warning(name) for name in unused],
        call_ids=transcript.call_ids,
    )


def _convert_format(body: HashbrownBody) -> OutputFormat:
    if body.response_format_mode == "json":
        return JsonObjectFormat()
    if body.response_format is None:
        return TextFormat()
    return JsonSchemaFormat(name="schema", schema=body.response_format, strict=True)


class HashbrownTranscript(Transcript):
    """Converts messages to items; raises RequestError with the path of the message."""

    def add_message(self, message: HashbrownMessage, path: str) -> None:
        """Convert one message."""
        match message.role:
            case "user":
                if message.content is None:
                    raise _missing_field_error(f"{path}.content")
                part = items.InputText(text=_to_text(message.content))
                self._add_item(items.Message(role="user", content=[part]), path)
            case "assistant":
                self._convert_assistant(message, path)
            case "tool":
                if message.tool_call_id is None:
                    raise _missing_field_error(f"{path}.toolCallId")
                id = self._find_call_id(message.tool_call_id, f"{path}.toolCallId")
                # Some providers have a flag for tools that failed; our items have only this status.
                rejected = as_object(message.content).get("status") == "rejected"
                status = "incomplete" if rejected else UNSET
                output = _to_text(message.content)
                self._add_item(items.FunctionCallOutput(call_id=id, output=output, status=status), path)
            case "error":
                pass  # shown by the client to its user; the model never sent it

    def _convert_assistant(self, message: HashbrownMessage, path: str) -> None:
        # Providers verify reasoning signatures by position, so it goes back where it stood.
        for call in message.tool_calls:
            self._add_reasoning(call, BEFORE_TEXT, path)
        if text := _to_text(message.content):
            part = items.OutputText(text=text)
            self._add_item(items.Message(role="assistant", content=[part]), path)
        for index, call in enumerate(message.tool_calls):
            place = f"{path}.toolCalls[{index}]"
            self._add_reasoning(call, BEFORE_CALL, place)
            # An empty string is not JSON, and some providers reject it.
            arguments = _to_text(call.function.arguments) or "{}"
            id = self._new_call_id(call.id)
            self._add_item(items.FunctionCall(call_id=id, name=call.function.name, arguments=arguments), place)
            if call.metadata and call.metadata.keys() - {METADATA_KEY}:
                self.unused_fields.append(f"{place}.metadata")

    def _add_reasoning(self, call: HashbrownToolCall, when: str, path: str) -> None:
        for sealed in read_sealed_reasoning(call.metadata, when):
            self._add_item(items.Reasoning(encrypted_content=sealed), path)


def _missing_field_error(path: str) -> RequestError:
    return RequestError.from_invalid_value(InvalidValueError(path, "this field is required"))


def _to_text(content: object) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else encode(content).decode()
