"""The agent loop against our own server, over every transport."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from antiphon.client.agent.conversation import Conversation
from antiphon.client.agent.run import AgentOptions, run_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.sync_client import Client
from antiphon.client.tools.tool import tool
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.items import Message
from tests.client.agent.faulty_server import (
    ALL_TRANSPORTS,
    CHAT,
    CONNECTION_LIMIT,
    HTTP,
    RESPONSE_NOT_FOUND,
    SOCKET,
    STATEFUL_TRANSPORTS,
    Fault,
    event_types,
    outputs_in,
    run_to_end,
    serve_worker,
)
from tests.client.websocket_server import ServerSide, serve_websocket, turn_messages

pytestmark = pytest.mark.anyio


@ALL_TRANSPORTS
async def test_a_single_round_returns_the_models_text(client, options):
    result, events = await run_to_end(client, "hello", options)
    assert result.message == result.final == "Done: nothing."
    assert result.status == "completed"
    assert event_types(events)[0] == "conversation_started"
    assert event_types(events)[-1] == "conversation_completed"
    assert "".join(event.token for event in events if event.type == "token") == "Done: nothing."


@ALL_TRANSPORTS
@pytest.mark.parametrize("rounds", [2, 5, 20])
async def test_tool_rounds_continue_until_the_model_calls_no_tool(client, server, options, rounds):
    result, _ = await run_to_end(client, f"rounds={rounds}", options)
    doubled = ", ".join(str(n * 10 * 2) for n in range(rounds))
    assert result.final == f"Done: {doubled}."
    assert result.message == "\n\n".join([*(f"Round {n}." for n in range(rounds)), result.final])
    assert len(server.bodies) == rounds + 1
    assert [call.status for call in result.tool_calls] == ["completed"] * rounds
    assert result.usage.prompt_tokens == 10 * (rounds + 1)
    assert result.usage.cached_input_tokens == 4 * (rounds + 1)
    assert len(result.usage.rounds) == rounds + 1


async def test_every_transport_emits_the_same_events(client):
    told_by = [await run_to_end(client, "rounds=2 parallel=2 THINK", way) for way in (CHAT, HTTP, SOCKET)]
    messages = [result.message for result, _ in told_by]
    assert messages[0] == messages[1] == messages[2]
    kinds = [event_types(events) for _, events in told_by]
    assert kinds[0] == kinds[1] == kinds[2]


@STATEFUL_TRANSPORTS
async def test_a_later_round_sends_only_new_items(client, server, options):
    await run_to_end(client, "rounds=3", options, instructions="Be terse.")
    first, *later = server.bodies
    assert [item["role"] for item in first["input"]] == ["user"]
    assert "previous_response_id" not in first
    for number, body in enumerate(later):
        assert [item["type"] for item in body["input"]] == ["function_call_output"]
        assert outputs_in(body) == [str(number * 20)]
        assert body["previous_response_id"].startswith("resp_")
    assert {body["store"] for body in server.bodies} == {False}
    assert {body["instructions"] for body in server.bodies} == {"Be terse."}
    assert all(body["tools"] == first["tools"] for body in later)
    assert max(server.sizes[1:]) - min(server.sizes[1:]) < 8
    assert len({body.get("previous_response_id") for body in server.bodies}) == 4


async def test_chat_sends_the_whole_context_in_every_round(client, server):
    await run_to_end(client, "rounds=2", CHAT)
    assert [len(body["messages"]) for body in server.bodies] == [1, 3, 5]
    assert set(server.paths) == {"/v1/chat/completions"}


async def test_one_websocket_serves_the_whole_run(client, server):
    await run_to_end(client, "rounds=5", SOCKET)
    assert server.sockets == 1
    assert set(server.paths) == {"socket"}


@ALL_TRANSPORTS
async def test_calls_run_in_parallel_and_results_keep_the_order(client, server, options):
    running, most = 0, 0

    @tool
    async def slow(value: int) -> str:
        """Take one's time."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05 - value * 0.005)
        running -= 1
        return str(value)

    result, events = await run_to_end(client, "rounds=1 parallel=6", options, tools=[slow])
    assert result.final == "Done: 0, 1, 2, 3, 4, 5."
    assert most == 4
    executing = [e for e in events if e.type == "tool_update" and e.status == "executing"]
    assert len(executing) == 6


@ALL_TRANSPORTS
async def test_an_error_of_a_tool_is_sent_to_the_model(client, options):
    @tool
    def broken(value: int) -> str:
        """Break."""
        raise ValueError(f"no {value}")

    result, events = await run_to_end(client, "rounds=1", options, tools=[broken])
    assert result.final == "Done: Error: no 0."
    failed = [e for e in events if e.type == "tool_update" and e.status == "failed"]
    assert [e.error for e in failed] == ["no 0"]
    assert failed[0].failed_at is not None


@ALL_TRANSPORTS
async def test_a_missing_handler_is_reported_to_the_model(client, options):
    declared = {"type": "function", "name": "lost", "parameters": None}
    result, _ = await run_to_end(client, "rounds=1", options, tools=[declared])
    assert result.final == "Done: Error: No handler for tool: lost."


