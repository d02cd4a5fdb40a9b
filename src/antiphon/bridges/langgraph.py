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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from uuid import UUID, uuid4

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.language_models import BaseLanguageModel
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.outputs import ChatGeneration, LLMResult
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence
    from langchain_core.runnables.base import RunnableBindingBase
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.config import get_config
    from langgraph.errors import GraphDrained
    from langgraph.pregel import Pregel
    from langgraph.runtime import RunControl
    from langgraph.types import Command, Interrupt
except ImportError as error:
    message = "Serving a LangGraph agent needs LangGraph 1.2 or newer: pip install 'antiphon[langgraph]'"
    raise ImportError(f"{message} ({error})", name=error.name) from error

from msgspec import Struct

from antiphon.agents.agent import Agent
from antiphon.agents.turn import Turn
from antiphon.bridges.conversation import choose_name, client_functions, unsupported_warnings
from antiphon.bridges.langchain_messages import MessageReader, count_tokens, encode_conversation
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.tools import AllowedTools, FunctionTool, FunctionToolChoice

DEFAULT_NAME = "LangGraph"
"""The name that LangGraph gives to a graph without one."""

TURN_KEY = "antiphon_turn"
"""Where a node finds the turn: `config["configurable"]`."""

INTERRUPT = "interrupt"
"""The name of the function that an interrupt calls."""

INTERRUPT_ID = "interrupt_"
"""How the call_ids of interrupts begin; the id of the thread follows, and the number of the interrupt."""

MAX_INTERRUPTED_THREADS = 1000
"""How many interrupted threads of a graph its checkpointer keeps; the oldest are deleted."""

MODEL_ARGUMENTS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens", "stop": "stop"}
"""The fields of a request that every chat model of LangChain takes, and its names for them."""

GRAPH_FIELDS = frozenset({"max_output_tokens"})
"""The fields that hold for a graph: the server itself ends an answer that is too long."""

MakeInput = Callable[[Turn], object]
"""Makes the input of a runnable from a turn."""


class ServedTurn(Struct):
    """A turn, as the nodes of its graph see it."""

    turn: Turn
    offered: frozenset[str] = frozenset()
    """The names of the client's functions that a model has been offered."""


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
        graph = Graph(runnable, make_input, output_key, output_nodes, context)
        own_name = None if runnable.name == DEFAULT_NAME else runnable.name
        return Agent(choose_name(name, own_name, "agent"), graph.answer, framework="langgraph")
    for option, value in {"output_key": output_key, "output_nodes": output_nodes, "context": context}.items():
        if value is not None:
            raise InvalidValueError(option, "only a compiled graph has this option")
    own_name = getattr(runnable, "name", None)
    return Agent(choose_name(name, own_name, "agent"), Chain(runnable, make_input).answer, framework="langgraph")


def current_turn() -> Turn:
    """Return the turn that is being answered, for a node or a tool; raises RuntimeError anywhere else."""
    served = find_served_turn()
    if served is None:
        raise RuntimeError("there is no turn: this graph was not called by Antiphon.")
    return served.turn


