"""Python functions as models.

An agent is an async generator that yields strings or parts, a coroutine or a plain function that
returns them, or a plain generator. Plain functions run in a thread, so that they may block.

    @agent("my-agent")
    async def my_agent(turn: Turn):
        yield "You said: "
        yield turn.text

    @my_agent.entry("loud")
    async def loud(turn: Turn):
        yield turn.text.upper()

`my-agent` is then a model, and so is `my-agent/loud`. An agent may also say how its conversations
are made small, and how many tokens a turn is:

    @my_agent.compactor
    async def compact(items: Sequence[Item], turn: Turn) -> str: ...

    @my_agent.counter
    def count(turn: Turn) -> int: ...
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TypeVar, cast

from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part

Function = Callable[..., object]
F = TypeVar("F", bound=Function)

DEFAULT_ENTRY = "__entry__"
"""The entry that a model's name without one means; it may also be written out."""


class Agent:
    """A named model made of Python functions, one per entry."""

    def __init__(self, name: str, function: Function, *, window: int | None = None) -> None:
        if not name or "/" in name or not name.isprintable() or " " in name:
            raise ValueError(f"an agent's name is one word without slashes, not {name!r}")
        self.name = name
        self.window = window
        self.origin = name
        """Who can read its sealed thinking: every model of the same origin, and no other."""
        self.entries: dict[str, Function] = {DEFAULT_ENTRY: function}
        self._compactor: Function | None = None
        self._counter: Function | None = None
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<Agent {self.name}: {', '.join(self.models)}>"

    def __call__(self, *args: object) -> object:
        """Call the function itself, as a test may want to."""
        return self.entries[DEFAULT_ENTRY](*args)

    @property
    def models(self) -> list[str]:
        """The model names this agent answers to."""
        others = [f"{self.name}/{entry}" for entry in self.entries if entry != DEFAULT_ENTRY]
        return [self.name, *others]

    def entry(self, name: str) -> Callable[[F], F]:
        """Add another entry: the model `agent/name`."""

        def add(function: F) -> F:
            self.entries[name] = function
            return function

        return add

    def compactor(self, function: F) -> F:
        """Let a function make conversations small: of items and a turn, a text or fewer items."""
        self._compactor = function
        return function

    def counter(self, function: F) -> F:
        """Let a function count the tokens that a turn gives to read."""
        self._counter = function
        return function

    def stream(self, turn: Turn) -> AsyncGenerator[Part]:
        """Answer a turn, as parts."""
        return _stream_parts(self.entries[turn.entry or DEFAULT_ENTRY], turn)

    async def compact(self, turn: Turn) -> str | list[Item] | None:
        """Return what stands for a turn's conversation; None if no compactor can tell."""
        if self._compactor is None:
            return None
        made = await _call_function(self._compactor, (turn.items, turn))
        if isinstance(made, str):
            return made
        several = cast("list[object]", made) if isinstance(made, list) else []
        items = [item for item in several if isinstance(item, Item)]
        if not items or len(items) < len(several):
            raise TypeError("a compactor returns a text or a list of items")
        return items

    async def count(self, turn: Turn) -> int | None:
        """Return how many tokens a turn gives to read; None if no counter can tell."""
        return (
            None
            if self._counter is None
            else cast("int", await _call_function(self._counter, (turn,)))
        )


def agent(name: str, *, window: int | None = None) -> Callable[[Function], Agent]:
    """Make a function a model; `window` is how many tokens it can read."""
    return lambda function: Agent(name, function, window=window)


async def _stream_parts(function: Function, turn: Turn) -> AsyncGenerator[Part]:
    result = await _call_function(
        function, (turn,) if inspect.signature(function).parameters else ()
    )
    if isinstance(result, AsyncGenerator):
        async with aclosing(cast("AsyncGenerator[object]", result)) as values:
            async for value in values:
                if (part := to_part(value)) is not None:
                    yield part
    elif isinstance(result, Iterator):
        iterator = cast("Iterator[object]", result)
        while (value := await asyncio.to_thread(next, iterator, turn)) is not turn:
            if (part := to_part(value)) is not None:
                yield part
    else:
        several = cast("list[object]", result if isinstance(result, list | tuple) else [result])
        for value in several:
            if (part := to_part(value)) is not None:
                yield part


async def _call_function(function: Function, arguments: tuple[object, ...]) -> object:
    """Call a function: at once if it promises not to block, or else in a thread."""
    if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
        result = function(*arguments)
    else:
        result = await asyncio.to_thread(_call_in_thread, function, arguments)
    return cast("object", await result) if inspect.isawaitable(result) else result


def _call_in_thread(function: Function, arguments: tuple[object, ...]) -> object:
    try:
        return function(*arguments)
    except StopIteration as error:
        # Python 3.11 cannot carry it out of a thread, and would wait for ever.
        raise RuntimeError("the agent raised StopIteration") from error


def to_part(value: object) -> Part | None:
    """Return the part that a yielded value means; nothing means nothing."""
    if isinstance(value, str):
        return parts.Text(value)
    if isinstance(value, Part):
        return value
    if isinstance(value, Item):
        return parts.Whole(value)
    if value is None:
        return None
    raise TypeError(f"an agent yields strings, parts or items, not {type(value).__name__}")


class AgentRegistry:
    """Agents by name."""

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            self.add(agent)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def add(self, agent: Agent) -> None:
        """Add an agent; one of the same name gives way to it."""
        self._agents[agent.name] = agent

    @property
    def models(self) -> list[str]:
        """Every model name there is."""
        return [name for agent in self for name in agent.models]

    def find(self, model: str) -> tuple[Agent, str] | None:
        """Return the agent and entry of a model's name, split at the first slash."""
        name, _, entry = model.partition("/")
        agent = self._agents.get(name)
        if agent is None or (entry or DEFAULT_ENTRY) not in agent.entries or model == f"{name}/":
            return None
        return agent, entry or DEFAULT_ENTRY
