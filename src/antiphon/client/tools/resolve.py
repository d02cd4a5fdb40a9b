"""Resolve the `tools` argument to a list of `Tool` objects.

A tool is a decorated function, a plain function, or a declaration in JSON with a function in
`tool_handlers`. A handler is called with the arguments by name or, if it has a single parameter
that is not in the schema, with one dict of all arguments. A declaration without a handler is
allowed: the model gets an error if it calls it.
"""

from collections.abc import Iterable, Mapping
from inspect import Parameter
from typing import cast

from antiphon.client.tools.signature import ToolFunction, find_context_parameter, inspect_parameters
from antiphon.client.tools.tool import BoundArguments, Tool
from antiphon.protocol.errors import RequestError
from antiphon.protocol.json_schema import Schema, is_object
from antiphon.protocol.struct import InvalidValueError, as_object, decode
from antiphon.protocol.tools import FunctionTool

AnyTool = Tool | FunctionTool | Mapping[str, object] | ToolFunction
"""Everything that is accepted in a list of tools."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def resolve_tools(tools: Iterable[AnyTool], tool_handlers: Mapping[str, ToolFunction] | None = None) -> list[Tool]:
    """Return the tools with their handlers; raises RequestError."""
    handlers = dict(tool_handlers or {})
    found: dict[str, Tool] = {}
    for given in tools:
        tool = _resolve_tool(given, handlers)
        if tool.name in found:
            raise _invalid_tool_error(f"Two tools are called '{tool.name}'. Give one `@tool(name=...)`.")
        found[tool.name] = tool
    if handlers:
        name = next(iter(handlers))
        why = "a tool that has a function already" if name in found else "no tool"
        raise _invalid_tool_error(f"`tool_handlers` has '{name}', which is the name of {why}.")
    return list(found.values())


def _resolve_tool(given: AnyTool, handlers: dict[str, ToolFunction]) -> Tool:
    if isinstance(given, Mapping):
        given = _decode_declaration(dict(cast("Mapping[str, object]", given)))
    if isinstance(given, FunctionTool):
        return _build_declared_tool(given, handlers.pop(given.name, None))
    if not callable(given):
        raise _invalid_tool_error(f"'{type(given).__name__}' is not a tool. Pass a function or a dict.")
    tool = given if isinstance(given, Tool) else Tool.from_function(given)
    # @tool on a method in its class body; only the instance's attribute is bound.
    if next(iter(tool.parameters["properties"]), None) == "self":
        raise _invalid_tool_error(f"The tool '{tool.name}' is an unbound method. Pass the method of an instance.")
    return tool


def _decode_declaration(given: Schema) -> FunctionTool:
    """Decode a declaration in the format of Responses or of chat completions."""
    # Chat completions nest the declaration in "function".
    inner = given.get("function")
    fields = inner if is_object(inner) else given
    try:
        return decode(FunctionTool, {"type": given.get("type", "function"), **fields}, "tools")
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None


def _build_declared_tool(declaration: FunctionTool, function: ToolFunction | None) -> Tool:
    try:
        parameters = inspect_parameters(function) if function else {}
    except (NameError, TypeError, ValueError):
        parameters = {}  # a builtin, or annotations that cannot be evaluated: not needed here
    context = find_context_parameter(parameters)
    known = as_object((declaration.parameters or {}).get("properties"))
    # `def handler(arguments)` wants the dict, `def handler(city)` wants the value.
    match [parameter for name, parameter in parameters.items() if name != context]:
        case [Parameter(name=name, kind=kind)] if name not in known and kind in _POSITIONAL:
            return Tool(declaration, function, lambda given: BoundArguments((given,), {}), context)
        case _:
            return Tool(declaration, function, lambda given: BoundArguments((), given), context)


def _invalid_tool_error(message: str) -> RequestError:
    return RequestError(message, param="tools", code="invalid_tool")
