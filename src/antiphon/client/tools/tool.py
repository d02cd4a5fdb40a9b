"""The `@tool` decorator: make a function available to a model.

    @tool
    def weather(city: str, days: int = 1) -> str:
        '''Look up the weather.

        Args:
            city: where
            days: how many days ahead
        '''

The decorated function can still be called directly. It may be async, or a generator: each yielded
value is reported as progress, and the last one is the result. Sync functions run in a thread.

A tool may also be a plain function, or a declaration in JSON with a function in `tool_handlers`. A handler is called
with the arguments by name or, if it has a single parameter that is not in the schema, with one dict of all arguments. A
declaration without a handler is allowed: the model gets an error if it calls it.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial, update_wrapper
from inspect import Parameter
from types import MethodType
from typing import Any, cast, overload

import msgspec
from msgspec.structs import replace

from antiphon.client.tools.signature import (
    ToolContext,
    ToolFunction,
    ToolSignature,
    find_context_parameter,
    inspect_parameters,
)
from antiphon.client.tools.strict_schema import NON_STRICT_ADVICE, drop_optional_nulls, make_strict
from antiphon.protocol.errors import AntiphonError, RequestError
from antiphon.protocol.items import FunctionName
from antiphon.protocol.json_schema import Schema, SchemaValidator, is_object
from antiphon.protocol.struct import InvalidValueError, as_object, decode
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.tools import FunctionTool
from antiphon.wire import json

MAX_PROBLEM_LENGTH = 200
"""How many characters of a problem are sent to the model."""


class ToolError(AntiphonError):
    """A call that cannot be executed; the message is sent to the model."""


def no_handler_error(name: str) -> ToolError:
    return ToolError(f"No handler for tool: {name}")


_CLOSING_BRACKETS = {"{": "}", "[": "]"}


def repair_json(text: str) -> str:
    """Add missing closing brackets and remove trailing commas; the result may still be invalid.

    >>> repair_json('{"city": "Oslo", "days": [1, 2,')
    '{"city": "Oslo", "days": [1, 2]}'
    """
    # Small models forget these. Nothing else is guessed: half a string may be half a path.
    repaired: list[str] = []
    open_brackets: list[str] = []
    in_string = escaped = False
    for character in text.rstrip():
        if escaped:
            escaped = False
        elif in_string and character == "\\":
            escaped = True
        elif character == '"':
            in_string = not in_string
        elif not in_string and character in _CLOSING_BRACKETS:
            open_brackets.append(_CLOSING_BRACKETS[character])
        elif not in_string and open_brackets and character == open_brackets[-1]:
            _drop_trailing_comma(repaired)
            open_brackets.pop()
        repaired.append(character)
    if in_string:
        return text
    _drop_trailing_comma(repaired)
    return "".join([*repaired, *reversed(open_brackets)])


def _drop_trailing_comma(characters: list[str]) -> None:
    while characters and characters[-1].isspace():
        characters.pop()
    if characters and characters[-1] == ",":
        characters.pop()


class Tool:
    """A function that a model may call, and its declaration."""

    __name__: str

    def __init__(
        self,
        declaration: FunctionTool,
        function: ToolFunction | None = None,
        convert: Callable[[Schema], Schema] | None = None,
        context: str | None = None,
        *,
        takes_dict: bool = False,
    ) -> None:
        if function is not None:
            # Without __dict__, which would overwrite our own attributes.
            update_wrapper(self, function, updated=())
        try:
            msgspec.convert(declaration.name, FunctionName)
        except msgspec.ValidationError:
            message = f"'{declaration.name[:80]}' cannot be a tool's name: "
            message += "use 1 to 64 letters, digits, '_' and '-', as in `@tool(name=...)`."
            raise RequestError(message, param="tools", code="invalid_tool_name") from None
        self.declaration = declaration
        self.function = function
        self._convert = convert
        self._context = context
        self._takes_dict = takes_dict
        self._validator = SchemaValidator(self.parameters)

    @classmethod
    def from_function(cls, function: ToolFunction, declaration: FunctionTool) -> "Tool":
        """Create a tool from a typed function; a description in the declaration takes precedence."""
        try:
            signature = ToolSignature(function)
        except TypeError as error:
            raise TypeError(f"{_function_name(function)} cannot be a tool: {error}") from error
        description = declaration.description or signature.description
        declaration = replace(declaration, description=description, parameters=signature.schema)
        return cls(declaration, function, signature.convert, signature.context_parameter)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function directly."""
        if self.function is None:
            raise TypeError(f"the tool '{self.name}' has no function")
        return self.function(*args, **named)

    def __get__(self, instance: object, owner: type | None = None) -> "Tool":
        """Bind the tool of a method to its instance."""
        # Called by Python for obj.method, because a Tool is also a descriptor.
        if instance is None or self.function is None:
            return self
        return Tool.from_function(MethodType(self.function, instance), self.declaration)

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.declaration.name

    @property
    def description(self) -> str | None:
        """The description that the model sees."""
        return self.declaration.description

    @property
    def parameters(self) -> Schema:
        """The JSON Schema of the arguments, not converted to strict mode."""
        return self.declaration.parameters or {"type": "object", "properties": {}}

    @property
    def strict(self) -> bool | None:
        """Whether the tool uses strict mode; None leaves it to the run."""
        return self.declaration.strict

    def definition(self, strict: bool) -> FunctionTool:
        """Return the declaration for a server; `strict` applies unless the tool decides itself."""
        if not (strict if self.strict is None else self.strict):
            return replace(self.declaration, strict=False)
        converted = make_strict(self.parameters)
        if converted.problems:
            message = f"The tool '{self.name}' cannot use strict mode: {converted.summary}. "
            message += f"Change the annotation, or disable strict mode: {NON_STRICT_ADVICE}."
            raise RequestError(message, param="tools", code="invalid_tool_schema")
        return replace(self.declaration, parameters=converted.schema, strict=True)

    def validate(self, arguments: str) -> Schema:
        """Parse, repair, check and convert the arguments; raises ToolError with a message for the model."""
        given = drop_optional_nulls(self._parse(repair_surrogates(arguments)), self.parameters)
        if not is_object(given):
            raise self._invalid_arguments_error("the arguments must be a JSON object")
        if problems := self._validator.problems(given):
            raise self._invalid_arguments_error(*problems)
        try:
            return self._convert(given) if self._convert else given
        except InvalidValueError as error:
            raise self._invalid_arguments_error(str(error)) from None

    def _parse(self, text: str) -> object:
        # Some models send these to a tool without parameters.
        if text.strip() in ("", "null"):
            return {}
        try:
            return json.decode(text.encode())
        except json.JSONError as error:
            try:
                return json.decode(repair_json(text).encode())
            # The error of the original text: that of the repaired one would confuse the model.
            except json.JSONError:
                reason = str(error).removeprefix("Invalid JSON: ")
                message = f"Tool {self.name} failed: Invalid JSON arguments: {reason}"
                raise ToolError(f"{message} You sent: {text[:MAX_PROBLEM_LENGTH]}") from None

    def _invalid_arguments_error(self, *problems: str) -> ToolError:
        text = "; ".join(problem[:MAX_PROBLEM_LENGTH] for problem in problems)
        return ToolError(f"Tool {self.name} failed: Invalid arguments: {text}")

    async def call(self, arguments: str, context: ToolContext) -> object:
        """Run the function to its end and return its result; raises ToolError for invalid arguments."""
        if self.function is None:
            raise no_handler_error(self.name)
        values = self.validate(arguments)
        named = {} if self._takes_dict else values
        if self._context:
            named = {**named, self._context: context}
        call = partial(self.function, *([values] if self._takes_dict else []), **named)
        if inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function):
            result: object = call()
        else:
            result = await asyncio.to_thread(_call_in_thread, call, context)
        # Also after a thread: a lambda or a partial may return a coroutine.
        if inspect.isawaitable(result):
            result = cast("object", await result)
        if isinstance(result, AsyncGenerator):
            values, result = cast("AsyncGenerator[object]", result), None
            async with aclosing(values):
                async for result in values:
                    context.progress(result)
        return result


