"""Agents of the OpenAI Agents SDK (`openai-agents`) as models.

    from agents import Agent
    from antiphon.bridges.openai_agents import wrap_agent

    assistant = wrap_agent(Agent(name="Assistant", instructions="Be brief."))

The SDK's stream holds the events of the agent's model, in OpenAI's dialect whichever model it is: the decoder of
`adapters.open_responses` reads them. The agent's own tools, handoffs and agents used as tools run here. The client's
functions are offered as tools that need an approval: a call of one interrupts the run, after the agent's own calls of
the same round. The server keeps the conversation, so a run needs no session.
"""

import asyncio
import copy
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, cast

import openai
import pydantic_core
from agents.agent import Agent as SdkAgent
from agents.agent_output import AgentOutputSchemaBase
from agents.handoffs import Handoff
from agents.items import HandoffOutputItem, ToolCallOutputItem
from agents.model_settings import ModelSettings
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.run import DEFAULT_MAX_TURNS, RunConfig, Runner
from agents.stream_events import RawResponsesStreamEvent, RunItemStreamEvent, StreamEvent
from agents.tool import FunctionTool as SdkTool
from agents.tracing import get_trace_provider
from agents.tracing.processors import default_processor
from msgspec.structs import replace
from openai.types.shared import Reasoning

from agents import exceptions, handoff
from antiphon.adapters.base import Decoder, Prompt, Provider
from antiphon.adapters.conversation import EMPTY_SCHEMA
from antiphon.adapters.open_responses.adapter import OpenResponses, encode_items
from antiphon.agents.agent import Agent, Turn
from antiphon.bridges.conversation import choose_name, client_functions, model_error, paired_items, unsupported_warnings
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import InputText, Message
from antiphon.protocol.parts import Part
from antiphon.protocol.request import (
    INCLUDE_ENCRYPTED_REASONING,
    INCLUDE_LOGPROBS,
    JsonSchemaFormat,
    OutputFormat,
    Request,
    TextFormat,
)
from antiphon.protocol.tools import AllowedTools, FunctionTool, FunctionToolChoice

SUPPORTED = frozenset(
    """temperature top_p max_output_tokens parallel_tool_calls reasoning text.format text.verbosity
    top_logprobs service_tier prompt_cache_key safety_identifier user""".split()
)
"""The fields of a request that reach the agent's model."""

SUPPORTED_IN_CHAT = SUPPORTED | {"presence_penalty", "frequency_penalty"}
"""Those that reach a model of the SDK that speaks Chat Completions."""

EXTRA_ARGUMENTS = ("service_tier", "prompt_cache_key", "safety_identifier", "user")
"""The fields that both of OpenAI's APIs have, but the SDK's settings do not."""

MakeContext = Callable[[Turn], object]
"""Makes the SDK's context of a run from its turn: what tools, instructions and guardrails receive."""

MODEL = OpenResponses(Provider(name="The agent's model", adapter="responses"))
"""The dialect of the SDK's events."""

EMPTY_PROMPT = Prompt(model="", request=Request(), items=())


