"""Chat messages as items: who said what, and which output answers which call.

In a chat a tool's message answers a call of the nearest assistant before it, so ids may come again
in a later turn; among items a `call_id` is used once, and a later call is given another.
"""

from collections.abc import Sequence

from antiphon.core.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    OutputText,
    ReasoningText,
    Refusal,
    text_of,
)
from antiphon.core.errors import RequestError
from antiphon.core.items import (
    CALL_ID_LIMIT,
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.core.value import ShapeError, Value, decode, plain, unread
from antiphon.wire import chat_body
from antiphon.wire.chat_body import MOST

_MEDIA = ("text", "image_url", "file", "input_audio", "video_url")
HOLDS: dict[str, Sequence[str]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": _MEDIA,
    "assistant": ("text", "refusal"),
    "tool": _MEDIA,
    "function": ("text",),
}
"""What a message of each role can be made of."""


class Transcript:
    """What was said, as items; raises ShapeError or RequestError, naming the message."""

    def __init__(self, messages: Sequence[chat_body.Message]) -> None:
        self.items: list[Item] = []
        self.places: list[str] = []
        """Where each item was said."""
        self.unused: list[str] = []
        """What was said and is not read."""
        self._calls: dict[str, FunctionCall | ExtensionItem] = {}
        """The calls that may still be answered, by what the client calls them."""
        self._taken: set[str] = set()
        for index, message in enumerate(messages):
            self._message(message, f"messages[{index}]")
        if len(self.items) > MOST:
            raise ShapeError("messages", f"expected at most {MOST} messages and calls")

    def _message(self, message: chat_body.Message, path: str) -> None:
        match message.role:
            case "assistant":
                self._assistant(message, path)
            case "tool" | "function":
                self._output(message, path)
            case role:
                content = _content(message, path, InputText)
                self._say(Message(role=role, content=content), path)
        if message.name is not None and message.role not in ("tool", "function"):
            self.unused.append(f"{path}.name")
        self._pass_over(message, path)

    def _say(self, item: Item, path: str) -> None:
        self.items.append(item)
        self.places.append(path)

    def _pass_over(self, said: Value, path: str) -> None:
        """Take note of fields that nobody reads; a call's index is only its place."""
        self.unused += [place for place in passed_over(said, path) if place != f"{path}.index"]

    # --- the assistant ---

    def _assistant(self, message: chat_body.Message, path: str) -> None:
        if message.audio is not None and not message.content:
            text = "What was said aloud is not kept here. Send its transcript as 'content'."
            raise RequestError(text, param=f"{path}.audio", code="unsupported_value")
        if message.reasoning_content:
            thought = ReasoningText(text=message.reasoning_content)
            self._say(Reasoning(content=[thought]), path)
        has_calls = bool(message.tool_calls or message.function_call)
        if message.content is None and not (message.refusal or has_calls):
            raise ShapeError(f"{path}.content", "this field is required, unless there are calls")
        content = [] if message.content is None else _content(message, path, OutputText)
        if message.refusal:
            content.append(Refusal(refusal=message.refusal))
        if not has_calls or any(map(text_of, content)):
            self._say(Message(role="assistant", content=content), path)
        for index, call in enumerate(message.tool_calls):
            self._call(call, f"{path}.tool_calls[{index}]")
        if called := message.function_call:
            arguments = called.arguments or "{}"
            item = FunctionCall(
                call_id=self._new(called.name), name=called.name, arguments=arguments
            )
            self._calls[f"function {called.name}"] = item
            self._say(item, f"{path}.function_call")

    def _call(self, call: chat_body.FunctionCall | chat_body.CustomCall, path: str) -> None:
        id = self._new(call.id)
        self._pass_over(call, path)
        if isinstance(call, chat_body.CustomCall):
            fields: dict[str, object] = {"call_id": id}
            fields |= {"name": call.custom.name, "input": call.custom.input}
            item = ExtensionItem(type=CUSTOM_CALL, extra=fields)
        else:
            # Where a function needs nothing, some servers write nothing.
            arguments = call.function.arguments or "{}"
            item = FunctionCall(call_id=id, name=call.function.name, arguments=arguments)
        self._calls[call.id] = item
        self._say(item, path)

    def _new(self, id: str) -> str:
        return unused_id(id, self._taken)

    # --- the tools ---

    def _output(self, message: chat_body.Message, path: str) -> None:
        item = self._answered(message, path)
        output = message.content or ""
        if not isinstance(output, str):
            output = _content(message, path, InputText)
        if isinstance(item, FunctionCall):
            self._say(FunctionCallOutput(call_id=item.call_id, output=output), path)
            return
        fields = {"call_id": item.get("call_id"), "output": plain(output)}
        self._say(ExtensionItem(type=CUSTOM_OUTPUT, extra=fields), path)

    def _answered(self, message: chat_body.Message, path: str) -> FunctionCall | ExtensionItem:
        """Return the call that a message answers."""
        if message.role == "function":
            name, given = "name", message.name and f"function {message.name}"
        else:
            name, given = "tool_call_id", message.tool_call_id
        if not given:
            raise ShapeError(f"{path}.{name}", "this field is required")
        if call := self._calls.get(given):
            return call
        raise RequestError(
            f"No call '{given.removeprefix('function ')}' comes before this message. "
            "Send the assistant's message with the call first.",
            param=f"{path}.{name}",
            code="function_call_not_found",
        )


def passed_over(value: Value, path: str) -> list[str]:
    """Return where the fields are that nobody reads; one that is empty says nothing."""
    return [f"{path}.{name}" for name in unread(value) if value.get(name) not in ([], {})]


def unused_id(id: str, taken: set[str]) -> str:
    """Return an id that no call before has, and take it."""
    unique, count = id[:CALL_ID_LIMIT], 1
    while unique in taken:
        count += 1
        unique = f"{id[: CALL_ID_LIMIT - 8]}_{count}"
    taken.add(unique)
    return unique


def _content(
    message: chat_body.Message, path: str, words: type[InputText] | type[OutputText]
) -> list[Content]:
    place = f"{path}.content"
    if message.content is None:
        raise ShapeError(place, "this field is required")
    if isinstance(message.content, str):
        return [words(text=message.content)]
    if not message.content:
        raise ShapeError(place, "expected at least one part")
    allowed = HOLDS[message.role]
    parts: list[Content] = []
    for index, part in enumerate(message.content):
        if part.type not in allowed:
            known = ", ".join(f"'{name}'" for name in allowed)
            raise ShapeError(
                f"{place}[{index}].type",
                f"a message of role '{message.role}' cannot hold '{part.type}'; use {known}",
            )
        parts.append(_part(part, words, f"{place}[{index}]"))
    return parts


def _part(part: chat_body.Part, words: type[InputText] | type[OutputText], path: str) -> Content:
    match part:
        case chat_body.TextPart():
            return words(text=part.text, extra=part.extra)
        case chat_body.RefusalPart():
            return Refusal(refusal=part.refusal)
        case chat_body.ImagePart(image_url=image):
            return InputImage(image_url=image.url, detail=image.detail, extra=part.extra)
        case chat_body.FilePart():
            given = {name: value for name, value in part.file.items() if value is not None}
            if not given.keys() & {"file_id", "file_data", "file_url"}:
                raise ShapeError(f"{path}.file", "expected 'file_data' or 'file_id'")
            return decode(InputFile, given, f"{path}.file")
        case chat_body.AudioPart():
            return ExtensionContent(
                type="openai:input_audio", extra={"input_audio": part.input_audio}
            )
        case chat_body.VideoPart():
            return InputVideo(video_url=part.video_url.url)
