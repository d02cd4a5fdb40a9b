"""Chat requests, converted to a `Request`: messages to items, options to ours.

Errors name the chat's parameters: `wire_types` checks shapes, this module checks meanings, and
`ChatRequest.param_name` translates the parameters of errors that are found later.

A `tool` message answers a call of the nearest assistant message before it, so call ids may repeat
in later turns; among items a `call_id` is unique, so a repeated one gets a suffix.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import asdict

from antiphon.protocol import items, tools
from antiphon.protocol.errors import RequestError
from antiphon.protocol.request import (
    INCLUDE_LOGPROBS,
    JsonSchemaFormat,
    ReasoningConfig,
    Request,
    StreamOptions,
    TextConfig,
    TextFormat,
)
from antiphon.protocol.response import ResponseWarning
from antiphon.protocol.struct import (
    InvalidValueError,
    ProtocolStruct,
    decode,
    drop_none,
    list_unknown_fields,
    omit,
    to_builtins,
)
from antiphon.wire.chat import wire_types
from antiphon.wire.chat.wire_types import MAX_MESSAGES, Body

PARAM_NAMES = (
    (re.compile(r"^input$"), "messages"),
    (re.compile(r"^text\.format\.(\w+)"), r"response_format.json_schema.\1"),
    (re.compile(r"^text\.format"), "response_format"),
    (re.compile(r"^text\.verbosity$"), "verbosity"),
    (re.compile(r"^reasoning(\.\w+)?$"), "reasoning_effort"),
    (re.compile(r"^include(\[\d+\])?$"), "logprobs"),
)
"""Our parameters, and the chat's names for them."""

UNSUPPORTED_FIELDS = frozenset({"audio", "logit_bias", "prediction", "web_search_options"}).union(
    Request.__struct_fields__
)
"""Fields that are dropped with a warning: chat options without an equivalent, and fields of the
Responses protocol, which have no meaning in a chat. Unknown fields are passed on to the adapter."""

SAME_FIELDS = """model metadata temperature top_p presence_penalty frequency_penalty parallel_tool_calls stream
    safety_identifier prompt_cache_key store service_tier top_logprobs user seed""".split()
"""Fields with the same name and meaning in a chat request and in a `Request`."""

TextType = type[items.InputText] | type[items.OutputText]

BY_NAME = "function "
"""Precedes a name that stands for an id: the calls of the deprecated `function_call` have none."""