def client_tools(own_tools: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the functions that the client offers in this turn, for `bind_tools`; none outside of Antiphon.

    The turn ends after a round in which the model calls one of them. Raises RequestError if one has the name of a tool
    of the agent.
    """
    served = find_served_turn()
    if served is None:
        return []
    functions = client_functions(served.turn, own_tools)
    served.offered = frozenset(function.name for function in functions)
    return [encode_function(function) for function in functions]


def find_served_turn() -> ServedTurn | None:
    """Return the turn of the node that is running; None outside of Antiphon."""
    try:
        config = get_config()
    except RuntimeError:  # outside of a runnable
        return None
    return config.get("configurable", {}).get(TURN_KEY)


def encode_function(function: FunctionTool) -> dict[str, Any]:
    """Return a function as every chat model of LangChain takes it."""
    described = {"name": function.name, "description": function.description or ""}
    described["parameters"] = function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": described | ({"strict": True} if function.strict else {})}


def find_input(runnable: Runnable[Any, Any]) -> MakeInput:
    """Return what makes the input of a runnable; raises InvalidValueError if that is not known."""
    first = find_first(runnable)
    if isinstance(first, BaseLanguageModel):
        return encode_messages
    schema = first.get_input_jsonschema()
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


def find_first(runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return the part of a runnable that takes its input."""
    while True:
        if isinstance(runnable, RunnableSequence):
            runnable = cast("Runnable[Any, Any]", runnable.first)
        elif isinstance(runnable, RunnableBindingBase):
            runnable = cast("Runnable[Any, Any]", runnable.bound)
        else:
            return runnable


def encode_messages(turn: Turn) -> list[BaseMessage]:
    """Return the instructions and the conversation of a turn as messages."""
    return encode_conversation(turn, skipped=INTERRUPT_ID)


class RunMonitor(BaseCallbackHandler):
    """Counts the tokens of all models of one run, and ends it when a call waits for the client."""

    # In the event loop and before the node goes on: otherwise the next node could start too early.
    run_inline = True

    def __init__(self, served: ServedTurn, control: RunControl) -> None:
        self.served = served
        self._control = control
        self.usages: list[UsageMetadata] = []
        self.client_call_ids = set[str]()
        self._own_call_ids = set[str]()
        """The calls beside one of the client whose outputs are still missing."""

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any) -> None:
        """Note the tokens and the calls of one model."""
        del run_id, parent_run_id
        for generation in (one for several in response.generations for one in several):
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                self._note_message(generation.message)

    def _note_message(self, message: AIMessage) -> None:
        if message.usage_metadata:
            self.usages.append(message.usage_metadata)
        calls = {call["id"] or "": call["name"] for call in message.tool_calls}
        of_client = {id for id, name in calls.items() if name in self.served.offered}
        if of_client:
            self.client_call_ids |= of_client
            self._own_call_ids |= calls.keys() - of_client
            self._drain()

    def note_output(self, call_id: str) -> None:
        """Note that a tool of the agent has ended."""
        self._own_call_ids.discard(call_id)
        if self.client_call_ids:
            self._drain()

    def _drain(self) -> None:
        # The tools of the agent still run, and then the graph stops before its next step.
        if not self._own_call_ids:
            self._control.request_drain()


class Graph:
    """A compiled graph as the function of an agent."""

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        make_input: MakeInput,
        output_key: str | None,
        output_nodes: Collection[str] | None,
        context: MakeInput | None,
    ) -> None:
        self._graph = graph
        self._make_input = make_input
        self.output_key = output_key
        self.output_nodes = None if output_nodes is None else frozenset(output_nodes)
        self._make_context = context
        saver = graph.checkpointer
        self._saver = saver if isinstance(saver, BaseCheckpointSaver) else None
        self._interrupted: OrderedDict[str, None] = OrderedDict()
        """The threads that wait for a client, the oldest first."""

    async def answer(self, turn: Turn) -> AsyncIterator[Part]:
        """Run the graph and yield the parts of its answer."""
        for warning in unsupported_warnings(turn, GRAPH_FIELDS):
            yield warning
        run = GraphRun(self, turn)
        resumed = find_interrupt_outputs(turn)
        thread = thread_of(resumed[0].call_id) if resumed else uuid4().hex
        config: RunnableConfig = {
            "configurable": {"thread_id": thread, TURN_KEY: run.monitor.served},
            "callbacks": [run.monitor],
        }
        graph_input = await self._resume(config, resumed) if resumed else self._make_input(turn)
        try:
            async with aclosing(self._open_stream(graph_input, config, run)) as stream:
                async for namespace, mode, data in stream:
                    for part in run.read(namespace, mode, data):
                        yield part
        except GraphDrained:
            pass  # a call waits for the client
        finally:
            await self._forget_thread(thread, interrupted=bool(run.interrupts))
        for part in run.end(thread, can_resume=self._saver is not None):
            yield part

    def _open_stream(
        self, graph_input: object, config: RunnableConfig, run: "GraphRun"
    ) -> AsyncGenerator[tuple[tuple[str, ...], str, Any]]:
        modes = ["messages", "custom", "updates"]
        stream = self._graph.astream(
            graph_input,
            config,
            context=self._make_context(run.turn) if self._make_context else None,
            stream_mode=cast("Any", [*modes, "values"] if self.output_key else modes),
            subgraphs=True,
            control=run.control,
            durability="exit" if self._saver else None,
        )
        return cast("AsyncGenerator[tuple[tuple[str, ...], str, Any]]", stream)

    async def _resume(self, config: RunnableConfig, outputs: Sequence[FunctionCallOutput]) -> Command[Any] | None:
        """Return the input that continues an interrupted graph; raises RequestError if there is none."""
        state = await self._graph.aget_state(config) if self._saver else None
        if state is None or not state.next:
            raise RequestError(
                f"The graph does not wait for the output of '{outputs[0].call_id}' any more. Ask it again.",
                param="input",
                code="interrupt_not_found",
            )
        answers = {number_of(output.call_id): decode_answer(output.text) for output in outputs}
        values = {one.id: answers[number] for number, one in enumerate(state.interrupts) if number in answers}
        # A graph that stops before a node, as compiled, has no interrupt to answer.
        return Command(resume=values) if values else None

    async def _forget_thread(self, thread: str, *, interrupted: bool) -> None:
        """Delete a thread that has ended, and the oldest of too many interrupted ones."""
        if self._saver is None:
            return
        ended = [thread]
        self._interrupted.pop(thread, None)
        if interrupted:
            self._interrupted[thread] = None
            ended = (
                [self._interrupted.popitem(last=False)[0]] if len(self._interrupted) > MAX_INTERRUPTED_THREADS else []
            )
        for one in ended:
            await self._saver.adelete_thread(one)


