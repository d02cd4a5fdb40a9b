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
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, NamedTuple, cast, overload

import msgspec
from msgspec.structs import replace

from antiphon.client.tools.arguments import ArgumentReader, ToolError
from antiphon.client.tools.signature import ToolContext, ToolFunction, ToolSignature
from antiphon.client.tools.strict_schema import NON_STRICT_ADVICE, make_strict
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionName
from antiphon.protocol.json_schema import Schema
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.tools import FunctionTool


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
        self.declaration = _check_name(declaration)
        self.function = function
        self._bind = bind
        self._context = context
        self._arguments = ArgumentReader(self.name, self.parameters)

    @classmethod
    def from_function(
        cls, function: ToolFunction, declaration: FunctionTool | None = None
    ) -> "Tool":
        """Create a tool from a typed function; values of a given declaration take precedence."""
        try:
            signature = ToolSignature(function)
        except TypeError as error:
            raise TypeError(f"{_function_name(function)} cannot be a tool: {error}") from error
        declaration = declaration or FunctionTool(name=_function_name(function))
        return cls(
            replace(
                declaration,
                description=declaration.description or signature.description,
                parameters=signature.schema,
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
            return await _last_yielded_async(cast("AsyncGenerator[object]", result), context)
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
        declaration = FunctionTool(
            name=name or _function_name(function), description=description, strict=strict
        )
        return Tool.from_function(function, declaration)

    return make if function is None else make(function)


def _function_name(function: ToolFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check_name(declaration: FunctionTool) -> FunctionTool:
    try:
        msgspec.convert(declaration.name, FunctionName)
    except msgspec.ValidationError:
        raise RequestError(
            f"'{declaration.name[:80]}' cannot be a tool's name: use 1 to 64 letters, digits, "
            "'_' and '-', as in `@tool(name=...)`.",
            param="tools",
            code="invalid_tool_name",
        ) from None
    return declaration


def _call_in_thread(call: Callable[[], object], context: ToolContext) -> object:
    try:
        result = call()
        if isinstance(result, Generator):
            return _last_yielded(cast("Iterator[object]", result), context)
    except StopIteration as error:
        # A future cannot hold a StopIteration: in Python 3.11 the caller would wait forever.
        raise RuntimeError("the tool raised StopIteration") from error
    return result


def _last_yielded(values: Iterator[object], context: ToolContext) -> object:
    last: object = None
    for last in values:
        context.progress(last)
    return last


async def _last_yielded_async(values: AsyncGenerator[object], context: ToolContext) -> object:
    last: object = None
    async with aclosing(values):
        async for last in values:
            context.progress(last)
    return last