def wrap_agent(
    agent: SdkAgent[Any],
    name: str | None = None,
    *,
    context: MakeContext | None = None,
    run_config: RunConfig | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> Agent:
    """Make a model of an agent; its name is the agent's own as one word, unless another is given.

    `context` makes the SDK's context from a turn. Without a `run_config`, traces are made only if the program has
    registered a trace processor of its own.
    """
    config = run_config or RunConfig(tracing_disabled=not has_own_trace_processor())

    async def answer(turn: Turn) -> AsyncIterator[Part]:
        for warning in unsupported_warnings(turn, supported_fields(agent)):
            yield warning
        run = AgentRun(turn, agent, config)
        with run.convert_errors():
            async with run.open(context(turn) if context else None, max_turns) as events:
                async for event in events:
                    for part in run.read(event):
                        yield part
            for part in run.end():
                yield part
        if run.finish:
            yield run.finish

    return Agent(
        choose_name(name, agent.name, "agent"),
        answer,
        description=agent.handoff_description,
        framework="openai-agents",
        counts_tokens=True,
    )


class AgentRun:
    """One run of an agent, and its stream as parts."""

    def __init__(self, turn: Turn, agent: SdkAgent[Any], config: RunConfig) -> None:
        self._turn = turn
        self._agent = agent
        self._config = config
        self._extended: dict[int, tuple[SdkAgent[Any], SdkAgent[Any]]] = {}
        """By its id, each agent of the run, and its copy with the turn's functions and output format."""
        self._decoder: Decoder = MODEL.decoder(EMPTY_PROMPT)
        self._round = 0
        """How many calls of the model have ended."""
        self._output_tokens = 0
        self._failure: parts.Failure | None = None
        """The error in the model's stream: the SDK's exception has only its text."""
        self.finish: parts.Finish | None = None
        """Why the model was cut short, if it was."""

    @asynccontextmanager
    async def open(self, context: object, max_turns: int | None) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """Start the run; give its events, and leave no task behind."""
        self._result = result = Runner.run_streamed(
            self._extend(self._agent),
            cast("Any", self._encode_input()),
            context=context,
            max_turns=max_turns,
            run_config=dataclasses.replace(self._config, model_settings=self._build_settings()),
        )
        try:
            async with aclosing(cast("AsyncGenerator[StreamEvent]", result.stream_events())) as events:
                try:
                    yield events
                finally:
                    # Before the events are closed: that would wait for the end of the run.
                    result.cancel()
        finally:
            if result.run_loop_task:
                await asyncio.wait([result.run_loop_task])

    def read(self, event: StreamEvent) -> Iterator[Part]:
        """Yield the parts of an event."""
        match event:
            case RawResponsesStreamEvent(data=data):
                yield from self._read_model_event(data.model_dump_json(exclude_unset=True, warnings=False))
            # The output of a tool, or of a handoff, which the model has called like a tool.
            case RunItemStreamEvent(item=ToolCallOutputItem() | HandoffOutputItem() as output):
                yield parts.Whole(LENIENT.read_item(dict(output.to_input_item())))
                yield self._count_usage()
            case _:
                pass

    def end(self) -> Iterator[Part]:
        """Yield what the end of the run adds to its events."""
        result = self._result
        # A tool's output may be the final output: then the model has not put it in words.
        if result.final_output is not None and isinstance(result.new_items[-1], ToolCallOutputItem):
            output = result.final_output
            yield parts.Text(output if isinstance(output, str) else pydantic_core.to_json(output).decode())
        yield self._count_usage()

    @contextmanager
    def convert_errors(self) -> Generator[None]:
        """Turn the SDK's exceptions, and those of its models, into ours."""
        try:
            yield
        except exceptions.ModelRefusalError:
            pass  # the refusal has been streamed
        except openai.APIStatusError as error:
            raise model_error(error.status_code, error.body or error.message, error.response.headers) from error
        except openai.APITimeoutError as error:
            raise model_error(504, error.message) from error
        except openai.APIError as error:
            raise self._failure_in_stream() or model_error(502, error.body or error.message) from error
        except exceptions.InputGuardrailTripwireTriggered as error:
            guardrail = error.guardrail_result.guardrail.get_name()
            message = f"The guardrail '{guardrail}' rejected the input."
            raise RequestError(message, param="input", code="content_filter") from error
        except exceptions.OutputGuardrailTripwireTriggered as error:
            guardrail = error.guardrail_result.guardrail.get_name()
            raise UpstreamError(f"The guardrail '{guardrail}' rejected the answer.", code="content_filter") from error
        except (
            exceptions.ToolInputGuardrailTripwireTriggered,
            exceptions.ToolOutputGuardrailTripwireTriggered,
        ) as error:
            message = f"The guardrail '{error.guardrail.get_name()}' rejected the use of a tool."
            raise UpstreamError(message, code="content_filter") from error
        except exceptions.AgentsException as error:
            # The model's stream has ended early: the run cannot go on, but this is no error.
            if not self.finish:
                raise self._failure_in_stream() or agent_error(error) from error

    def _failure_in_stream(self) -> UpstreamError | None:
        return self._failure and self._failure.exception

    def _encode_input(self) -> list[dict[str, object]]:
        items = paired_items(self._turn)
        if text := self._turn.instructions:
            # The agent's own instructions come before the conversation.
            items = [Message(role="system", content=[InputText(text=text)]), *items]
        return encode_items(items, reasoning=True, is_openai=False)

    def _build_settings(self) -> ModelSettings:
        """Return the settings of the run: what the client has set, then what the configuration has."""
        request, turn = self._turn.request, self._turn
        reasoning, extra = request.reasoning, {name: getattr(request, name) for name in EXTRA_ARGUMENTS}
        include = {INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS}.intersection(request.include)
        settings = ModelSettings(
            temperature=request.temperature,
            top_p=request.top_p,
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            max_tokens=request.max_output_tokens,
            tool_choice=convert_tool_choice(turn),
            parallel_tool_calls=None if request.parallel_tool_calls else False,
            # Not validated: the protocol knows an effort that the SDK may not.
            reasoning=reasoning and Reasoning.model_construct(effort=reasoning.effort, summary=reasoning.summary),
            verbosity=request.text.verbosity or None,
            top_logprobs=request.top_logprobs,
            response_include=sorted(include) or None,
            # Otherwise most chat servers do not count.
            include_usage=True if self._agent.model_settings.include_usage is None else None,
            extra_args={name: value for name, value in extra.items() if value not in (None, "default")} or None,
        )
        return self._config.model_settings.resolve(settings) if self._config.model_settings else settings

    def _extend(self, agent: SdkAgent[Any]) -> SdkAgent[Any]:
        """Return an agent that has the client's functions too, and the output format if it has none of its own."""
        known = self._extended.get(id(agent))
        if known is None:
            functions = client_functions(self._turn, {tool.name for tool in agent.tools})
            copied = agent.clone(
                tools=[*agent.tools, *map(convert_function, functions)],
                handoffs=[self._extend_handoff(one) for one in agent.handoffs],
                output_type=agent.output_type or convert_format(self._turn.request.text.format),
            )
            known = self._extended[id(agent)] = agent, copied
        return known[1]

    def _extend_handoff(self, target: SdkAgent[Any] | Handoff[Any, Any]) -> Handoff[Any, Any]:
        """Return a handoff to the extended agent, which is made when the handoff takes place: agents form circles."""
        original = target if isinstance(target, Handoff) else handoff(target)

        async def invoke(context: Any, arguments: str) -> SdkAgent[Any]:
            return self._extend(await original.on_invoke_handoff(context, arguments))

        extended = copy.copy(original)
        extended.on_invoke_handoff = invoke
        return extended

    def _read_model_event(self, event: str) -> Iterator[Part]:
        if self._decoder.done:
            self._decoder = MODEL.decoder(EMPTY_PROMPT)
            self._round += 1
        for part in self._decoder.feed(b"data: " + event.encode() + b"\n\n"):
            match part:
                case parts.Failure():
                    self._failure = part  # the SDK raises it
                case parts.Usage():
                    self._add_output_tokens(part.output_tokens or 0)
                case parts.Finish(reason="length" | "content_filter"):
                    self.finish = part
                case parts.Finish() | parts.Warn(code="upstream_protocol"):
                    pass  # the run goes on; the SDK makes the events of a chat model itself, and some are odd
                case parts.Text() | parts.Refusal() | parts.Reasoning() | parts.Call() | parts.Annotation():
                    # Every round counts its items from 0.
                    yield replace(part, key=f"{self._round}.{part.key}") if self._round else part
                case _:
                    yield part

    def _add_output_tokens(self, count: int) -> None:
        """End the run with this round if all rounds have reached the limit; a chat model does not say that it has."""
        self._output_tokens += count
        limit = self._turn.request.max_output_tokens
        if limit and self._output_tokens >= limit:
            self.finish = self.finish or parts.Finish("length")
            self._result.cancel(mode="after_turn")

    def _count_usage(self) -> parts.Usage:
        usage = self._result.context_wrapper.usage
        if not usage.total_tokens:
            return parts.Usage()  # the model does not count: the server estimates
        return parts.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.input_tokens_details.cached_tokens,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        )


