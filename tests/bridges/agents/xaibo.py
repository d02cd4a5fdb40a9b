"""`assistant` with Xaibo: an orchestrator whose model, unlike Xaibo's own, streams while it may call tools."""

import inspect
import os
from typing import Any

from openai.types.chat import ChatCompletionChunk
from xaibo import AgentConfig, ModuleConfig, Xaibo
from xaibo.core.models import LLMFunctionResult, LLMMessage, LLMOptions, LLMResponse, LLMRole, ToolResult
from xaibo.core.models.llm import LLMFunctionCall
from xaibo.core.protocols import (
    ConversationHistoryProtocol,
    LLMProtocol,
    ResponseProtocol,
    TextMessageHandlerProtocol,
    ToolProviderProtocol,
)
from xaibo.primitives.modules.llm import OpenAILLM
from xaibo.primitives.modules.tools import PythonToolProvider

from antiphon import Reasoning, Usage
from tests.bridges.agents.tools import PROMPT, choose_clothes, get_weather, work


class StreamingLLM(OpenAILLM):
    """Responds with the text and the reasoning as they come, and reports the usage with all details."""

    def __init__(self, response: ResponseProtocol, config: dict[str, Any] | None = None):
        super().__init__(config)
        self.response = response
        self.counts = [0, 0, 0, 0]

    async def generate(self, messages: list[LLMMessage], options: LLMOptions | None = None) -> LLMResponse:
        options = options or LLMOptions()
        arguments = self._prepare_request_kwargs(
            self._prepare_messages(messages), self._prepare_functions(options), options, stream=True
        )
        calls: dict[int, list[str]] = {}
        stream = await self.client.chat.completions.create(**arguments, stream_options={"include_usage": True})
        async with stream:
            async for chunk in stream:
                await self._count(chunk)
                delta = chunk.choices[0].delta if chunk.choices else None
                if delta and (reasoning := getattr(delta, "reasoning_content", None)):
                    await self.response.respond_event(Reasoning(summary=reasoning))
                if delta and delta.content:
                    await self.response.respond_text(delta.content)
                for call in (delta and delta.tool_calls) or ():
                    parts = calls.setdefault(call.index, ["", "", ""])
                    for place, piece in enumerate([call.id, call.function.name, call.function.arguments]):
                        parts[place] += piece or ""
        found = [
            LLMFunctionCall(id=id, name=name, arguments=self._parse_tool_arguments(text))
            for id, name, text in calls.values()
        ]
        return LLMResponse(content="", tool_calls=found)

    async def _count(self, chunk: ChatCompletionChunk) -> None:
        if usage := chunk.usage:
            cached, reasoning = usage.prompt_tokens_details, usage.completion_tokens_details
            counts = [
                usage.prompt_tokens,
                usage.completion_tokens,
                (cached and cached.cached_tokens) or 0,
                (reasoning and reasoning.reasoning_tokens) or 0,
            ]
            self.counts = [before + count for before, count in zip(self.counts, counts, strict=True)]
            await self.response.respond_event(Usage(*self.counts))


class AsyncTools(PythonToolProvider):
    """Python functions as tools by their own names, async ones included."""

    def _get_tool_name(self, fn: Any) -> str:
        return fn.__name__

    async def execute_tool(self, tool_name: str, parameters: dict[str, Any]) -> ToolResult:
        result = await super().execute_tool(tool_name, parameters)
        return ToolResult(success=True, result=await result.result) if inspect.isawaitable(result.result) else result


class ToolLoop(TextMessageHandlerProtocol):
    """Calls the model until it calls no tool."""

    def __init__(
        self,
        llm: LLMProtocol,
        tools: ToolProviderProtocol,
        history: ConversationHistoryProtocol,
        config: dict[str, Any] | None = None,
    ):
        self.llm, self.tools, self.history = llm, tools, history

    async def handle_text(self, text: str) -> None:
        messages = [LLMMessage.system(PROMPT), *await self.history.get_history(), LLMMessage.user(text)]
        options = LLMOptions(functions=await self.tools.list_tools())
        while calls := (await self.llm.generate(messages, options)).tool_calls:
            messages.append(LLMMessage(role=LLMRole.FUNCTION, tool_calls=calls))
            results = []
            for call in calls:
                result = await self.tools.execute_tool(call.name, call.arguments)
                results.append(LLMFunctionResult(id=call.id, name=call.name, content=str(result.result)))
            messages.append(LLMMessage(role=LLMRole.FUNCTION, tool_results=results))


modules = [
    ModuleConfig(
        id="llm", module=StreamingLLM, config={"model": "scripted", "base_url": os.environ["OPENAI_BASE_URL"]}
    ),
    ModuleConfig(id="tools", module=AsyncTools, config={"tool_functions": [get_weather, choose_clothes, work]}),
    ModuleConfig(id="loop", module=ToolLoop),
]
xaibo = Xaibo()
xaibo.register_agent(AgentConfig(id="assistant", modules=modules))
