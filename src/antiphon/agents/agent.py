"""Python functions as models.

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

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TypeVar, cast

from antiphon.agents.part_reader import PartReader
from antiphon.agents.threads import AgentThread, AgentThreads
from antiphon.agents.turn import Turn
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import InvalidValueError

Function = Callable[..., object]
F = TypeVar("F", bound=Function)

DEFAULT_ENTRY = "__entry__"
"""The entry of a model name that has none; it may also be written out."""

SHARED_THREADS = AgentThreads()
"""The threads of agents that run outside of a server."""


class Agent:
    """A named model made of Python functions, one per entry."""

    def __init__(  # noqa: PLR0913 - one keyword per property of an agent
        self,
        name: str,
        function: Function,
        *,
        description: str | None = None,
        metadata: Mapping[str, object] | None = None,
        owned_by: str = "antiphon",
        framework: str | None = None,
        window: int | None = None,
        counts_tokens: bool = False,
        idempotent: bool = False,
    ) -> None:
        # A slash separates the agent from its entry, and a model name is printed in logs.
        if not name or "/" in name or not name.isprintable() or " " in name:
            raise InvalidValueError("", f"an agent's name is one word without slashes, not {name!r}.")
        self.name = name
        self._description = description
        self.metadata = dict(metadata or {})
        """Anything about it that clients of `GET /models` may want to know, as JSON."""
        self.owned_by = owned_by
        self.framework = framework
        """The name of the framework that runs it; set by the bridges."""
        self.window = window
        self.counts_tokens = counts_tokens
        """Whether it obeys `max_output_tokens` itself; otherwise the engine ends its answer at the limit."""
        self.idempotent = idempotent
        """Whether a run that was interrupted before its output may be repeated, because it has no effects elsewhere."""
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

    def describe(self, entry: str = DEFAULT_ENTRY) -> str | None:
        """Return what an entry does: its description, or else the beginning of its function's docstring."""
        given = self._description if entry == DEFAULT_ENTRY else None
        return given or first_paragraph(self.entries[entry])

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
        reader = PartReader(turn)
        read = reader.read
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
        for warning in reader.end():
            yield warning

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


def agent(  # noqa: PLR0913 - one keyword per property of an agent
    name: str,
    *,
    description: str | None = None,
    metadata: Mapping[str, object] | None = None,
    owned_by: str = "antiphon",
    window: int | None = None,
    counts_tokens: bool = False,
    idempotent: bool = False,
) -> Callable[[Function], Agent]:
    """Turn a function into a model.

    `GET /models` shows its description, which is by default the beginning of the function's docstring, its metadata
    and its owner.

    `window` is how many tokens it can read. With `counts_tokens` the agent obeys `max_output_tokens` itself: it stops
    in time and yields `Finish("length")`. Otherwise the engine estimates the tokens and ends the answer at the limit.
    An `idempotent` agent has no effects elsewhere: a background run whose process was interrupted before the first
    output is repeated instead of failed.
    """
    if inspect.isfunction(name):  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidValueError("", f"'{name.__name__}' has @agent without a name. Write @agent('{name.__name__}').")
    return lambda function: Agent(
        name,
        function,
        description=description,
        metadata=metadata,
        owned_by=owned_by,
        window=window,
        counts_tokens=counts_tokens,
        idempotent=idempotent,
    )


def first_paragraph(function: Function) -> str | None:
    """Return the first paragraph of a function's docstring, in one line; None if it has none."""
    if not inspect.isroutine(function):  # an object that can be called has the docstring of its class
        return None
    paragraph, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
    return " ".join(paragraph.split()) or None


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
