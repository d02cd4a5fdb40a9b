"""Custom tools: the caller's as functions are, but called with a plain text.

They are OpenAI's, and so extensions whose fields nobody looks at. Here they are held to what holds
for functions: when a client sends them, and again when a provider is told of them, because what was
kept may have come from anywhere. Only an id may be as long as its provider made it.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from antiphon.core.content import Content, LongText
from antiphon.core.items import CUSTOM_TOOL_CALL, CUSTOM_TOOL_CALL_OUTPUT, ExtensionItem, FunctionCallOutput, FunctionName
from antiphon.core.tools import ExtensionTool
from antiphon.core.value import ProtocolStruct, decode

NonEmptyString = Annotated[str, Meta(min_length=1)]


class CustomToolFields(ProtocolStruct):
    """What every custom tool says of itself."""

    name: FunctionName


class CustomCallFields(ProtocolStruct):
    """What a call of a custom tool holds."""

    call_id: NonEmptyString
    name: NonEmptyString
    input: str


class CustomOutputFields(ProtocolStruct):
    """What the output of a custom tool holds."""

    call_id: NonEmptyString
    output: LongText | list[Content]


CUSTOM_ITEM_FIELDS: Mapping[str, type[ProtocolStruct]] = {CUSTOM_TOOL_CALL: CustomCallFields, CUSTOM_TOOL_CALL_OUTPUT: CustomOutputFields}


def check_custom_item(item: Mapping[str, object], path: str) -> None:
    """Check an item that a client sends, if it is a custom tool's; raises ShapeError."""
    kind = item.get("type")
    if isinstance(kind, str) and kind in CUSTOM_ITEM_FIELDS:
        decode(CUSTOM_ITEM_FIELDS[kind], item, path)


def decode_custom_tool(tool: ExtensionTool) -> CustomToolFields:
    """Read a custom tool; raises ShapeError."""
    return decode(CustomToolFields, tool.extra or {})


def decode_custom_call(item: ExtensionItem) -> CustomCallFields:
    """Read a call of a custom tool; raises ShapeError."""
    return decode(CustomCallFields, item.extra or {})


def decode_custom_output(item: ExtensionItem) -> FunctionCallOutput:
    """Read the output of a custom tool as that of a function; raises ShapeError."""
    held = decode(CustomOutputFields, item.extra or {})
    return FunctionCallOutput(id=item.id, call_id=held.call_id, output=held.output)
