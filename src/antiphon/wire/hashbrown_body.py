"""The body of a Hashbrown request, as its clients send it (`Chat.Api.CompletionCreateParams`).

Shape only: what it means is in `hashbrown_request.py`. A field that is not listed here is kept in
`extra`.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from antiphon.core.items import Name
from antiphon.core.tools import Mode
from antiphon.core.value import Value
from antiphon.wire.chat_body import MOST

Filled = Annotated[str, Meta(min_length=1)]


class CalledFunction(Value):
    """Which function was called, and with what: JSON in a string, or JSON."""

    name: Filled
    arguments: object = ""


class ToolCall(Value):
    """A call of a tool; its `index` is its place in the list."""

    id: Filled
    function: CalledFunction
    index: int | None = None
    type: str = "function"
    metadata: dict[str, object] | None = None


class Message(Value):
    """Something said; what a role needs of it is checked when it is understood.

    Content is text, and of a tool a settled promise: `{"status": "fulfilled", "value": …}`.
    """

    role: Literal["user", "assistant", "tool", "error"]
    content: object = None
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall], name="toolCalls")
    tool_call_id: Filled | None = field(default=None, name="toolCallId")
    tool_name: str | None = field(default=None, name="toolName")


class Tool(Value):
    """A function that the client runs; `parameters` is a JSON Schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, object] | None = None


class Body(Value):
    """A request to answer, or to show a thread."""

    model: Filled
    messages: Annotated[list[Message], Meta(max_length=MOST)]
    operation: Literal["generate", "load-thread"] = "generate"
    system: str = ""
    tools: Annotated[list[Tool], Meta(max_length=512)] = field(default_factory=list[Tool])
    tool_choice: Mode = field(default="auto", name="toolChoice")
    response_format: dict[str, object] | None = field(default=None, name="responseFormat")
    response_format_mode: Literal["schema", "json"] = field(
        default="schema", name="responseFormatMode"
    )
    thread_id: Filled | None = field(default=None, name="threadId")
