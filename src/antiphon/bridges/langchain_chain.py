"""A chat model of LangChain, or a chain of runnables, as the function of an agent."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from antiphon.agents.turn import Turn
from antiphon.bridges.langchain_messages import MakeInput, MessageReader
from antiphon.bridges.langchain_run import TURN_KEY, RunMonitor, ServedTurn, encode_function, to_text
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from antiphon.protocol.tools import AllowedTools, FunctionToolChoice

MODEL_FIELDS = frozenset({"temperature", "top_p", "max_output_tokens", "stop"})
"""The fields of a request that every chat model of LangChain takes."""

CHAIN_FIELDS = frozenset({"max_output_tokens"})
"""The fields that hold for a chain and a graph: the server itself ends an answer that is too long."""


class Chain:
    """A chat model or a chain."""

    def __init__(self, runnable: Runnable[Any, Any], make_input: MakeInput) -> None:
        self._runnable = runnable
        self._make_input = make_input

    async def answer(self, turn: Turn) -> AsyncIterator[Part]:
        # Without a docstring, which would become the description of the agent.
        served = ServedTurn(turn)
        monitor, runnable, supported = RunMonitor(served), self._runnable, CHAIN_FIELDS
        if isinstance(runnable, BaseChatModel):
            served.offered = frozenset(function.name for function in turn.functions)
            runnable, supported = bind_request(runnable, turn), MODEL_FIELDS
        config: RunnableConfig = {"configurable": {TURN_KEY: served}, "callbacks": [monitor]}
        stream = cast("AsyncGenerator[Any]", runnable.astream(self._make_input(turn), config))
        with monitor.convert_errors():
            async with aclosing(stream):
                async for part in read_chunks(stream):
                    yield part
        yield monitor.count_tokens()
        for warning in served.warnings(supported, "a chain takes none."):
            yield warning
        if monitor.finish:
            yield monitor.finish


async def read_chunks(stream: AsyncIterator[Any]) -> AsyncIterator[Part]:
    """Yield the parts of what a runnable streams: texts, messages, or anything else, which is written as JSON."""
    reader = MessageReader()
    output: Any = None
    async for chunk in stream:
        if isinstance(chunk, str):
            yield parts.Text(chunk)
        elif isinstance(chunk, BaseMessage):
            for part in reader.read(chunk):
                yield part
        else:
            output = add_chunk(output, chunk)
    for part in reader.end():
        yield part
    if output is not None:
        yield parts.Text(to_text(output))


def bind_request(model: BaseChatModel, turn: Turn) -> Runnable[Any, Any]:
    """Return a chat model with the functions and the parameters of a request."""
    request = turn.request
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_output_tokens,
        "stop": request.stop,
    }
    arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not turn.functions:
        return model.bind(**arguments) if arguments else model
    match turn.tool_choice:
        case FunctionToolChoice(name=name):
            arguments["tool_choice"] = name
        case "required" | AllowedTools(mode="required"):
            arguments["tool_choice"] = "any"
        case _:
            pass
    return model.bind_tools([encode_function(function) for function in turn.functions], **arguments)


def add_chunk(output: Any, chunk: Any) -> Any:
    """Add a piece of an output to those before it, as LangChain does: some are added, others replace them."""
    if output is None:
        return chunk
    try:
        return output + chunk
    except TypeError:
        return chunk
