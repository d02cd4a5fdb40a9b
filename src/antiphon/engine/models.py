"""What a model is, where its answer goes, and which model a name means.

A model pushes the parts of its answer into a `PartSink`, and the run writes events to an `EventSink`. `Models` resolves
names: agents, models of providers, and aliases. An alias may stand for several models, which are tried in order.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from antiphon.adapters.registry import BUILT_IN
from antiphon.agents.agent import DEFAULT_ENTRY, Agent
from antiphon.agents.threads import AgentThreads
from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.context import estimate_item
from antiphon.protocol.errors import RequestError, UpstreamError, suggest_closest
from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath
from antiphon.protocol.items import FunctionCallOutput, Item
from antiphon.protocol.parts import Part

if TYPE_CHECKING:
    from antiphon.engine.provider_model import Providers

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

    def accepts_end(self) -> bool:
        """Return whether an answer may end here without a reason, as if it were complete."""
        ...

    def text_fast_path(self) -> WriteText | None:
        """Return a function that takes more of the last text, valid until parts are fed again."""

    def check_size(self) -> None:
        """Check the size of the answer so far; raises UpstreamError if it is too large. Not for the hot path."""

    async def drain(self) -> None:
        """Return when more may be fed."""

    def add_nested(self, usage: parts.Usage, warnings: Sequence[parts.Warn]) -> None:
        """Add the tokens and the warnings of a model that the answering agent has asked."""

    def begin_answer(self, *, has_own_tools: bool) -> None:
        """Prepare for the answer of a model; what another one has fed led to no output and is dropped."""


class Model(ABC):
    """Something that answers turns."""

    name: str
    window: int | None = None
    """How many tokens it can read, if known."""
    origin: str
    """Who can read its sealed reasoning: every model of the same origin, and no other."""
    entry: str = ""
    """The entry of an agent."""
    has_threads: bool = True
    """Whether Hashbrown's threads are stored for it."""
    is_agent: bool = False
    """Whether it may run tools of its own, which the client does not offer, and ask other models."""
    idempotent: bool = False
    """Whether an answer may be made again after an interruption, before anybody has seen any of it."""
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


class AgentLimits(Struct, frozen=True):
    """What all agents of a server share: their threads, and how long one may be silent (0: for ever).

    With `show_exceptions`, a failed response names the exception of its agent.
    """

    threads: AgentThreads
    chunk_timeout: float = 0
    show_exceptions: bool = False


MAX_DESCRIPTION = 500
"""The most characters that describe an exception."""


class AgentError(Exception):
    """An exception of an agent, described for a client that may see it; the cause is the exception itself."""


class AgentModel(Model):
    """One entry of an agent."""

    is_agent = True

    def __init__(self, agent: Agent, entry: str, limits: AgentLimits) -> None:
        self._agent = agent
        self._limits = limits
        self.name, self.entry = agent.name, entry
        self.window, self.origin = agent.window, agent.origin
        self.idempotent = agent.idempotent

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        try:
            await self._feed_answer(turn, sink)
        except (RequestError, UpstreamError):
            raise
        except Exception as error:
            if self._limits.show_exceptions:
                raise AgentError(describe_exception(error)) from error
            raise
        finally:
            # An agent in a thread cannot be cancelled: it has to look.
            turn.cancelled.set()

    async def _feed_answer(self, turn: Turn, sink: PartSink) -> None:
        answer = self._agent.stream(turn, self._limits.threads)
        if (max_tokens := turn.request.max_output_tokens) and not self._agent.counts_tokens:
            answer = limit_output(answer, max_tokens)
        seconds, clock = self._limits.chunk_timeout, asyncio.get_running_loop().time
        # Restarting a timer costs more than the rest of this loop: it runs a little longer, and is restarted seldom.
        tolerance = seconds / 10
        restarted = clock()
        silence = asyncio.timeout(seconds + tolerance or None)
        try:
            # `aclosing` runs the agent's `finally` blocks now, and not at garbage collection.
            with raise_only_exceptions():
                async with silence, aclosing(answer):
                    count, next_check = 0, PARTS_PER_YIELD
                    async for part in answer:
                        if not sink.feed((part,)):
                            break
                        if is_full := sink.full:
                            silence.reschedule(None)
                            await sink.drain()
                        if seconds and (is_full or clock() > restarted + tolerance):
                            restarted = clock()
                            silence.reschedule(restarted + seconds + tolerance)
                        count += 1
                        if count % PARTS_PER_YIELD == 0:
                            await asyncio.sleep(0)
                        if count == next_check:
                            sink.check_size()
                            next_check += PARTS_PER_YIELD + count // 4  # a check looks at all parts
                    sink.check_size()
        except TimeoutError:
            if silence.expired():
                message = f"The agent '{self.name}' sent nothing for {seconds:g} seconds."
                raise UpstreamError(message, status=504, type="server_error", code="agent_timeout") from None
            raise

    async def compact(self, turn: Turn) -> str | list[Item] | None:
        with raise_only_exceptions():
            return await self._agent.compact(turn, self._limits.threads)

    async def count(self, turn: Turn) -> int | None:
        with raise_only_exceptions():
            return await self._agent.count(turn, self._limits.threads)