TOOL_PARAM = re.compile(r"^tools\[(\d+)\]\.(.+)")
ITEM_PARAM = re.compile(r"^input\[(\d+)\](\.(?:content|output)\[\d+\])?")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A decoded chat request."""

    request: Request
    include_usage: bool = False
    item_paths: Sequence[str] = ()
    """The path in the body of each input item."""
    token_limit_param: str = "max_completion_tokens"  # noqa: S105
    """The field that the client set for `max_output_tokens`."""
    warnings: Sequence[ResponseWarning] = ()
    """Warnings about fields that are not used."""

    @property
    def client_functions(self) -> frozenset[str]:
        """The functions that the client can run."""
        return frozenset(tool.name for tool in self.request.tools if isinstance(tool, tools.FunctionTool))

    def param_name(self, param: str) -> str:
        """Return the chat's name for one of our parameters.

        >>> ChatRequest(Request()).param_name("text.format.schema")
        'response_format.json_schema.schema'
        """
        if param == "max_output_tokens":
            return self.token_limit_param
        if (found := ITEM_PARAM.match(param)) and (index := int(found[1])) < len(self.item_paths):
            return self.item_paths[index] + (found[2] or "").replace(".output", ".content")
        if (found := TOOL_PARAM.match(param)) and not self._is_extension_tool(int(found[1])):
            return f"tools[{found[1]}].function.{found[2]}"
        for ours, theirs in PARAM_NAMES:
            if ours.search(param):
                return ours.sub(theirs, param)
        return param

    def _is_extension_tool(self, index: int) -> bool:
        offered = self.request.tools
        return index < len(offered) and isinstance(offered[index], tools.ExtensionTool)


def decode_chat(raw: object) -> ChatRequest:
    """Decode a chat request; raises InvalidValueError or RequestError with the chat parameter."""
    body = decode(Body, raw)
    check_supported(body)
    transcript = ChatTranscript(body.messages)
    limit = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    format = body.response_format or TextFormat()
    if isinstance(format, wire_types.SchemaFormat):
        format = JsonSchemaFormat(**asdict(format.json_schema))
    extra = drop_none(body.extra or {})
    dropped = [name for name in extra if name in UNSUPPORTED_FIELDS]
    same: dict[str, Any] = {name: getattr(body, name) for name in SAME_FIELDS}
    request = Request(
        **same,
        input=transcript.items,
        include=[INCLUDE_LOGPROBS] if body.logprobs or body.top_logprobs else [],
        tools=[_convert_tool(tool) for tool in body.tools],
        tool_choice=_convert_tool_choice(body.tool_choice),
        text=TextConfig(format=format, verbosity=body.verbosity or UNSET),
        stream_options=StreamOptions(include_obfuscation=body.stream_options.include_obfuscation),
        # Not raised to the protocol's minimum of 16: clients do ask for one token, to test a
        # model, and would pay for the other fifteen.
        max_output_tokens=body.max_completion_tokens or body.max_tokens,
        reasoning=ReasoningConfig(effort=body.reasoning_effort) if body.reasoning_effort else None,
        stop=body.stop or None,
        extra=omit(extra, UNSUPPORTED_FIELDS) or UNSET,
    )
    return ChatRequest(
        request=request,
        include_usage=body.stream_options.include_usage,
        item_paths=transcript.item_paths,
        token_limit_param=limit,
        warnings=[
            make_unused_warning(name) for name in (*dropped, *transcript.unused_fields, *_unread_body_fields(body))
        ],
    )


def check_supported(body: Body) -> None:
    """Check for options that cannot be dropped with a warning; raises RequestError."""
    # Dropping these would give the client less than it asked for, or something else.
    if body.n != 1:
        message = "Only one choice per request is supported. Leave 'n' out, and send several requests."
        raise RequestError(message, param="n", code="unsupported_value")
    if set(body.modalities) - {"text"}:
        message = "Only text output is supported. Leave 'modalities' out, or send ['text']."
        raise RequestError(message, param="modalities", code="unsupported_value")
    for name, instead in (("functions", "tools"), ("function_call", "tool_choice")):
        if getattr(body, name) is not None:
            message = f"'{name}' was replaced by '{instead}' in 2023. Use '{instead}'."
            raise RequestError(message, param=name, code="unsupported_parameter")


def _unread_body_fields(body: Body) -> list[str]:
    """Return the paths of unused fields outside the messages."""
    found = unread_fields(body.stream_options, "stream_options")
    for index, tool in enumerate(body.tools):
        if not isinstance(tool, wire_types.OtherTool):
            found += unread_fields(tool, f"tools[{index}]")
        if isinstance(tool, wire_types.CustomTool):
            found += unread_fields(tool.custom, f"tools[{index}].custom")
    return found


def make_unused_warning(param: str) -> ResponseWarning:
    """Return the warning about a field that is not used."""
    message = f"The field '{param}' is not used by this server."
    return ResponseWarning(code="unused_parameter", message=message, param=param)


def _convert_tool(tool: wire_types.FunctionTool | wire_types.CustomTool | wire_types.OtherTool) -> tools.Tool:
    match tool:
        case wire_types.FunctionTool(function=function):
            return tools.FunctionTool(**asdict(function))
        case wire_types.CustomTool(custom=custom):
            fields = drop_none({"name": custom.name, "description": custom.description})
            if custom.format and (grammar := custom.format.grammar):
                fields["format"] = {"type": "grammar", "syntax": grammar.syntax, "definition": grammar.definition}
            elif custom.format:
                fields["format"] = {"type": custom.format.type}
            return tools.ExtensionTool(type=tools.CUSTOM_TOOL, extra=fields)
        case _:
            return tools.ExtensionTool(type=tool.type, extra=tool.extra)


def _convert_tool_choice(
    choice: tools.ToolChoiceMode | wire_types.Choice | wire_types.AllowedChoice,
) -> tools.ToolChoice:
    match choice:
        case wire_types.FunctionChoice():
            return tools.FunctionToolChoice(name=choice.function.name)
        case wire_types.CustomChoice():
            return tools.ExtensionToolChoice(type=tools.CUSTOM_TOOL, extra={"name": choice.custom.name})
        case wire_types.AllowedChoice(allowed_tools=allowed):
            named = cast("list[tools.SpecificToolChoice]", [_convert_tool_choice(tool) for tool in allowed.tools])
            return tools.AllowedTools(mode=allowed.mode, tools=named)
        case _:
            return choice


_MEDIA_PARTS = ("text", "image_url", "file", "input_audio", "video_url")
ALLOWED_PARTS: dict[str, Sequence[str]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": _MEDIA_PARTS,
    "assistant": ("text", "refusal"),
    "tool": _MEDIA_PARTS,
    "function": ("text",),
}
"""The content parts that a message of each role can have."""


class Transcript:
    """The items that a client's messages are converted to."""

    def __init__(self) -> None:
        self.items: list[items.Item] = []
        self.item_paths: list[str] = []
        """The path of each item's message."""
        self.unused_fields: list[str] = []
        """Paths of fields that are not used."""
        self._call_ids: dict[str, str] = {}
        """Our ids of the calls so far, by the client's ids."""
        self._used_ids: set[str] = set()

    @property
    def call_ids(self) -> frozenset[str]:
        """The ids of all calls, ours and the client's."""
        return frozenset(self._used_ids | self._call_ids.keys())

    def _add_item(self, item: items.Item, path: str) -> None:
        self.items.append(item)
        self.item_paths.append(path)

    def _find_call_id(self, id: str, param: str) -> str:
        """Return our id of the call that a message answers; raises RequestError."""
        if found := self._call_ids.get(id):
            return found
        message = f"No call '{id.removeprefix(BY_NAME)[:80]}' comes before this message. "
        message += "Send the assistant's message with the call first."
        raise RequestError(message, param=param, code="function_call_not_found")

    def _new_call_id(self, id: str, key: str = "") -> str:
        """Return an id that no earlier call has; messages that answer the call give `id`, or else `key`."""
        # Some servers number calls anew in every turn (`call_0`), and clients replay those ids.
        unique, count = id[: items.MAX_CALL_ID_LENGTH], 1
        while unique in self._used_ids:
            count += 1
            unique = f"{id[: items.MAX_CALL_ID_LENGTH - 8]}_{count}"
        self._used_ids.add(unique)
        self._call_ids[key or id] = unique
        return unique


