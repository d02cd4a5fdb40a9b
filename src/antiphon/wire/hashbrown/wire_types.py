"""The body of a Hashbrown request, as its clients send it (`Chat.Api.CompletionCreateParams`).

Shape only: what it means is in `hashbrown_request.py`. A field that is not listed here is kept in
`extra`.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from antiphon.protocol.items import FunctionName
from antiphon.protocol.struct import ProtocolStruct
from antiphon.protocol.tools import ToolChoiceMode
from antiphon.wire.chat.wire_types import MAX_MESSAGES

NonEmpty = Annotated[str, Meta(min_length=1)]


class HashbrownFunction(ProtocolStruct):
    """Which function was called, and with what: JSON in a string, or JSON."""

    name: NonEmpty
    arguments: object = ""


class HashbrownToolCall(ProtocolStruct):
    """A call of a tool; its `index` is its place in the list."""

    id: NonEmpty
    function: HashbrownFunction
    index: int | None = None
    type: str = "function"
    metadata: dict[str, object] | None = None


class HashbrownMessage(ProtocolStruct):
    """Something said; what a role needs of it is checked when it is understood.

    Content is text, and of a tool a settled promise: `{"status": "fulfilled", "value": …}`.
    """

    role: Literal["user", "assistant", "tool", "error"]
    content: object = None
    tool_calls: list[HashbrownToolCall] = field(
        default_factory=list[HashbrownToolCall], name="toolCalls"
    )
    tool_call_id: NonEmpty | None = field(default=None, name="toolCallId")
    tool_name: str | None = field(default=None, name="toolName")


class HashbrownTool(ProtocolStruct):
    """A function that the client runs; `parameters` is a JSON Schema."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None


class HashbrownBody(ProtocolStruct):
    """A request to answer, or to show a thread."""

    model: NonEmpty
    messages: Annotated[list[HashbrownMessage], Meta(max_length=MAX_MESSAGES)]
    operation: Literal["generate", "load-thread"] = "generate"
    system: str = ""
    tools: Annotated[list[HashbrownTool], Meta(max_length=512)] = field(
        default_factory=list[HashbrownTool]
    )
    tool_choice: ToolChoiceMode = field(default="auto", name="toolChoice")
    response_format: dict[str, object] | None = field(default=None, name="responseFormat")
    response_format_mode: Literal["schema", "json"] = field(
        default="schema", name="responseFormatMode"
    )
    thread_id: NonEmpty | None = field(default=None, name="threadId")
