"""Models that an agent asks while it answers, with `turn.ask`.

Such a model answers in a run of its own, which is cancelled together with the agent. Its parts go to the agent, its
tokens and warnings to the agent's response, and nothing is stored. Encrypted reasoning is sealed as in a response: an
agent can pass it on and send it back, and only a model of the same origin can read it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.agents.ask import Answer, Asker
from antiphon.agents.turn import Turn
from antiphon.engine.fallback import Fallback
from antiphon.engine.models import EventSink, PartSink
from antiphon.engine.run import Run, is_output
from antiphon.engine.validation import warn_of_unpaired_calls
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item, Reasoning, ReasoningText
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth

if TYPE_CHECKING:
    from antiphon.engine.engine import Caller, Engine

MAX_DEPTH = 8
"""How many agents may wait for each other: one that asks itself must end."""

MAX_WAITING_PARTS = 64
"""How many parts may wait for the agent before the model that it asks has to wait."""

METADATA_PARTS = (parts.Usage, parts.Warn, parts.Failure)
"""The parts that go to the agent's response, or become an exception."""


@asynccontextmanager
async def open_asker(
    engine: "Engine", caller: "Caller", waiting_agents: Sequence[str], name: str, turn: Turn, sink: PartSink
) -> AsyncGenerator[Asker]:
    """Give the asker of one agent's answer, and stop the models that still answer it at the end."""
    asker = ModelAsker(engine, caller, (*waiting_agents, name), turn.response_id, sink)
    try:
        yield asker
    finally:
        await asker.close()


