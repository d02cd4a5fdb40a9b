"""Aborting and cancelling a run at any point."""

import asyncio
import contextlib
import threading

import pytest
from msgspec.structs import replace

from antiphon.client.agent.conversation import Conversation
from antiphon.client.agent.events import AgentEvent
from antiphon.client.agent.run import Aborted, AbortSignal, AgentOptions, run_agent, stream_agent
from antiphon.client.tools.tool import tool
from tests.client.agent.faulty_server import ALL_TRANSPORTS, CHAT, HTTP, SOCKET, Fault

pytestmark = pytest.mark.anyio

WORK = "rounds=2 parallel=2 slow=10"
QUICK = "rounds=1 parallel=2"
ENDS = ("conversation_completed", "conversation_cancelled", "error")
TURNS = 40
"""How many turns of the loop lie between two moments at which a run is stopped."""


@tool
async def rest(value: int) -> str:
    """Rest a little."""
    await asyncio.sleep(0.02)
    return str(value)


async def remaining_tasks() -> set[asyncio.Task]:
    """Return the tasks that remain after some iterations of the loop."""
    for _ in range(20):
        await asyncio.sleep(0.005)
    return asyncio.all_tasks() - {asyncio.current_task()}


@ALL_TRANSPORTS
async def test_a_run_can_be_aborted_at_every_event(client, options):
    before, stop = await remaining_tasks(), 1
    while "conversation_completed" not in (seen := await abort_after(client, options, stop)):
        assert seen[-1] == "conversation_cancelled"
        assert "error" not in seen
        stop += 1
    assert stop >= len(seen) > 20  # only then was it too late
    assert await remaining_tasks() == before


async def abort_after(client, options: AgentOptions, stop: int) -> list[str]:
    """Abort a run at one of its events; return the types of all events."""
    signal, seen = AbortSignal(), []

    def follow(event: AgentEvent) -> None:
        seen.append(event.type)
        if len(seen) == stop:
            signal.abort()

    options = replace(options, abort_signal=signal)
    run = run_agent(QUICK, model="worker", tools=[rest], options=options, client=client, on_event=follow)
    with contextlib.suppress(Aborted):
        assert (await run).final == "Done: 0, 1."
        assert seen[-1] == "conversation_completed"
    return seen


@ALL_TRANSPORTS
async def test_a_run_can_be_cancelled_at_every_await(client, options):
    before, stopped = await remaining_tasks(), 0
    while True:
        types: list[str] = []
        run = run_agent(
            QUICK,
            model="worker",
            tools=[rest],
            options=options,
            client=client,
            on_event=lambda event, types=types: types.append(event.type),
        )
        task = asyncio.create_task(run)
        for _ in range(stopped * TURNS):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task  # its last word may have been said already
        ends = [name for name in types if name in ENDS]
        assert ends in ([], ["conversation_completed"], ["conversation_cancelled"])
        assert task.cancelled() or ends == ["conversation_completed"]
        assert not types or ends == types[-1:]
        stopped += 1
    assert (await task).final == "Done: 0, 1."
    assert stopped > 20
    assert await remaining_tasks() == before


@ALL_TRANSPORTS
@pytest.mark.parametrize("after", [0.0, 0.005, 0.02, 0.04, 0.07, 0.1])
async def test_a_run_ends_with_its_task(client, options, after):
    types: list[str] = []
    before = await remaining_tasks()
    run = run_agent(
        WORK,
        model="worker",
        tools=[rest],
        options=options,
        client=client,
        on_event=lambda event: types.append(event.type),
    )
    task = asyncio.create_task(run)
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not types or types[-1] == "conversation_cancelled"
    assert await remaining_tasks() == before


async def test_an_aborted_signal_stops_a_run_before_anything_is_sent(client, server):
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(Aborted):
        await run_agent("hi", model="worker", options=replace(HTTP, abort_signal=signal))
    assert server.bodies == []


