"""Every model there is, by name: agents, the models of providers, and aliases for them.

An alias may stand for several models: they are tried in order until one answers. A model pushes the
parts of its answer into a sink; an agent, which is a generator, is pulled from here.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from antiphon.agents.agent import Agent, AgentRegistry
from antiphon.agents.turn import Turn
from antiphon.engine.interfaces import WriteText
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part

PARTS_PER_YIELD = 64
"""After how many parts a model that never waits lets others have their turn."""


class PartSink(Protocol):
    """Where the parts of an answer go."""

    @property
    def streaming(self) -> bool:
        """Whether somebody wants the parts as they come, and not only the end."""
        ...

    @property
    def has_output(self) -> bool:
        """Whether anything of the answer has been told, so that it cannot be begun anew."""
        ...

    @property
    def full(self) -> bool:
        """Whether more than enough waits to be sent."""
        ...

    def mark_answering(self) -> None:
        """Take note that the model answers, though nothing has come yet."""
        ...

    def feed(self, batch: Sequence[Part]) -> bool:
        """Take parts, at once; tell whether more is wanted. A failure comes alone."""
        ...

    def text_fast_path(self) -> WriteText | None:
        """Return what takes more of the text that was taken last, until parts are taken again."""
        ...

    async def drain(self) -> None:
        """Return when more may be given."""
        ...

    def reset_for_fallback(self) -> None:
        """Forget what was taken of which nothing was told: another model answers."""
        ...


class Model(ABC):
    """Something that answers."""

    name: str
    window: int | None = None
    origin: str
    """Who can read its sealed thinking: every model of the same origin, and no other."""
    entry: str = ""
    warns_of_unused_fields: bool = False
    """Whether it says itself which fields of a request are not read."""

    @abstractmethod
    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Answer a turn; raises RequestError or UpstreamError."""

    def with_short_retries(self) -> "Model":
        """Return the same model, as it is asked where another may answer in its place."""
        return self

    async def compact(self, turn: Turn) -> str | list[Item] | None:
        """Return what stands for a turn's conversation; None if the model is to be asked."""
        del turn
        return None

    async def count(self, turn: Turn) -> int | None:
        """Return how many tokens a turn gives to read; None if nobody can tell."""
        del turn
        return None


class AgentModel(Model):
    """One entry of an agent."""

    def __init__(self, agent: Agent, entry: str) -> None:
        self._agent = agent
        self.name, self.entry = agent.name, entry
        self.window, self.origin = agent.window, agent.origin

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Pull the agent's parts."""
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
        """Leave it to the agent's compactor, if it has one."""
        return await self._agent.compact(turn)

    async def count(self, turn: Turn) -> int | None:
        """Leave it to the agent's counter, if it has one."""
        return await self._agent.count(turn)


class ProviderModels(Protocol):
    """The models of providers."""

    @property
    def names(self) -> list[str]:
        """The models that are known by name, as `provider/model`."""
        ...

    def find(self, name: str) -> Model | None:
        """Return the model of a name, if its provider is configured."""
        ...


class Models:
    """Models by name."""

    def __init__(
        self,
        agents: Iterable[Agent] = (),
        provider_models: ProviderModels | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._agents = AgentRegistry(agents)
        self._provider_models = provider_models
        self._aliases = dict(aliases or {})

    @property
    def names(self) -> list[str]:
        """Every name that is known; providers may have models beyond these."""
        upstreams = self._provider_models.names if self._provider_models else []
        return list(dict.fromkeys([*self._agents.models, *self._aliases, *upstreams]))

    def find(self, name: str) -> list[Model]:
        """Return the models that a name stands for, in the order they are to be tried."""
        found = self._resolve(name, frozenset())
        return [*(model.with_short_retries() for model in found[:-1]), *found[-1:]]

    def _resolve(self, name: str, seen: frozenset[str]) -> list[Model]:
        if name in self._aliases and name not in seen:
            found = [self._resolve(target, seen | {name}) for target in self._aliases[name]]
            return [model for models in found for model in models]
        if agent := self._agents.find(name):
            return [AgentModel(*agent)]
        upstream = self._provider_models.find(name) if self._provider_models else None
        return [upstream] if upstream else []
