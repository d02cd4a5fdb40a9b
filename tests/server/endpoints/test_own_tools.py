"""Agents that run tools of their own, at every door and with every client."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import OpenAI

from antiphon import tool
from antiphon.agents.agent import agent
from antiphon.agents.turn import Turn
from antiphon.client.agent.run import AgentOptions, run_agent, stream_agent
from antiphon.client.async_client import AsyncClient
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from antiphon.protocol.items import FunctionCall, FunctionCallOutput
from antiphon.server.settings import Settings
from tests.http_client import post_response, stream_events
from tests.run_server import run_server
from tests.spec.schema_checks import check_response
from tests.ws_client import ws_client

Json = dict[str, Any]

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@agent("worker")
async def worker(turn: Turn) -> AsyncIterator[object]:
    """Searches twice with the same call id, then calls the client's tool if there is one, and answers."""
    if turn.tool_outputs and turn.tool_outputs[-1].call_id.startswith("w"):
        yield f"It is {turn.tool_outputs[-1].text}."
        return
    for query in ("tea", "milk"):
        yield parts.Call("search", "search", '{"query":', "call_1")
        yield parts.Call("search", arguments=f'"{query}"}}')
        yield FunctionCallOutput(call_id="call_1", output=f"{query}: 3")
    if turn.functions:
        yield FunctionCall(call_id="w1", name="weather", arguments="{}")
        yield FunctionCall(call_id="w2", name="weather", arguments="{}")
    else:
        yield "Both are there."


@worker.entry("forgetful")
async def forgetful(turn: Turn) -> AsyncIterator[object]:
    """Calls a tool of its own and gives no output; gives it in the next turn."""
    calls = [item for item in turn.items if isinstance(item, FunctionCall)]
    if calls:
        yield FunctionCallOutput(call_id=calls[0].call_id, output="late")
        yield f"{len(turn.items)} items"
    else:
        yield FunctionCall(call_id="own", name="search", arguments="{}")


@worker.entry("reader")
async def reader(turn: Turn) -> AsyncIterator[object]:
    """Reads a long page with a tool of its own."""
    yield FunctionCall(call_id="r", name="read", arguments="{}")
    yield FunctionCallOutput(call_id="r", output="word " * 1000)
    yield "Long."


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_server(Settings(agents=[worker])) as address:
        yield address


def summarize(output: list[Json]) -> list[str]:
    """Return the items of a response in short; an output names the index of its call."""
    ids = [item.get("call_id") if item["type"] == "function_call" else None for item in output]
    return [
        f"output of {ids.index(item['call_id'])}: {item['output']}"
        if item["type"] == "function_call_output"
        else f"call {item['name']} {item['arguments']}"
        if item["type"] == "function_call"
        else item["content"][0]["text"]
        for item in output
    ]


SEARCHED = [
    'call search {"query":"tea"}',
    "output of 0: tea: 3",
    'call search {"query":"milk"}',
    "output of 2: milk: 3",
]


@pytest.mark.parametrize("door", ["/v1", "/openai/v1"])
def test_own_calls_and_their_outputs_are_items_of_a_legal_stream(address: str, door: str) -> None:
    raw = stream_events(address, door, model="worker", tools=[])
    response = raw[-1]["response"]
    assert summarize(response["output"]) == [*SEARCHED, "Both are there."]
    assert len({item["call_id"] for item in response["output"] if "call_id" in item}) == 2
    assert len({item["id"] for item in response["output"]}) == 5
    assert {item["status"] for item in response["output"]} == {"completed"}
    added = [event["item"]["type"] for event in raw if event["type"] == "response.output_item.added"]
    assert added == [*["function_call", "function_call_output"] * 2, "message"]
    if door == "/v1":
        check_response(response)
        assert find_violations(map(decode_event, raw)) == []


def test_a_response_that_is_not_streamed_has_the_same_items(address: str) -> None:
    response = post_response(address, model="worker", tools=[]).json()
    assert summarize(response["output"]) == [*SEARCHED, "Both are there."]
    with ws_client(address) as ws:
        assert summarize(ws.completed_response(model="worker")["output"]) == [*SEARCHED, "Both are there."]


@pytest.mark.parametrize(
    "choice",
    [
        {"tool_choice": "none"},
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "name": "weather"}, "parallel_tool_calls": False},
        {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]}},
    ],
)
def test_a_tool_choice_concerns_the_clients_tools_only(address: str, choice: Json) -> None:
    response = post_response(address, model="worker", tools=[WEATHER], **choice).json()
    calls = {"none": [], "single": ["call weather {}"], "any": ["call weather {}"] * 2}
    if choice["tool_choice"] == "none":
        expected = ["Both are there."]  # no function may be called: `turn.functions` is empty
    else:
        expected = calls["any" if choice.get("parallel_tool_calls", True) else "single"]
    assert summarize(response["output"]) == [*SEARCHED, *expected]
    codes = [warning["code"] for warning in response.get("antiphon:warnings", []) if "usage" not in warning["code"]]
    assert codes == (["parallel_call"] if "parallel_tool_calls" in choice else [])


