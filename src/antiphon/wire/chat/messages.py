"""Chat messages as items: who said what, and which output answers which call.

In a chat a tool's message answers a call of the nearest assistant before it, so ids may come again
in a later turn; among items a `call_id` is used once, and a later call is given another.
"""

from collections.abc import Sequence

from antiphon.protocol.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    OutputText,
    ReasoningText,
    RefusalContent,
    content_text,
)
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    CUSTOM_TOOL_CALL_OUTPUT,
    MAX_CALL_ID_LENGTH,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.struct import (
    InvalidValueError,
    ProtocolStruct,
    decode,
    list_unknown_fields,
    to_builtins,
)
from antiphon.wire.chat import wire_types
from antiphon.wire.chat.wire_types import MAX_MESSAGES

_MEDIA_PARTS = ("text", "image_url", "file", "input_audio", "video_url")
ALLOWED_PARTS: dict[str, Sequence[str]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": _MEDIA_PARTS,
    "assistant": ("text", "refusal"),
    "tool": _MEDIA_PARTS,
    "function": ("text",),
}
"""What a message of each role can be made of."""


class ChatTranscript:
    """What was said, as items; raises ShapeError or RequestError, naming the message."""

    def __init__(self, messages: Sequence[wire_types.Message]) -> None:
        self.items: list[Item] = []
        self.item_paths: list[str] = []
        """Where each item was said."""
        self.unused_fields: list[str] = []
        """What was said and is not read."""
        self._calls: dict[str, FunctionCall | ExtensionItem] = {}
        """The calls that may still be answered, by what the client calls them."""
        self._used_ids: set[str] = set()
        for index, message in enumerate(messages):
            self._convert_message(message, f"messages[{index}]")
        if len(self.items) > MAX_MESSAGES:
            raise InvalidValueError(
                "messages", f"expected at most {MAX_MESSAGES} messages and calls"
            )

    def _convert_message(self, message: wire_types.Message, path: str) -> None:
        match message.role:
            case "assistant":
                self._convert_assistant(message, path)
            case "tool" | "function":
                self._convert_tool_message(message, path)
            case role:
                content = _convert_content(message, path, InputText)
                self._add_item(Message(role=role, content=content), path)
        if message.name is not None and message.role not in ("tool", "function"):
            self.unused_fields.append(f"{path}.name")
        self._note_unread_fields(message, path)

    def _add_item(self, item: Item, path: str) -> None:
        self.items.append(item)
        self.item_paths.append(path)

    def _note_unread_fields(self, value: ProtocolStruct, path: str) -> None:
        """Take note of fields that nobody reads; a call's index is only its place."""
        self.unused_fields += [
            place for place in unread_fields(value, path) if place != f"{path}.index"
        ]

    # --- the assistant ---

    def _convert_assistant(self, message: wire_types.Message, path: str) -> None:
        if message.audio is not None and not message.content:
            text = "What was said aloud is not kept here. Send its transcript as 'content'."
            raise RequestError(text, param=f"{path}.audio", code="unsupported_value")
        if message.reasoning_content:
            thought = ReasoningText(text=message.reasoning_content)
            self._add_item(Reasoning(content=[thought]), path)
        has_calls = bool(message.tool_calls or message.function_call)
        if message.content is None and not (message.refusal or has_calls):
            raise InvalidValueError(
                f"{path}.content", "this field is required, unless there are calls"
            )
        content = [] if message.content is None else _convert_content(message, path, OutputText)
        if message.refusal:
            content.append(RefusalContent(refusal=message.refusal))
        if not has_calls or any(map(content_text, content)):
            self._add_item(Message(role="assistant", content=content), path)
        for index, call in enumerate(message.tool_calls):
            self._convert_call(call, f"{path}.tool_calls[{index}]")
        if called := message.function_call:
            arguments = called.arguments or "{}"
            item = FunctionCall(
                call_id=self._unique_id(called.name), name=called.name, arguments=arguments
            )
            self._calls[f"function {called.name}"] = item
            self._add_item(item, f"{path}.function_call")

    def _convert_call(
        self, call: wire_types.FunctionCall | wire_types.CustomCall, path: str
    ) -> None:
        id = self._unique_id(call.id)
        self._note_unread_fields(call, path)
        if isinstance(call, wire_types.CustomCall):
            fields: dict[str, object] = {"call_id": id}
            fields |= {"name": call.custom.name, "input": call.custom.input}
            item = ExtensionItem(type=CUSTOM_TOOL_CALL, extra=fields)
        else:
            # Where a function needs nothing, some servers write nothing.
            arguments = call.function.arguments or "{}"
            item = FunctionCall(call_id=id, name=call.function.name, arguments=arguments)
        self._calls[call.id] = item
        self._add_item(item, path)

    def _unique_id(self, id: str) -> str:
        return unique_call_id(id, self._used_ids)

    # --- the tools ---

    def _convert_tool_message(self, message: wire_types.Message, path: str) -> None:
        item = self._find_call(message, path)
        output = message.content or ""
        if not isinstance(output, str):
            output = _convert_content(message, path, InputText)
        if isinstance(item, FunctionCall):
            self._add_item(FunctionCallOutput(call_id=item.call_id, output=output), path)
            return
        fields = {"call_id": item.get("call_id"), "output": to_builtins(output)}
        self._add_item(ExtensionItem(type=CUSTOM_TOOL_CALL_OUTPUT, extra=fields), path)

    def _find_call(self, message: wire_types.Message, path: str) -> FunctionCall | ExtensionItem:
        """Return the call that a message answers."""
        if message.role == "function":
            name, given = "name", message.name and f"function {message.name}"
        else:
            name, given = "tool_call_id", message.tool_call_id
        if not given:
            raise InvalidValueError(f"{path}.{name}", "this field is required")
        if call := self._calls.get(given):
            return call
        raise RequestError(
            f"No call '{given.removeprefix('function ')}' comes before this message. "
            "Send the assistant's message with the call first.",
            param=f"{path}.{name}",
            code="function_call_not_found",
        )


