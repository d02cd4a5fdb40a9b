# What antiphon uses of Xaibo 0.3, which is not installed beside the development tools.
from collections.abc import Mapping, Sequence
from typing import Self

from xaibo.core import Exchange

class ModuleConfig:
    id: str
    provides: list[str] | None

class ExchangeConfig:
    module: str | None
    protocol: str
    provider: str | list[str]
    def __init__(self, *, protocol: str, provider: str, module: str | None = None) -> None: ...
    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...

class ConfigOverrides:
    def __init__(self, *, instances: Mapping[str, object], exchange: Sequence[ExchangeConfig]) -> None: ...

class AgentConfig:
    id: str
    description: str | None
    modules: list[ModuleConfig]
    exchange: list[ExchangeConfig]
    @classmethod
    def load_directory(cls, directory: str) -> dict[str, AgentConfig]: ...

class Agent:
    exchange: Exchange
    async def handle_text(self, text: str, entry_point: str = ...) -> object: ...

class Xaibo:
    def register_agent(self, agent_config: AgentConfig) -> None: ...
    def list_agents(self) -> list[str]: ...
    def get_agent_config(self, agent_id: str) -> AgentConfig: ...
    def get_agent_with(self, agent_id: str, override_config: ConfigOverrides) -> Agent: ...