def describe_exception(error: Exception) -> str:
    """Return the type and the message of an exception, in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}"[:MAX_DESCRIPTION] if message else type(error).__name__


@contextmanager
def raise_only_exceptions() -> Generator[None]:
    """Turn what an agent raises and is no Exception, such as SystemExit or a Rust panic, into one."""
    try:
        yield
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise RuntimeError(f"the agent raised {type(error).__name__}") from error


CHARACTERS_PER_TOKEN = 4
"""Of ASCII text; any other character is a token, as in `protocol.context.estimate_text`."""

TEXT_FIELDS: dict[type, tuple[str, ...]] = {
    parts.Text: ("text",),
    parts.Refusal: ("text",),
    parts.Reasoning: ("text", "summary"),
    parts.Call: ("arguments",),
}


async def limit_output(answer: AsyncGenerator[Part], max_tokens: int) -> AsyncGenerator[Part]:
    """Yield parts until their estimated tokens reach a limit, then end the answer as truncated."""
    room = max_tokens * CHARACTERS_PER_TOKEN
    state_sizes: dict[parts.Key, int] = {}
    async with aclosing(answer):
        async for part in answer:
            truncated: dict[str, str] = {}
            for field in TEXT_FIELDS.get(type(part), ()):
                text = getattr(part, field)
                fitting, room = take_prefix(text, room)
                if fitting != text:
                    truncated[field] = fitting
            # The output of an agent's own tool is nothing that the agent has written.
            if isinstance(part, parts.Whole | parts.ItemState) and isinstance(part.item, FunctionCallOutput):
                pass
            elif isinstance(part, parts.Whole):
                room -= CHARACTERS_PER_TOKEN * estimate_item(part.item)
            elif isinstance(part, parts.ItemState):
                # Each state shows the whole item, so only what is new counts.
                size = CHARACTERS_PER_TOKEN * estimate_item(part.item)
                room -= size - state_sizes.get(part.key, 0)
                state_sizes[part.key] = size
            if not truncated and room >= 0:
                yield part
                continue
            if truncated:
                yield replace(part, **truncated)
            yield parts.Finish("length")
            return


def take_prefix(text: str, room: int) -> tuple[str, int]:
    """Return as much of a text as fits, and the room that is left, both in quarters of a token."""
    if text.isascii():
        return text[:room], room - min(len(text), room)
    for index, character in enumerate(text):
        size = 1 if character.isascii() else CHARACTERS_PER_TOKEN
        if size > room:
            return text[:index], 0
        room -= size
    return text, room


class Models:
    """Models by name."""

    def __init__(
        self,
        agents: Iterable[Agent] = (),
        providers: "Providers | None" = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
        limits: AgentLimits | None = None,
    ) -> None:
        self._limits = limits or AgentLimits(AgentThreads())
        self.set_agents(agents)
        self._providers = providers
        self._aliases = dict(aliases or {})

    def set_agents(self, agents: Iterable[Agent]) -> None:
        """Replace all agents; running responses keep theirs."""
        self._agents = {agent.name: agent for agent in agents}

    @property
    def names(self) -> list[str]:
        """Every known name; providers may have more models than these."""
        of_agents = [name for agent in self._agents.values() for name in agent.models]
        of_providers = self._providers.names if self._providers else []
        return list(dict.fromkeys([*of_agents, *self._aliases, *of_providers]))

    def suggest(self, name: str) -> str:
        """Return a suggestion of a known model for an unknown name; nothing if none is like it."""
        same = [known for known in self.names if known.lower().rpartition("/")[2] == name.lower()]
        return suggest_closest(name, self.names) if not same else f" Did you mean '{same[0]}'?"

    def find_agent(self, name: str) -> Agent | None:
        """Return the agent that a name stands for: its own, or that of one of its entries."""
        agent_name, slash, entry = name.partition("/")
        agent = self._agents.get(agent_name)
        return agent if agent and name not in self._aliases and (not slash or entry in agent.entries) else None

    def unknown_model_error(self, name: str, param: str | None = "model") -> RequestError:
        """Return the error for a name that stands for no model."""
        name = name[:80]
        first, slash, rest = name.partition("/")
        if rest and first in BUILT_IN and first not in self._agents:
            advice = f" {first} is not configured: 'antiphon models' says what it needs."
        else:
            advice = self.suggest(name)
            if not advice and slash and (agent := self._agents.get(first)):
                advice = f" The agent '{first}' has {', '.join(map(repr, agent.models))}."
            advice += " GET /v1/models lists those that do."
        message = f"The model '{name}' does not exist.{advice}"
        return RequestError(message, type="not_found", param=param, code="model_not_found")

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
            return [AgentModel(agent, entry, self._limits)]
        model = self._providers.find(name) if self._providers else None
        return [model] if model else []
