"""Functions that a model may call.

    @tool
    def weather(city: str, days: int = 1) -> str:
        '''Look up the weather.

        Args:
            city: where
            days: how many days ahead
        '''

The decorated function can still be called as one. It may be async, or a generator: what it yields
is told as progress, and the last of it is the result. Functions that are not async run in a thread.
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

from antiphon.client.tools import strict_schema as strict_form
from antiphon.client.tools.arguments import ArgumentReader, ToolError
from antiphon.client.tools.context import ToolContext
from antiphon.client.tools.signature import ToolFunction, ToolSignature
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionName
from antiphon.protocol.json_schema import Schema
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.tools import FunctionTool

NON_STRICT_ADVICE = "`@tool(strict=False)` for this tool or `strict_tools=False` for all of them"


class BoundArguments(NamedTuple):
    """Arguments as a function takes them."""

    positional: tuple[object, ...]
    named: dict[str, object]


class Tool:
    """A function that a model may call: how it is declared, and how its arguments are read."""

    __name__: str

    def __init__(
        self,
        declaration: FunctionTool,
        function: ToolFunction | None,
        bind: Callable[[Schema], BoundArguments],
        context: str | None = None,
    ) -> None:
        if function is not None:
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
        """Make a tool of a typed function; what is declared already is kept."""
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
        """Call the function itself, as if it were no tool."""
        if self.function is None:
            raise TypeError(f"the tool '{self.name}' has no function")
        return self.function(*args, **named)

    def __get__(self, instance: object, owner: type | None = None) -> "Tool":
        """Bind a method's tool to its object."""
        if instance is None or self.function is None:
            return self
        return Tool.from_function(MethodType(self.function, instance), self.declaration)

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.declaration.name

    @property
    def description(self) -> str | None:
        """What the model is told of it."""
        return self.declaration.description

    @property
    def parameters(self) -> Schema:
        """The JSON Schema of its arguments, not in strict form."""
        return self.declaration.parameters or {"type": "object", "properties": {}}

    @property
    def strict(self) -> bool | None:
        """Whether it wants to be declared in strict form; None if the run may choose."""
        return self.declaration.strict

    def definition(self, strict: bool) -> FunctionTool:
        """Declare it to a server, in strict form or not; its own wish goes first."""
        if not (strict if self.strict is None else self.strict):
            return replace(self.declaration, strict=False)
        made = strict_form.make_strict(self.parameters)
        if made.problems:
            told = strict_form.StrictSchemaError(made.problems)
            raise RequestError(
                f"The tool '{self.name}' has no strict form: {told}. "
                f"Change the annotation, or be content with less: {NON_STRICT_ADVICE}.",
                param="tools",
                code="invalid_tool_schema",
            )
        return replace(self.declaration, parameters=made.schema, strict=True)

    def validate(self, arguments: str) -> BoundArguments:
        """Read what the model sent; raises ToolError with a message for it."""
        given = self._arguments.read(arguments)
        try:
            return self._bind(given)
        except InvalidValueError as error:
            raise self._arguments.invalid_arguments_error([str(error)]) from None

    async def call(self, bound: BoundArguments, context: ToolContext) -> object:
        """Run the function to its end and return its result."""
        if self.function is None:
            raise ToolError(f"No handler for tool: {self.name}")
        extra: dict[str, object] = {self._context: context} if self._context else {}
        begin = partial(self.function, *bound.positional, **bound.named, **extra)
        if inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function):
            made: object = begin()
        else:
            made = await asyncio.to_thread(_call_in_thread, begin, context)
        if inspect.isawaitable(made):
            made = cast("object", await made)
        if isinstance(made, AsyncGenerator):
            return await _last_yielded_async(cast("AsyncGenerator[object]", made), context)
        return made


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
    """Make a typed function a tool: `@tool`, or `@tool(name=..., strict=False)`."""

    def make(function: ToolFunction) -> Tool:
        declared = FunctionTool(
            name=name or _function_name(function), description=description, strict=strict
        )
        return Tool.from_function(function, declared)

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


def _call_in_thread(begin: Callable[[], object], context: ToolContext) -> object:
    try:
        made = begin()
        if isinstance(made, Generator):
            return _last_yielded(cast("Iterator[object]", made), context)
    except StopIteration as error:
        # Python 3.11 cannot carry it out of a thread, and would wait for ever.
        raise RuntimeError("the tool raised StopIteration") from error
    return made


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
