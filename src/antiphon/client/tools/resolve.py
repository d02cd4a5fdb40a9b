"""Tools of every form, made one list.

A tool is a decorated function, a plain one, or a declaration in JSON that one of the
`tool_handlers` answers. Such a handler is called with the arguments by name; or, if it takes a
single parameter that the schema does not name, with all of them in one dict. A declaration without
a handler is allowed: a call of it is told to the model as an error.
"""

from collections.abc import Iterable, Mapping
from inspect import Parameter

from antiphon.client.tools.signature import ToolFunction, find_context_parameter, inspect_parameters
from antiphon.client.tools.tool import BoundArguments, Tool
from antiphon.protocol.errors import RequestError
from antiphon.protocol.json_schema import Schema, is_object
from antiphon.protocol.struct import InvalidValueError, decode
from antiphon.protocol.tools import FunctionTool

AnyTool = Tool | FunctionTool | Mapping[str, object] | ToolFunction
"""Whatever may stand in a list of tools."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def resolve_tools(
    tools: Iterable[AnyTool], tool_handlers: Mapping[str, ToolFunction] | None = None
) -> list[Tool]:
    """Make one list of tools and handlers, or raise RequestError."""
    waiting = dict(tool_handlers or {})
    found: dict[str, Tool] = {}
    for given in tools:
        made = _resolve_tool(given, waiting)
        if made.name in found:
            raise _invalid_tool_error(
                f"Two tools are called '{made.name}'. Give one `@tool(name=...)`."
            )
        found[made.name] = made
    if waiting:
        name = next(iter(waiting))
        why = "a tool that has a function already" if name in found else "no tool"
        raise _invalid_tool_error(f"`tool_handlers` has '{name}', which is the name of {why}.")
    return list(found.values())


def _resolve_tool(given: AnyTool, handlers: dict[str, ToolFunction]) -> Tool:
    match given:
        case Tool():
            made = given
        case FunctionTool():
            return _build_declared_tool(given, handlers.pop(given.name, None))
        case Mapping():
            declared = _decode_declaration(dict(given))
            return _build_declared_tool(declared, handlers.pop(declared.name, None))
        case _ if callable(given):
            made = Tool.from_function(given)
        case _:
            raise _invalid_tool_error(
                f"'{type(given).__name__}' is no tool. Give a function or a dict."
            )
    if next(iter(made.parameters["properties"]), None) == "self":
        raise _invalid_tool_error(f"The tool '{made.name}' is a method. Give the one of an object.")
    return made


def _decode_declaration(given: Schema) -> FunctionTool:
    """Read a declaration, as Responses or as chat completions write it."""
    inner = given.get("function")
    fields = inner if is_object(inner) else given
    try:
        return decode(FunctionTool, {"type": given.get("type", "function"), **fields}, "tools")
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None


def _build_declared_tool(declaration: FunctionTool, function: ToolFunction | None) -> Tool:
    taken = _handler_parameters(function)
    context = find_context_parameter(taken)
    properties = (declaration.parameters or {}).get("properties")
    known = properties if is_object(properties) else {}
    match [parameter for name, parameter in taken.items() if name != context]:
        case [Parameter(name=name, kind=kind)] if name not in known and kind in _POSITIONAL:
            return Tool(declaration, function, _bind_as_dict, context)
        case _:
            return Tool(declaration, function, _bind_by_name, context)


def _handler_parameters(function: ToolFunction | None) -> dict[str, Parameter]:
    try:
        return {} if function is None else inspect_parameters(function)
    except (NameError, TypeError, ValueError):
        return {}  # a builtin, or annotations that nobody can evaluate: they are not needed


def _bind_by_name(given: Schema) -> BoundArguments:
    return BoundArguments((), given)


def _bind_as_dict(given: Schema) -> BoundArguments:
    return BoundArguments((given,), {})


def _invalid_tool_error(message: str) -> RequestError:
    return RequestError(message, param="tools", code="invalid_tool")