@ALL_TRANSPORTS
async def test_a_run_stops_at_max_tool_rounds(client, server, options):
    result, events = await run_to_end(client, "rounds=9", replace(options, max_tool_rounds=2))
    assert (result.status, len(server.bodies)) == ("max_tool_rounds", 2)
    assert result.message == "Round 0.\n\nRound 1."
    assert events[-1].type == "conversation_completed"


@STATEFUL_TRANSPORTS
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_forgotten_response_resends_the_context(client, server, options, at):
    server.faults[at] = RESPONSE_NOT_FOUND
    result, events = await run_to_end(client, "rounds=3", options)
    assert result.final == "Done: 0, 20, 40."
    actions = [e.action for e in events if e.type == "context_management"]
    assert [(a.type, a.reason) for a in actions] == [("resent_context", "previous_response_not_found")]
    whole = server.bodies[at + 1 :]
    assert all("previous_response_id" not in body for body in whole)
    assert all(body["input"][0]["role"] == "user" for body in whole)
    assert len(server.bodies) == 5


@pytest.mark.parametrize("cut", [0, 1, 4])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_closed_websocket_is_reopened(client, server, at, cut):
    server.faults[at] = Fault(cut_after=cut)
    result, events = await run_to_end(client, "rounds=2", SOCKET)
    assert result.message == "Round 0.\n\nRound 1.\n\nDone: 0, 20."
    assert server.sockets == 2
    resent = [e.action.reason for e in events if e.type == "context_management"]
    assert resent == (["websocket_closed"] if at else [])
    assert all("previous_response_id" not in body for body in server.bodies[at + 1 :] if at)


async def test_the_connection_limit_of_a_websocket_is_recovered(client, server):
    server.faults[1] = CONNECTION_LIMIT
    result, events = await run_to_end(client, "rounds=2", SOCKET)
    assert result.final == "Done: 0, 20."
    assert server.sockets == 2
    resent = [e.action.reason for e in events if e.type == "context_management"]
    assert resent == ["websocket_connection_limit_reached"]


async def test_a_refused_websocket_falls_back_to_http(client, server):
    server.refuse_sockets = 1
    result, events = await run_to_end(client, "rounds=2", SOCKET)
    assert result.final == "Done: 0, 20."
    updates = [e for e in events if e.type == "connection_update"]
    assert [u.transport for u in updates] == ["http"]
    assert set(server.paths) == {"/v1/responses"}


@pytest.mark.parametrize("options", [CHAT, HTTP], ids=["chat", "http"])
@pytest.mark.parametrize("cut", [1, 4])
async def test_a_cut_stream_is_retried(client, server, options, cut):
    server.faults[1] = Fault(cut_after=cut)
    result, _ = await run_to_end(client, "rounds=2", options)
    assert result.message == "Round 0.\n\nRound 1.\n\nDone: 0, 20."
    assert len(server.bodies) == 4


@ALL_TRANSPORTS
async def test_a_429_is_retried_after_a_delay(client, server, options):
    server.faults[1] = Fault(429, "rate_limit_exceeded", envelope=True)
    result, _ = await run_to_end(client, "rounds=1", options)
    assert result.final == "Done: 0."
    assert len(server.bodies) == 3


@ALL_TRANSPORTS
async def test_retries_are_limited(client, server, options):
    server.faults |= {n: Fault(503, "overloaded", envelope=True) for n in range(9)}
    with pytest.raises(UpstreamError) as caught:
        await run_to_end(client, "rounds=1", options)
    assert (caught.value.status, len(server.bodies)) == (503, 4)


@ALL_TRANSPORTS
async def test_a_fallback_model_is_used(client, server, options):
    server.faults |= {n: Fault(503, "overloaded", envelope=True) for n in range(4)}
    result, _ = await run_to_end(client, "hi", replace(options, fallbacks=["echo"]))
    assert (result.message, result.model) == ("hi", "echo")
    assert [body["model"] for body in server.bodies] == ["worker"] * 4 + ["echo"]


async def test_a_server_without_responses_falls_back_to_chat(client, server):
    server.faults[0] = Fault(404, "not_found")
    free = AgentOptions(smoothing_delay=0)
    result, events = await run_to_end(client, "rounds=1", free)
    assert result.final == "Done: 0."
    assert server.paths == ["/v1/responses", *["/v1/chat/completions"] * 2]
    assert [e.transport for e in events if e.type == "connection_update"] == ["chat"]
    await run_to_end(client, "hi", free)
    assert server.paths[-1] == "/v1/chat/completions"


async def test_an_unknown_model_does_not_mean_a_missing_endpoint(client):
    with pytest.raises(UpstreamError) as caught:
        await run_agent("hi", model="nobody", client=client)
    assert caught.value.payload.code == "model_not_found"


async def test_use_responses_websocket_needs_use_responses_api():
    with pytest.raises(RequestError, match="use_responses_api=True"):
        AgentOptions(use_responses_websocket=True)


