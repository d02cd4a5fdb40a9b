"""Everything about a server that can be chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.agents.agent import Agent
from antiphon.agents.demo import demo, echo


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A server's choices; the defaults are safe ones."""

    agents: Sequence[Agent] = ()
    """Python functions as models, beside `demo` and `echo`."""

    demo: bool = True
    """Whether `demo` and `echo` are served."""

    api_key: str | None = field(default=None, repr=False)
    """What callers must send as a bearer token; nobody is asked when it is None."""

    body_limit: int = 64 * 1024 * 1024
    """Bytes that a request may have. The specification allows files of 32 MiB."""

    commit_seconds: float = 5.0
    """How long a stream waits for the model's first sign before it answers 200."""

    heartbeat_seconds: float = 15.0
    """After how much silence a stream says that it is alive."""

    outlet_bytes: int = 256 * 1024
    """How much of a stream may wait for a slow reader before its model has to wait too."""

    @property
    def all_agents(self) -> list[Agent]:
        """The agents to serve; a user's own come last, and win over ours of the same name."""
        return [*([demo, echo] if self.demo else []), *self.agents]