@ALL_TRANSPORTS
async def test_an_abort_closes_the_connection_at_once(client, server, options):
    signal = AbortSignal()
    patient = replace(options, abort_signal=signal)
    run = stream_agent("slow=20000", model="worker", options=patient, client=client)
    asyncio.get_running_loop().call_later(0.3, signal.abort)
    with pytest.raises(Aborted):
        async with asyncio.timeout(10):  # the answer would take a minute and more
            [event async for event in run]


async def test_waiting_for_a_retry_can_be_aborted(client, server):
    server.faults[0] = Fault(429, headers={"retry-after": "20"})
    signal = AbortSignal()
    asyncio.get_running_loop().call_later(0.1, signal.abort)
    with pytest.raises(Aborted):
        await run_agent("hi", model="worker", client=client, options=replace(HTTP, abort_signal=signal))
    assert len(server.bodies) == 1


async def test_a_signal_can_come_from_another_thread(client):
    signal = AbortSignal()
    timer = threading.Timer(0.1, signal.abort)
    timer.start()
    with pytest.raises(Aborted):
        await run_agent("slow=1000", model="worker", client=client, options=replace(HTTP, abort_signal=signal))
    timer.join()


@pytest.mark.parametrize("options", [CHAT, HTTP, SOCKET], ids=["chat", "http", "socket"])
async def test_leaving_the_loop_early_stops_the_run(client, server, options):
    before = await remaining_tasks()
    conversation = Conversation()
    run = stream_agent(
        "rounds=5 slow=20", model="worker", tools=[rest], options=options, client=client, conversation=conversation
    )
    events = aiter(run)
    async for event in events:
        if event.type == "token":
            break
    await events.aclose()
    assert await remaining_tasks() == before
    assert conversation.items == []
    again = await run_agent("hi", model="worker", client=client, conversation=conversation)
    assert again.message == "Done: nothing."


async def test_aborting_a_queued_run_leaves_the_first_alone(client):
    conversation, signal = Conversation(), AbortSignal()
    first = asyncio.create_task(run_agent("slow=60", model="worker", client=client, conversation=conversation))
    await asyncio.sleep(0.05)
    options = AgentOptions(abort_signal=signal)
    second = asyncio.create_task(
        run_agent("hi", model="worker", client=client, conversation=conversation, options=options)
    )
    await asyncio.sleep(0.05)
    signal.abort()
    with pytest.raises(Aborted):
        await second
    assert (await first).message == "Done: nothing."
    assert len(conversation.items) == 2


@pytest.mark.parametrize("whose", ["tool", "on_event"])
async def test_a_function_that_swallows_its_cancellation_does_not_keep_the_run_alive(client, server, whose):
    signal = AbortSignal()

    async def wait(here: bool) -> None:
        if here:
            asyncio.get_running_loop().call_later(0.01, signal.abort)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)

    @tool
    async def swallow(value: int) -> str:
        """Wait."""
        await wait(whose == "tool")
        return str(value)

    async def handle(event: AgentEvent) -> None:
        await wait(whose == "on_event" and event.type == "tool_call_parsed")

    options = replace(HTTP, abort_signal=signal)
    params = {"model": "worker", "tools": [swallow], "client": client, "on_event": handle}
    with pytest.raises(Aborted):
        await run_agent("rounds=3", options=options, **params)
    assert len(server.bodies) == 1


async def test_a_completed_run_cannot_be_aborted(client):
    signal, seen, conversation = AbortSignal(), list[str](), Conversation()

    async def handle(event: AgentEvent) -> None:
        seen.append(event.type)
        if event.type == "conversation_completed":
            signal.abort()
            await asyncio.sleep(10)

    options = replace(HTTP, abort_signal=signal)
    params = {"model": "worker", "client": client, "on_event": handle}
    result = await run_agent("hi", options=options, conversation=conversation, **params)
    assert (result.final, len(conversation.items)) == ("Done: nothing.", 2)
    assert seen[-1] == "conversation_completed"
