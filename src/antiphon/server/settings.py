"""Everything about a server that can be chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, get_origin

from msgspec import Meta

from antiphon.adapters.base import Provider
from antiphon.agents.agent import Agent
from antiphon.agents.demo import demo, echo
from antiphon.server.config.load import GatewayConfig, load_config
from antiphon.server.config.tables import TIMEOUT_KEYS, check_table, read_field
from antiphon.server.threads import ThreadStorage

MAX_SETTING = 10**12
"""More bytes than anything has, and more seconds than anything lasts: any clock can add them."""

NonNegativeInt = Annotated[int, Meta(ge=0, le=MAX_SETTING)]
PositiveCount = Annotated[int, Meta(ge=1, le=MAX_SETTING)]
NonNegativeSeconds = Annotated[float, Meta(ge=0, le=MAX_SETTING)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=MAX_SETTING)]
"""The numbers that can be chosen; a Count and a Period cannot be zero."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A server's choices; the defaults are safe ones."""

    agents: Sequence[Agent] = ()
    """Python functions as models, beside `demo` and `echo`."""

    demo: bool = True
    """Whether `demo` and `echo` are served."""

    providers: Sequence[Provider] = ()
    """The upstreams whose models are served, each as `provider/model`."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The providers' keys, by the provider's name."""

    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Other names for models; one that stands for several tries them in order."""

    api_key: str | None = field(default=None, repr=False)
    """What callers must send as a bearer token; nobody is asked when it is None."""

    body_limit: PositiveCount = 64 * 1024 * 1024
    """Bytes that a request may have. The specification allows files of 32 MiB."""

    commit_seconds: NonNegativeSeconds = 5.0
    """How long a stream waits for the model's first sign before it answers 200."""

    heartbeat_seconds: PositiveSeconds = 15.0
    """After how much silence a stream says that it is alive."""

    outlet_bytes: NonNegativeInt = 256 * 1024
    """How much of a stream may wait for a slow reader before its model has to wait too."""

    responses_dir: Path | str | None = "./responses"
    """The folder where responses are stored; with None they live and die with the process."""

    seal_keys: Sequence[str] = field(default=(), repr=False)
    """What closes the content that clients carry for us: 32 bytes each, in base64. The first
    closes, all open. Without any, one is made and kept in the folder."""

    threads: ThreadStorage | bool = True
    """Where the threads of Hashbrown's clients are kept: with the responses, in a place of your
    own, or (False) nowhere."""

    memory_bytes: NonNegativeInt = 64 * 1024 * 1024
    memory_seconds: NonNegativeSeconds = 3600
    """How much, and for how long, may be continued from memory alone."""

    socket_memory_bytes: NonNegativeInt = 16 * 1024 * 1024
    """How much of that a WebSocket connection has for itself."""

    response_seconds: NonNegativeSeconds = 30 * 24 * 3600
    event_seconds: NonNegativeSeconds = 3600
    """How long stored responses, and the events of background ones, are kept after their end."""

    sweep_seconds: PositiveSeconds = 60
    """How often what is too old is removed."""

    background_slots: PositiveCount = 100
    """How many background responses are made at once; the others wait for their turn."""

    socket_seconds: PositiveSeconds = 3600
    """How long a WebSocket may be open."""

    allowed_hosts: Sequence[str] = ()
    """The names, beside localhost, by which a server may be asked that needs no key and listens
    to this machine only: those of a proxy before it, say."""

    allowed_origins: Sequence[str] = ()
    """The web pages, as `https://host`, whose scripts may open a WebSocket."""

    drain_seconds: NonNegativeSeconds = 25
    """How long what is running may go on when the server is told to stop."""

    connect_seconds: PositiveSeconds = 10
    first_byte_seconds: PositiveSeconds = 600
    idle_seconds: PositiveSeconds = 300
    answer_seconds: PositiveSeconds = 3600
    """How long a provider may take to accept a request, to begin its answer, to go on, and to be
    done with it."""

    retries: NonNegativeInt = 2
    retry_seconds: NonNegativeSeconds = 0.5
    """How often a provider is asked again that has not begun to answer, and after how long."""

    def __post_init__(self) -> None:
        """Refuse a number that nothing can be done with; raises ShapeError, which names it."""
        for choice in fields(self):
            if get_origin(choice.type) is Annotated:
                example = f"{choice.name} = {choice.default}"
                read_field(choice.type, getattr(self, choice.name), choice.name, example)
        for index, provider in enumerate(self.providers):
            check_table(dict(provider.timeouts), TIMEOUT_KEYS, f"providers[{index}].timeouts")

    @classmethod
    def from_config(
        cls, path: Path | str | None = None, *, agents: Sequence[Agent] = ()
    ) -> "Settings":
        """Read `antiphon.toml` and the environment as `antiphon serve` does; raises ConfigError."""
        settings = cls(agents=agents)
        return settings.with_config(load_config(path, agents=settings.agent_models))

    def with_config(self, config: GatewayConfig) -> "Settings":
        """Return these settings with the providers and aliases of a configuration."""
        return replace(
            self,
            providers=list(config.providers.values()),
            keys=config.keys,
            aliases=config.models,
        )

    @property
    def ready(self) -> list[str]:
        """The providers that have the key they need."""
        return [p.name for p in self.providers if not p.api_key_env or p.name in self.keys]

    @property
    def agent_models(self) -> list[str]:
        """The models that the agents answer to."""
        return list(dict.fromkeys(name for agent in self.all_agents for name in agent.models))

    @property
    def all_agents(self) -> list[Agent]:
        """The agents to serve; a user's own come last, and win over ours of the same name."""
        return [*([demo, echo] if self.demo else []), *self.agents]
