"""Python functions as models, and the turn that they receive.

An agent is an async generator that yields strings, parts or items, a coroutine or a plain function that
returns them, or a plain generator. Plain functions and generators run in a thread, so that they may block.

    @agent("my-agent")
    async def my_agent(turn: Turn):
        yield "You said: "
        yield turn.text

    @my_agent.entry("loud")
    async def loud(turn: Turn):
        yield turn.text.upper()

`my-agent` is then a model, and so is `my-agent/loud`. An agent may also compact conversations and
count tokens itself:

    @my_agent.compactor
    async def compact(items: Sequence[Item], turn: Turn) -> str: ...

    @my_agent.counter
    def count(turn: Turn) -> int: ...
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from msgspec import json
from msgspec.structs import replace

from antiphon.agents.threads import AgentThread, AgentThreads
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.tools import FunctionTool, Tool, ToolChoice, callable_tools

Function = Callable[..., object]
F = TypeVar("F", bound=Function)

DEFAULT_ENTRY = "__entry__"
"""The entry of a model name that has none; it may also be written out."""

SHARED_THREADS = AgentThreads()
"""The threads of agents that run outside of a server."""


# A dataclass and no msgspec struct: cached properties need an instance dictionary.
@dataclass(frozen=True)
class Turn:
    """One request, and the conversation that it continues.

    `input` holds the items of this request, `history` those before it. `cancelled` is set when the
    client no longer waits for the answer; an async agent is also cancelled as a task.
    """

    request: Request
    input: Sequence[Item]
    history: Sequence[Item] = ()
    entry: str = ""
    response_id: str = ""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model(self) -> str:
        """The name of the model as the client wrote it."""
        return self.request.model or ""

    @property
    def instructions(self) -> str | None:
        """The instructions of the request."""
        return self.request.instructions

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the client offers."""
        return self.request.tools

    @property
    def tool_choice(self) -> ToolChoice:
        """Which tools may or must be called."""
        return self.request.tool_choice

    @cached_property
    def functions(self) -> list[FunctionTool]:
        """The functions that may be called in this turn."""
        return callable_tools(self.request.tools, self.request.tool_choice)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the request."""
        return self.request.metadata

    @cached_property
    def items(self) -> list[Item]:
        """The whole conversation, oldest first."""
        return [*self.history, *self.input]

    @cached_property
    def text(self) -> str:
        """The text of the last user message."""
        messages = (item for item in reversed(self.items) if isinstance(item, Message))
        return next((message.text for message in messages if message.role == "user"), "")

    @cached_property
    def tool_outputs(self) -> list[FunctionCallOutput]:
        """The tool outputs since the last user message."""
        # Older outputs belong to questions that have been answered.
        outputs: list[FunctionCallOutput] = []
        for item in reversed(self.items):
            if isinstance(item, Message) and item.role == "user":
                break
            if isinstance(item, FunctionCallOutput):
                outputs.append(item)
        return outputs[::-1]


class Agent:
    """A named model made of Python functions, one per entry."""

    def __init__(
        self, name: str, function: Function, *, window: int | None = None, counts_tokens: bool = False
    ) -> None:
        # A slash separates the agent from its entry, and a model name is printed in logs.
        if not name or "/" in name or not name.isprintable() or " " in name:
            raise InvalidValueError("", f"an agent's name is one word without slashes, not {name!r}.")
        self.name = name
        self.window = window
        self.counts_tokens = counts_tokens
        """Whether it obeys `max_output_tokens` itself; otherwise the engine ends its answer at the limit."""
        self.origin = name
        """Who can read its sealed reasoning: every model of the same origin, and no other."""
        self.entries: dict[str, Function] = {DEFAULT_ENTRY: function}
        self._compactor: Function | None = None
        self._counter: Function | None = None
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<Agent {self.name}: {', '.join(self.models)}>"

    def __call__(self, *args: object) -> object:
        """Call the function itself, for example in a test."""
        return self.entries[DEFAULT_ENTRY](*args)

    @property
    def models(self) -> list[str]:
        """The names of this agent's models."""
        return [self.name, *(f"{self.name}/{entry}" for entry in self.entries if entry != DEFAULT_ENTRY)]

    def entry(self, name: str) -> Callable[[F], F]:
        """Add another entry: the model `agent/name`."""

        def add(function: F) -> F:
            self.entries[name] = function
            return function

        return add

    def compactor(self, function: F) -> F:
        """Register a function that compacts: from items and a turn to a summary or fewer items."""
        self._compactor = function
        return function

    def counter(self, function: F) -> F:
        """Register a function that counts the input tokens of a turn."""
        self._counter = function
        return function

    async def stream(self, turn: Turn, threads: AgentThreads = SHARED_THREADS) -> AsyncGenerator[Part]:
        """Yield the parts of the answer to a turn."""
        function = self.entries[turn.entry or DEFAULT_ENTRY]
        read = PartReader().read
        # Closes the agent's generator as soon as the run stops reading, so that the agent can clean up.
        async with AsyncExitStack() as stack:
            arguments = (turn,) if inspect.signature(function).parameters else ()
            answer = await _start_answer(function, arguments, threads, stack)
            if isinstance(answer, AsyncIterable):
                async for value in cast("AsyncIterable[object]", answer):
                    if (part := read(value)) is not None:
                        yield part
            else:
                for value in cast("list[object]", answer if isinstance(answer, list | tuple) else [answer]):
                    if (part := read(value)) is not None:
                        yield part

    async def compact(self, turn: Turn, threads: AgentThreads = SHARED_THREADS) -> str | list[Item] | None:
        """Return a summary, or the items to keep; None if there is no compactor."""
        if self._compactor is None:
            return None
        result = await _call_function(self._compactor, (turn.items, turn), threads)
        if isinstance(result, str):
            return result
        values = cast("list[object]", result) if isinstance(result, list) else []
        items = [item for item in values if isinstance(item, Item)]
        if not items or len(items) < len(values):
            raise TypeError("a compactor returns a text or a list of items")
        return items

    async def count(self, turn: Turn, threads: AgentThreads = SHARED_THREADS) -> int | None:
        """Return how many tokens a turn's input has; None if there is no counter."""
        return None if self._counter is None else cast("int", await _call_function(self._counter, (turn,), threads))