class RequestedOutput(AgentOutputSchemaBase):
    """The output format of a request, as the output type of an agent; the client checks the JSON itself."""

    def __init__(self, schema: dict[str, object], name: str, *, strict: bool) -> None:
        self._schema = schema
        self._name = name
        self._strict = strict

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return self._name

    def json_schema(self) -> dict[str, Any]:
        return self._schema

    def is_strict_json_schema(self) -> bool:
        return self._strict

    def validate_json(self, json_str: str) -> str:
        return json_str


def supported_fields(agent: SdkAgent[Any]) -> frozenset[str]:
    """Return the fields of a request that reach the agent's model."""
    supported = SUPPORTED_IN_CHAT if isinstance(agent.model, OpenAIChatCompletionsModel) else SUPPORTED
    # The output type of the agent wins over the format of the request.
    return supported - {"text.format"} if agent.output_type else supported


def convert_format(format: OutputFormat) -> RequestedOutput | None:
    """Return the output type for the format of a request; None for free text."""
    match format:
        case TextFormat():
            return None
        case JsonSchemaFormat(schema=dict() as schema):
            return RequestedOutput(schema, format.name, strict=format.strict)
        case _:
            return RequestedOutput({"type": "object"}, "response", strict=False)


def convert_function(function: FunctionTool) -> SdkTool:
    """Return a function of the client as a tool whose call interrupts the run."""

    async def invoke(_context: Any, _arguments: str) -> None:
        raise RuntimeError("a function of the client is never run here")

    tool = SdkTool(
        name=function.name,
        description=function.description or "",
        params_json_schema=function.parameters or dict(EMPTY_SCHEMA),
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=True,
    )
    # Afterwards: the constructor would change a strict schema, which is the client's.
    tool.strict_json_schema = bool(function.strict)
    return tool


