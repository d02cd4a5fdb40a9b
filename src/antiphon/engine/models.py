"""What a model is, where its answer goes, and which model a name means.

A model pushes the parts of its answer into a `PartSink`, and the run writes events to an
`EventSink`. `Models` resolves names: agents, models of providers, and aliases. An alias may stand
for several models, which are tried in order.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from antiphon.agents.agent import DEFAULT_ENTRY, Agent, Turn
from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part

# An agent that never awaits would otherwise block the event loop until its answer is complete.
PARTS_PER_YIELD = 64
"""After how many parts of an agent other tasks get a turn."""

WriteText = Callable[[list[str]], bool]
"""Writes more deltas of one text; returns whether the sink is full.

No delta is empty, and none contains half a surrogate pair or a character that JSON escapes.
"""


class EventSink(Protocol):
    """Where the events of a run go: an HTTP stream, a WebSocket lane, the event log."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether so much is waiting to be sent that the model has to wait."""

    @abstractmethod
    def write(self, events: list[Event]) -> None:
        """Take events without waiting."""

    def text_fast_path(self, fast_path: TextFastPath) -> WriteText | None:
        """Return a function that writes deltas of one text without building events, if any."""
        del fast_path
        return None

    @abstractmethod
    async def drain(self) -> None:
        """Return when more may be written."""


class PartSink(Protocol):
    """Where the parts of an answer go: the run."""

    @property
    def streaming(self) -> bool:
        """Whether parts are wanted as they come, and not only the complete response."""
        ...

    @property
    def has_output(self) -> bool:
        """Whether the client may have seen output, so that no other model can answer any more."""
        ...

    @property
    def full(self) -> bool:
        """Whether so much is waiting to be sent that the model has to wait."""
        ...

    def mark_answering(self) -> None:
        """Note that the model has begun to answer, though it has no output yet."""

    def feed(self, batch: Sequence[Part]) -> bool:
        """Take parts without waiting; return whether more are wanted. A failure comes alone."""
        ...

    def text_fast_path(self) -> WriteText | None:
        """Return a function that takes more of the last text, valid until parts are fed again."""

    async def drain(self) -> None:
        """Return when more may be fed."""

    def reset_for_fallback(self) -> None:
        """Drop what was fed and led to no output: another model answers."""


class Model(ABC):
    """Something that answers turns."""

    name: str
    window: int | None = None
    """How many tokens it can read, if known."""
    origin: str
    """Who can read its sealed reasoning: every model of the same origin, and no other."""
    entry: str = ""
    """The entry of an agent."""
    warns_of_unused_fields: bool = False
    """Whether it warns of unknown request fields itself, since some reach its provider."""

    @abstractmethod
    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Answer a turn; raises RequestError or UpstreamError."""

    def with_short_retries(self) -> "Model":
        """Return the same model with the retry policy of a model that has a fallback."""
        return self

    async def compact(self, turn: Turn) -> str | list[Item] | None:
        """Return a summary, or the items to keep; None if the model has no compactor."""
        del turn
        return None

    async def count(self, turn: Turn) -> int | None:
        """Return how many tokens a turn's input has; None if the model cannot count."""
        del turn
        return None


class AgentModel(Model):
    """One entry of an agent."""

    def __init__(self, agent: Agent, entry: str) -> None:
        self._agent = agent
        self.name, self.entry = agent.name, entry
        self.window, self.origin = agent.window, agent.origin

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Feed the parts that the agent yields."""
        # `aclosing` runs the agent's `finally` blocks now, and not at garbage collection.
        async with aclosing(self._agent.stream(turn)) as answer:
            count = 0
            async for part in answer:
                if not sink.feed((part,)):
                    break
                if sink.full:
                    await sink.drain()
                count += 1
                if count % PARTS_PER_YIELD == 0:
                    await asyncio.sleep(0)

    async def compact(self, turn: Turn) -> str | list[Item] | None:
        return await self._agent.compact(turn)

    async def count(self, turn: Turn) -> int | None:
        return await self._agent.count(turn)


class ProviderModels(Protocol):
    """The models of all providers."""

    @property
    def names(self) -> list[str]:
        """The names `provider/model` that the configuration mentions."""
        ...

    def find(self, name: str) -> Model | None:
        """Return a model by name, if its provider is configured."""


class Models:
    """Models by name."""

    def __init__(
        self,
        agents: Iterable[Agent] = (),
        provider_models: ProviderModels | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._provider_models = provider_models
        self._aliases = dict(aliases or {})

    @property
    def names(self) -> list[str]:
        """Every known name; providers may have more models than these."""
        of_agents = [name for agent in self._agents.values() for name in agent.models]
        of_providers = self._provider_models.names if self._provider_models else []
        return list(dict.fromkeys([*of_agents, *self._aliases, *of_providers]))

    def find(self, name: str) -> list[Model]:
        """Return the models that a name stands for, in the order in which they are tried."""
        found = self._resolve(name, frozenset())
        # The last one has no fallback: it is worth waiting for.
        return [*(model.with_short_retries() for model in found[:-1]), *found[-1:]]

    def _resolve(self, name: str, seen: frozenset[str]) -> list[Model]:
        # An alias may have the name of a model that it falls back from: `seen` ends the recursion.
        if name in self._aliases and name not in seen:
            found = [self._resolve(target, seen | {name}) for target in self._aliases[name]]
            return [model for models in found for model in models]
        agent_name, slash, entry = name.partition("/")
        entry = entry if slash else DEFAULT_ENTRY
        if (agent := self._agents.get(agent_name)) and entry in agent.entries:
            return [AgentModel(agent, entry)]
        model = self._provider_models.find(name) if self._provider_models else None
        return [model] if model else []
