"""Agent runs with the synchronous client."""

import asyncio
import threading

import pytest
from msgspec.structs import replace

from antiphon.client.agent.run import Aborted, AbortSignal
from antiphon.client.sync_client import Client
from antiphon.client.tools.tool import tool
from tests.client.agent.faulty_server import ALL_TRANSPORTS, HTTP, FaultyServer, double


@pytest.fixture
def client(server: FaultyServer):
    with Client(server.url) as made:
        yield made


@ALL_TRANSPORTS
def test_a_run_can_be_iterated_without_async(client, options):
    run = client.stream_agent("rounds=2", model="worker", tools=[double], options=options)
    types = [event.type for event in run]
    assert (types[0], types[-1]) == ("conversation_started", "conversation_completed")
    assert run.result.final == "Done: 0, 20."


@ALL_TRANSPORTS
def test_a_run_returns_its_result(client, options):
    seen = []
    result = client.run_agent("rounds=1", model="worker", tools=[double], options=options, on_event=seen.append)
    assert result.message == "Round 0.\n\nDone: 0."
    assert seen[-1].type == "conversation_completed"


def test_leaving_early_stops_the_run(client, server):
    run = client.stream_agent("rounds=9 slow=30", model="worker", tools=[double], options=HTTP)
    for event in run:
        if event.type == "token":
            break
    del run
    count = len(server.bodies)
    assert client.run_agent("hi", model="worker", options=HTTP).final == "Done: nothing."
    assert len(server.bodies) == count + 1


def test_another_thread_can_abort(client):
    signal = AbortSignal()
    timer = threading.Timer(0.1, signal.abort)
    timer.start()
    with pytest.raises(Aborted):
        client.run_agent("slow=2000", model="worker", options=replace(HTTP, abort_signal=signal))
    timer.join()


@pytest.mark.anyio
async def test_it_works_inside_a_running_event_loop(client):
    assert asyncio.get_running_loop()
    assert client.run_agent("hi", model="worker", options=HTTP).final == "Done: nothing."


def test_a_sync_tool_runs_in_another_thread(client):
    main = threading.current_thread()
    seen = []

    @tool
    def where(value: int) -> str:
        """Say where."""
        seen.append(threading.current_thread())
        return "here"

    assert client.run_agent("rounds=1", model="worker", tools=[where]).final == "Done: here."
    assert seen
    assert main not in seen


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_system_exit_in_a_tool_ends_the_program(client, error):
    @tool
    def leave(value: int) -> str:
        """Leave."""
        raise error

    with pytest.raises(error):
        client.run_agent("rounds=1", model="worker", tools=[leave], options=HTTP)
    assert client.run_agent("hi", model="worker", options=HTTP).final == "Done: nothing."
