"""A turn as Xaibo's messages: the history, and the text that the agent is called with."""

from collections.abc import Iterable, Sequence

import msgspec
from xaibo.core.models import (
    LLMFunctionCall,
    LLMFunctionResult,
    LLMMessage,
    LLMMessageContent,
    LLMMessageContentType,
    LLMRole,
    Tool,
    ToolParameter,
)

from antiphon.adapters.conversation import split_turns
from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.items import (
    Content,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    Message,
    OutputText,
    content_text,
    user_message,
)
from antiphon.protocol.json_schema import as_list, is_array, is_object, is_string_list
from antiphon.protocol.struct import encode
from antiphon.protocol.tools import FunctionTool

ROLES = {"user": LLMRole.USER, "assistant": LLMRole.ASSISTANT, "system": LLMRole.SYSTEM, "developer": LLMRole.SYSTEM}


class Conversation:
    """The module `__conversation_history__`: everything but the text of the last user message.

    That text is the argument of `handle_text`, and orchestrators append it to the history themselves: in the history it
    would be there twice. What else the user's message holds, and what came after it, is in the history; `restore` puts
    all of it into the right order for a model.
    """

    def __init__(self, turn: Turn) -> None:
        self.warnings: list[parts.Warn] = []
        """What Xaibo's messages cannot carry."""
        items = turn.items
        last = max((i for i, item in enumerate(items) if is_user_message(item)), default=len(items))
        self.text = turn.text
        """The text of the last user message."""
        self._question = self._convert(items[last : last + 1])
        images = [
            LLMMessage(role=message.role, content=found)
            for message in self._question
            if (found := [part for part in message.content if part.type is LLMMessageContentType.IMAGE])
        ]
        later = self._convert(items[last + 1 :])
        # Without any user message the orchestrator appends an empty one.
        self._is_in_order = bool(self._question) and not images and not later
        self._later = {id(message) for message in later}
        self._images = {id(message) for message in images}
        self._history = [LLMMessage.system(turn.instructions)] if turn.instructions else []
        self._history += [*self._convert(items[:last]), *images, *later]

    async def get_history(self) -> list[LLMMessage]:
        return list(self._history)

    async def add_message(self, message: LLMMessage) -> None:
        self._history.append(message)

    async def clear_history(self) -> None:
        self._history.clear()

    def restore(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """Return an orchestrator's messages with the user's whole message in its place."""
        if self._is_in_order:
            return messages
        moved = self._later | self._images
        kept = [message for message in messages if id(message) not in moved]
        asked = next((i for i in reversed(range(len(kept))) if is_text_of_user(kept[i], self.text)), None)
        if asked is None:
            return messages
        later = [message for message in messages if id(message) in self._later]
        return [*kept[:asked], *self._question, *later, *kept[asked + 1 :]]

    def _convert(self, items: Sequence[Item]) -> list[LLMMessage]:
        messages: list[LLMMessage] = []
        names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
        for turn in split_turns(items):
            messages += [self._convert_message(item) for item in turn.items if isinstance(item, Message)]
            if calls := turn.calls:
                messages.append(LLMMessage(role=LLMRole.FUNCTION, tool_calls=[convert_call(call) for call in calls]))
            if turn.outputs:
                results = [
                    LLMFunctionResult(
                        id=output.call_id, name=names.get(output.call_id, ""), content=self._read_output(output)
                    )
                    for output in turn.outputs
                ]
                messages.append(LLMMessage(role=LLMRole.FUNCTION, tool_results=results))
        return messages

    def _convert_message(self, message: Message) -> LLMMessage:
        content = [converted for part in message.content if (converted := self._convert_part(part))]
        return LLMMessage(role=ROLES[message.role], content=content or [text_content("")])

    def _convert_part(self, part: Content) -> LLMMessageContent | None:
        match part:
            case InputImage(image_url=str(url)):
                return LLMMessageContent(type=LLMMessageContentType.IMAGE, image=url)
            case InputImage() | InputFile() | InputVideo():
                self._warn_of(part)
                return None
            case _:
                return text_content(content_text(part))

    def _read_output(self, output: FunctionCallOutput) -> str:
        for part in output.output if isinstance(output.output, list) else ():
            if isinstance(part, InputImage | InputFile | InputVideo):
                self._warn_of(part)
        return output.text

    def _warn_of(self, part: Content) -> None:
        message = f"An '{part.type}' was left out: this agent's framework cannot read it here."
        self.warnings.append(parts.Warn("unsupported_content", message, "input"))


def is_user_message(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def is_text_of_user(message: LLMMessage, text: str) -> bool:
    """Return whether a message is the user's and consists of a text."""
    return message.role is LLMRole.USER and [part.text for part in message.content] == [text]


def text_content(text: str) -> LLMMessageContent:
    return LLMMessageContent(type=LLMMessageContentType.TEXT, text=text)


def convert_call(call: FunctionCall) -> LLMFunctionCall:
    """Convert a call; arguments that are no JSON object become one."""
    try:
        arguments = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        arguments = None
    return LLMFunctionCall(
        id=call.call_id, name=call.name, arguments=arguments if is_object(arguments) else {"arguments": call.arguments}
    )


def convert_to_items(messages: Sequence[LLMMessage], last_user_message: str) -> list[Item]:
    """Return messages as items that end with a message of the user."""
    items: list[Item] = []
    for message in messages:
        if message.role is not LLMRole.FUNCTION:
            content = [read_content(part, message.role) for part in message.content]
            items.append(Message(role=message.role.value, content=content))
        items += [
            FunctionCall(call_id=call.id, name=call.name, arguments=encode(call.arguments).decode())
            for call in message.tool_calls or ()
        ]
        items += [FunctionCallOutput(call_id=result.id, output=result.content) for result in message.tool_results or ()]
    if not (messages and is_text_of_user(messages[-1], last_user_message)):
        items.append(user_message(last_user_message))
    return items


def read_content(part: LLMMessageContent, role: LLMRole) -> Content:
    if part.type is LLMMessageContentType.IMAGE:
        return InputImage(image_url=part.image)
    text = part.text or ""
    return OutputText(text=text) if role is LLMRole.ASSISTANT else InputText(text=text)


def convert_tool(tool: FunctionTool) -> Tool:
    """Convert a client's function; what a parameter of Xaibo cannot say is said in its description."""
    schema = tool.parameters or {}
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if is_object(properties) else {}
    return Tool(
        name=tool.name,
        description=tool.description or "",
        parameters={
            name: convert_parameter(value if is_object(value) else {}, is_array(required) and name in required)
            for name, value in known.items()
        },
    )


def convert_parameter(schema: dict[str, object], is_required: bool) -> ToolParameter:
    types: Iterable[object] = as_list(schema.get("type"))
    type = next((name for name in types if isinstance(name, str) and name != "null"), None)
    description, values = schema.get("description"), schema.get("enum")
    lines = [description] if isinstance(description, str) else []
    # A nested schema, or a keyword such as `anyOf` or `minimum`.
    if schema.keys() - {"type", "description", "enum", "default", "title"}:
        lines.append(f"JSON Schema: {encode(schema).decode()}")
    return ToolParameter(
        type=type or "string",
        description="\n".join(lines),
        required=is_required,
        default=schema.get("default"),
        enum=values if is_string_list(values) else None,
    )
