"""An agent in one call: a prompt, a model, some tools.

    result = await run_agent("What is 6 times 7?", model="demo", tools=[multiply])

    async for event in stream_agent("What is 6 times 7?", model="demo", tools=[multiply]):
        ...

`stream_agent` gives every event; with `on_event` it can be awaited instead, and calls that function
with each. Either way the conversation is told alike, over whatever the server speaks.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
)
from typing import Required, TypedDict, Unpack

from antiphon.client.agent.asked import Asked
from antiphon.client.agent.conversation import Conversation, items_of, thread_of
from antiphon.client.agent.loop import AgentResult, Loop
from antiphon.client.agent.options import Aborted, AgentOptions
from antiphon.client.agent.pacing import now
from antiphon.client.agent.routes import Routes
from antiphon.client.agent.teller import Tell
from antiphon.client.agent.told import AgentEvent, ConversationCancelled
from antiphon.client.client import AsyncClient
from antiphon.client.tools.signature import Function
from antiphon.client.tools.toolbox import AnyTool, resolved
from antiphon.core.errors import AntiphonError
from antiphon.engine.run import is_cancelled

OnEvent = Callable[[AgentEvent], Awaitable[None] | None]

ENOUGH = 256
"""How many events may wait for their reader before the run waits for it."""


class Wanted(TypedDict, total=False):
    """What a run may be given beside its prompt; `stream_agent` says what each is."""

    model: Required[str]
    tools: Iterable[AnyTool]
    tool_handlers: Mapping[str, Function] | None
    on_event: OnEvent | None
    conversation: Conversation | str | None
    instructions: str | None
    options: AgentOptions | None


class AgentRun:
    """One run of an agent. Iterate it for its events, or await it for its result; once."""

    def __init__(
        self, client: AsyncClient, asked: Asked, on_event: OnEvent | None, *, owned: bool = False
    ) -> None:
        self.result: AgentResult | None = None
        """What came of it, when it is over."""
        self._client = client
        self._asked = asked
        self._on_event = on_event
        self._owned = owned
        """Whether the client is this run's own, and to be closed with it."""
        self._begun = False

    def __repr__(self) -> str:
        state = "over" if self.result else "begun" if self._begun else "not begun"
        return f"<AgentRun of {self._asked.model}, {state}>"

    def __await__(self) -> Generator[object, None, AgentResult]:
        return self._run(self._called).__await__()

    async def __aiter__(self) -> AsyncGenerator[AgentEvent, None]:
        """Give the events as they happen; leaving the loop early stops the run."""
        channel = Channel()

        async def tell(event: AgentEvent) -> None:
            await self._called(event)
            await channel.put(event)

        task = asyncio.create_task(self._run(tell))
        task.add_done_callback(lambda _: channel.close())
        try:
            async for event in channel:
                yield event
            await task
        finally:
            channel.close()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # whoever left early does not hear of it

    async def _called(self, event: AgentEvent) -> None:
        if self._on_event is not None:
            called = self._on_event(event)
            if inspect.isawaitable(called):
                await called

    async def _run(self, tell: Tell) -> AgentResult:
        if self._begun:
            raise AntiphonError("A run happens once. Ask for another.")
        self._begun = True
        signal = self._asked.options.abort_signal
        if signal is not None and signal.aborted:
            raise Aborted("The run was aborted before it began.")
        loop = asyncio.get_running_loop()
        routes = Routes(self._client, self._asked.options)
        task = asyncio.create_task(Loop(self._asked, routes, tell).run())

        def stop() -> None:
            loop.call_soon_threadsafe(task.cancel)

        silence = signal.listen(stop) if signal else None
        try:
            self.result = await task
        except asyncio.CancelledError:
            id = self._asked.thread.id
            await tell(ConversationCancelled(conversation_id=id, timestamp=now()))
            if is_cancelled():
                raise
            raise Aborted("The run was aborted.") from None
        finally:
            if silence:
                silence()
            if self._owned:
                await self._client.close()
        return self.result


class Channel:
    """Events on their way to a reader who may be slower than the run."""

    def __init__(self) -> None:
        self._waiting: deque[AgentEvent] = deque()
        self._moved = asyncio.Event()
        self._closed = False

    async def put(self, event: AgentEvent) -> None:
        """Give an event, once there is room for it."""
        self._waiting.append(event)
        self._moved.set()
        while len(self._waiting) > ENOUGH and not self._closed:
            self._moved.clear()
            await self._moved.wait()

    def close(self) -> None:
        """Give no more."""
        self._closed = True
        self._moved.set()

    async def __aiter__(self) -> AsyncIterator[AgentEvent]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
                self._moved.set()
            if self._closed:
                return
            self._moved.clear()
            await self._moved.wait()


def stream_agent(  # noqa: PLR0913 - what an agent is made of
    prompt: object,
    *,
    model: str,
    tools: Iterable[AnyTool] = (),
    tool_handlers: Mapping[str, Function] | None = None,
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
    asked = Asked(
        prompt=items_of(prompt),
        model=model,
        tools=resolved(tools, tool_handlers),
        instructions=instructions,
        thread=thread_of(client, conversation),
        options=options or AgentOptions(),
    )
    return AgentRun(client, asked, on_event, owned=owned)


async def run_agent(
    prompt: object, *, client: AsyncClient | None = None, **wanted: Unpack[Wanted]
) -> AgentResult:
    """Run an agent to its end, and return what came of it; see `stream_agent`."""
    return await stream_agent(prompt, client=client, **wanted)
