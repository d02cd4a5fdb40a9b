"""Xaibo's agents as models.

    agents = wrap_agents(xaibo)

Every agent of a `Xaibo` becomes a model, and each of its entry points, if there are several, a model `agent/entry`. A
turn instantiates the agent with three kinds of overrides: the conversation (`__conversation_history__`), a response
module that turns what the agent says into parts (`__response__`), and observers around its language models and tools.

An agent calls its own tools; their calls and outputs become items. The client's tools are offered to the language
models as well, and a call of one ends the turn. Anything else, such as reasoning, a module can give as a part:

    await self.response.respond_event(Reasoning("I see."))
"""

import asyncio
import base64
import json
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast
from uuid import uuid4

from xaibo import AgentConfig, ConfigOverrides, ExchangeConfig, Xaibo
from xaibo.core import Exchange
from xaibo.core.models import (
    FileAttachment,
    FileType,
    LLMFunctionCall,
    LLMMessage,
    LLMOptions,
    LLMResponse,
    LLMUsage,
    Response,
    Tool,
    ToolCallEvent,
    ToolResult,
    ToolResultEvent,
    UsageEvent,
)

from antiphon.agents.agent import DEFAULT_ENTRY, Agent, Function
from antiphon.agents.turn import Turn
from antiphon.bridges.frameworks import to_agent_name
from antiphon.bridges.xaibo_messages import Conversation, convert_tool
from antiphon.protocol import parts
from antiphon.protocol.items import ExtensionItem, FunctionCallOutput
from antiphon.protocol.struct import InvalidValueError, encode
from antiphon.protocol.tools import FunctionTool

HISTORY_ID, RESPONSE_ID = "__conversation_history__", "__response__"
HISTORY_PROTOCOL, LLM_PROTOCOL, TOOL_PROTOCOL = "ConversationHistoryProtocol", "LLMProtocol", "ToolProviderProtocol"

MAX_WAITING_PARTS = 64
"""How many parts an agent may be ahead of the client before it has to wait."""


def wrap_agents(xaibo: Xaibo) -> list[Agent]:
    """Return a model for every agent."""
    return [wrap_agent(xaibo, name) for name in xaibo.list_agents()]


def load_folder(path: Path | str) -> list[Agent]:
    """Return a model for every agent that a YAML file of a folder or its folders describes."""
    xaibo = Xaibo()
    files: dict[str, str] = {}
    for file, config in sorted(AgentConfig.load_directory(str(path)).items()):
        if files.setdefault(config.id, file) != file:
            raise InvalidValueError("", f"{files[config.id]} and {file} both describe the agent '{config.id}'.")
        xaibo.register_agent(config)
    return wrap_agents(xaibo)


def wrap_agent(xaibo: Xaibo, name: str) -> Agent:
    """Return a model for one agent; its configuration may change later, but not its entry points."""

    def answer_with(handler: str) -> Function:
        async def answer(turn: Turn) -> AsyncGenerator[object]:
            async for part in AgentRun(xaibo, name, turn).stream(handler):
                yield part

        return answer

    config = xaibo.get_agent_config(name)
    handlers = find_handlers(config)
    agent = Agent(to_agent_name(name), answer_with(handlers[0]), description=config.description, framework="xaibo")
    for handler in handlers if len(handlers) > 1 else ():
        agent.entry(handler)(answer_with(handler))
    return agent


def find_handlers(config: AgentConfig) -> list[str]:
    """Return the modules that handle text, the default one first."""
    entries = [exchange for exchange in config.exchange if exchange.module == DEFAULT_ENTRY]
    for_text = [exchange for exchange in entries if exchange.protocol == "TextMessageHandlerProtocol"]
    handlers = [id for exchange in for_text or entries for id in list_providers(exchange)]
    return list(dict.fromkeys(handlers)) or [DEFAULT_ENTRY]


def list_providers(exchange: ExchangeConfig) -> list[str]:
    return [exchange.provider] if isinstance(exchange.provider, str) else exchange.provider


