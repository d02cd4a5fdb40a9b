"""An agent in one call: a prompt, a model, some tools.

    result = await run_agent("What is 6 times 7?", model="demo", tools=[multiply])

    async for event in stream_agent("What is 6 times 7?", model="demo", tools=[multiply]):
        ...

`stream_agent` gives every event; with `on_event` it can be awaited instead, and calls that function
with each. Either way the conversation is told alike, over whatever the server speaks.
"""

import asyncio
import inspect
import threading
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import aclosing
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

from antiphon.client.agent.brief import RunSpec
from antiphon.client.agent.conversation import Conversation, parse_items, resolve_conversation
from antiphon.client.agent.events import AgentEvent, ConversationCancelled
from antiphon.client.agent.options import Aborted, AgentOptions
from antiphon.client.agent.tool_events import EmitEvent
from antiphon.client.async_client import AsyncClient
from antiphon.client.event_buffer import EventBuffer
from antiphon.client.tools.resolve import AnyTool, resolve_tools
from antiphon.client.tools.signature import ToolFunction
from antiphon.engine.run import is_cancelled
from antiphon.protocol.errors import AntiphonError

if TYPE_CHECKING:
    from antiphon.client.agent.loop import AgentResult

OnEvent = Callable[[AgentEvent], Awaitable[None] | None]

MAX_BUFFERED_EVENTS = 256
"""How many events may wait for their reader before the run waits for it."""


class AgentParams(TypedDict, total=False):
    """What a run may be given beside its prompt; `stream_agent` says what each is."""

    model: Required[str]
    tools: Iterable[AnyTool]
    tool_handlers: Mapping[str, ToolFunction] | None
    on_event: OnEvent | None
    conversation: Conversation | str | None
    instructions: str | None
    options: AgentOptions | None


class AgentRun:
    """One run of an agent. Iterate it for its events, or await it for its result; once."""

    def __init__(
        self,
        client: AsyncClient,
        spec: RunSpec,
        on_event: OnEvent | None,
        *,
        owns_client: bool = False,
    ) -> None:
        self.result: AgentResult | None = None
        """What came of it, when it is over."""
        self._client = client
        self._spec = spec
        self._on_event = on_event
        self._owns_client = owns_client
        """Whether the client is this run's own, and to be closed with it."""
        self._started = False

    def __repr__(self) -> str:
        state = "over" if self.result else "begun" if self._started else "not begun"
        return f"<AgentRun of {self._spec.model}, {state}>"

    def __await__(self) -> "Generator[object, None, AgentResult]":
        return self._run(self._notify).__await__()

    async def __aiter__(self) -> AsyncGenerator[AgentEvent, None]:
        """Give the events as they happen; leaving the loop early stops the run."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self) -> AsyncGenerator[list[AgentEvent], None]:
        """Give the events in lists, as many at a time as have happened."""
        channel = EventBuffer[AgentEvent](MAX_BUFFERED_EVENTS)

        async def tell(event: AgentEvent) -> None:
            await self._notify(event)
            channel.write([event])
            await channel.drain()

        task = asyncio.create_task(self._run(tell))
        task.add_done_callback(lambda _: channel.close())
        try:
            while batch := await channel.next_batch():
                yield batch
            await task
        finally:
            channel.close()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # whoever left early does not hear of it

    async def _notify(self, event: AgentEvent) -> None:
        if self._on_event is not None:
            called = self._on_event(event)
            if inspect.isawaitable(called):
                await called

    async def _run(self, emit: EmitEvent) -> "AgentResult":
        from antiphon.client.agent.loop import AgentLoop
        from antiphon.client.agent.transports import AgentTransport

        if self._started:
            raise AntiphonError("A run happens once. Ask for another.")
        self._started = True
        signal = self._spec.options.abort_signal
        if signal is not None and signal.aborted:
            raise Aborted("The run was aborted before it began.")
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        routes = AgentTransport(self._client, self._spec.options)
        work = AgentLoop(self._spec, routes, emit)
        task = asyncio.create_task(work.run())

        def stop() -> None:
            if threading.get_ident() == here:
                task.cancel()  # at once: the run looks for it at every event
            else:
                loop.call_soon_threadsafe(task.cancel)

        silence = signal.subscribe(stop) if signal else None
        try:
            self.result = await task
        except asyncio.CancelledError:
            self.result = work.result
            if self.result is None:
                id = self._spec.conversation.id
                await emit(ConversationCancelled(conversation_id=id))
            if is_cancelled():
                raise
            if self.result is None:
                raise Aborted("The run was aborted.") from None
        finally:
            if silence:
                silence()
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
    """Run an agent, and tell everything that happens.

    `prompt` is words, or items as a request's `input` takes them. `tools` are functions made with
    `@tool`, or declarations whose functions are in `tool_handlers`. `conversation` is what the
    run continues: one kept here, or the id of one that the server keeps. Without a `client`,
    the server is the one at `ANTIPHON_BASE_URL`, or the one that `make serve` starts.
    """
    owned = client is None
    client = client or AsyncClient()
    brief = RunSpec(
        prompt=parse_items(prompt),
        model=model,
        tools=resolve_tools(tools, tool_handlers),
        instructions=instructions,
        conversation=resolve_conversation(client, conversation),
        options=options or AgentOptions(),
    )
    return AgentRun(client, brief, on_event, owns_client=owned)


async def run_agent(
    prompt: object, *, client: AsyncClient | None = None, **params: Unpack[AgentParams]
) -> "AgentResult":
    """Run an agent to its end, and return what came of it; see `stream_agent`."""
    return await stream_agent(prompt, client=client, **params)
