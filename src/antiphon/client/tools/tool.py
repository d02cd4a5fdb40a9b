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
`ArgumentReader` parses, repairs and validates the arguments that a model sends.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, NamedTuple, cast, overload

import msgspec
from msgspec.structs import replace

from antiphon.client.tools.signature import ToolContext, ToolFunction, ToolSignature
from antiphon.client.tools.strict_schema import NON_STRICT_ADVICE, drop_optional_nulls, make_strict
from antiphon.protocol.errors import AntiphonError, RequestError
from antiphon.protocol.items import FunctionName
from antiphon.protocol.json_schema import Schema, SchemaValidator, is_object
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.tools import FunctionTool
from antiphon.wire import json

MAX_PROBLEM_LENGTH = 200
"""How many characters of a problem are sent to the model."""


class ToolError(AntiphonError):
    """A call that cannot be executed; the message is sent to the model."""


class ArgumentReader:
    """Reads the arguments of one tool."""

    def __init__(self, name: str, schema: Mapping[str, object]) -> None:
        self.name = name
        self.schema = dict(schema)
        self._validator = SchemaValidator(schema)

    def read(self, text: str) -> Schema:
        """Return the arguments as JSON, or raise ToolError."""
        arguments = drop_optional_nulls(self._parse(repair_surrogates(text)), self.schema)
        if not is_object(arguments):
            raise self.invalid_arguments_error(["the arguments must be a JSON object"])
        if problems := self._validator.problems(arguments):
            raise self.invalid_arguments_error(problems)
        return arguments

    def invalid_arguments_error(self, problems: Iterable[str]) -> ToolError:
        text = "; ".join(problem[:MAX_PROBLEM_LENGTH] for problem in problems)
        return ToolError(f"Tool {self.name} failed: Invalid arguments: {text}")

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


class BoundArguments(NamedTuple):
    """Arguments converted for the call of a function."""

    positional: tuple[object, ...]
    named: dict[str, object]


class Tool:
    """A function that a model may call: its declaration, and the reader of its arguments."""

    __name__: str

    def __init__(
        self,
        declaration: FunctionTool,
        function: ToolFunction | None,
        bind: Callable[[Schema], BoundArguments],
        context: str | None = None,
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
        self._bind = bind
        self._context = context
        self._arguments = ArgumentReader(self.name, self.parameters)

    @classmethod
    def from_function(cls, function: ToolFunction, declaration: FunctionTool | None = None) -> "Tool":
        """Create a tool from a typed function; values of a given declaration take precedence."""
        try:
            signature = ToolSignature(function)
        except TypeError as error:
            raise TypeError(f"{_function_name(function)} cannot be a tool: {error}") from error
        declaration = declaration or FunctionTool(name=_function_name(function))
        return cls(
            replace(
                declaration, description=declaration.description or signature.description, parameters=signature.schema
            ),
            function,
            lambda given: BoundArguments((), signature.convert(given)),
            signature.context_parameter,
        )

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
            raise RequestError(
                f"The tool '{self.name}' cannot use strict mode: {converted.summary}. "
                f"Change the annotation, or disable strict mode: {NON_STRICT_ADVICE}.",
                param="tools",
                code="invalid_tool_schema",
            )
        return replace(self.declaration, parameters=converted.schema, strict=True)

    def validate(self, arguments: str) -> BoundArguments:
        """Parse and convert the arguments; raises ToolError with a message for the model."""
        values = self._arguments.read(arguments)
        try:
            return self._bind(values)
        except InvalidValueError as error:
            raise self._arguments.invalid_arguments_error([str(error)]) from None

    async def call(self, bound: BoundArguments, context: ToolContext) -> object:
        """Run the function to its end and return its result."""
        if self.function is None:
            raise ToolError(f"No handler for tool: {self.name}")
        extra: dict[str, object] = {self._context: context} if self._context else {}
        call = partial(self.function, *bound.positional, **bound.named, **extra)
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