class ModelAsker(Asker):
    """Asks models for one answer of an agent, and adds their tokens and warnings to it."""

    def __init__(
        self, engine: "Engine", caller: "Caller", waiting_agents: Sequence[str], response_id: str, sink: PartSink
    ) -> None:
        self._engine = engine
        self._caller = caller
        self._waiting_agents = waiting_agents
        """The agents that wait for each other, this one last."""
        self._response_id = response_id
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def ask(self, request: Request) -> Answer:
        return ModelAnswer(self, request, self._loop)

    def start(self, answer: "ModelAnswer") -> asyncio.Task[None]:
        """Run the model of an answer in a task."""
        if self._closed:
            raise RuntimeError("turn.ask was used after its agent had ended.")
        task = asyncio.create_task(answer.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Retrieved, or asyncio would complain of an error that the agent does not read.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return task

    async def close(self) -> None:
        """Stop the models that still answer, and wait until they have stopped."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def make_run(self, request: Request, sink: EventSink, put: Callable[[Part], None]) -> Run:
        """Prepare the run of a model; raises RequestError, UpstreamError or StoreError."""
        if len(self._waiting_agents) > MAX_DEPTH:
            raise recursion_error(self._waiting_agents)
        engine, id = self._engine, self._response_id
        candidates = await engine.prepare_candidates(request, self._caller)
        first = candidates[0]
        open_nested = partial(open_asker, engine, self._caller, self._waiting_agents)
        fallback = Fallback(candidates, id, open_nested)
        announced = Response.new(first.request, id=id, created_at=int(engine.clock()))
        synth = ForwardingSynth(announced, engine.ids, engine.clock, fallback.seal_item, put)
        synth.feed_all(warn_of_unpaired_calls(first.unpaired_call_ids))
        return Run(fallback.answer, fallback.turn, synth, sink, max_output=engine.answer_bytes)

    def add_to_response(self, model: str, response: Response) -> None:
        """Add the tokens and the warnings of a model to the agent's own."""
        usage = response.usage
        if usage is None:
            return
        cached, reasoning = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
        self._sink.add_nested(
            parts.Usage(usage.input_tokens, usage.output_tokens, cached, reasoning),
            [parts.Warn(warning.code, f"{model}: {warning.message}") for warning in response.warnings or ()],
        )


class ModelAnswer(Answer, EventSink):
    """The answer of one model; it is the sink of the run that produces it."""

    def __init__(self, asker: ModelAsker, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._asker = asker
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._parts: deque[Part] = deque()
        self._changed = asyncio.Event()
        """Set when a part has arrived or was taken, and when the run has ended."""

    @property
    def output(self) -> Sequence[Item]:
        return self._run.response.output if self._run else ()

    async def read(self) -> Part | None:
        if self._task is None:
            self._task = self._asker.start(self)
            self._task.add_done_callback(lambda _: self._changed.set())
        while not self._parts:
            if self._task.cancelled():
                raise RuntimeError("This answer was stopped, because the agent that asked for it has ended.")
            if self._task.done():
                self._task.result()
                return None
            await self._wait_for_change()
        self._changed.set()
        return self._parts.popleft()

    async def run(self) -> None:
        """Run the model; raises RequestError, UpstreamError or StoreError."""
        model = (self._request.model or "")[:80]
        try:
            self._run = run = await self._asker.make_run(self._request, self, self.put)
            try:
                response = await run.execute()
            finally:
                self._asker.add_to_response(model, run.response)
            if run.error:
                raise run.error
            if error := response.error:
                raise UpstreamError(error.message, status=500, type="server_error", code=error.code)
        except RequestError as error:
            # The agent made the request, and not its client: it names no parameter of theirs.
            message = f"The agent's request to '{model}' was rejected: {error.payload.message}"
            error.payload = replace(error.payload, message=message, param=None)
            raise

    @property
    def full(self) -> bool:
        return len(self._parts) >= MAX_WAITING_PARTS

    def write(self, events: list[Event]) -> None:
        """Take nothing: the agent gets the parts, see `put`."""

    async def drain(self) -> None:
        while self.full:
            await self._wait_for_change()

    def put(self, part: Part) -> None:
        """Take a part for the agent."""
        if not isinstance(part, METADATA_PARTS):
            self._parts.append(part)
            self._changed.set()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class ForwardingSynth(Synth):
    """A synthesizer that also hands on the parts, with what their agent needs to send them back.

    Encrypted reasoning is sealed, and a call has a call_id, so that it is the same here and in the agent's response.
    """

    def __init__(
        self,
        response: Response,
        ids: Callable[[str], str],
        clock: Callable[[], float],
        seal: Callable[[Item], Item],
        put: Callable[[Part], None],
    ) -> None:
        super().__init__(response, ids=ids, clock=clock)
        self._ids = ids
        self._seal = seal
        self._put = put
        self._call_ids: dict[parts.Key, str] = {}
        self._reasoning_texts: dict[tuple[parts.Key, int], list[str]] = {}
        """The raw reasoning of the items that may still get their encrypted content, by key and part."""

    def feed_all(self, batch: Iterable[Part]) -> list[Event]:
        prepared = [self._prepare(part) for part in batch]
        events = super().feed_all(prepared)
        for part in prepared:
            self._put(part)
        return events

    def _prepare(self, part: Part) -> Part:
        match part:
            case parts.Reasoning():
                return self._seal_reasoning(part)
            case parts.Whole(item=item):
                part = parts.Whole(self._seal(item))
            case parts.Call(name=name, call_id="") if name:
                part = replace(part, call_id=self._call_ids.setdefault(part.key, self._ids("call")))
            case _:
                pass
        if is_output(part):
            self._reasoning_texts.clear()  # another item begins, and ends the reasoning
        return part

    def _seal_reasoning(self, part: parts.Reasoning) -> parts.Reasoning:
        if part.text:
            self._reasoning_texts.setdefault((part.key, part.part), []).append(part.text)
        if not part.encrypted_content:
            return part
        texts = ["".join(pieces) for (key, _), pieces in self._reasoning_texts.items() if key == part.key]
        item = Reasoning(content=[ReasoningText(text=text) for text in texts], encrypted_content=part.encrypted_content)
        sealed = self._seal(item)
        return replace(part, encrypted_content=sealed.encrypted_content) if isinstance(sealed, Reasoning) else part


def recursion_error(agents: Sequence[str]) -> UpstreamError:
    """Return the error for agents that wait for each other without end."""
    message = f"More than {MAX_DEPTH} agents wait for each other: {' → '.join(agents)}. Does one of them ask itself?"
    return UpstreamError(message, status=500, type="server_error", code="agent_recursion")
