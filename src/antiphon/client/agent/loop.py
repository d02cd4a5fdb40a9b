"""The agent loop: ask the model, run what it calls, ask again with the results.

Everything that happens is told on the way. Bad arguments, missing functions and exceptions go back
to the model; only a server that cannot be had ends a run.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from antiphon.client.agent.brief import Brief
from antiphon.client.agent.calling import Tell
from antiphon.client.agent.events import (
    AgentFailed,
    AgentFault,
    AgentUsage,
    ContextAction,
    ContextManagement,
    ContextWindow,
    ConversationCompleted,
    ConversationQueued,
    ConversationStarted,
    Ending,
    RoundUsage,
    Thinking,
    ToolCall,
)
from antiphon.client.agent.recovery import Recovery
from antiphon.client.agent.rounds import Rounds
from antiphon.client.agent.routes import Routes
from antiphon.client.agent.teller import Teller
from antiphon.client.agent.window import COMPLETION_TOKENS, ContextUsage, Window, truncated
from antiphon.client.errors import broken
from antiphon.client.tools.calls import Outcome, Progress, run_calls
from antiphon.client.tools.schema_error import explained
from antiphon.core import tokens
from antiphon.core.errors import AntiphonError, UpstreamError
from antiphon.core.events import Lifecycle
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item
from antiphon.core.response import Response
from antiphon.engine.run import is_cancelled
from antiphon.wire.dialects import failure_of


class AgentResult(Struct, frozen=True, kw_only=True):
    """What came of a run.

    `message` is all that was said, `final` the words of the last round; `items` is what a
    conversation keeps of it. An incomplete answer says why in `reason`.
    """

    message: str
    final: str
    status: Ending
    reason: str | None
    refusal: str | None
    reasoning: Thinking | None
    response: Response
    usage: AgentUsage
    tool_calls: list[ToolCall]
    items: list[Item]
    conversation_id: str
    model: str


class Loop:
    """One run."""

    def __init__(self, brief: Brief, routes: Routes, tell: Tell) -> None:
        self._brief = brief
        self._options = brief.options
        self._routes = routes
        self._tell = tell
        self._teller = Teller(tell, brief.options, brief.model)
        self._tools = {tool.name: tool for tool in brief.tools}
        self._offered = [tool.definition(brief.options.strict_tools) for tool in brief.tools]
        self._rounds = Rounds([], brief.prompt)
        self._recovery = Recovery(brief, routes, tell)
        self._usage: list[RoundUsage] = []
        self._calls: list[ToolCall] = []
        self._response: Response | None = None
        self._kept = False
        self.result: AgentResult | None = None
        """What came of it, once that is kept; from then on it is too late to stop."""
        size, room = brief.options.context_window, brief.options.request.get("max_output_tokens")
        answer = room if isinstance(room, int) else COMPLETION_TOKENS
        self._window = Window(size, answer) if size else None

    async def run(self) -> AgentResult:
        """Run to the end; raises AntiphonError, once everything has been told."""
        conversation = self._brief.conversation
        if conversation.floor.taken:
            await self._tell(ConversationQueued(conversation_id=conversation.id))
        async with conversation.floor:
            model = self._brief.model
            await self._tell(ConversationStarted(conversation_id=conversation.id, model=model))
            try:
                return await self._speak()
            except AntiphonError as error:
                await self._teller.close()
                await self._fail(error)
                raise
            finally:
                try:
                    await self._teller.close()
                finally:
                    await self._routes.disconnect()

    async def _speak(self) -> AgentResult:
        conversation = self._brief.conversation
        self._rounds = Rounds(await conversation.load(), self._brief.prompt)
        status, reason = await self._converse()
        items = self._rounds.said()
        check()
        await self._keep(items)
        return await self._complete(status, reason, items)

    async def _converse(self) -> tuple[Ending, str | None]:
        """Ask and call, round after round."""
        for _ in range(self._options.max_tool_rounds):
            check()
            await self._fit()
            response = self._response = await self._round()
            self._count(response)
            calls = self._rounds.heard(response)
            if response.status != "completed":
                details = response.incomplete_details
                return "incomplete", details.reason if details else response.status
            if not calls:
                return "completed", None
            self._rounds.answer(await self._run(calls))
        return "max_tool_rounds", "max_tool_rounds"

    # --- asking ---

    async def _round(self) -> Response:
        """Ask the model, as often as there is hope."""
        while True:
            self._teller.begin()
            try:
                response = await self._ask()
            except UpstreamError as error:
                await self._teller.rewind()
                await self._recovery.after(explained(error, self._offered), self._rounds)
                self._teller.model = self._recovery.model
            else:
                self._recovery.succeeded()
                return response

    async def _ask(self) -> Response:
        fields = self._brief.fields(self._recovery.model, self._offered, self._rounds.count)
        checked = False
        async with self._routes.stream(fields, self._rounds) as stream:
            async for events in stream.batches():
                for event in events:
                    check()
                    if not checked and isinstance(event, Lifecycle):
                        self._routes.check(event.response, self._rounds)
                        checked = True
                    await self._teller.hear(event)
            response = await stream.final()
        if response.status == "failed":
            if response.usage:
                self._count(response)  # it is paid for
            raise broken(failure_of(response))
        await self._teller.end(response)
        return response

    # --- calling ---

    async def _run(self, calls: Sequence[FunctionCall]) -> list[FunctionCallOutput]:
        async def tell(progress: Progress) -> None:
            await self._tell(self._teller.calls.progress(progress))

        limit = self._options.parallel_tools
        with self._brief.conversation.floor.kept():
            outcomes = await run_calls(calls, self._tools, limit=limit, tell=tell)
        self._calls += self._teller.calls.told
        return [await self._output(outcome) for outcome in outcomes]

    async def _output(self, outcome: Outcome) -> FunctionCallOutput:
        """Write a result for the model, cut if it is too long."""
        call, output = outcome.call, outcome.output
        limit = self._options.context_strategy.tool_result_token_limit
        cut = truncated(call.name, output, limit) if isinstance(output, str) else None
        if cut is not None:
            output = cut.text
            action = ContextAction(
                type="truncated_tool_result",
                tool_name=call.name,
                original_tokens=cut.original_tokens,
                truncated_tokens=cut.truncated_tokens,
            )
            await self._manage(action)
        return FunctionCallOutput(call_id=call.call_id, output=output)

    # --- the window ---

    def _used(self) -> ContextUsage | None:
        if self._window is None:
            return None
        prompt = self._brief.instructions, self._offered, self._rounds.items
        return self._window.usage(tokens.of_prompt(*prompt))

    async def _fit(self) -> None:
        """Tell how full the window is, and drop the oldest rounds if it is too full."""
        if (usage := self._used()) is None:
            return
        strategy = self._options.context_strategy
        if usage.over(strategy.rebudget_threshold):
            kept = strategy.tool_round_limit
            if dropped := self._rounds.window(kept):
                action = ContextAction(
                    type="windowed_tool_rounds", dropped_rounds=dropped, kept_rounds=kept
                )
                await self._manage(action)
        await self._tell(ContextWindow(usage=self._used() or usage))

    async def _manage(self, action: ContextAction) -> None:
        await self._tell(ContextManagement(action=action, usage=self._used()))

    # --- the end ---

    def _count(self, response: Response) -> None:
        usage, round = response.usage, self._rounds.count
        if usage is None:
            self._usage.append(RoundUsage(round=round))
            return
        self._usage.append(
            RoundUsage(
                round=round,
                prompt_tokens=usage.input_tokens,
                completion_tokens=usage.output_tokens,
                total_tokens=usage.total_tokens,
                cached_input_tokens=usage.input_tokens_details.cached_tokens,
                reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
            )
        )

    async def _complete(self, status: Ending, reason: str | None, items: list[Item]) -> AgentResult:
        teller, usage = self._teller, total(self._usage, self._recovery.model)
        message = teller.final(usage.completion_tokens, self._calls)
        completed = ConversationCompleted(
            conversation_id=self._brief.conversation.id,
            message=message,
            status=status,
            reason=reason,
            reasoning=teller.thinking(),
            metrics=teller.pacing.metrics(usage.completion_tokens),
            context_window=self._used(),
            usage=usage,
        )
        if self._response is None:
            raise AntiphonError("a run ended without an answer")
        self.result = AgentResult(
            message=message.message,
            final=self._response.output_text,
            status=status,
            reason=reason,
            refusal=message.refusal,
            reasoning=completed.reasoning,
            response=self._response,
            usage=usage,
            tool_calls=self._calls,
            items=items,
            conversation_id=completed.conversation_id,
            model=usage.model,
        )
        await self._tell(completed)
        return self.result

    async def _fail(self, error: AntiphonError) -> None:
        """Tell what went wrong, and keep the rounds that were finished before it."""
        upstream = error if isinstance(error, UpstreamError) else None
        fault = AgentFault(
            message=str(error),
            code=upstream.payload.code if upstream else None,
            recoverable=upstream.retryable if upstream else False,
        )
        id = self._brief.conversation.id
        await self._tell(AgentFailed(conversation_id=id, error=fault))
        with suppress(AntiphonError):  # what went wrong first is what is raised
            await self._keep(self._rounds.said())

    async def _keep(self, items: list[Item]) -> None:
        """Give the conversation what was said; once, for a failure may come in the middle of it."""
        if not self._kept:
            self._kept = True
            await self._brief.conversation.add(items)


def check() -> None:
    """Stop here if the run is to stop.

    Where everything has come already it would not wait for anything; and a function of the caller's
    may have taken the cancellation for its own.
    """
    if is_cancelled():
        raise asyncio.CancelledError


def total(rounds: list[RoundUsage], model: str) -> AgentUsage:
    """Add up the tokens of a run."""
    return AgentUsage(
        model=model,
        prompt_tokens=sum(r.prompt_tokens for r in rounds),
        completion_tokens=sum(r.completion_tokens for r in rounds),
        total_tokens=sum(r.total_tokens for r in rounds),
        cached_input_tokens=sum(r.cached_input_tokens for r in rounds),
        reasoning_tokens=sum(r.reasoning_tokens for r in rounds),
        rounds=rounds,
    )
