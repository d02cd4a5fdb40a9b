"""LangGraph's graphs as models: nodes, subgraphs, custom events, interrupts, tools and checkpointers."""

import operator
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

import httpx
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import SecretStr

from antiphon.agents.agent import Agent, Turn, agent
from antiphon.bridges.langchain_tools import ClientTools
from antiphon.bridges.langgraph import client_tools, current_turn, wrap_agent
from antiphon.protocol.errors import RequestError
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.settings import Settings
from tests.bridges.cases import CLIENT_TOOLS, answer_calls, summarize, summarize_items
from tests.bridges.words_model import EndlessModel, WordsModel, call_tool
from tests.http_client import event_types, http_client, post_response, stream_events, wait_until
from tests.run_server import run_server
from tests.server.stateful_server import output_text

Json = dict[str, Any]
MessagesUpdate = dict[str, list[BaseMessage]]

HELLO = WordsModel(answer=lambda messages: f"Hello {messages[-1].text}")


class Served:
    """A server with one agent."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name

    def ask(self, input: object, **body: Any) -> Json:
        """Have a response made."""
        answer = post_response(self._url, model=self._name, input=input, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def fail(self, input: object, **body: Any) -> tuple[int, Json]:
        """Have a request rejected."""
        answer = post_response(self._url, model=self._name, input=input, **body)
        return answer.status_code, answer.json()["error"]

    def stream(self, input: object, **body: Any) -> list[Json]:
        """Have a response streamed."""
        return stream_events(self._url, model=self._name, input=input, **body)

    def read_a_delta(self, input: str) -> None:
        """Read a stream up to its first delta, and leave."""
        body = {"model": self._name, "input": input, "stream": True}
        with http_client(self._url) as http, http.stream("POST", "/v1/responses", json=body) as answer:
            next(chunk for chunk in answer.iter_text() if "response.output_text.delta" in chunk)


@contextmanager
def serve(runnable: Any, **options: Any) -> Iterator[Served]:
    """Serve a graph, or an agent that is wrapped already."""
    served = runnable if isinstance(runnable, Agent) else wrap_agent(runnable, "graph", **options)
    with run_server(Settings(agents=[served])) as url:
        yield Served(url, served.name)


def make_graph(*nodes: Any, state: Any = MessagesState, graph_name: str | None = None, **options: Any) -> Any:
    """Compile a graph whose nodes run one after the other."""
    graph = StateGraph(state)
    for node in nodes:
        graph.add_node(node.__name__, node)
    for before, after in zip([START, *(node.__name__ for node in nodes)], nodes, strict=False):
        graph.add_edge(before, after.__name__)
    return graph.compile(name=graph_name, **options)


async def greet(state: MessagesState) -> MessagesUpdate:
    """Answer with the model."""
    return {"messages": [await HELLO.ainvoke(state["messages"])]}


def messages_of(response: Json) -> list[str]:
    """Return the text of every message."""
    return [text for kind, text in summarize(response) if kind == "message"]


def test_a_node_may_call_a_model_twice() -> None:
    async def twice(state: MessagesState) -> MessagesUpdate:
        first = await HELLO.ainvoke("one")
        return {"messages": [first, await HELLO.ainvoke("two")]}

    with serve(make_graph(twice)) as served:
        response = served.ask("Hi")
    assert messages_of(response) == ["Hello one ", "Hello two "]
    assert response["usage"]["total_tokens"] == 30


def test_a_message_that_a_node_copies_is_shown_once() -> None:
    async def copy(state: MessagesState) -> MessagesUpdate:
        said = await HELLO.ainvoke(state["messages"])
        return {"messages": [AIMessage(said.text, name="copy")]}

    with serve(make_graph(copy)) as served:
        assert messages_of(served.ask("you")) == ["Hello you "]


def test_a_message_that_no_model_has_written_is_shown() -> None:
    def write(state: MessagesState) -> MessagesUpdate:
        return {"messages": [AIMessage("Written by hand.")]}

    with serve(make_graph(write)) as served:
        response = served.ask("Hi")
    assert messages_of(response) == ["Written by hand."]
    assert response["usage"]["total_tokens"] == 0


def test_parallel_nodes_have_a_message_each() -> None:
    class State(TypedDict):
        messages: Annotated[list[BaseMessage], operator.add]

    async def left(state: State) -> MessagesUpdate:
        return {"messages": [await HELLO.ainvoke("from the left side")]}

    async def right(state: State) -> MessagesUpdate:
        return {"messages": [await HELLO.ainvoke("from the right side")]}

    graph = StateGraph(State)
    graph.add_node("left", left)
    graph.add_node("right", right)
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    with serve(graph.compile()) as served:
        events = served.stream("Hi")
    assert sorted(messages_of(events[-1]["response"])) == ["Hello from the left side ", "Hello from the right side "]


def test_only_the_output_nodes_are_shown() -> None:
    async def classify(state: MessagesState) -> None:
        await HELLO.ainvoke("classifier")

    with serve(make_graph(classify, greet), output_nodes=["greet"]) as served:
        response = served.ask("you")
    assert messages_of(response) == ["Hello you "]
    assert response["usage"]["total_tokens"] == 30  # of both


def test_a_subgraph_is_shown_by_the_name_of_its_node() -> None:
    async def plan(state: MessagesState) -> None:
        await HELLO.ainvoke("planner")

    graph = StateGraph(MessagesState)
    graph.add_node("plan", plan)
    graph.add_node("team", make_graph(greet))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "team")
    compiled = graph.compile()
    with serve(compiled) as served:
        assert messages_of(served.ask("you")) == ["Hello planner ", "Hello you "]
    with serve(compiled, output_nodes=["team"]) as served:
        assert messages_of(served.ask("you")) == ["Hello you "]


def test_custom_data_are_events_where_they_are_written() -> None:
    def write(state: MessagesState) -> MessagesUpdate:
        writer = get_stream_writer()
        writer({"type": "progress", "percent": 50})
        writer(AIMessage("not JSON"))
        return {"messages": [AIMessage("Done.")]}

    with serve(make_graph(write)) as served:
        events = served.stream("Hi")
    custom = [event for event in events if event["type"] == "langgraph:custom"]
    assert custom[0]["data"] == {"type": "progress", "percent": 50}
    assert custom[1]["data"]["content"] == "not JSON"
    types = event_types(events)
    assert types.index("langgraph:custom") < types.index("response.output_item.added")


class Question(TypedDict, total=False):
    """A state without messages."""

    question: str
    answer: Any


async def find_answer(state: Question) -> Question:
    """Answer without a message."""
    said = await HELLO.ainvoke(state.get("question", ""))
    return {"answer": {"text": said.text, "sure": True}}


def test_a_graph_with_another_state_says_what_it_needs() -> None:
    with pytest.raises(
        InvalidValueError, match=r"does not take 'messages' but 'question', 'answer'. Say how its input"
    ):
        wrap_agent(make_graph(find_answer, state=Question))


def test_a_graph_with_another_state_streams_what_its_models_say() -> None:
    with serve(make_graph(find_answer, state=Question), input=lambda turn: {"question": turn.text}) as served:
        assert messages_of(served.ask("you")) == ["Hello you "]


def test_the_answer_may_be_a_key_of_the_state() -> None:
    graph = make_graph(find_answer, state=Question)
    with serve(graph, input=lambda turn: {"question": turn.text}, output_key="answer") as served:
        assert messages_of(served.ask("you")) == ['{"text": "Hello you ", "sure": true}']


@pytest.mark.parametrize("short", [("ai", "Hello"), {"role": "assistant", "content": "Hello"}])
def test_messages_in_short_form_are_shown(short: object) -> None:
    def say_hello(state: MessagesState) -> dict[str, object]:
        return {"messages": [short]}

    with serve(make_graph(say_hello)) as served:
        assert messages_of(served.ask("Hi")) == ["Hello"]


def test_a_graph_without_any_message_gives_a_warning() -> None:
    def say_nothing(state: MessagesState) -> None:
        pass

    with serve(make_graph(say_nothing)) as served:
        [warning] = served.ask("Hi")["antiphon:warnings"]
    assert warning["code"] == "no_output"


def test_a_workflow_of_the_functional_api_is_an_agent() -> None:
    @entrypoint()
    async def workflow(messages: list[BaseMessage]) -> str:
        return (await HELLO.ainvoke(messages)).text

    with serve(workflow) as served:
        assert messages_of(served.ask("you")) == ["Hello you "]
    with serve(workflow, output_key="answer") as served:
        assert messages_of(served.ask("you")) == ["Hello you "]


def test_the_context_of_a_graph_is_made_from_the_turn() -> None:
    class Context(TypedDict):
        user: str

    def write(state: MessagesState, runtime: Runtime[Context]) -> MessagesUpdate:
        return {"messages": [AIMessage(f"Hello {runtime.context['user']}")]}

    graph = StateGraph(MessagesState, context_schema=Context)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    with serve(graph.compile(), context=lambda turn: {"user": turn.metadata["user"]}) as served:
        assert output_text(served.ask("Hi", metadata={"user": "Ada"})) == "Hello Ada"


def test_a_node_may_read_the_turn() -> None:
    def write(state: MessagesState) -> MessagesUpdate:
        return {"messages": [AIMessage(f"It is {current_turn().request.temperature} degrees.")]}

    with serve(make_graph(write)) as served:
        # Without a warning: what of the request the graph obeys is its own business.
        assert messages_of(served.ask("Hi", temperature=0.5)) == ["It is 0.5 degrees."]
    with pytest.raises(RuntimeError, match="Antiphon has not called this code"):
        current_turn()


def test_parameters_that_a_graph_does_not_read_give_warnings() -> None:
    with serve(make_graph(greet)) as served:
        response = served.ask("you", temperature=0.5, max_output_tokens=1000)
    assert [(warning["code"], warning["param"]) for warning in response["antiphon:warnings"]] == [
        ("unsupported_parameter", "temperature")
    ]


def test_tools_that_a_graph_does_not_offer_give_a_warning() -> None:
    with serve(make_graph(greet)) as served:
        [warning] = served.ask("you", tools=CLIENT_TOOLS)["antiphon:warnings"]
    assert (warning["code"], warning["param"]) == ("unsupported_tool", "tools")
    assert "ClientTools" in warning["message"]


def test_a_tool_with_the_name_of_an_own_tool_is_an_error() -> None:
    def get_user() -> str:
        """Find the user."""
        return "Ada"

    graph = create_agent(HELLO, [get_user], middleware=[ClientTools()])
    with serve(graph) as served:
        status, error = served.fail("Hi", tools=CLIENT_TOOLS)
    assert (status, error["code"], error["param"]) == (400, "duplicate_tool", "tools[0].name")


def test_a_graph_called_by_others_has_no_client_tools() -> None:
    model = WordsModel(answer=lambda messages: "Hello", calls=[])
    graph = create_agent(model, [], middleware=[ClientTools()])

    @agent("caller")
    async def caller(turn: Turn) -> str:
        return (await graph.ainvoke({"messages": [HumanMessage(turn.text)]}))["messages"][-1].text

    with serve(caller) as served:
        assert output_text(served.ask("Hi", tools=CLIENT_TOOLS)) == "Hello "
    assert "tools" not in model.calls[0]


def test_a_client_tool_in_a_subgraph_ends_the_turn() -> None:
    def answer(messages: list[BaseMessage]) -> str | AIMessage:
        last = messages[-1]
        return f"You are {last.text}." if isinstance(last, ToolMessage) else call_tool("get_user")

    model = WordsModel(answer=answer, calls=[])

    async def call_model(state: MessagesState) -> MessagesUpdate:
        return {"messages": [await model.bind_tools(client_tools()).ainvoke(state["messages"])]}

    team = StateGraph(MessagesState)
    team.add_node("call_model", call_model)
    team.add_node("tools", ToolNode([]))
    team.add_edge(START, "call_model")
    team.add_conditional_edges("call_model", tools_condition)
    team.add_edge("tools", "call_model")
    graph = StateGraph(MessagesState)
    graph.add_node("team", team.compile())
    graph.add_node("greet", greet)
    graph.add_edge(START, "team")
    graph.add_edge("team", "greet")
    with serve(graph.compile()) as served:
        first = served.ask("Hi", tools=CLIENT_TOOLS)
        assert summarize(first) == [["call", "get_user", {}]]
        outputs = answer_calls(first, get_user="Ada")
        second = served.ask(outputs, tools=CLIENT_TOOLS, previous_response_id=first["id"])
    assert messages_of(second) == ["You are Ada. ", "Hello You are Ada. "]
    assert len(model.calls) == 2


def ask_person(state: MessagesState) -> MessagesUpdate:
    """Ask the person who uses the graph."""
    approved = interrupt({"question": "May I?"})
    return {"messages": [AIMessage(f"You said {approved!r}.")]}


def test_an_interrupt_is_a_call_and_its_output_continues_the_graph() -> None:
    saver = InMemorySaver()
    with serve(make_graph(greet, ask_person, checkpointer=saver)) as served:
        first = served.ask("you")
        assert summarize(first) == [["message", "Hello you "], ["call", "interrupt", {"question": "May I?"}]]
        output = {
            "type": "function_call_output",
            "call_id": first["output"][1]["call_id"],
            "output": '{"approved": true}',
        }
        second = served.ask([output], previous_response_id=first["id"])
        # The nodes before the interrupt have not run again.
        assert output_text(second) == "You said {'approved': True}."
        third = served.ask("and you", previous_response_id=second["id"])
        assert summarize(third)[-1] == ["call", "interrupt", {"question": "May I?"}]
        assert served.fail([output], previous_response_id=first["id"])[1]["code"] == "interrupt_not_found"
        assert len(saver.storage) == 1  # the thread of the third response


def test_several_interrupts_are_answered_by_their_calls() -> None:
    class State(TypedDict):
        messages: Annotated[list[BaseMessage], operator.add]

    def ask_left(state: State) -> MessagesUpdate:
        return {"messages": [AIMessage(f"Left {interrupt('left?')}.")]}

    def ask_right(state: State) -> MessagesUpdate:
        return {"messages": [AIMessage(f"Right {interrupt('right?')}.")]}

    graph = StateGraph(State)
    for node in (ask_left, ask_right):
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    with serve(graph.compile(checkpointer=InMemorySaver())) as served:
        first = served.ask("Hi")
        calls = {item["arguments"]: item["call_id"] for item in first["output"]}
        assert calls.keys() == {'{"value": "left?"}', '{"value": "right?"}'}
        outputs = [
            {"type": "function_call_output", "call_id": id, "output": value} for value, id in sorted(calls.items())
        ]
        second = served.ask(outputs[::-1], previous_response_id=first["id"])
    assert sorted(messages_of(second)) == ["Left {'value': 'left?'}.", "Right {'value': 'right?'}."]


def test_an_interrupt_without_a_checkpointer_is_a_failure_that_says_so() -> None:
    with serve(make_graph(ask_person)) as served:
        events = served.stream("Hi")
    assert events[-1]["type"] == "response.failed"
    assert "Compile it with a checkpointer." in events[-1]["response"]["error"]["message"]


def test_a_tool_that_needs_approval_runs_in_the_response_that_approves_it() -> None:
    def delete_file(path: str) -> str:
        """Delete a file."""
        return f"{path} is deleted"

    def answer(messages: list[BaseMessage]) -> str | AIMessage:
        last = messages[-1]
        return last.text if isinstance(last, ToolMessage) else call_tool("delete_file", path="a.txt")

    approval = HumanInTheLoopMiddleware(interrupt_on={"delete_file": True})
    graph = create_agent(WordsModel(answer=answer), [delete_file], middleware=[approval], checkpointer=InMemorySaver())
    with serve(graph) as served:
        first = served.ask("Delete it.")
        call, question = first["output"]
        assert summarize_items([call]) == [["call", "delete_file", {"path": "a.txt"}]]
        assert (question["name"], "delete_file" in question["arguments"]) == ("interrupt", True)
        assert "antiphon:warnings" not in first
        decision = '{"decisions": [{"type": "approve"}]}'
        output = {"type": "function_call_output", "call_id": question["call_id"], "output": decision}
        second = served.ask([output], previous_response_id=first["id"])
        assert summarize_items(second["output"]) == [["output", "a.txt is deleted"], ["message", "a.txt is deleted "]]
        assert second["output"][0]["call_id"] == call["call_id"]


def test_a_graph_that_stops_before_a_node_goes_on_when_told() -> None:
    def write(state: MessagesState) -> MessagesUpdate:
        return {"messages": [AIMessage("Done.")]}

    graph = make_graph(greet, write, checkpointer=InMemorySaver(), interrupt_before=["write"])
    with serve(graph) as served:
        first = served.ask("you")
        assert summarize(first)[-1] == ["call", "interrupt", {}]
        output = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "go on"}
        assert messages_of(served.ask([output], previous_response_id=first["id"])) == ["Done."]


def test_a_checkpointer_keeps_nothing_and_repeats_nothing() -> None:
    def count(state: MessagesState) -> MessagesUpdate:
        return {"messages": [AIMessage(" ".join(message.text for message in state["messages"]))]}

    saver = InMemorySaver()
    with serve(make_graph(count, checkpointer=saver)) as served:
        first = served.ask("one")
        assert output_text(first) == "one"
        assert output_text(served.ask("two", previous_response_id=first["id"])) == "one one two"
    assert not saver.storage


def test_instructions_come_first_and_the_callers_config_is_kept() -> None:
    seen: list[Any] = []

    def look(state: MessagesState, config: RunnableConfig) -> MessagesUpdate:
        seen.extend([state["messages"], config.get("metadata", {}).get("team")])
        return {"messages": [AIMessage("Seen.")]}

    graph = make_graph(look).with_config({"metadata": {"team": "blue"}})
    with serve(graph) as served:
        served.ask("Hi", instructions="Be brief.")
    [messages, team] = seen
    assert [(type(message), message.text) for message in messages[:1]] == [(SystemMessage, "Be brief.")]
    assert (len(messages), team) == (2, "blue")


def test_the_status_of_a_model_is_kept() -> None:
    @agent("busy")
    async def busy(turn: Turn) -> str:
        raise RequestError("Too many.", type="too_many_requests", code="rate_limit_exceeded").with_retry_after(7)

    # Nobody closes its connections in the loop that used them.
    http = httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0))
    with run_server(Settings(agents=[busy])) as url:
        address, key = f"{url}/openai/v1", SecretStr("none")
        model = ChatOpenAI(model="busy", base_url=address, api_key=key, max_retries=0, http_async_client=http)
        with serve(create_agent(model)) as served:
            status, error = served.fail("Hi")
    assert (status, error["code"]) == (429, "rate_limit_exceeded")
    assert "The agent's model failed: Too many." in error["message"]


def test_a_synchronous_node_that_is_cancelled_stops_its_model() -> None:
    ended: list[str] = []

    def count(state: MessagesState) -> MessagesUpdate:
        try:
            return {"messages": [EndlessModel().invoke(state["messages"])]}
        finally:
            ended.append("count")

    with serve(make_graph(count)) as served:
        served.read_a_delta("Hi")
        wait_until(lambda: ended == ["count"])


def test_an_answer_that_was_cut_short_is_incomplete() -> None:
    with serve(create_agent(WordsModel(answer=lambda messages: "Hello", finish="length"))) as served:
        response = served.ask("Hi")
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_a_graph_has_its_own_name_or_a_given_one() -> None:
    named = make_graph(greet, graph_name="Weather bot")
    assert [wrap_agent(named).name, wrap_agent(named, "meteo").name] == ["weather-bot", "meteo"]
    assert wrap_agent(make_graph(greet)).name == "agent"


def test_without_the_extra_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['langchain_core'] = None; import antiphon.bridges.langgraph"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "needs LangGraph 1.2 or newer: pip install 'antiphon[langgraph]'" in run.stderr