class GraphRun:
    """One run of a graph, and its stream as parts."""

    def __init__(self, graph: Graph, turn: Turn) -> None:
        self._graph = graph
        self.turn = turn
        self.control = RunControl()
        self.monitor = RunMonitor(ServedTurn(turn), self.control)
        self._reader = MessageReader(find_unanswered_calls(turn))
        self._counted = 0
        self._state: object = None
        self.interrupts: list[Interrupt] | None = None
        """The interrupts that the graph has stopped at; None if it has not stopped."""

    def read(self, namespace: tuple[str, ...], mode: str, data: Any) -> Iterator[Part]:
        """Yield the parts of one event of the stream."""
        match mode:
            case "messages":
                message, metadata = data
                yield from self._read_message(message, namespace, metadata)
            case "custom":
                yield parts.Extension("langgraph:custom", {"data": to_json_value(data)})
            case "values" if not namespace:
                self._state = data
            case "updates" if not namespace and "__interrupt__" in data:
                self.interrupts = [*(self.interrupts or ()), *data["__interrupt__"]]
            case _:
                pass
        if len(self.monitor.usages) > self._counted:
            self._counted = len(self.monitor.usages)
            yield count_tokens(self.monitor.usages)

    def _read_message(
        self, message: BaseMessage, namespace: tuple[str, ...], metadata: Mapping[str, Any]
    ) -> Iterator[Part]:
        if isinstance(message, ToolMessage):
            self.monitor.note_output(message.tool_call_id)
            if message.tool_call_id in self.monitor.client_call_ids:
                return  # the graph has no such tool, and says so; the client has
        path = {step.partition(":")[0] for step in namespace} | {metadata["langgraph_node"]}
        if self._graph.output_nodes is not None and path.isdisjoint(self._graph.output_nodes):
            return
        for part in self._reader.read(message, metadata["langgraph_checkpoint_ns"]):
            if self._graph.output_key is None or not isinstance(part, parts.Text | parts.Refusal | parts.Annotation):
                yield part

    def end(self, thread: str, *, can_resume: bool) -> Iterator[Part]:
        """Yield what the end of the run adds."""
        yield from self._reader.end()
        if self.interrupts is not None:
            yield from self._read_interrupts(self.interrupts, thread, can_resume)
        elif self._graph.output_key is not None and not self.monitor.client_call_ids:
            yield parts.Text(read_output(self._state, self._graph.output_key), key="output")
        elif not self._reader.has_output:
            message = "The graph has ended without a message. If its answer is elsewhere, name it with output_key."
            yield parts.Warn("no_output", message)
        if self.turn.functions and not self.monitor.served.offered:
            message = (
                f"The graph '{self.turn.model}' does not offer the client's tools to its model. In its code, "
                "add the middleware ClientTools to create_agent, or use client_tools() in the node."
            )
            yield parts.Warn("unsupported_tool", message, "tools")

    def _read_interrupts(self, interrupts: list[Interrupt], thread: str, can_resume: bool) -> Iterator[Part]:
        """Yield a call for each interrupt, or a failure if it could not be continued."""
        if not can_resume:
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