def unread_fields(value: ProtocolStruct, path: str) -> list[str]:
    """Return where the fields are that nobody reads; one that is empty says nothing."""
    return [
        f"{path}.{name}" for name in list_unknown_fields(value) if value.get(name) not in ([], {})
    ]


def unique_call_id(id: str, used: set[str]) -> str:
    """Return an id that no call before has, and take it."""
    unique, count = id[:MAX_CALL_ID_LENGTH], 1
    while unique in used:
        count += 1
        unique = f"{id[: MAX_CALL_ID_LENGTH - 8]}_{count}"
    used.add(unique)
    return unique


def _convert_content(
    message: wire_types.Message, path: str, text_type: type[InputText] | type[OutputText]
) -> list[Content]:
    place = f"{path}.content"
    if message.content is None:
        raise InvalidValueError(place, "this field is required")
    if isinstance(message.content, str):
        return [text_type(text=message.content)]
    if not message.content:
        raise InvalidValueError(place, "expected at least one part")
    allowed = ALLOWED_PARTS[message.role]
    parts: list[Content] = []
    for index, part in enumerate(message.content):
        if part.type not in allowed:
            known = ", ".join(f"'{name}'" for name in allowed)
            raise InvalidValueError(
                f"{place}[{index}].type",
                f"a message of role '{message.role}' cannot hold '{part.type}'; use {known}",
            )
        parts.append(_convert_part(part, text_type, f"{place}[{index}]"))
    return parts


def _convert_part(
    part: wire_types.Part, text_type: type[InputText] | type[OutputText], path: str
) -> Content:
    match part:
        case wire_types.TextPart():
            return text_type(text=part.text, extra=part.extra)
        case wire_types.RefusalPart():
            return RefusalContent(refusal=part.refusal)
        case wire_types.ImagePart(image_url=image):
            return InputImage(image_url=image.url, detail=image.detail, extra=part.extra)
        case wire_types.FilePart():
            given = {name: value for name, value in part.file.items() if value is not None}
            if not given.keys() & {"file_id", "file_data", "file_url"}:
                raise InvalidValueError(f"{path}.file", "expected 'file_data' or 'file_id'")
            return decode(InputFile, given, f"{path}.file")
        case wire_types.AudioPart():
            return ExtensionContent(
                type="openai:input_audio", extra={"input_audio": part.input_audio}
            )
        case wire_types.VideoPart():
            return InputVideo(video_url=part.video_url.url)