class ChatTranscript(Transcript):
    """Converts messages to items; raises InvalidValueError or RequestError with the path."""

    def __init__(self, messages: Sequence[wire_types.Message]) -> None:
        super().__init__()
        self._custom_call_ids: set[str] = set()
        for index, message in enumerate(messages):
            self._convert_message(message, f"messages[{index}]")
        # One message can have many calls, so the number of items is limited, too.
        if len(self.items) > MAX_MESSAGES:
            raise InvalidValueError("messages", f"expected at most {MAX_MESSAGES} messages and calls")

    def _convert_message(self, message: wire_types.Message, path: str) -> None:
        match message.role:
            case "assistant":
                self._convert_assistant(message, path)
            case "tool" | "function":
                self._convert_tool_message(message, path)
            case role:
                content = _convert_content(message, path, items.InputText)
                self._add_item(items.Message(role=role, content=content), path)
        if message.name is not None and message.role not in ("tool", "function"):
            self.unused_fields.append(f"{path}.name")
        self._note_unread_fields(message, path)

    def _note_unread_fields(self, value: ProtocolStruct, path: str) -> None:
        """Record unused fields; a call's `index` repeats its position and needs no warning."""
        self.unused_fields += [place for place in unread_fields(value, path) if place != f"{path}.index"]

    def _convert_assistant(self, message: wire_types.Message, path: str) -> None:
        if message.audio is not None and not message.content:
            text = "Audio of earlier turns is not stored here. Send its transcript as 'content'."
            raise RequestError(text, param=f"{path}.audio", code="unsupported_value")
        if message.reasoning_content:
            reasoning = items.ReasoningText(text=message.reasoning_content)
            self._add_item(items.Reasoning(content=[reasoning]), path)
        has_calls = bool(message.tool_calls or message.function_call)
        if message.content is None and not (message.refusal or has_calls):
            raise InvalidValueError(f"{path}.content", "this field is required, unless there are calls")
        content = [] if message.content is None else _convert_content(message, path, items.OutputText)
        if message.refusal:
            content.append(items.RefusalContent(refusal=message.refusal))
        # Clients send empty content next to calls; an empty message would be one more item.
        if not has_calls or any(map(items.content_text, content)):
            self._add_item(items.Message(role="assistant", content=content), path)
        for index, call in enumerate(message.tool_calls):
            self._convert_call(call, f"{path}.tool_calls[{index}]")
        if called := message.function_call:
            id = self._new_call_id(called.name, BY_NAME + called.name)
            self._add_item(_function_call(id, called), f"{path}.function_call")

    def _convert_call(self, call: wire_types.FunctionCall | wire_types.CustomCall, path: str) -> None:
        id = self._new_call_id(call.id)
        self._note_unread_fields(call, path)
        if isinstance(call, wire_types.CustomCall):
            self._custom_call_ids.add(id)
            fields: dict[str, object] = {"call_id": id, "name": call.custom.name, "input": call.custom.input}
            item = items.ExtensionItem(type=items.CUSTOM_TOOL_CALL, extra=fields)
        else:
            item = _function_call(id, call.function)
        self._add_item(item, path)

    def _convert_tool_message(self, message: wire_types.Message, path: str) -> None:
        if message.role == "function":
            field, id = "name", message.name and BY_NAME + message.name
        else:
            field, id = "tool_call_id", message.tool_call_id
        if not id:
            raise InvalidValueError(f"{path}.{field}", "this field is required")
        call_id = self._find_call_id(id, f"{path}.{field}")
        output = message.content or ""
        if not isinstance(output, str):
            output = _convert_content(message, path, items.InputText)
        if call_id in self._custom_call_ids:
            fields = {"call_id": call_id, "output": to_builtins(output)}
            item = items.ExtensionItem(type=items.CUSTOM_TOOL_CALL_OUTPUT, extra=fields)
        else:
            item = items.FunctionCallOutput(call_id=call_id, output=output)
        self._add_item(item, path)


