"""The settings of a server."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Self, get_origin

from antiphon.adapters.base import Provider
from antiphon.agents.agent import Agent
from antiphon.agents.demo import demo, echo
from antiphon.engine.run import MAX_OUTPUT_BYTES
from antiphon.hashbrown.threads import ThreadStorage
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.config import tables
from antiphon.server.config.load import GatewayConfig, load_config
from antiphon.server.config.tables import NonNegativeInt, NonNegativeSeconds, PositiveInt, PositiveSeconds
from antiphon.server.cors import check_origins
from antiphon.transport.connection import Timeouts
from antiphon.transport.retry import RetryPolicy

# The transport's own defaults are those of the server.
TIMEOUTS, RETRY_POLICY = Timeouts(), RetryPolicy()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a server; the defaults are safe."""

    agents: Sequence[Agent] = ()
    """Python functions to serve as models, in addition to `demo` and `echo`."""

    agent_threads: PositiveInt = 64
    """How many plain functions and generators run at the same time, each in a thread of its own."""

    chunk_timeout: NonNegativeSeconds = 600
    """How long an agent may send nothing before its response fails; 0 means for ever."""

    show_exceptions: bool = False
    """Whether a failed response names the exception of its agent, with its message. `antiphon serve` sets this if only
    this machine can reach the server."""

    demo: bool = True
    """Whether to serve the built-in models `demo` and `echo`."""

    providers: Sequence[Provider] = ()
    """The providers whose models are served, each as `provider/model`."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The providers' API keys, by the provider's name."""

    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Aliases of models; one with several models tries them in order."""

    api_key: str | None = field(default=None, repr=False)
    """The bearer token that clients must send; None turns authentication off."""

    body_limit: PositiveInt = 64 * 1024 * 1024
    """Maximum size of a request in bytes. The specification allows files of 32 MiB."""

    total_body_limit: PositiveInt = 256 * 1024 * 1024
    """Maximum size in bytes of all requests together that the server works on; others get a 503."""

    max_connections: PositiveInt = 2000
    """How many clients may be connected at the same time; the requests of others get a 503."""

    commit_seconds: NonNegativeSeconds = 5.0
    """How long a stream waits for the model to start before it sends 200. Until then, an error can
    still be sent with its own status."""

    # Proxies and load balancers close connections that are idle for 30 to 60 seconds.
    heartbeat_seconds: PositiveSeconds = 15.0
    """Idle time after which a stream sends a keep-alive comment."""

    outlet_bytes: NonNegativeInt = 256 * 1024
    """How much of a stream is buffered for a slow client before its model must wait."""

    responses_dir: Path | str | None = "./responses"
    """The folder in which responses are stored; None keeps them in memory only."""

    store: str | None = field(default=None, repr=False)
    """The address of a PostgreSQL database, as `postgresql://user:password@host/database`, in which everything is
    stored instead of in `responses_dir`. Any number of servers may share it."""

    lease_seconds: PositiveSeconds = 15
    """How long a server may be silent before others that share its database take over what it makes."""

    seal_keys: Sequence[str] = field(default=(), repr=False)
    """Keys that encrypt the content which clients send back (reasoning, compaction): 32 bytes each, in base64. The
    first one encrypts, all of them decrypt. Without any, a key is generated and stored in the folder or database."""

    threads: ThreadStorage | bool = True
    """Where Hashbrown's threads are stored: with the responses (True), in a storage of your own, or nowhere (False)."""

    list_threads: bool = False
    """Whether `GET /hashbrown/threads` lists all threads, for whoever may chat. Only for a server with one user:
    without the list, a thread can be read only by somebody who knows its id."""

    memory_bytes: NonNegativeInt = 64 * 1024 * 1024
    memory_seconds: NonNegativeSeconds = 3600
    """Size and lifetime of the cache of recent responses, including those with `store: false`."""

    socket_memory_bytes: NonNegativeInt = 16 * 1024 * 1024
    """Size of the same cache of one WebSocket connection."""

    response_seconds: NonNegativeSeconds = 30 * 24 * 3600
    event_seconds: NonNegativeSeconds = 3600
    """How long responses, and the events of background responses, are stored after their end. A
    response is kept as long as the newest one that continues it."""

    sweep_seconds: PositiveSeconds = 60
    """How often expired data is removed."""

    background_slots: NonNegativeInt = 100
    """How many background responses run at the same time in this process; others are queued. With 0 it runs none:
    they wait for another process that shares the store."""

    socket_seconds: PositiveSeconds = 3600
    """Maximum duration of a WebSocket connection."""

    allowed_hosts: Sequence[str] = ()
    """Host names, in addition to localhost, that a local server without an API key accepts: for
    example the name of a proxy in front of it."""

    allowed_origins: Sequence[str] = ()
    """Web origins, as `https://host`, whose pages may use the server, over HTTP and WebSocket. "*" stands for all,
    which needs an API key."""

    # Less than the 30 seconds after which Kubernetes kills a stopping container.
    drain_seconds: NonNegativeSeconds = 25
    """How long running responses may take to finish when the server stops."""

    connect_seconds: PositiveSeconds = TIMEOUTS.connect
    first_byte_seconds: PositiveSeconds = TIMEOUTS.first_byte
    idle_seconds: PositiveSeconds = TIMEOUTS.idle
    answer_seconds: PositiveSeconds = TIMEOUTS.total
    """Timeouts of a provider: to connect, until the first byte of the response, between two reads, and in total."""

    answer_bytes: PositiveInt = MAX_OUTPUT_BYTES
    """Maximum size of an answer's output: its text and arguments, and about 50 bytes for each delta. A larger answer
    fails with the code `answer_too_large` and keeps what has arrived."""

    retries: NonNegativeInt = RETRY_POLICY.retries
    retry_seconds: NonNegativeSeconds = RETRY_POLICY.first_delay
    """How often a failed request to a provider is retried, and the first delay."""

    def __post_init__(self) -> None:
        """Check all numbers; raises InvalidValueError with the name of the setting."""
        for setting in fields(self):
            if get_origin(setting.type) is Annotated:
                example = f"{setting.name} = {setting.default}"
                tables.read_field(setting.type, getattr(self, setting.name), setting.name, example)
        if self.api_key is not None and not re.fullmatch("[!-~]+", self.api_key):
            # A header cannot hold anything else: every client would be locked out.
            reason = "expected ASCII letters, digits and signs without blanks. Choose another key."
            raise InvalidValueError("api_key", reason)
        check_origins(self.allowed_origins, has_api_key=self.api_key is not None)
        if self.store is not None and not re.match("postgres(ql)?://[^/]", self.store):
            raise InvalidValueError("store", "expected an address as 'postgresql://user:password@host/database'.")
        by_name: dict[str, Agent] = {}
        for agent in self.agents:
            if by_name.setdefault(agent.name, agent) is not agent:
                raise InvalidValueError("agents", f"two agents are called '{agent.name}'. Rename one of them.")
        for index, provider in enumerate(self.providers):
            tables.check_table(dict(provider.timeouts), tables.TIMEOUT_KEYS, f"providers[{index}].timeouts")

    @classmethod
    def from_config(cls, path: Path | str | None = None, *, agents: Sequence[Agent] = ()) -> Self:
        """Return settings from `antiphon.toml` and the environment; raises ConfigError."""
        settings = cls(agents=agents)
        return settings.with_config(load_config(path, agents=settings.agent_models))

    def with_config(self, config: GatewayConfig) -> Self:
        """Return these settings with the providers, aliases and server keys of a configuration."""
        return replace(
            self,
            providers=list(config.providers.values()),
            keys=config.keys,
            aliases=config.models,
            allowed_origins=[*self.allowed_origins, *config.server.get("allowed_origins", ())],
            list_threads=config.server.get("list_threads", self.list_threads),
            store=self.store or config.server.get("store"),
        )

    @property
    def ready(self) -> list[str]:
        """The names of the providers that have the API key they need."""
        return [p.name for p in self.providers if not p.api_key_env or p.name in self.keys]

    @property
    def agent_models(self) -> list[str]:
        """The names of the agents' models."""
        return list(dict.fromkeys(name for agent in self.all_agents for name in agent.models))

    @property
    def all_agents(self) -> list[Agent]:
        """The agents to serve: the user's, and the built-in ones whose names the user's do not have."""
        names = {agent.name for agent in self.agents}
        return [*(agent for agent in (demo, echo) if self.demo and agent.name not in names), *self.agents]
