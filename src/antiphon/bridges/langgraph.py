"""LangGraph's graphs and LangChain's runnables as models.

    graph = create_agent("openai:gpt-5", tools=[get_weather])
    assistant = wrap_agent(graph, "assistant")

What a chat model says in any node is streamed as it comes; the calls of tools and their outputs are items. What a node
writes with LangGraph's stream writer is an event `langgraph:custom`. The server keeps the conversation, so every run is
a thread of its own, and a checkpointer is needed only for interrupts.

An interrupt becomes a call of the function `interrupt`, whose arguments are the interrupt's value. The client continues
the graph with the output of that call, which `interrupt()` returns.

In a node, `current_turn()` returns the turn, and `client_tools()` the functions of the client, for `bind_tools`. An
agent of `create_agent` offers them with the middleware `bridges.langchain_tools.ClientTools`.
"""

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from uuid import uuid4

try:
    from langchain_core.language_models import BaseLanguageModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence
    from langchain_core.runnables.base import RunnableBindingBase
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.errors import GraphDrained
    from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.runtime import RunControl
    from langgraph.types import Command, Interrupt
    from pydantic import PydanticUserError
except ImportError as error:
    message = "Serving a LangGraph agent needs LangGraph 1.2 or newer: pip install 'antiphon[langgraph]'"
    raise ImportError(f"{message} ({error})", name=error.name) from error

from antiphon.agents.agent import Agent
from antiphon.agents.turn import Turn
from antiphon.bridges.conversation import choose_name
from antiphon.bridges.langchain_chain import CHAIN_FIELDS, Chain
from antiphon.bridges.langchain_messages import MakeInput, MessageReader, encode_conversation
from antiphon.bridges.langchain_run import (
    TURN_KEY,
    RunMonitor,
    ServedTurn,
    client_tools,
    current_turn,
    to_json_value,
    to_text,
)
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import InvalidValueError

__all__ = ["client_tools", "current_turn", "wrap_agent"]

DEFAULT_NAME = "LangGraph"
"""The name that LangGraph gives to a graph without one."""

INTERRUPT = "interrupt"
"""The name of the function that an interrupt calls."""

INTERRUPT_ID = "interrupt_"
"""How the call_ids of interrupts begin; the id of the thread follows, and the number of the interrupt."""

MAX_INTERRUPTED_THREADS = 1000
"""How many interrupted threads of a graph its checkpointer keeps; the oldest are deleted."""

StreamEvent = tuple[tuple[str, ...], str, Any]
"""The namespace of a subgraph, the mode, and the data of that mode."""


def wrap_agent(
    runnable: Runnable[Any, Any],
    name: str | None = None,
    *,
    input: MakeInput | None = None,
    output_key: str | None = None,
    output_nodes: Collection[str] | None = None,
    context: MakeInput | None = None,
) -> Agent:
    """Make a model of a graph, a chain or a chat model.

    - `input` makes the input from a turn; by default `{"messages": [...]}`, the whole conversation.
    - `output_key`: the answer is this key of the final state, and not what the models say on the way.
    - `output_nodes`: only what these nodes say is shown, by default all nodes; a subgraph is named by its node.
    - `context` makes the context of a graph that has a `context_schema`.
    """
    make_input = input or find_input(runnable)
    if isinstance(runnable, Pregel):
        own_name = None if runnable.name == DEFAULT_NAME else runnable.name
        answer = Graph(runnable, make_input, output_key, output_nodes, context).answer
    else:
        for option, value in {"output_key": output_key, "output_nodes": output_nodes, "context": context}.items():
            if value is not None:
                raise InvalidValueError(option, "only a compiled graph has this option")
        own_name = cast("str | None", getattr(runnable, "name", None))
        answer = Chain(runnable, make_input).answer
    return Agent(choose_name(name, own_name, "agent"), answer, framework="langgraph")


def find_input(runnable: Runnable[Any, Any]) -> MakeInput:
    """Return what makes the input of a runnable; raises InvalidValueError if that is not known."""
    first = find_first(runnable)
    if isinstance(first, BaseLanguageModel):
        return encode_messages
    schema = find_input_schema(first)
    if "messages" in schema.get("properties", ()):
        return lambda turn: {"messages": encode_messages(turn)}
    if schema.get("type") == "array":
        return encode_messages
    names = ", ".join(f"'{name}'" for name in schema.get("properties", ())) or "something else"
    raise InvalidValueError(
        "input",
        f"this {type(first).__name__} does not take 'messages' but {names}. "
        "Say how its input is made: wrap_agent(…, input=lambda turn: {'question': turn.text})",
    )


def find_input_schema(runnable: Runnable[Any, Any]) -> Mapping[str, Any]:
    """Return the JSON Schema of a runnable's input as far as it is needed: the type, and the names of properties."""
    if isinstance(runnable, CompiledStateGraph):
        builder: Any = cast("Any", runnable).builder
        return {"properties": builder.schemas[builder.input_schema]}
    try:
        return runnable.get_input_jsonschema()
    except PydanticUserError:  # a type that pydantic cannot describe
        return {}


