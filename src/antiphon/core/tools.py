"""What the model may call, and what it must."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from antiphon.core.items import FunctionName
from antiphon.core.value import ProtocolStruct


class FunctionTool(ProtocolStruct):
    """A function that the caller runs; `parameters` is a JSON Schema."""

    type: Literal["function"] = "function"
    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class ExtensionTool(ProtocolStruct):
    """A tool of a type that is not in the specification, `slug:name`; `extra` holds its fields."""

    accepts_unknown_types: ClassVar[bool] = True
    type: str


Tool = FunctionTool | ExtensionTool

CUSTOM_TOOL = "openai:custom"
"""A tool of the caller's, as a function is, whose input is a plain text."""

WEB_SEARCH_TYPES = frozenset(
    f"openai:web_search{suffix}"
    for suffix in ("", "_2025_08_26", "_preview", "_preview_2025_03_11")
)
"""OpenAI's search, by all its names; other providers have one too."""

COMPUTER_TYPES = frozenset({"openai:computer", "openai:computer_use", "openai:computer_use_preview"})
"""The use of a computer, by all its names."""

ToolChoiceMode = Literal["none", "auto", "required"]


class FunctionToolChoice(ProtocolStruct):
    """One function, by name."""

    type: Literal["function"] = "function"
    name: str


class ExtensionToolChoice(ProtocolStruct):
    """A tool of a type that is not in the specification."""

    accepts_unknown_types: ClassVar[bool] = True
    type: str


SpecificToolChoice = FunctionToolChoice | ExtensionToolChoice


class AllowedTools(ProtocolStruct):
    """The tools that may be called, out of those that are shown: a hard constraint."""

    type: Literal["allowed_tools"] = "allowed_tools"
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
    """Tell whether a tool may be called under a tool choice."""
    match choice:
        case "none" | AllowedTools(mode="none"):
            return False
        case FunctionToolChoice() | ExtensionToolChoice():
            return choice_names_tool(tool, choice)
        case AllowedTools(tools=allowed):
            return any(choice_names_tool(tool, named) for named in allowed)
        case _:
            return True


def choice_names_tool(tool: Tool, choice: SpecificToolChoice) -> bool:
    """Tell whether a choice of one tool means this one."""
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
    there = choice.get("server_label")  # of MCP, where the name is that of a tool of the server's
    return tool.type == choice.type and there in (None, tool.get("server_label"))


def tool_name(tool: Tool | SpecificToolChoice) -> str | None:
    """Return the name by which the caller's own tool is called; a hosted one has none."""
    if isinstance(tool, FunctionTool | FunctionToolChoice):
        return tool.name
    name = tool.get("name") if tool.type == CUSTOM_TOOL else None
    return name if isinstance(name, str) else None


def must_call(choice: ToolChoice) -> bool:
    """Tell whether a tool choice leaves the model no way to answer without a call."""
    match choice:
        case "required" | FunctionToolChoice() | ExtensionToolChoice():
            return True
        case AllowedTools(mode="required"):
            return True
        case _:
            return False
