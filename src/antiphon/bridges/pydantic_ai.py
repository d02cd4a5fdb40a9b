"""Agents of pydantic-ai as models.

    from pydantic_ai import Agent
    from antiphon.bridges.pydantic_ai import wrap_agent

    assistant = wrap_agent(Agent("openai:gpt-5.2", name="assistant", instructions="Be brief."))

The agent's own tools run here. The client's functions are offered as external tools: a call of one ends the run, after
the agent's own calls of the same round. The output of an agent with an output type is its JSON as text: what the model
writes is streamed, and what it gives as the arguments of an output tool comes when it has been validated.
"""

from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import pydantic_core
from pydantic_ai import exceptions
from pydantic_ai.agent import AbstractAgent, AgentRunEvents
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    AgentStreamEvent,
    DeferredToolRequestsEvent,
    FilePart,
    FunctionToolResultEvent,
    ModelResponse,
    ModelResponsePart,
    ModelResponsePartDelta,
    NativeToolCallPart,
    NativeToolReturnPart,
    OutputToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.output import StructuredDict
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

from antiphon.adapters.conversation import EMPTY_CONVERSATION, EMPTY_SCHEMA
from antiphon.agents.agent import Agent, Turn
from antiphon.bridges.conversation import (
    DEFAULTS,
    choose_name,
    client_functions,
    model_error,
    paired_items,
    read_field,
    unsupported_warnings,
)
from antiphon.bridges.pydantic_ai_messages import convert_items, convert_return, seal_thinking
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.items import ExtensionItem, FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.protocol.request import JsonSchemaFormat, ReasoningConfig, Request, TextFormat
from antiphon.protocol.tools import AllowedTools, FunctionTool, FunctionToolChoice

SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "reasoning": "thinking",
    "stop": "stop_sequences",
    "seed": "seed",
}
"""The fields of a request, and pydantic-ai's settings for them; a model tells which settings it ignores."""

OPENAI_SETTINGS = {
    "service_tier": "openai_service_tier",
    "prompt_cache_key": "openai_prompt_cache_key",
    "text.verbosity": "openai_text_verbosity",
    "user": "openai_user",
}
"""Those that only OpenAI's models have."""

MakeDeps = Callable[[Turn], object]
"""Makes the dependencies of a run from its turn."""


def wrap_agent(
    agent: AbstractAgent[Any, Any],
    name: str | None = None,
    *,
    deps: MakeDeps | None = None,
    usage_limits: UsageLimits | None = None,
) -> Agent:
    """Make a model of an agent; its name is the agent's own as one word, unless another is given.

    `deps` makes the agent's dependencies from a turn.
    """

    async def answer(turn: Turn) -> AsyncIterator[Part]:
        for warning in unsupported_warnings(turn, supported_fields(agent)):
            yield warning
        run = AgentRun(turn)
        run_deps = deps(turn) if deps else None
        functions = client_functions(turn, own_tool_names(agent))
        messages = convert_items(paired_items(turn), await agent.system_prompt_parts(deps=run_deps))
        if not messages or isinstance(messages[-1], ModelResponse):
            raise RequestError(EMPTY_CONVERSATION, param="input")
        with run.convert_errors():
            async with agent.run_stream_events(
                message_history=messages,
                instructions=turn.instructions,
                deps=run_deps,
                output_type=cast("Any", choose_output_type(agent, turn)),
                model_settings=convert_settings(turn.request, supported_fields(agent)),
                usage_limits=limit_usage(usage_limits, turn.request.max_output_tokens),
                toolsets=[ExternalToolset(list(map(convert_function, functions)))] if functions else None,
                capabilities=[TurnCapability(turn, run.output_tools)],
                infer_name=False,
            ) as events:
                run.events = events
                async for event in events:
                    for part in run.read(event):
                        yield part
                    if run.ended:
                        break
        for part in run.end():
            yield part

    return Agent(
        choose_name(name, agent.name, "agent"),
        answer,
        description=description if isinstance(description := agent.description, str) else None,
        framework="pydantic-ai",
        counts_tokens=True,
    )


