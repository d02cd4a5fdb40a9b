"""How a run of an agent may be steered, and how it is stopped."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from antiphon.client.agent.context_window import ContextStrategy
from antiphon.client.agent.smoothing import ChunkFunction, ChunkStrategy
from antiphon.protocol.errors import AntiphonError, RequestError


class Aborted(AntiphonError):
    """A run was stopped by its abort signal."""


class AbortSignal:
    """Stops the runs it was given to, from any thread, at whatever they are waiting for."""

    def __init__(self) -> None:
        self.aborted = False
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<AbortSignal: {'aborted' if self.aborted else 'not aborted'}>"

    def abort(self) -> None:
        """Stop every run that has this signal, and every one that will."""
        self.aborted = True
        for listener in tuple(self._listeners):
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when the signal is given; returns what takes that back."""
        self._listeners.append(listener)
        if self.aborted:
            listener()
        return lambda: self._listeners.remove(listener)


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options of a run; every one has a default that suits a chat with tools."""

    max_tool_rounds: int = 100
    """How often the model may be asked; at the limit the run ends with what it has."""

    abort_signal: AbortSignal | None = None
    """What stops the run; so does cancelling its task."""

    smoothing_enabled: bool = True
    """Whether text is told in even chunks; otherwise as it comes, throttled by the delay."""

    chunking_strategy: ChunkStrategy | ChunkFunction = "word"
    """What a chunk is; a function cuts text into chunks of its own."""

    smoothing_delay: float = 30
    """Milliseconds between two chunks. The end of an answer never waits for them."""

    context_strategy: ContextStrategy = field(default_factory=ContextStrategy)
    """What to cut when tool results fill the model's window."""

    context_window: int | None = None
    """The model's window in tokens; without it no round is ever dropped."""

    use_responses_api: bool | None = None
    """True asks `/responses`, False `/chat/completions`; None whichever the server has."""

    use_responses_websocket: bool = False
    """One socket for the whole run; needs `use_responses_api=True`."""

    strict_tools: bool = True
    """Whether tools are offered in strict form; a tool may decide for itself."""

    parallel_tools: int = 4
    """How many functions may run at once."""

    max_retries: int = 3
    """How often one round is tried again after a 429, a 5xx or a lost connection."""

    retry_delay: float = 1000
    """Milliseconds before the first retry; each further one doubles it, up to 30 seconds."""

    fallbacks: Sequence[str] = ()
    """Models to ask, in order, when the first one cannot be had."""

    request: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of each request: temperature, reasoning, max_output_tokens and so on."""

    def __post_init__(self) -> None:
        if self.use_responses_websocket and self.use_responses_api is not True:
            raise RequestError(
                "use_responses_websocket needs use_responses_api=True: only the Responses API "
                "has a WebSocket. Set both, or neither.",
                param="use_responses_websocket",
            )
        for name in ("max_tool_rounds", "parallel_tools"):
            if getattr(self, name) < 1:
                raise RequestError(f"{name} must be at least 1.", param=name)
        for name in ("smoothing_delay", "max_retries", "retry_delay"):
            if getattr(self, name) < 0:
                raise RequestError(f"{name} must not be negative.", param=name)
        if ours := sorted(RESERVED_FIELDS & self.request.keys()):
            message = f"options.request cannot hold '{ours[0]}': the run decides it."
            raise RequestError(message, param=f"request.{ours[0]}")


RESERVED_FIELDS = frozenset(
    """model input instructions tools stream store previous_response_id conversation
    background""".split()
)
"""The fields of a request that are the run's own."""