def find_first(runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return the part of a runnable that takes its input."""
    while True:
        if isinstance(runnable, RunnableSequence):
            runnable = runnable.first
        elif isinstance(runnable, RunnableBindingBase):
            runnable = runnable.bound
        else:
            return runnable


def encode_messages(turn: Turn) -> list[BaseMessage]:
    """Return the instructions and the conversation of a turn as messages."""
    return encode_conversation(turn, skipped=INTERRUPT_ID)


class Graph:
    """A compiled graph."""

    def __init__(
        self,
        graph: Any,
        make_input: MakeInput,
        output_key: str | None,
        output_nodes: Collection[str] | None,
        context: MakeInput | None,
    ) -> None:
        self._graph = graph
        self._make_input = make_input
        self._make_context = context
        self.output_key = output_key
        self.output_nodes = None if output_nodes is None else frozenset(output_nodes)
        saver: object = graph.checkpointer
        self.saver = cast("BaseCheckpointSaver[Any]", saver) if isinstance(saver, BaseCheckpointSaver) else None
        self._interrupted: OrderedDict[str, None] = OrderedDict()
        """The threads that wait for a client, the oldest first."""

    async def answer(self, turn: Turn) -> AsyncIterator[Part]:
        # Without a docstring, which would become the description of the agent.
        run, outputs = GraphRun(self, turn), find_interrupt_outputs(turn)
        thread = read_interrupt_id(outputs[0].call_id)[0] if outputs else uuid4().hex
        config: RunnableConfig = {
            "configurable": {"thread_id": thread, TURN_KEY: run.served},
            "callbacks": [run.monitor],
        }
        try:
            graph_input = await self._resume(config, outputs) if outputs else self._make_input(turn)
            with run.monitor.convert_errors():
                async with aclosing(self._open_stream(graph_input, config, run)) as stream:
                    async for namespace, mode, data in stream:
                        for part in run.read(namespace, mode, data):
                            yield part
        except GraphDrained:
            pass  # a call waits for the client
        finally:
            await self._forget_thread(thread, interrupted=run.interrupts is not None)
        for part in run.end(thread):
            yield part

    def _open_stream(self, graph_input: object, config: RunnableConfig, run: "GraphRun") -> AsyncGenerator[StreamEvent]:
        modes = ["messages", "custom", "updates"]
        return self._graph.astream(
            graph_input,
            config,
            context=self._make_context(run.turn) if self._make_context else None,
            stream_mode=[*modes, "values"] if self.output_key else modes,
            subgraphs=True,
            control=run.control,
            durability="exit" if self.saver else None,
        )

    async def _resume(self, config: RunnableConfig, outputs: Sequence[FunctionCallOutput]) -> Command[Any] | None:
        """Return the input that continues an interrupted graph; raises RequestError if there is none."""
        state = await self._graph.aget_state(config) if self.saver else None
        if state is None or not state.next:
            raise RequestError(
                f"The graph does not wait for the output of '{outputs[0].call_id}' any more. Ask it again.",
                param="input",
                code="interrupt_not_found",
            )
        answers = {read_interrupt_id(output.call_id)[1]: decode_answer(output.text) for output in outputs}
        values = {one.id: answers[number] for number, one in enumerate(state.interrupts) if number in answers}
        # A graph that was compiled to stop before a node has no interrupt to answer.
        return Command(resume=values) if values else None

    async def _forget_thread(self, thread: str, *, interrupted: bool) -> None:
        """Delete a thread that has ended, or the oldest of too many interrupted ones."""
        if self.saver is None:
            return
        self._interrupted.pop(thread, None)
        if not interrupted:
            await self.saver.adelete_thread(thread)
            return
        self._interrupted[thread] = None
        if len(self._interrupted) > MAX_INTERRUPTED_THREADS:
            await self.saver.adelete_thread(self._interrupted.popitem(last=False)[0])


class GraphRun:
    """One run of a graph, and its stream as parts."""

    def __init__(self, graph: Graph, turn: Turn) -> None:
        self._graph = graph
        self.turn = turn
        self.served = ServedTurn(turn)
        self.control = RunControl()
        self.monitor = RunMonitor(self.served, self.control)
        self._reader = MessageReader(find_unanswered_calls(turn))
        self._counted = 0
        self._state: object = None
        self.interrupts: list[Interrupt] | None = None
        """The interrupts that the graph has stopped at; None if it has not stopped."""

    def read(self, namespace: tuple[str, ...], mode: str, data: Any) -> Iterator[Part]:
        """Yield the parts of one event of the stream."""
        match mode:
            case "messages":
                yield from self._read_message(namespace, *data)
            case "custom":
                yield parts.Extension("langgraph:custom", {"data": to_json_value(data)})
            case "values" if not namespace:
                self._state = data
            case "updates" if not namespace and "__interrupt__" in data:
                self.interrupts = [*(self.interrupts or ()), *data["__interrupt__"]]
            case "updates":
                yield from self._read_short_messages(namespace, data)
            case _:
                pass
        if len(self.monitor.usages) > self._counted:
            self._counted = len(self.monitor.usages)
            yield self.monitor.count_tokens()

    def _read_short_messages(self, namespace: tuple[str, ...], updates: Mapping[str, object]) -> Iterator[Part]:
        """Yield what nodes return as `("ai", "text")` or as a dict: the stream of messages leaves them out."""
        for node, update in updates.items():
            found = cast("Mapping[str, object]", update).get("messages") if isinstance(update, Mapping) else None
            values = cast("list[object]", found) if isinstance(found, list) else [found]
            short = [cast("Any", value) for value in values if isinstance(value, tuple | dict)]
            for message in convert_to_messages(short):
                if isinstance(message, AIMessage | ToolMessage):
                    metadata = {"langgraph_node": node, "langgraph_checkpoint_ns": f"{node} {id(message)}"}
                    yield from self._read_message(namespace, message, metadata)

    def _read_message(
        self, namespace: tuple[str, ...], message: BaseMessage, metadata: Mapping[str, Any]
    ) -> Iterator[Part]:
        if isinstance(message, ToolMessage):
            self.monitor.note_output(message.tool_call_id)
            if message.tool_call_id in self.monitor.client_call_ids:
                return  # the graph says that it has no such tool; the client has
        path = {step.partition(":")[0] for step in namespace} | {metadata["langgraph_node"]}
        if self._graph.output_nodes is not None and path.isdisjoint(self._graph.output_nodes):
            return
        for part in self._reader.read(message, metadata["langgraph_checkpoint_ns"]):
            if self._graph.output_key is None or not isinstance(part, parts.Text | parts.Refusal | parts.Annotation):
                yield part

    def end(self, thread: str) -> Iterator[Part]:
        """Yield what the end of the run adds."""
        yield from self._reader.end()
        yield self.monitor.count_tokens()
        advice = "give create_agent the middleware ClientTools, or call client_tools() in the node."
        yield from self.served.warnings(CHAIN_FIELDS, advice)
        if self.interrupts is not None:
            yield from self._read_interrupts(self.interrupts, thread)
        elif self.monitor.client_call_ids:
            yield parts.Finish("tool_calls")
        elif self._graph.output_key is not None:
            yield parts.Text(read_output(self._state, self._graph.output_key), key="output")
        elif not self._reader.has_output:
            message = "The graph has ended without a message. If its answer is elsewhere, name it with output_key."
            yield parts.Warn("no_output", message)
        if self.monitor.finish:
            yield self.monitor.finish

    def _read_interrupts(self, interrupts: list[Interrupt], thread: str) -> Iterator[Part]:
        """Yield a call for each interrupt, or a failure if the graph could not be continued."""
        if self._graph.saver is None:
            message = "The graph stopped at an interrupt and cannot be continued. Compile it with a checkpointer."
            yield parts.Failure(ErrorPayload(message=message, type="server_error", code="server_error"), 500)
            return
        for number, value in enumerate([one.value for one in interrupts] or [{}]):
            arguments = to_json_value(value)
            yield parts.Call(
                key=f"{INTERRUPT} {number}",
                name=INTERRUPT,
                arguments=json.dumps(arguments if isinstance(arguments, dict) else {"value": arguments}),
                call_id=f"{INTERRUPT_ID}{thread}_{number}",
                complete=True,
            )
        yield parts.Finish("tool_calls")


def find_unanswered_calls(turn: Turn) -> list[str]:
    """Return the call_ids of the conversation that have no output yet: a resumed graph gives them."""
    # An incomplete output is the server's own, and says that there is none.
    outputs = (item for item in turn.items if isinstance(item, FunctionCallOutput) and item.status != "incomplete")
    answered = {item.call_id for item in outputs}
    return [item.call_id for item in turn.items if isinstance(item, FunctionCall) and item.call_id not in answered]


def find_interrupt_outputs(turn: Turn) -> list[FunctionCallOutput]:
    """Return the outputs of interrupts at the end of the conversation."""
    found: list[FunctionCallOutput] = []
    for item in reversed(turn.items):
        if not isinstance(item, FunctionCallOutput):
            break
        if item.call_id.startswith(INTERRUPT_ID):
            found.append(item)
    return found


def read_interrupt_id(call_id: str) -> tuple[str, int]:
    """Return the thread of an interrupt, and its number there."""
    thread, _, number = call_id.removeprefix(INTERRUPT_ID).partition("_")
    return thread, int(number) if number.isdecimal() else 0


def decode_answer(text: str) -> object:
    """Return the answer to an interrupt: JSON, or any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_output(state: object, key: str) -> str:
    """Return the answer in the final state of a graph; raises KeyError if there is none."""
    return to_text(cast("Mapping[str, object]", state)[key] if isinstance(state, Mapping) else state)
