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

from antiphon.client.tools.arguments import Arguments, ToolError
from antiphon.client.tools.context import ToolContext
from antiphon.client.tools.signature import Function, Signature
from antiphon.core import strict as strict_form
from antiphon.core.errors import RequestError
from antiphon.core.items import Name
from antiphon.core.schema import Schema
from antiphon.core.tools import FunctionTool
from antiphon.core.value import ShapeError

LOOSER = "`@tool(strict=False)` for this tool or `strict_tools=False` for all of them"


class Bound(NamedTuple):
    """Arguments as a function takes them."""

    positional: tuple[object, ...]
    named: dict[str, object]


class Tool:
    """A function that a model may call: how it is declared, and how its arguments are read."""

    __name__: str

    def __init__(
        self,
        declared: FunctionTool,
        function: Function | None,
        bind: Callable[[Schema], Bound],
        context: str | None = None,
    ) -> None:
        if function is not None:
            update_wrapper(self, function, updated=())
        self.declared = _checked(declared)
        self.function = function
        self._bind = bind
        self._context = context
        self._arguments = Arguments(self.name, self.parameters)

    @classmethod
    def of(cls, function: Function, declared: FunctionTool | None = None) -> "Tool":
        """Make a tool of a typed function; what is declared already is kept."""
        try:
            signature = Signature(function)
        except TypeError as error:
            raise TypeError(f"{_name(function)} cannot be a tool: {error}") from error
        declared = declared or FunctionTool(name=_name(function))
        return cls(
            replace(
                declared,
                description=declared.description or signature.description,
                parameters=signature.schema,
            ),
            function,
            lambda given: Bound((), signature.convert(given)),
            signature.context,
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
        return Tool.of(MethodType(self.function, instance), self.declared)

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.declared.name

    @property
    def description(self) -> str | None:
        """What the model is told of it."""
        return self.declared.description

    @property
    def parameters(self) -> Schema:
        """The JSON Schema of its arguments, not in strict form."""
        return self.declared.parameters or {"type": "object", "properties": {}}

    @property
    def strict(self) -> bool | None:
        """Whether it wants to be declared in strict form; None if the run may choose."""
        return self.declared.strict

    def definition(self, strict: bool) -> FunctionTool:
        """Declare it to a server, in strict form or not; its own wish goes first."""
        if not (strict if self.strict is None else self.strict):
            return replace(self.declared, strict=False)
        made = strict_form.strict(self.parameters)
        if made.problems:
            told = strict_form.StrictError(made.problems)
            raise RequestError(
                f"The tool '{self.name}' has no strict form: {told}. "
                f"Change the annotation, or be content with less: {LOOSER}.",
                param="tools",
                code="invalid_tool_schema",
            )
        return replace(self.declared, parameters=made.schema, strict=True)

    def validate(self, arguments: str) -> Bound:
        """Read what the model sent; raises ToolError with a message for it."""
        given = self._arguments.read(arguments)
        try:
            return self._bind(given)
        except ShapeError as error:
            raise self._arguments.refused([str(error)]) from None

    async def call(self, bound: Bound, context: ToolContext) -> object:
        """Run the function to its end and return its result."""
        if self.function is None:
            raise ToolError(f"No handler for tool: {self.name}")
        extra: dict[str, object] = {self._context: context} if self._context else {}
        begin = partial(self.function, *bound.positional, **bound.named, **extra)
        if inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function):
            made: object = begin()
        else:
            made = await asyncio.to_thread(_in_thread, begin, context)
        if inspect.isawaitable(made):
            made = cast("object", await made)
        if isinstance(made, AsyncGenerator):
            return await _last(cast("AsyncGenerator[object]", made), context)
        return made


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, strict: bool | None = None
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a typed function a tool: `@tool`, or `@tool(name=..., strict=False)`."""

    def make(function: Function) -> Tool:
        declared = FunctionTool(
            name=name or _name(function), description=description, strict=strict
        )
        return Tool.of(function, declared)

    return make if function is None else make(function)


def _name(function: Function) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _checked(declared: FunctionTool) -> FunctionTool:
    try:
        msgspec.convert(declared.name, Name)
    except msgspec.ValidationError:
        raise RequestError(
            f"'{declared.name[:80]}' cannot be a tool's name: use 1 to 64 letters, digits, "
            "'_' and '-', as in `@tool(name=...)`.",
            param="tools",
            code="invalid_tool_name",
        ) from None
    return declared


def _in_thread(begin: Callable[[], object], context: ToolContext) -> object:
    try:
        made = begin()
        if isinstance(made, Generator):
            return _last_of(cast("Iterator[object]", made), context)
    except StopIteration as error:
        # Python 3.11 cannot carry it out of a thread, and would wait for ever.
        raise RuntimeError("the tool raised StopIteration") from error
    return made


def _last_of(values: Iterator[object], context: ToolContext) -> object:
    last: object = None
    for last in values:
        context.progress(last)
    return last


async def _last(values: AsyncGenerator[object], context: ToolContext) -> object:
    last: object = None
    async with aclosing(values):
        async for last in values:
            context.progress(last)
    return last