def test_the_output_of_an_own_tool_does_not_count_as_output_of_the_agent(address: str) -> None:
    response = post_response(address, model="worker/reader", max_output_tokens=32).json()
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens"] < 32


def test_own_calls_alone_do_not_satisfy_a_required_call(address: str) -> None:
    other = WEATHER | {"name": "other"}
    response = post_response(address, model="worker/forgetful", tools=[other], tool_choice="required").json()
    codes = {warning["code"] for warning in response["antiphon:warnings"]}
    assert codes == {"tool_not_called", "unanswered_call", "usage_estimated"}


@pytest.mark.parametrize("stateless", [False, True])
def test_a_chain_goes_on_after_own_calls(address: str, stateless: bool) -> None:
    first = post_response(address, model="worker", tools=[WEATHER], parallel_tool_calls=False).json()
    output = {"type": "function_call_output", "call_id": "w1", "output": "sunny"}
    if stateless:
        said: Json = {"input": [{"role": "user", "content": "Hi!"}, *first["output"], output], "store": False}
    else:
        said = {"input": [output], "previous_response_id": first["id"]}
    second = post_response(address, model="worker", tools=[WEATHER], **said).json()
    assert summarize(second["output"]) == ["It is sunny."]


def test_an_own_call_without_output_is_a_warning_and_can_be_answered_in_the_next_turn(address: str) -> None:
    first = post_response(address, model="worker/forgetful").json()
    assert "unanswered_call" in {warning["code"] for warning in first["antiphon:warnings"]}
    other = post_response(address, model="demo", previous_response_id=first["id"]).json()
    assert other["status"] == "completed"
    second = post_response(address, model="worker/forgetful", previous_response_id=first["id"]).json()
    # The call that has no output has got one that says so.
    assert [item.get("output") or item["content"][0]["text"] for item in second["output"]] == ["late", "4 items"]
    third = post_response(address, model="demo", previous_response_id=second["id"]).json()
    assert "unanswered_call" not in {warning["code"] for warning in third.get("antiphon:warnings", [])}


def test_openai_python_reads_own_calls(address: str) -> None:
    with OpenAI(base_url=f"{address}/openai/v1", api_key="none", max_retries=0) as client:
        with client.responses.stream(model="worker", input="Hi!") as stream:
            final = stream.get_final_response()
        chat = client.chat.completions.create(model="worker", messages=[{"role": "user", "content": "Hi!"}])
    assert [item.type for item in final.output] == [*["function_call", "function_call_output"] * 2, "message"]
    assert final.output_text == "Both are there."
    message = chat.choices[0].message
    assert (message.content, message.tool_calls, chat.choices[0].finish_reason) == ("Both are there.", None, "stop")


@tool(name="weather", strict=False)
def weather() -> str:
    """Look at the sky."""
    return "sunny"


@tool(strict=False)
def search(query: str) -> str:
    """Never called: the agent has run it itself."""
    raise AssertionError(query)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "options",
    [
        AgentOptions(use_responses_api=True),
        AgentOptions(use_responses_api=True, use_responses_websocket=True),
        AgentOptions(use_responses_api=False),
    ],
    ids=["http", "websocket", "chat"],
)
async def test_our_agent_loop_runs_the_clients_tools_only(address: str, options: AgentOptions) -> None:
    async with AsyncClient(f"{address}/v1") as client:
        result = await run_agent("Hi!", model="worker", tools=[weather], options=options, client=client)
        assert result.final == "It is sunny."
        called = [(call.name, call.status) for call in result.tool_calls]
        own = [] if options.use_responses_api is False else [("search", "completed")] * 2
        assert called == [*own, *[("weather", "completed")] * 2]


@pytest.mark.anyio
async def test_our_agent_loop_shows_the_result_of_an_own_call(address: str) -> None:
    async with AsyncClient(f"{address}/v1") as client:
        run = stream_agent("Hi!", model="worker", tools=[search], client=client)
        updates = [event async for event in run if event.type == "tool_update" and event.status != "preparing"]
    seen = [(update.status, update.result) for update in updates]
    # The client offers this very tool: the outputs in the response still are the agent's.
    assert seen[:4] == [("ready", None), ("completed", "tea: 3"), ("ready", None), ("completed", "milk: 3")]
