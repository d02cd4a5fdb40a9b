"""Tools and tool choices: what the model may call, and what it must call.

Custom tools are OpenAI's: the caller runs them as functions, but their input is plain text. They
are extension types, so their fields are checked here: when a client sends them, and again when they
are encoded for a provider, because stored items may come from anywhere.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    CUSTOM_TOOL_CALL_OUTPUT,
    Content,
    ExtensionItem,
    FunctionCallOutput,
    FunctionName,
    LongText,
)
from antiphon.protocol.struct import ExtensionStruct, InvalidValueError, ProtocolStruct, decode, join_path


class FunctionTool(ProtocolStruct):
    """A function that the caller runs; `parameters` is a JSON Schema."""

    type: Literal["function"] = "function"
    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Reject the shape of chat completions."""
        if "name" not in raw and isinstance(raw.get("function"), dict):
            reason = "this field is required; move the fields of 'function' up, beside 'type': only chat nests them"
            raise InvalidValueError(join_path(path, "name"), reason)
        return raw


class ExtensionTool(ExtensionStruct):
    """A tool of a type that is not in the specification, `slug:name`; `extra` holds its fields."""


Tool = FunctionTool | ExtensionTool

CUSTOM_TOOL = "openai:custom"
"""The type of a custom tool."""

WEB_SEARCH_TYPES = frozenset(
    f"openai:web_search{suffix}" for suffix in ("", "_2025_08_26", "_preview", "_preview_2025_03_11")
)
"""All type names of OpenAI's web search; other providers have one too."""

COMPUTER_TYPES = frozenset({"openai:computer", "openai:computer_use", "openai:computer_use_preview"})
"""All type names of OpenAI's computer use."""

ToolChoiceMode = Literal["none", "auto", "required"]


class FunctionToolChoice(ProtocolStruct):
    """One function, by name."""

    type: Literal["function"] = "function"
    name: str

    normalize = FunctionTool.normalize  # pyright: ignore[reportAssignmentType] - it is bound, and uses no class


class ExtensionToolChoice(ExtensionStruct):
    """A tool of a type that is not in the specification."""


SpecificToolChoice = FunctionToolChoice | ExtensionToolChoice


class AllowedTools(ProtocolStruct):
    """The subset of the offered tools that may be called: a hard constraint."""

    type: Literal["allowed_tools"] = "allowed_tools"
    # The limits of the OpenAPI file.
    tools: Annotated[list[SpecificToolChoice], Meta(min_length=1, max_length=128)]
    mode: ToolChoiceMode = "auto"


ToolChoice = ToolChoiceMode | FunctionToolChoice | AllowedTools | ExtensionToolChoice


def callable_tools(tools: list[Tool], choice: ToolChoice) -> list[FunctionTool]:
    """Return the functions that may be called under a tool choice, in the order offered."""
    return [tool for tool in tools if isinstance(tool, FunctionTool) and may_call(tool, choice)]


def callable_names(tools: list[Tool], choice: ToolChoice) -> set[str]:
    """Return the names of the functions and custom tools that may be called."""
    names = (tool_name(tool) for tool in tools if may_call(tool, choice))
    return {name for name in names if name is not None}


def may_call(tool: Tool, choice: ToolChoice) -> bool:
    """Return whether a tool may be called under a tool choice."""
    match choice:
        # The mode of allowed_tools applies before its list.
        case "none" | AllowedTools(mode="none"):
            return False
        case FunctionToolChoice() | ExtensionToolChoice():
            return choice_names_tool(tool, choice)
        case AllowedTools(tools=allowed):
            return any(choice_names_tool(tool, named) for named in allowed)
        case _:
            return True


def choice_names_tool(tool: Tool, choice: SpecificToolChoice) -> bool:
    """Return whether a choice of one tool means this one."""
    # Functions and custom tools are chosen by name, hosted tools by type.
    if (
        isinstance(tool, FunctionTool)
        or isinstance(choice, FunctionToolChoice)
        or CUSTOM_TOOL in (tool.type, choice.type)
    ):
        name = tool_name(choice)
        return tool.type == choice.type and name is not None and name == tool_name(tool)
    for names in (WEB_SEARCH_TYPES, COMPUTER_TYPES):
        if choice.type in names:
            return tool.type in names
    # MCP tools are identified by their server; `name` is then the name of one of its tools.
    label = choice.get("server_label")
    return tool.type == choice.type and label in (None, tool.get("server_label"))


def tool_name(tool: Tool | SpecificToolChoice) -> str | None:
    """Return the name of a function or custom tool; a hosted tool has none."""
    if isinstance(tool, FunctionTool | FunctionToolChoice):
        return tool.name
    name = tool.get("name") if tool.type == CUSTOM_TOOL else None
    return name if isinstance(name, str) else None


def must_call(choice: ToolChoice) -> bool:
    """Return whether a tool choice forces the model to call a tool."""
    mode = choice.mode if isinstance(choice, AllowedTools) else choice
    return mode == "required" or isinstance(mode, FunctionToolChoice | ExtensionToolChoice)


NonEmptyString = Annotated[str, Meta(min_length=1)]


class CustomToolFields(ProtocolStruct):
    """The fields of a custom tool."""

    name: FunctionName


class CustomCallFields(ProtocolStruct):
    """The fields of a custom tool call."""

    call_id: NonEmptyString
    name: NonEmptyString
    input: str


class CustomOutputFields(ProtocolStruct):
    """The fields of a custom tool call output."""

    call_id: NonEmptyString
    output: LongText | list[Content]


CUSTOM_ITEM_FIELDS: Mapping[str, type[ProtocolStruct]] = {
    CUSTOM_TOOL_CALL: CustomCallFields,
    CUSTOM_TOOL_CALL_OUTPUT: CustomOutputFields,
}


def check_custom_item(item: Mapping[str, object], path: str) -> None:
    """Check an input item, if it is a custom tool's; raise InvalidValueError."""
    kind = item.get("type")
    if isinstance(kind, str) and kind in CUSTOM_ITEM_FIELDS:
        decode(CUSTOM_ITEM_FIELDS[kind], item, path)


def decode_custom_tool(tool: ExtensionTool) -> CustomToolFields:
    """Decode a custom tool; raise InvalidValueError."""
    return decode(CustomToolFields, tool.extra or {})


def decode_custom_call(item: ExtensionItem) -> CustomCallFields:
    """Decode a custom tool call; raise InvalidValueError."""
    return decode(CustomCallFields, item.extra or {})


def decode_custom_output(item: ExtensionItem) -> FunctionCallOutput:
    """Decode the output of a custom tool as that of a function; raise InvalidValueError."""
    held = decode(CustomOutputFields, item.extra or {})
    return FunctionCallOutput(id=item.id, call_id=held.call_id, output=held.output)