def agent(name: str, *, window: int | None = None, counts_tokens: bool = False) -> Callable[[Function], Agent]:
    """Turn a function into a model.

    `window` is how many tokens it can read. With `counts_tokens` the agent obeys `max_output_tokens` itself: it stops
    in time and yields `Finish("length")`. Otherwise the engine estimates the tokens and ends the answer at the limit.
    """
    if inspect.isfunction(name):  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidValueError("", f"'{name.__name__}' has @agent without a name. Write @agent('{name.__name__}').")
    return lambda function: Agent(name, function, window=window, counts_tokens=counts_tokens)


async def _start_answer(
    function: Function, arguments: tuple[object, ...], threads: AgentThreads, stack: AsyncExitStack
) -> object:
    """Call a function; return its result, or an async iterable of its values that the stack closes."""
    if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
        result = function(*arguments)
    else:
        thread = await stack.enter_async_context(threads.open_thread())
        result = await thread.call(function, *arguments)
        if isinstance(result, Iterator):
            result = _iterate_in_thread(cast("Iterator[object]", result), thread)
    if inspect.isawaitable(result):
        result = cast("object", await result)
    if isinstance(result, AsyncGenerator):
        stack.push_async_callback(cast("AsyncGenerator[object]", result).aclose)
    return cast("object", result)


async def _iterate_in_thread(iterator: Iterator[object], thread: AgentThread) -> AsyncGenerator[object]:
    try:
        # The thread itself marks the end: no agent can yield it.
        while (value := await thread.call(next, iterator, thread)) is not thread:
            yield value
    finally:
        if isinstance(iterator, Generator):
            thread.call(iterator.close)


async def _call_function(function: Function, arguments: tuple[object, ...], threads: AgentThreads) -> object:
    """Call a function: directly if it is async, or else in a thread, so that it may block."""
    async with AsyncExitStack() as stack:
        return await _start_answer(function, arguments, threads, stack)


class PartReader:
    """Converts the values that one answer yields into parts."""

    def __init__(self) -> None:
        self._call_key: parts.Key = 0
        self._call_count = 0

    def read(self, value: object) -> Part | None:
        """Convert a value; None yields nothing."""
        if isinstance(value, str):
            return parts.Text(value)
        if isinstance(value, parts.Call):
            return self._read_call(value)
        if isinstance(value, FunctionCall):
            return parts.Whole(replace(value, arguments=_to_json_text(value.arguments)))
        if isinstance(value, Part):
            return value
        if isinstance(value, Item):
            return parts.Whole(value)
        if value is None:
            return None
        raise TypeError(f"an agent yields strings, parts or items, not {type(value).__name__}")

    def _read_call(self, call: parts.Call) -> parts.Call:
        """Give a call without a key one of its own; pieces of one call share a key or a call_id."""
        key = call.key
        if key == parts.NO_KEY:
            if call.call_id:
                self._call_key = f"id {call.call_id}"
            elif call.name:
                self._call_count += 1
                self._call_key = f"call {self._call_count}"
            key = self._call_key
        return replace(call, key=key, arguments=_to_json_text(call.arguments))


def _to_json_text(arguments: object) -> str:
    """Return a call's arguments as JSON text; agents may also give an object."""
    return arguments if isinstance(arguments, str) else json.encode(arguments).decode()
