"""What the model may call, and what it must."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from antiphon.core.items import Name
from antiphon.core.value import Value


class FunctionTool(Value):
    """A function that the caller runs; `parameters` is a JSON Schema."""

    type: Literal["function"] = "function"
    name: Name
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class ExtensionTool(Value):
    """A tool of a type that is not in the specification, `slug:name`; `extra` holds its fields."""

    fallback: ClassVar[bool] = True
    type: str


Tool = FunctionTool | ExtensionTool

Mode = Literal["none", "auto", "required"]


class FunctionToolChoice(Value):
    """One function, by name."""

    type: Literal["function"] = "function"
    name: str


class ExtensionToolChoice(Value):
    """A tool of a type that is not in the specification."""

    fallback: ClassVar[bool] = True
    type: str


SpecificToolChoice = FunctionToolChoice | ExtensionToolChoice


class AllowedTools(Value):
    """The tools that may be called, out of those that are shown: a hard constraint."""

    type: Literal["allowed_tools"] = "allowed_tools"
    tools: Annotated[list[SpecificToolChoice], Meta(min_length=1, max_length=128)]
    mode: Mode = "auto"


ToolChoice = Mode | FunctionToolChoice | AllowedTools | ExtensionToolChoice


def callable_tools(tools: list[Tool], choice: ToolChoice) -> list[FunctionTool]:
    """Return the functions that may be called under a tool choice, in the order offered."""
    functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
    match choice:
        case "none" | ExtensionToolChoice():
            return []
        case FunctionToolChoice(name=name):
            return [tool for tool in functions if tool.name == name]
        case AllowedTools(tools=allowed, mode=mode):
            names = {tool.name for tool in allowed if isinstance(tool, FunctionToolChoice)}
            return [] if mode == "none" else [tool for tool in functions if tool.name in names]
        case _:
            return functions


def must_call(choice: ToolChoice) -> bool:
    """Tell whether a tool choice leaves the model no way to answer without a call."""
    match choice:
        case "required" | FunctionToolChoice() | ExtensionToolChoice():
            return True
        case AllowedTools(mode="required"):
            return True
        case _:
            return False
