"""The agent loop: request a response, run the tools it calls, send the results, repeat.

Everything that happens is emitted as an event. Invalid arguments, missing functions and exceptions
of tools are sent back to the model; only a server that stays unavailable ends a run.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from antiphon.client.agent import events
from antiphon.client.agent.context_window import COMPLETION_TOKENS, ContextBudget, RunHistory, truncate_result
from antiphon.client.agent.conversation import Conversation
from antiphon.client.agent.event_mapper import EventMapper
from antiphon.client.agent.transports import AgentTransport, Recovery
from antiphon.client.errors import stream_error
from antiphon.client.params import to_json_value
from antiphon.client.tools.execute import CallOutcome, CallProgress, execute_calls
from antiphon.client.tools.strict_schema import explain_schema_error
from antiphon.client.tools.tool import Tool
from antiphon.engine.run import is_cancelled
from antiphon.protocol import context
from antiphon.protocol.errors import AntiphonError, UpstreamError
from antiphon.protocol.events import LifecycleEvent
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.struct import as_object
from antiphon.protocol.tools import FunctionTool
from antiphon.wire.openresponses import failure_payload

if TYPE_CHECKING:
    from antiphon.client.agent.run import AgentOptions


class RunSpec(Struct, frozen=True, kw_only=True):
    """The input of a run."""

    prompt: list[Item]
    model: str
    tools: Sequence[Tool]
    instructions: str | None
    conversation: Conversation
    options: "AgentOptions"

    def request_fields(self, model: str, definitions: Sequence[FunctionTool], rounds: int) -> dict[str, object]:
        """Build the fields that every round sends, after a number of earlier rounds."""
        fields: dict[str, object] = {"model": model, **as_object(to_json_value(self.options.request))}
        if text := "\n\n".join(filter(None, (self.conversation.instructions, self.instructions))):
            fields["instructions"] = text
        if definitions:
            fields["tools"] = list(definitions)
        # A tool that is forced in every round would be called forever.
        if rounds and _forces_tool(fields.get("tool_choice")):
            del fields["tool_choice"]
        # Reasoning models reject a temperature.
        if as_object(fields.get("reasoning")).get("effort") not in (None, "none"):
            fields.pop("temperature", None)
        return fields


def _forces_tool(choice: object) -> bool:
    if named := as_object(choice):  # one function by name, or a choice of allowed tools
        return named.get("mode", "required") == "required"
    return choice == "required"


class AgentResult(Struct, frozen=True, kw_only=True):
    """The result of a run.

    `message` is the text of all rounds, `final` that of the last one; `items` are those added to
    the conversation. `reason` says why a response is incomplete.
    """

    message: str
    final: str
    status: events.RunStatus
    reason: str | None
    refusal: str | None
    reasoning: events.AgentReasoning | None
    response: Response
    usage: events.AgentUsage
    tool_calls: list[events.AgentToolCall]
    items: list[Item]
    conversation_id: str
    model: str


class AgentLoop:
    """The loop of one run."""

    def __init__(self, spec: RunSpec, transport: AgentTransport, emit: events.EmitEvent) -> None:
        self._spec = spec
        self._options = options = spec.options
        self._transport = transport
        self._emit = emit
        self._mapper = EventMapper(emit, options, spec.model)
        self._tools = {tool.name: tool for tool in spec.tools}
        self._definitions = [tool.definition(options.strict_tools) for tool in spec.tools]
        self._history = RunHistory([], spec.prompt)
        self._recovery = Recovery(spec, transport, emit)
        self._usage: list[events.RoundUsage] = []
        self._tool_calls: list[events.AgentToolCall] = []
        self._saved = False
        self.result: AgentResult | None = None
        """The result, once the conversation is saved; from then on the run cannot be stopped."""
        limit = options.request.get("max_output_tokens")
        completion = limit if isinstance(limit, int) else COMPLETION_TOKENS
        size = options.context_window
        self._budget = ContextBudget(size, completion) if size else None

    async def run(self) -> AgentResult:
        """Run to the end; raises AntiphonError after all events are emitted."""
        conversation = self._spec.conversation
        # Checked without waiting: the event has to come before the wait.
        if conversation.lock.locked:
            await self._emit(events.ConversationQueued(conversation_id=conversation.id))
        async with conversation.lock:
            await self._emit(events.ConversationStarted(conversation_id=conversation.id, model=self._spec.model))
            try:
                self._history = RunHistory(await conversation.load(), self._spec.prompt)
                response, status, reason = await self._run_rounds()
                items = self._history.items_to_save()
                raise_if_cancelled()
                # Before the last event is emitted: its listener may start the next run at once.
                await self._save(items)
                return await self._complete(response, status, reason, items)
            except AntiphonError as error:
                await self._mapper.close()
                await self._emit_failure(error)
                raise
            finally:
                # Both, even if the task is cancelled again during the first.
                try:
                    await self._mapper.close()
                finally:
                    await self._transport.disconnect()

    async def _run_rounds(self) -> tuple[Response, events.RunStatus, str | None]:
        """Return the last response, and why it is the last."""
        while True:
            raise_if_cancelled()
            await self._fit_context()
            response = await self._request_round()
            self._add_usage(response)
            calls = self._history.add_response(response)
            if response.status != "completed":
                details = response.incomplete_details
                return response, "incomplete", details.reason if details else response.status
            if not calls:
                self._tool_calls += self._mapper.calls.final_calls
                return response, "completed", None
            self._history.add_outputs(await self._call_tools(calls))
            self._tool_calls += self._mapper.calls.final_calls
            if self._history.count >= self._options.max_tool_rounds:
                return response, "max_tool_rounds", "max_tool_rounds"

    async def _request_round(self) -> Response:
        """Request a response, as often as recovery allows."""
        while True:
            self._mapper.start_round()
            try:
                response = await self._request_once()
            except UpstreamError as error:
                await self._mapper.reset_round()
                await self._recovery.recover(explain_schema_error(error, self._definitions), self._history)
                self._mapper.model = self._recovery.model
            else:
                self._recovery.record_success()
                return response

    async def _request_once(self) -> Response:
        fields = self._spec.request_fields(self._recovery.model, self._definitions, self._history.count)
        checked = False
        async with self._transport.stream(fields, self._history) as stream:
            async for batch in stream.batches():
                for event in batch:
                    raise_if_cancelled()
                    # Before any text is emitted, so that nothing has to be withdrawn.
                    if not checked and isinstance(event, LifecycleEvent):
                        self._transport.check_continuation(event.response, self._history)
                        checked = True
                    await self._mapper.feed(event)
            response = await stream.final()
        if response.status == "failed":
            if response.usage:
                self._add_usage(response)  # a failed response is billed too
            raise stream_error(failure_payload(response))
        await self._mapper.finish_round(response)
        return response

    async def _call_tools(self, calls: Sequence[FunctionCall]) -> list[FunctionCallOutput]:
        async def report(progress: CallProgress) -> None:
            await self._emit(self._mapper.calls.map_progress(progress))

        limit = self._options.parallel_tools
        with self._spec.conversation.lock.forbid_reentry():
            outcomes = await execute_calls(calls, self._tools, limit=limit, on_progress=report)
        return [await self._build_output(outcome) for outcome in outcomes]

    async def _build_output(self, outcome: CallOutcome) -> FunctionCallOutput:
        """Build the output item of a call; truncate a text over the limit."""
        call, output = outcome.call, outcome.output
        limit = self._options.context_strategy.tool_result_token_limit
        cut = truncate_result(call.name, output, limit) if isinstance(output, str) else None
        if cut is not None:
            output, action = cut
            await self._emit_context_action(action)
        return FunctionCallOutput(call_id=call.call_id, output=output)

    def _context_usage(self) -> events.ContextUsage | None:
        if self._budget is None:
            return None
        # Estimated anew every time: the server's own count comes too late to drop anything.
        prompt = self._spec.instructions, self._definitions, self._history.items
        return self._budget.usage(context.estimate_prompt(*prompt))

    async def _fit_context(self) -> None:
        """Emit how full the context window is; drop the oldest rounds if it is too full."""
        if (usage := self._context_usage()) is None:
            return
        strategy = self._options.context_strategy
        if usage.exceeds(strategy.rebudget_threshold):
            kept = strategy.tool_round_limit
            if dropped := self._history.drop_oldest(kept):
                action = events.ContextAction(type="windowed_tool_rounds", dropped_rounds=dropped, kept_rounds=kept)
                await self._emit_context_action(action)
        await self._emit(events.ContextWindow(usage=self._context_usage() or usage))

    async def _emit_context_action(self, action: events.ContextAction) -> None:
        await self._emit(events.ContextManagement(action=action, usage=self._context_usage()))

    def _add_usage(self, response: Response) -> None:
        usage = response.usage or ResponseUsage.of(0, 0)
        self._usage.append(
            events.RoundUsage(
                round=self._history.count,
                prompt_tokens=usage.input_tokens,
                completion_tokens=usage.output_tokens,
                total_tokens=usage.total_tokens,
                cached_input_tokens=usage.input_tokens_details.cached_tokens,
                reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
            )
        )

    async def _complete(
        self, response: Response, status: events.RunStatus, reason: str | None, items: list[Item]
    ) -> AgentResult:
        mapper, usage = self._mapper, sum_usage(self._usage, self._recovery.model)
        message = mapper.build_message(usage.completion_tokens, self._tool_calls)
        completed = events.ConversationCompleted(
            conversation_id=self._spec.conversation.id,
            message=message,
            status=status,
            reason=reason,
            reasoning=mapper.build_reasoning(),
            metrics=mapper.metrics.snapshot(usage.completion_tokens),
            context_window=self._context_usage(),
            usage=usage,
        )
        self.result = AgentResult(
            message=message.message,
            final=response.output_text,
            status=status,
            reason=reason,
            refusal=message.refusal,
            reasoning=completed.reasoning,
            response=response,
            usage=usage,
            tool_calls=self._tool_calls,
            items=items,
            conversation_id=completed.conversation_id,
            model=usage.model,
        )
        await self._emit(completed)
        return self.result

    async def _emit_failure(self, error: AntiphonError) -> None:
        """Emit the error, and save the rounds that were finished before it."""
        details = events.AgentErrorDetails(message=str(error))
        if isinstance(error, UpstreamError):
            details = replace(details, code=error.payload.code, recoverable=error.retryable)
        await self._emit(events.AgentFailed(conversation_id=self._spec.conversation.id, error=details))
        with suppress(AntiphonError):  # the first error is the one to raise
            await self._save(self._history.items_to_save())

    async def _save(self, items: list[Item]) -> None:
        """Add the items to the conversation, once."""
        # If saving fails half-way, the failure is emitted, which must not save again.
        if not self._saved:
            self._saved = True
            await self._spec.conversation.add(items)


def raise_if_cancelled() -> None:
    """Raise CancelledError if the task of the run was cancelled.

    While buffered events are processed the run never waits, so asyncio has no chance to raise it;
    and a callback of the caller may have swallowed it.
    """
    if is_cancelled():
        raise asyncio.CancelledError


def sum_usage(rounds: list[events.RoundUsage], model: str) -> events.AgentUsage:
    """Return the tokens of all rounds together."""
    return events.AgentUsage(
        model=model,
        prompt_tokens=sum(r.prompt_tokens for r in rounds),
        completion_tokens=sum(r.completion_tokens for r in rounds),
        total_tokens=sum(r.total_tokens for r in rounds),
        cached_input_tokens=sum(r.cached_input_tokens for r in rounds),
        reasoning_tokens=sum(r.reasoning_tokens for r in rounds),
        rounds=rounds,
    )