def find_unanswered_calls(turn: Turn) -> list[str]:
    """Return the call_ids of the conversation that have no output yet: a resumed graph gives them."""
    answered = {item.call_id for item in turn.items if isinstance(item, FunctionCallOutput)}
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


def thread_of(call_id: str) -> str:
    """Return the thread of an interrupt's call_id."""
    return call_id.removeprefix(INTERRUPT_ID).partition("_")[0]


def number_of(call_id: str) -> int:
    """Return the number of an interrupt in its thread."""
    number = call_id.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0


def decode_answer(text: str) -> object:
    """Return the answer to an interrupt: JSON, or any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_output(state: object, key: str) -> str:
    """Return the answer in the final state of a graph; raises KeyError if there is none."""
    value = cast("Mapping[str, object]", state)[key] if isinstance(state, Mapping) else state
    return to_text(value)


def to_text(value: object) -> str:
    """Return any output of a runnable as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseMessage):
        return value.text
    if isinstance(value, list) and value and isinstance(value[-1], BaseMessage):
        return value[-1].text
    return json.dumps(to_json_value(value), ensure_ascii=False)


def to_json_value(value: object) -> Any:
    """Return any value as JSON; what JSON cannot hold is written as text."""
    return json.loads(json.dumps(value, default=to_plain_value))


def to_plain_value(value: object) -> object:
    """Return a value that JSON cannot hold as one that it can."""
    dump = getattr(value, "model_dump", None)  # a pydantic model, as messages and documents are
    return dump(mode="json") if callable(dump) else str(value)


class Chain:
    """A chat model, or a chain of runnables, as the function of an agent."""

    def __init__(self, runnable: Runnable[Any, Any], make_input: MakeInput) -> None:
        self._runnable = runnable
        self._make_input = make_input

    async def answer(self, turn: Turn) -> AsyncIterator[Part]:
        """Run the chain and yield the parts of its answer."""
        is_model = isinstance(self._runnable, BaseChatModel)
        for warning in unsupported_warnings(turn, MODEL_ARGUMENTS.keys() if is_model else GRAPH_FIELDS):
            yield warning
        served = ServedTurn(turn)
        monitor, reader = RunMonitor(served, RunControl()), MessageReader(())
        runnable = bind_request(self._runnable, turn) if isinstance(self._runnable, BaseChatModel) else self._runnable
        config: RunnableConfig = {"configurable": {TURN_KEY: served}, "callbacks": [monitor]}
        output: Any = None
        stream = cast("AsyncGenerator[Any]", runnable.astream(self._make_input(turn), config))
        async with aclosing(stream):
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
        if monitor.usages:
            yield count_tokens(monitor.usages)
        if turn.functions and not (is_model or served.offered):
            message = f"'{turn.model}' is a chain, which does not take tools; the model does not know of them."
            yield parts.Warn("unsupported_tool", message, "tools")


def bind_request(model: BaseChatModel, turn: Turn) -> Runnable[Any, Any]:
    """Return a chat model with the functions and the parameters of a request."""
    arguments = {MODEL_ARGUMENTS[name]: getattr(turn.request, name) for name in MODEL_ARGUMENTS}
    given = {name: value for name, value in arguments.items() if value is not None}
    if not turn.functions:
        return model.bind(**given) if given else model
    match turn.tool_choice:
        case FunctionToolChoice(name=name):
            choice = name
        case "required" | AllowedTools(mode="required"):
            choice = "any"
        case _:
            choice = None
    return model.bind_tools([encode_function(function) for function in turn.functions], tool_choice=choice, **given)


def add_chunk(output: Any, chunk: Any) -> Any:
    """Add a piece of an output to those before it, as LangChain does: some are added, others replace them."""
    if output is None:
        return chunk
    try:
        return output + chunk
    except TypeError:
        return chunk