def _function_call(id: str, called: wire_types.CalledFunction) -> items.FunctionCall:
    # Some servers send an empty string for a call without arguments.
    return items.FunctionCall(call_id=id, name=called.name, arguments=called.arguments or "{}")


def unread_fields(value: ProtocolStruct, path: str) -> list[str]:
    """Return the paths of unknown fields; empty ones are ignored."""
    return [f"{path}.{name}" for name in list_unknown_fields(value) if value.get(name) not in ([], {})]


def _convert_content(message: wire_types.Message, path: str, text_type: TextType) -> list[items.Content]:
    place = f"{path}.content"
    if message.content is None:
        raise InvalidValueError(place, "this field is required")
    if isinstance(message.content, str):
        return [text_type(text=message.content)]
    if not message.content:
        raise InvalidValueError(place, "expected at least one part")
    allowed = ALLOWED_PARTS[message.role]
    parts: list[items.Content] = []
    for index, part in enumerate(message.content):
        if part.type not in allowed:
            known = ", ".join(f"'{name}'" for name in allowed)
            reason = f"a message of role '{message.role}' cannot hold '{part.type}'; use {known}"
            raise InvalidValueError(f"{place}[{index}].type", reason)
        parts.append(_convert_part(part, text_type, f"{place}[{index}]"))
    return parts


def _convert_part(part: wire_types.Part, text_type: TextType, path: str) -> items.Content:
    match part:
        case items.TextContent():
            return text_type(text=part.text, extra=part.extra)
        case items.RefusalContent():
            return items.RefusalContent(refusal=part.refusal)
        case wire_types.ImagePart(image_url=image):
            return items.InputImage(image_url=image.url, detail=image.detail, extra=part.extra)
        case wire_types.FilePart():
            fields = drop_none(part.file)
            if not fields.keys() & {"file_id", "file_data", "file_url"}:
                raise InvalidValueError(f"{path}.file", "expected 'file_data' or 'file_id'")
            return decode(items.InputFile, fields, f"{path}.file")
        case wire_types.AudioPart():
            # The specification has no audio input, so it travels as OpenAI's extension.
            return items.ExtensionContent(type="openai:input_audio", extra={"input_audio": part.input_audio})
        case wire_types.VideoPart():
            return items.InputVideo(video_url=part.video_url.url)