class AgentRun:
    """One run of an agent, and its stream as parts."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.output_tools: set[str] = set()
        """The tools whose arguments are the output."""
        self.events: AgentRunEvents[Any] | None = None
        self.ended = False
        """Whether the client is to run a function."""
        self._finish: parts.Finish | None = None
        self._round = 0
        self._index = -1
        """Of the last part of the model's answer."""
        self._output_keys: set[str] = set()
        """The keys of calls of output tools."""
        self._has_output_tool_result = False
        self._refusal = ""

    def read(self, event: AgentStreamEvent | AgentRunResultEvent[Any]) -> Iterator[Part]:
        """Yield the parts of an event."""
        match event:
            case PartStartEvent(index=index, part=part):
                # Every answer of the model counts its parts from 0.
                self._round += index <= self._index
                self._index = index
                yield from self._start(self._key(index), part)
            case PartDeltaEvent(index=index, delta=delta):
                yield from self._extend(self._key(index), delta)
            case PartEndEvent(index=index, part=part):
                yield from self._end(self._key(index), part)
            case FunctionToolResultEvent(part=part):
                yield parts.Whole(FunctionCallOutput(call_id=part.tool_call_id, output=convert_return(part)))
                yield self._count_usage()
            case OutputToolResultEvent(part=part):
                self._has_output_tool_result = part.outcome == "success"
            case DeferredToolRequestsEvent(requests=requests):
                offered = {tool.name for tool in self._turn.functions}
                self.ended = any(call.tool_name in offered for call in requests.calls)
            case AgentRunResultEvent(result=result):
                if self._has_output_tool_result:
                    output = result.output
                    yield parts.Text(output if isinstance(output, str) else pydantic_core.to_json(output).decode())
            case _:
                pass

    def end(self) -> Iterator[Part]:
        """Yield what the end of the run adds to its events."""
        if self._refusal:
            yield parts.Refusal(self._refusal)
        yield self._count_usage()
        last = self._last_response()
        if last and last.finish_reason in ("length", "content_filter") and not self._refusal:
            self._finish = self._finish or parts.Finish(last.finish_reason)
        if self._finish:
            yield self._finish

    @contextmanager
    def convert_errors(self) -> Generator[None]:
        """Turn pydantic-ai's exceptions into ours."""
        try:
            yield
        except exceptions.ContentFilterError as error:
            last = self._last_response()
            self._refusal = str(((last and last.provider_details) or {}).get("refusal") or "")
            if not self._refusal:
                raise UpstreamError(f"The agent failed: {error.message}", code="content_filter") from error
        except exceptions.IncompleteToolCall:
            self._finish = parts.Finish("length")
        except exceptions.UsageLimitExceeded as error:
            limit = self._turn.request.max_output_tokens
            if not (limit and self.events and self.events.usage.output_tokens >= limit):
                message = f"The agent failed: {error.message}"
                raise UpstreamError(message, status=500, type="server_error", code="usage_limit_exceeded") from error
            self._finish = parts.Finish("length")
        except exceptions.AgentRunError as error:
            raise agent_error(error) from error
        except exceptions.FallbackExceptionGroup as error:
            # Of the models that were tried: the last one was the last resort.
            last = error.exceptions[-1]
            known = isinstance(last, exceptions.AgentRunError)
            raise (agent_error(last) if known else model_error(502, str(last))) from error

    def _last_response(self) -> ModelResponse | None:
        messages = self.events.new_messages() if self.events else []
        return next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)

    def _count_usage(self) -> parts.Usage:
        usage = self.events.usage if self.events else None
        if not (usage and usage.total_tokens):
            return parts.Usage()  # the model does not count: the server estimates
        return parts.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_tokens,
            reasoning_tokens=usage.details.get("reasoning_tokens"),
        )

    def _key(self, index: int) -> str:
        return f"{self._round}.{index}"

    def _start(self, key: str, part: ModelResponsePart) -> Iterator[Part]:
        match part:
            case TextPart():
                yield parts.Text(part.content, key)
            case ThinkingPart():
                yield parts.Reasoning(key=key, summary=part.content)
            case ToolCallPart() if part.tool_name in self.output_tools:
                self._output_keys.add(key)
            case ToolCallPart():
                arguments = part.args if isinstance(part.args, str) else ""
                yield parts.Call(key, part.tool_name, arguments, part.tool_call_id)
            # These come whole.
            case NativeToolReturnPart(tool_call_id=call_id, tool_name=name):
                output = part.model_response_str()
                yield parts.Whole(native_item("native_tool_call_output", call_id, name, output=output))
            case FilePart():
                message = f"The model made a file of the type '{part.content.media_type}'; it was left out."
                yield parts.Warn("unsupported_output", message)
            case _:
                pass

    def _extend(self, key: str, delta: ModelResponsePartDelta) -> Iterator[Part]:
        match delta:
            case TextPartDelta():
                yield parts.Text(delta.content_delta, key)
            case ThinkingPartDelta(content_delta=str() as text):
                yield parts.Reasoning(key=key, summary=text)
            case ToolCallPartDelta(args_delta=str() as text) if key not in self._output_keys:
                yield parts.Call(key, arguments=text)
            case _:
                pass

    def _end(self, key: str, part: ModelResponsePart) -> Iterator[Part]:
        match part:
            case ThinkingPart():
                # OpenAI's models keep raw reasoning apart from its summary, and do not stream it.
                raw = cast("list[str]", (part.provider_details or {}).get("raw_content") or [])
                yield parts.Reasoning("".join(raw), key, encrypted_content=seal_thinking(part))
            case ToolCallPart() if key not in self._output_keys:
                # Arguments that come as an object come whole.
                arguments = part.args_as_json_str() if isinstance(part.args, dict) else ""
                yield parts.Call(key, arguments=arguments, complete=True)
            case NativeToolCallPart(tool_call_id=call_id, tool_name=name):
                yield parts.Whole(native_item("native_tool_call", call_id, name, arguments=part.args_as_json_str()))
            case _:
                pass


