"""Tools of every form, made one list.

A tool is a decorated function, a plain one, or a declaration in JSON that one of the
`tool_handlers` answers. Such a handler is called with the arguments by name; or, if it takes a
single parameter that the schema does not name, with all of them in one dict. A declaration without
a handler is allowed: a call of it is told to the model as an error.
"""

from collections.abc import Iterable, Mapping
from inspect import Parameter

from antiphon.client.tools.signature import Function, context_of, parameters
from antiphon.client.tools.tool import Bound, Tool
from antiphon.core.errors import RequestError
from antiphon.core.schema import Schema, is_object
from antiphon.core.tools import FunctionTool
from antiphon.core.value import ShapeError, decode

AnyTool = Tool | FunctionTool | Mapping[str, object] | Function
"""Whatever may stand in a list of tools."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def resolved(
    tools: Iterable[AnyTool], tool_handlers: Mapping[str, Function] | None = None
) -> list[Tool]:
    """Make one list of tools and handlers, or raise RequestError."""
    waiting = dict(tool_handlers or {})
    found: dict[str, Tool] = {}
    for given in tools:
        made = _tool(given, waiting)
        if made.name in found:
            raise _refused(f"Two tools are called '{made.name}'. Give one `@tool(name=...)`.")
        found[made.name] = made
    if waiting:
        name = next(iter(waiting))
        why = "a tool that has a function already" if name in found else "no tool"
        raise _refused(f"`tool_handlers` has '{name}', which is the name of {why}.")
    return list(found.values())


def _tool(given: AnyTool, waiting: dict[str, Function]) -> Tool:
    match given:
        case Tool():
            made = given
        case FunctionTool():
            return _declared(given, waiting.pop(given.name, None))
        case Mapping():
            declared = _read(dict(given))
            return _declared(declared, waiting.pop(declared.name, None))
        case _ if callable(given):
            made = Tool.of(given)
        case _:
            raise _refused(f"'{type(given).__name__}' is no tool. Give a function or a dict.")
    if next(iter(made.parameters["properties"]), None) == "self":
        raise _refused(f"The tool '{made.name}' is a method. Give the one of an object.")
    return made


def _read(given: Schema) -> FunctionTool:
    """Read a declaration, as Responses or as chat completions write it."""
    inner = given.get("function")
    fields = inner if is_object(inner) else given
    try:
        return decode(FunctionTool, {"type": given.get("type", "function"), **fields}, "tools")
    except ShapeError as error:
        raise RequestError.of_shape(error) from None


def _declared(declared: FunctionTool, function: Function | None) -> Tool:
    taken = _taken(function)
    context = context_of(taken)
    properties = (declared.parameters or {}).get("properties")
    known = properties if is_object(properties) else {}
    match [parameter for name, parameter in taken.items() if name != context]:
        case [Parameter(name=name, kind=kind)] if name not in known and kind in _POSITIONAL:
            return Tool(declared, function, _in_one, context)
        case _:
            return Tool(declared, function, _by_name, context)


def _taken(function: Function | None) -> dict[str, Parameter]:
    try:
        return {} if function is None else parameters(function)
    except (NameError, TypeError, ValueError):
        return {}  # a builtin, or annotations that nobody can evaluate: they are not needed


def _by_name(given: Schema) -> Bound:
    return Bound((), given)


def _in_one(given: Schema) -> Bound:
    return Bound((given,), {})


def _refused(message: str) -> RequestError:
    return RequestError(message, param="tools", code="invalid_tool")
