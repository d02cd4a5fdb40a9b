"""Run an agent with one call: a prompt, a model, some tools.

    result = await run_agent("What is 6 times 7?", model="demo", tools=[multiply])

    async for event in stream_agent("What is 6 times 7?", model="demo", tools=[multiply]):
        ...

`stream_agent` yields every event. With `on_event` it can be awaited instead and calls the function with each event.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

from msgspec import Struct, field

from antiphon.client.agent.context_window import ContextStrategy
from antiphon.client.agent.conversation import Conversation, RemoteConversation, parse_items
from antiphon.client.agent.events import AgentEvent, ConversationCancelled, EmitEvent
from antiphon.client.agent.smoothing import ChunkFunction, ChunkStrategy
from antiphon.client.async_client import AsyncClient
from antiphon.client.stream import EventBuffer
from antiphon.client.tools.signature import ToolFunction
from antiphon.client.tools.tool import AnyTool, resolve_tools
from antiphon.engine.run import is_cancelled
from antiphon.protocol.errors import AntiphonError, RequestError

if TYPE_CHECKING:
    from antiphon.client.agent.loop import AgentResult, RunSpec

OnEvent = Callable[[AgentEvent], Awaitable[None] | None]

MAX_BUFFERED_AGENT_EVENTS = 256
"""Number of unread events at which the run waits for its reader."""

RESERVED_FIELDS = frozenset(
    """model input instructions tools stream store previous_response_id conversation
    background""".split()
)
"""Request fields that only the run may set."""


class Aborted(AntiphonError):
    """The run was stopped by its abort signal."""


class AbortSignal:
    """Stops the runs that use it, from any thread, whatever they are waiting for."""

    def __init__(self) -> None:
        self.aborted = False
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<AbortSignal: {'aborted' if self.aborted else 'not aborted'}>"

    def abort(self) -> None:
        """Stop every run that uses this signal now or later."""
        self.aborted = True
        # A copy: a run that stops unsubscribes its listener.
        for listener in tuple(self._listeners):
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function on abort; return a function that unsubscribes it."""
        self._listeners.append(listener)
        if self.aborted:
            listener()
        return lambda: self._listeners.remove(listener)


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options of a run. The defaults suit a chat with tools."""

    max_tool_rounds: int = 100
    """Maximum number of requests to the model; then the run ends with what it has."""
    abort_signal: AbortSignal | None = None
    """Stops the run; cancelling its task does so too."""
    smoothing_enabled: bool = True
    """Emit text in even chunks. If false, emit it as it arrives, throttled by the delay."""
    chunking_strategy: ChunkStrategy | ChunkFunction = "word"
    """The unit of a chunk, or a function that splits text into chunks."""
    smoothing_delay: float = 30
    """Milliseconds between two chunks. The end of a response is never delayed."""
    context_strategy: ContextStrategy = field(default_factory=ContextStrategy)
    """What to cut when tool results fill the context window."""
    context_window: int | None = None
    """The model's context window in tokens. If None, no round is ever dropped."""
    use_responses_api: bool | None = None
    """True: use `/responses`. False: use `/chat/completions`. None: whichever the server has."""
    use_responses_websocket: bool = False
    """Use one WebSocket for the whole run; requires `use_responses_api=True`."""
    strict_tools: bool = True
    """Declare tools in strict mode, unless a tool decides for itself."""
    parallel_tools: int = 4
    """Maximum number of functions that run at the same time."""
    max_retries: int = 3
    """Retries per round after a 429, a 5xx or a lost connection."""
    retry_delay: float = 1000
    """Milliseconds before the first retry; doubles with each further one, up to 30 seconds."""
    fallbacks: Sequence[str] = ()
    """Models to try, in this order, when the first one is unavailable."""
    request: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of each request: temperature, reasoning, max_output_tokens and so on."""

    def __post_init__(self) -> None:
        if self.use_responses_websocket and self.use_responses_api is not True:
            message = "use_responses_websocket needs use_responses_api=True: only the Responses API has a WebSocket. "
            raise RequestError(f"{message}Set both, or neither.", param="use_responses_websocket")
        for name in ("max_tool_rounds", "parallel_tools"):
            if getattr(self, name) < 1:
                raise RequestError(f"{name} must be at least 1.", param=name)
        for name in ("smoothing_delay", "max_retries", "retry_delay"):
            if getattr(self, name) < 0:
                raise RequestError(f"{name} must not be negative.", param=name)
        if reserved := sorted(RESERVED_FIELDS & self.request.keys()):
            message = f"options.request cannot contain '{reserved[0]}': the run sets it."
            raise RequestError(message, param=f"request.{reserved[0]}")


class AgentParams(TypedDict, total=False):
    """The arguments of a run beside its prompt; `stream_agent` documents them."""

    model: Required[str]
    tools: Iterable[AnyTool]
    tool_handlers: Mapping[str, ToolFunction] | None
    on_event: OnEvent | None
    conversation: Conversation | str | None
    instructions: str | None
    options: AgentOptions | None


class AgentRun:
    """One run of an agent. Iterate it once for its events, or await it once for its result."""

    def __init__(
        self, client: AsyncClient, spec: "RunSpec", on_event: OnEvent | None, *, owns_client: bool = False
    ) -> None:
        self.result: AgentResult | None = None
        """The result, once the run has ended."""
        self._client = client
        self._spec = spec
        self._on_event = on_event
        self._owns_client = owns_client
        """Whether the run closes the client when it ends."""
        self._started = False

    def __repr__(self) -> str:
        state = "ended" if self.result else "started" if self._started else "not started"
        return f"<AgentRun of {self._spec.model}, {state}>"

    def __await__(self) -> "Generator[object, None, AgentResult]":
        return self._run(self._notify).__await__()

    async def __aiter__(self) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events as they happen; leaving the loop early stops the run."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self) -> AsyncGenerator[list[AgentEvent], None]:
        """Yield the events in lists, as many at a time as have happened."""
        buffer = EventBuffer[AgentEvent](MAX_BUFFERED_AGENT_EVENTS)

        async def emit(event: AgentEvent) -> None:
            # on_event first: it sees an event before the reader of the run does.
            await self._notify(event)
            buffer.write([event])
            await buffer.drain()

        task = asyncio.create_task(self._run(emit))
        task.add_done_callback(lambda _: buffer.close())
        try:
            # The run waits in drain() while its reader is behind, so memory stays bounded.
            while batch := await buffer.next_batch():
                yield batch
            await task
        finally:
            buffer.close()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it

    async def _notify(self, event: AgentEvent) -> None:
        if self._on_event is not None:
            called = self._on_event(event)
            if inspect.isawaitable(called):
                await called

    async def _run(self, emit: EmitEvent) -> "AgentResult":
        from antiphon.client.agent.loop import AgentLoop  # start-up time
        from antiphon.client.agent.transports import AgentTransport

        if self._started:
            raise AntiphonError("An agent run can be used only once. Start a new one.")
        self._started = True
        signal = self._spec.options.abort_signal
        if signal is not None and signal.aborted:
            raise Aborted("The run was aborted before it began.")
        event_loop, own_thread = asyncio.get_running_loop(), threading.get_ident()
        agent_loop = AgentLoop(self._spec, AgentTransport(self._client, self._spec.options), emit)
        task = asyncio.create_task(agent_loop.run())

        def stop() -> None:
            # In the loop's own thread the task must see the cancellation at its next event,
            # before callbacks that are already scheduled.
            if threading.get_ident() == own_thread:
                task.cancel()
            else:
                event_loop.call_soon_threadsafe(task.cancel)

        unsubscribe = signal.subscribe(stop) if signal else None
        try:
            self.result = await task
        except asyncio.CancelledError:
            # A run that has saved its conversation is complete, even if it was cancelled before it could return.
            self.result = agent_loop.result
            if self.result is None:
                await emit(ConversationCancelled(conversation_id=self._spec.conversation.id))
            if is_cancelled():
                raise
            if self.result is None:
                raise Aborted("The run was aborted.") from None
        finally:
            if unsubscribe:
                unsubscribe()
            if self._owns_client:
                await self._client.close()
        return self.result


def stream_agent(  # noqa: PLR0913 - what an agent is made of
    prompt: object,
    *,
    model: str,
    tools: Iterable[AnyTool] = (),
    tool_handlers: Mapping[str, ToolFunction] | None = None,
    on_event: OnEvent | None = None,
    conversation: Conversation | str | None = None,
    instructions: str | None = None,
    options: AgentOptions | None = None,
    client: AsyncClient | None = None,
) -> AgentRun:
    """Run an agent and stream its events.

    `prompt` is a text, or items as in a request's `input`. `tools` are functions made with
    `@tool`, or declarations whose functions are in `tool_handlers`. `conversation` is the
    conversation to continue: a `Conversation`, or the id of one that the server stores. Without a
    `client`, the server is the one at `ANTIPHON_BASE_URL`, or the one that `make serve` starts.
    """
    from antiphon.client.agent.loop import RunSpec  # start-up time

    # A client made here has connections that nobody else closes.
    owns_client = client is None
    client = client or AsyncClient()
    if isinstance(conversation, str):
        conversation = RemoteConversation(client, conversation)
    spec = RunSpec(
        prompt=parse_items(prompt),
        model=model,
        tools=resolve_tools(tools, tool_handlers),
        instructions=instructions,
        conversation=conversation or Conversation(),
        options=options or AgentOptions(),
    )
    return AgentRun(client, spec, on_event, owns_client=owns_client)


async def run_agent(
    prompt: object, *, client: AsyncClient | None = None, **params: Unpack[AgentParams]
) -> "AgentResult":
    """Run an agent to its end and return the result; see `stream_agent`."""
    return await stream_agent(prompt, client=client, **params)
