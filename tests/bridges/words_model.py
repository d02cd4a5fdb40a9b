"""Chat models of LangChain: one that answers what a function says, word by word, and one that never ends."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field


class WordsModel(BaseChatModel):
    """Answers each conversation with what `answer` returns: a text, or a message with calls."""

    answer: Callable[[list[BaseMessage]], str | AIMessage]
    calls: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """The arguments of every call, such as `tools` and `temperature`."""
    finish: str = "stop"

    @property
    def _llm_type(self) -> str:
        return "words"

    def bind_tools(self, tools: Any, **arguments: Any) -> Runnable[Any, Any]:
        """Bind tools as they are."""
        return self.bind(tools=tools, **arguments)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **arguments: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, run_manager, **arguments))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **arguments: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.calls.append(arguments | ({"stop": stop} if stop else {}))
        answer = self.answer(messages)
        message = AIMessage(answer) if isinstance(answer, str) else answer
        pieces = [AIMessageChunk(content=word + " ") for word in message.text.split()]
        for index, call in enumerate(message.tool_calls):
            piece = {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
            pieces.append(AIMessageChunk(content="", tool_call_chunks=[piece]))  # pyright: ignore[reportArgumentType]
        usage: Any = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        pieces.append(
            AIMessageChunk(content="", usage_metadata=usage, response_metadata={"finish_reason": self.finish})
        )
        for piece in pieces:
            await asyncio.sleep(0)
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                await run_manager.on_llm_new_token(piece.text, chunk=chunk)
            yield chunk


class EndlessModel(BaseChatModel):
    """Answers in a thread, and never ends."""

    @property
    def _llm_type(self) -> str:
        return "endless"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        while True:
            time.sleep(0.005)
            chunk = ChatGenerationChunk(message=AIMessageChunk(content="more "))
            if run_manager:
                run_manager.on_llm_new_token("more ", chunk=chunk)
            yield chunk


def call_tool(name: str, id: str = "c1", **arguments: object) -> AIMessage:
    """Return a message with one call."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": id, "type": "tool_call"}])