def convert_tool_choice(turn: Turn) -> str | None:
    """Return the tool choice for the model's first call; afterwards the SDK resets it."""
    match turn.tool_choice:
        case FunctionToolChoice(name=name) if turn.functions:
            return name
        case "required" | AllowedTools(mode="required") if turn.functions:
            return "required"
        case _:
            return None


def agent_error(error: exceptions.AgentsException) -> UpstreamError:
    """Build the error for an exception of the SDK."""
    match error:
        case exceptions.MaxTurnsExceeded():
            code = "max_turns_exceeded"
        case exceptions.ModelTimeoutError() | exceptions.ToolTimeoutError():
            code = "timeout"
        case exceptions.MCPToolCancellationError():
            code = "tool_execution_failed"
        case _:
            code = "agent_error"
    is_models = isinstance(error, exceptions.ModelBehaviorError)
    status, type = (502, "model_error") if is_models else (504 if code == "timeout" else 500, "server_error")
    return UpstreamError(f"The agent failed: {error}", status=status, type=type, code=code)


def has_own_trace_processor() -> bool:
    """Tell whether the program has registered a trace processor; the SDK's own sends traces to OpenAI."""
    multi = getattr(get_trace_provider(), "_multi_processor", None)
    return list(getattr(multi, "_processors", ())) != [default_processor()]
