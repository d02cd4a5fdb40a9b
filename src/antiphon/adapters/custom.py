"""Custom tools: the caller's as functions are, but called with a plain text.

They are OpenAI's, and so extensions whose fields nobody has looked at. What is read here has been
held to what holds for functions; only an id may be as long as the provider made it.
"""

from typing import Annotated

from msgspec import Meta

from antiphon.adapters.fields import fields_of
from antiphon.core.content import Content, LongText
from antiphon.core.items import ExtensionItem, FunctionCallOutput, Name
from antiphon.core.tools import ExtensionTool
from antiphon.core.value import Value, decode

Word = Annotated[str, Meta(min_length=1)]


class CustomTool(Value):
    """What every custom tool says of itself."""

    name: Name


class CustomCall(Value):
    """What a call of a custom tool holds."""

    call_id: Word
    name: Word
    input: str


class CustomOutput(Value):
    """What the output of a custom tool holds."""

    call_id: Word
    output: LongText | list[Content]


def tool_of(tool: ExtensionTool) -> CustomTool:
    """Read a custom tool; raises ShapeError."""
    return decode(CustomTool, fields_of(tool.extra))


def call_of(item: ExtensionItem) -> CustomCall:
    """Read a call of a custom tool; raises ShapeError."""
    return decode(CustomCall, fields_of(item.extra))


def output_of(item: ExtensionItem) -> FunctionCallOutput:
    """Read the output of a custom tool as that of a function; raises ShapeError."""
    held = decode(CustomOutput, fields_of(item.extra))
    return FunctionCallOutput(id=item.id, call_id=held.call_id, output=held.output)