@overload
def tool(function: ToolFunction, /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, strict: bool | None = None
) -> Callable[[ToolFunction], Tool]: ...
def tool(
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
) -> Tool | Callable[[ToolFunction], Tool]:
    """Make a tool of a typed function: `@tool`, or `@tool(name=..., strict=False)`."""

    def make(function: ToolFunction) -> Tool:
        declaration = FunctionTool(name=name or _function_name(function), description=description, strict=strict)
        return Tool.from_function(function, declaration)

    return make if function is None else make(function)


def _function_name(function: ToolFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _call_in_thread(call: Callable[[], object], context: ToolContext) -> object:
    try:
        result = call()
        if isinstance(result, Generator):
            values, result = cast("Iterator[object]", result), None
            for result in values:
                context.progress(result)
    except StopIteration as error:
        # A future cannot hold a StopIteration: in Python 3.11 the caller would wait forever.
        raise RuntimeError("the tool raised StopIteration") from error
    return result


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
    made = given if isinstance(given, Tool) else tool(given)
    # @tool on a method in its class body; only the instance's attribute is bound.
    if next(iter(made.parameters["properties"]), None) == "self":
        raise _invalid_tool_error(f"The tool '{made.name}' is an unbound method. Pass the method of an instance.")
    return made


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
    others = [parameter for name, parameter in parameters.items() if name != context]
    takes_dict = len(others) == 1 and others[0].name not in known and others[0].kind in _POSITIONAL
    return Tool(declaration, function, context=context, takes_dict=takes_dict)


def _invalid_tool_error(message: str) -> RequestError:
    return RequestError(message, param="tools", code="invalid_tool")