class AgentRun:
    """One answer of a Xaibo agent."""

    def __init__(self, xaibo: Xaibo, name: str, turn: Turn) -> None:
        self._conversation = Conversation(turn)
        self._output = Output()
        observers: dict[str, Observer] = {}

        def observe(exchange: ExchangeConfig) -> ExchangeConfig:
            """Return the exchange with observers in front of its language models or tools."""
            ids: list[str] = []
            for provider in list_providers(exchange):
                ids.append(id := f"__observed__{exchange.protocol}__{provider}")
                if exchange.protocol == TOOL_PROTOCOL:
                    observers[id] = ToolObserver(provider, self._output)
                else:
                    observers[id] = LLMObserver(provider, self._output, turn, self._conversation)
            return exchange.model_copy(update={"provider": ids[0] if isinstance(exchange.provider, str) else ids})

        config = xaibo.get_agent_config(name)
        # A language model or tool provider in front of another is part of it: it is observed from outside only.
        inner = {m.id for m in config.modules if {LLM_PROTOCOL, TOOL_PROTOCOL} & set(m.provides or ())}
        declared = config.exchange
        # Instantiating an agent also adds to its configuration, which would grow with every turn.
        config.exchange = [
            observe(exchange)
            if exchange.protocol in (LLM_PROTOCOL, TOOL_PROTOCOL) and exchange.module not in inner
            else exchange
            for exchange in declared
            # An agent's own history would be that of all users, and a second provider beside ours.
            if exchange.protocol != HISTORY_PROTOCOL
        ]
        instances = {HISTORY_ID: self._conversation, RESPONSE_ID: self._output, **observers}
        history = ExchangeConfig(protocol=HISTORY_PROTOCOL, provider=HISTORY_ID)
        try:
            self._agent = xaibo.get_agent_with(name, ConfigOverrides(instances=instances, exchange=[history]))
        finally:
            config.exchange = declared
        for id, observer in observers.items():
            observer.connect(self._agent.exchange, id)

    async def stream(self, handler: str) -> AsyncGenerator[object]:
        """Yield what the agent says as it says it; leaving cancels the agent."""
        for warning in self._conversation.warnings:
            yield warning
        task = asyncio.create_task(self._handle_text(handler))
        try:
            async for part in self._output.read():
                yield part
            if task.done():
                task.result()  # raises what the agent raised
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # read, or asyncio would log it

    async def _handle_text(self, handler: str) -> None:
        try:
            await self._agent.handle_text(self._conversation.text, handler)
        finally:
            self._output.end()


class Output:
    """The module `__response__`: turns what an agent responds into parts and items."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._is_ended = False
        self._changed, self._has_room = asyncio.Event(), asyncio.Event()
        self._texts: list[str] = []
        self._attachments: list[FileAttachment] = []
        self._announced: list[ToolCallEvent] = []
        """Calls that the agent has reported and not executed yet."""
        self.requested_calls: list[LLMFunctionCall] = []
        """Calls of the agent's tools that its language models have made."""
        self.begun_calls: list[str] = []
        """The ids of calls that were added before the agent executes them."""
        self.client_must_act = False
        """Whether a tool of the client was called, so that the turn ends before the next call of a model."""
        self._reported, self._observed = TokenCount(), TokenCount()

    async def read(self) -> AsyncGenerator[object]:
        """Yield what was said, until the end."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            self._has_room.set()
            if self._is_ended:
                return
            self._changed.clear()
            await self._changed.wait()

    async def put(self, part: object) -> None:
        """Add a part; waits while the reader is too far behind."""
        self._waiting.append(part)
        self._changed.set()
        if len(self._waiting) > MAX_WAITING_PARTS:
            self._has_room.clear()
            await self._has_room.wait()

    def end(self) -> None:
        """Let the reader stop."""
        self._is_ended = True
        self._changed.set()

    async def end_turn(self) -> NoReturn:
        """End the turn; the agent is cancelled while it waits here."""
        self.end()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def get_response(self) -> Response:
        return Response(text="".join(self._texts), attachments=self._attachments)

    async def respond_text(self, response: str) -> None:
        self._texts.append(response)
        await self.put(response)

    async def respond_image(self, iolike: BinaryIO) -> None:
        await self._respond_attachment(FileAttachment(iolike, FileType.IMAGE))

    async def respond_audio(self, iolike: BinaryIO) -> None:
        await self._respond_attachment(FileAttachment(iolike, FileType.AUDIO))

    async def respond_file(self, iolike: BinaryIO) -> None:
        await self._respond_attachment(FileAttachment(iolike, FileType.FILE))

    async def _respond_attachment(self, attachment: FileAttachment) -> None:
        self._attachments.append(attachment)
        data = base64.b64encode(attachment.content.read()).decode()
        await self.put(ExtensionItem(type=f"xaibo:{attachment.type.value}", extra={"data": data}))

    async def respond(self, response: Response) -> None:
        if response.text is not None:
            await self.respond_text(response.text)
        for attachment in response.attachments:
            await self._respond_attachment(attachment)
        for event in response.events:
            await self.respond_event(event)

    async def respond_event(self, event: object) -> None:
        """Take an event of Xaibo's, or a part."""
        match event:
            case ToolCallEvent():
                self._announced.append(event)
                await self.begin_call(event.id, event.name, event.arguments)
            case ToolResultEvent():
                await self.add_result(event.id, describe_result(event))
            case UsageEvent():
                self._reported = self._reported.add(event)
                await self._put_usage()
            case _:
                await self.put(event)

    def begin_announced(self, name: str, arguments: object) -> bool:
        """Return whether the agent has reported this call itself, and will report its result."""
        found = next((call for call in self._announced if call.name == name and call.arguments == arguments), None)
        if found:
            self._announced.remove(found)
        return found is not None

    def find_call_id(self, name: str, arguments: object) -> str:
        """Return the id that the language model gave a call, or a new one."""
        calls = self.requested_calls
        found = next((call for call in calls if call.name == name and call.arguments == arguments), None)
        if found is None:
            return f"call_{uuid4().hex}"
        calls.remove(found)
        return found.id

    async def begin_call(self, call_id: str, name: str, arguments: object) -> None:
        """Add a call of the agent, unless it is there already."""
        if call_id in self.begun_calls:
            self.begun_calls.remove(call_id)
        else:
            await self.add_call(call_id, name, arguments)

    async def add_call(self, call_id: str, name: str, arguments: object) -> None:
        await self.put(parts.Call(name=name, arguments=encode(arguments).decode(), call_id=call_id, complete=True))

    async def add_result(self, call_id: str, output: str) -> None:
        await self.put(FunctionCallOutput(call_id=call_id, output=output))

    async def add_observed_usage(self, usage: LLMUsage) -> None:
        self._observed = self._observed.add(usage)
        await self._put_usage()

    async def _put_usage(self) -> None:
        # An agent may report what its models have counted, a part of it or nothing.
        count = max(self._reported, self._observed, key=sum)
        await self.put(parts.Usage(input_tokens=count.input, output_tokens=count.output))