@dataclass
class TurnCapability(AbstractCapability[Any]):
    """Applies the turn's tool choice to the first step, and finds out which tools are output tools."""

    turn: Turn
    output_tools: set[str]

    def get_model_settings(self) -> Callable[[RunContext[Any]], ModelSettings] | None:
        choice = convert_tool_choice(self.turn)
        if choice is None:
            return None
        forced, free = ModelSettings(tool_choice=choice), ModelSettings()
        return lambda context: forced if context.run_step <= 1 else free

    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        self.output_tools.update(tool.name for tool in tool_defs)
        return tool_defs


def native_item(kind: str, call_id: str, tool: str, **fields: str) -> ExtensionItem:
    """Return the item for a call, or its output, of a tool that the model's provider has run."""
    return ExtensionItem(type=f"pydantic_ai:{kind}", extra={"call_id": call_id, "name": tool, **fields})


def supported_fields(agent: AbstractAgent[Any, Any]) -> set[str]:
    """Return the fields of a request that reach the agent's model."""
    model = agent.model
    ignored = model.unsupported_settings if isinstance(model, Model) else frozenset[str]()
    supported = {name for name, setting in SETTINGS.items() if setting not in ignored}
    # The output type of the agent wins over the format of the request.
    supported |= {"text.format"} if agent.output_type is str else set[str]()
    is_openai = model.system == "openai" if isinstance(model, Model) else str(model).startswith("openai")
    return supported | set(OPENAI_SETTINGS) if is_openai else supported


def convert_settings(request: Request, supported: Collection[str]) -> ModelSettings:
    """Return what the client has set, as far as it is supported."""
    settings: dict[str, object] = {}
    for name, setting in (SETTINGS | OPENAI_SETTINGS).items():
        value = read_field(request, name)
        if name in supported and value != read_field(DEFAULTS, name):
            settings[setting] = value
    if request.reasoning and "reasoning" in supported:
        settings |= convert_reasoning(request.reasoning)
    return cast("ModelSettings", settings)


def convert_reasoning(reasoning: ReasoningConfig) -> dict[str, object]:
    """Return the settings for the reasoning; a model that is not OpenAI's makes no other summary."""
    settings: dict[str, object] = {"openai_reasoning_summary": reasoning.summary} if reasoning.summary else {}
    return settings | {"thinking": reasoning.effort != "none" and (reasoning.effort or True)}


def limit_usage(limits: UsageLimits | None, max_tokens: int | None) -> UsageLimits | None:
    """Return the limits of the agent and of the request."""
    if not max_tokens:
        return limits
    limits = limits or UsageLimits()
    # One less: a run goes on as long as it does not exceed its limit.
    most = max_tokens - 1
    return replace(limits, output_tokens_limit=min(limits.output_tokens_limit or most, most))


def choose_output_type(agent: AbstractAgent[Any, Any], turn: Turn) -> type[dict[str, object]] | None:
    """Return the output type for the format of the request, unless the agent has one; raises RequestError."""
    format = turn.request.text.format
    if isinstance(format, TextFormat) or agent.output_type is not str:
        return None
    schema = (format.schema if isinstance(format, JsonSchemaFormat) else None) or {"type": "object"}
    name = format.name if isinstance(format, JsonSchemaFormat) else None
    try:
        return StructuredDict(schema, name)
    except exceptions.UserError as error:
        raise RequestError(f"The agent cannot use this schema: {error.message}", param="text.format.schema") from error


def convert_function(function: FunctionTool) -> ToolDefinition:
    """Return a function of the client as the definition of an external tool."""
    return ToolDefinition(
        name=function.name,
        description=function.description,
        parameters_json_schema=function.parameters or dict(EMPTY_SCHEMA),
        strict=function.strict,
    )


def convert_tool_choice(turn: Turn) -> Literal["required"] | list[str] | None:
    """Return the tool choice for the model's first call."""
    match turn.tool_choice:
        case FunctionToolChoice(name=name) if turn.functions:
            return [name]
        case "required" | AllowedTools(mode="required") if turn.functions:
            return "required"
        case _:
            return None


def own_tool_names(agent: AbstractAgent[Any, Any]) -> set[str]:
    """Return the names of the agent's own tools, as far as they are known before it runs."""
    return {name for toolset in agent.toolsets if isinstance(toolset, FunctionToolset) for name in toolset.tools}


def agent_error(error: exceptions.AgentRunError) -> UpstreamError:
    """Build the error for an exception of pydantic-ai."""
    match error:
        case exceptions.ModelHTTPError():
            return model_error(error.status_code, error.body or error.message, error.headers)
        case exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout():
            return model_error(504, error.message)
        case exceptions.ModelAPIError():
            return model_error(502, error.body or error.message)
        case _:
            pass
    code, status, type = "agent_error", 500, "server_error"
    if isinstance(error, exceptions.UnexpectedModelBehavior):
        status, type = 502, "model_error"
    elif isinstance(error, exceptions.ConcurrencyLimitExceeded):
        code, status, type = "rate_limit_exceeded", 429, "too_many_requests"
    elif isinstance(error, exceptions.RunTimedOut):
        code, status = "timeout", 504
    return UpstreamError(f"The agent failed: {error.message}", status=status, type=type, code=code)
