"""Which agent a model's name means."""

from collections.abc import Iterable, Iterator

from antiphon.agents.agent import DEFAULT_ENTRY, Agent


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