class TokenCount(NamedTuple):
    """Tokens of several calls of a language model."""

    input: int = 0
    output: int = 0

    def add(self, usage: LLMUsage) -> "TokenCount":
        return TokenCount(self.input + usage.prompt_tokens, self.output + usage.completion_tokens)


def describe_result(result: ToolResult | ToolResultEvent) -> str:
    """Return what a tool returned as text."""
    if not result.success:
        return f"Error: {result.error}"
    return result.result if isinstance(result.result, str) else json.dumps(result.result, default=repr)


class Observer:
    """A module of the agent, with something done around its calls."""

    def __init__(self, module_id: str, output: Output) -> None:
        self._module_id = module_id
        self._output = output
        self._instance: object = None

    def connect(self, exchange: Exchange, own_id: str) -> None:
        """Find the module, which is instantiated after its observer."""
        self._instance = exchange.module_instances[self._module_id]
        # Xaibo's own proxy, which reports the calls to its event listeners.
        self._module = cast("Any", exchange.get_module(self._module_id, own_id))

    def __getattr__(self, name: str) -> object:
        return getattr(self._instance, name)


class LLMObserver(Observer):
    """A language model: it is also offered the client's tools, and its usage and the calls of those are passed on."""

    def __init__(self, module_id: str, output: Output, turn: Turn, conversation: Conversation) -> None:
        super().__init__(module_id, output)
        self._turn = turn
        self._conversation = conversation

    async def generate(self, messages: Sequence[LLMMessage], options: LLMOptions | None = None) -> LLMResponse:
        """Generate a response, without the calls of the client's tools; does not return if there is nothing else."""
        if self._output.client_must_act:
            await self._output.end_turn()
        options, client_names = self._add_options(options)
        response: LLMResponse = await self._module.generate(self._conversation.restore(messages), options)
        if response.usage:
            await self._output.add_observed_usage(response.usage)
        calls = response.tool_calls or []
        own = [call for call in calls if call.name not in client_names]
        self._output.requested_calls += own
        if len(own) < len(calls):
            self._output.client_must_act = True
            # All at once, in the order of the model; the agent begins its own later.
            for call in calls:
                await self._output.add_call(call.id, call.name, call.arguments)
            self._output.begun_calls += [call.id for call in own]
            if not own:
                await self._output.end_turn()
            return response.model_copy(update={"tool_calls": own})
        return response

    async def generate_stream(
        self, messages: Sequence[LLMMessage], options: LLMOptions | None = None
    ) -> AsyncGenerator[str]:
        """Stream a response; Xaibo's streams have neither calls nor usage."""
        options, _ = self._add_options(options)
        async for text in self._module.generate_stream(self._conversation.restore(messages), options):
            yield text

    def _add_options(self, options: LLMOptions | None) -> tuple[LLMOptions, set[str]]:
        """Return the options with those of the request, and the names of the client's tools."""
        options = options or LLMOptions()
        request = self._turn.request
        asked = {"temperature": request.temperature, "top_p": request.top_p}
        update: dict[str, object] = {name: value for name, value in asked.items() if value is not None}
        tools: list[FunctionTool] = []
        # Without functions the agent wants an answer now.
        if options.functions is not None:
            own = {tool.name for tool in options.functions}
            tools = [tool for tool in self._turn.functions if tool.name not in own]
            update["functions"] = [*options.functions, *map(convert_tool, tools)]
        return options.model_copy(update=update), {tool.name for tool in tools}


class ToolObserver(Observer):
    """A tool provider; the calls that its agent does not report itself are passed on."""

    async def list_tools(self) -> Sequence[Tool]:
        return await self._module.list_tools()

    async def execute_tool(self, tool_name: str, parameters: dict[str, Any]) -> ToolResult:
        """Execute a tool."""
        output = self._output
        if output.begin_announced(tool_name, parameters):
            return await self._module.execute_tool(tool_name, parameters)
        call_id = output.find_call_id(tool_name, parameters)
        await output.begin_call(call_id, tool_name, parameters)
        try:
            result: ToolResult = await self._module.execute_tool(tool_name, parameters)
        except Exception as error:
            await output.add_result(call_id, f"Error: {error}")
            raise
        await output.add_result(call_id, describe_result(result))
        return result