@ALL_TRANSPORTS
async def test_a_conversation_is_continued_with_its_calls(client, server, options):
    conversation = Conversation()
    await run_to_end(client, "rounds=1", options, conversation=conversation)
    kinds = [item.type for item in conversation.items]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message"]
    await run_to_end(client, "rounds=0", options, conversation=conversation)
    sent = server.bodies[-1].get("input") or server.bodies[-1]["messages"]
    assert "0" in str(sent)
    assert len(conversation.items) == 7
    if options is not CHAT:
        assert [item["type"] for item in sent] == [*kinds, "message"]


async def test_a_second_run_of_a_conversation_waits_for_the_first(client):
    conversation = Conversation()
    first = run_to_end(client, "rounds=1 slow=30", HTTP, conversation=conversation)
    second = run_to_end(client, "hello", HTTP, conversation=conversation)
    (_, one), (_, two) = await asyncio.gather(first, second)
    assert one[0].type == "conversation_started"
    assert [event.type for event in two[:2]] == ["conversation_queued", "conversation_started"]
    assert len(conversation.items) == 7


async def test_a_stored_conversation_is_loaded_and_saved(client):
    id = (await client.conversations.create()).id
    await run_to_end(client, "rounds=1", HTTP, conversation=id)
    types = [item.type async for item in client.conversations.items(id, order="asc")]
    assert types == ["message", "message", "function_call", "function_call_output", "message"]
    result, _ = await run_to_end(client, "rounds=0", HTTP, conversation=id)
    assert result.final == "Done: nothing."
    assert len([item async for item in client.conversations.items(id)]) == 7


@STATEFUL_TRANSPORTS
async def test_an_evicted_response_resends_the_context_once(options):
    with serve_worker(memory_bytes=1, socket_memory_bytes=1) as small:
        async with AsyncClient(small.url) as client:
            result, events = await run_to_end(client, "rounds=3", options)
    assert result.message == "Round 0.\n\nRound 1.\n\nRound 2.\n\nDone: 0, 20, 40."
    resent = [e.action.reason for e in events if e.type == "context_management"]
    assert resent == ["previous_response_not_found"]


async def test_a_websocket_closed_by_the_servers_limit_is_replaced():
    with serve_worker(socket_seconds=0.3) as brief:
        async with AsyncClient(brief.url) as client:
            result, _ = await run_to_end(client, "rounds=6 slow=100", SOCKET)
    assert result.final == "Done: 0, 20, 40, 60, 80, 100."
    assert brief.sockets > 1


async def test_a_websocket_that_fails_to_open_is_retried():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    events = []
    async with AsyncClient(f"http://127.0.0.1:{port}/v1") as client:
        with pytest.raises(UpstreamError, match="cannot be reached"):
            await run_agent("hi", model="m", client=client, options=SOCKET, on_event=events.append)
    assert event_types(events) == ["conversation_started", "error"]


async def test_a_silent_websocket_is_replaced():
    met: list[ServerSide] = []

    async def meet(connection: ServerSide) -> None:
        met.append(connection)
        await connection.receive()
        if len(met) > 1:
            await connection.send(*turn_messages("hello"))
        await connection.receive()

    async with serve_websocket(meet) as url, AsyncClient(url.removesuffix("/responses"), timeout=1) as client:
        result = await run_agent("hi", model="m", client=client, options=SOCKET)
    assert (result.final, len(met)) == ("hello", 2)


@pytest.mark.parametrize("served", [False, True])
def test_a_conversation_works_in_several_event_loops(server, served):
    client = AsyncClient(server.url)

    async def make() -> Conversation | str:
        return (await client.conversations.create()).id if served else Conversation()

    async def twice(conversation: Conversation | str) -> list[str]:
        params = {"model": "worker", "options": HTTP, "client": client}
        runs = [run_agent("slow=5", conversation=conversation, **params) for _ in range(2)]
        try:
            return [result.final for result in await asyncio.gather(*runs)]
        finally:
            await client.close()

    async def begin() -> Conversation | str:
        try:
            return await make()
        finally:
            await client.close()

    conversation = asyncio.run(begin())
    for _ in range(2):
        assert asyncio.run(twice(conversation)) == ["Done: nothing."] * 2


def test_a_conversation_is_used_by_one_thread_at_a_time(server):
    conversation = Conversation()

    def speak(number: int) -> None:
        with Client(server.url) as client:
            prompt = f"slow=5 {number}"
            client.run_agent(prompt, model="worker", options=HTTP, conversation=conversation)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(speak, range(4)))
    roles = [item.role for item in conversation.items if isinstance(item, Message)]
    assert roles == ["user", "assistant"] * 4


async def test_a_tool_cannot_run_an_agent_in_its_own_conversation(client):
    conversation = Conversation()

    @tool
    async def ask_again(value: int) -> str:
        """Run an agent in the same conversation."""
        again = await run_agent("hi", model="worker", client=client, conversation=conversation)
        return again.message

    result, _ = await run_to_end(client, "rounds=1", HTTP, tools=[ask_again], conversation=conversation)
    assert "A tool cannot run an agent" in result.final
    other = await run_agent("hi", model="worker", client=client, conversation=conversation)
    assert other.final == "Done: nothing."
