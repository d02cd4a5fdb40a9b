"""Custom tools: the caller's as functions are, but called with a plain text.

They are OpenAI's, and so extensions whose fields nobody looks at. Here they are held to what holds
for functions: when a client sends them, and again when a provider is told of them, because what was
kept may have come from anywhere. Only an id may be as long as its provider made it.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from antiphon.core.content import Content, LongText
from antiphon.core.items import CUSTOM_CALL, CUSTOM_OUTPUT, ExtensionItem, FunctionCallOutput, Name
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


SHAPES: Mapping[str, type[Value]] = {CUSTOM_CALL: CustomCall, CUSTOM_OUTPUT: CustomOutput}


def check(item: Mapping[str, object], path: str) -> None:
    """Check an item that a client sends, if it is a custom tool's; raises ShapeError."""
    kind = item.get("type")
    if isinstance(kind, str) and kind in SHAPES:
        decode(SHAPES[kind], item, path)


def tool_of(tool: ExtensionTool) -> CustomTool:
    """Read a custom tool; raises ShapeError."""
    return decode(CustomTool, tool.extra or {})


def call_of(item: ExtensionItem) -> CustomCall:
    """Read a call of a custom tool; raises ShapeError."""
    return decode(CustomCall, item.extra or {})


def output_of(item: ExtensionItem) -> FunctionCallOutput:
    """Read the output of a custom tool as that of a function; raises ShapeError."""
    held = decode(CustomOutput, item.extra or {})
    return FunctionCallOutput(id=item.id, call_id=held.call_id, output=held.output)
