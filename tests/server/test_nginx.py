"""Two servers and two workers on one database, behind nginx: any server serves any stored response."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon import Client
from tests.http_client import WAIT, parse_event, wait_until
from tests.postgres_server import create_database
from tests.replicas import Process, run_nginx, run_replicas
from tests.server.stateful_server import create_response, get_response, output_text, replay, wait_until_ended
from tests.spec import test_compliance as compliance

AGENTS = """
import asyncio
from pathlib import Path
from antiphon import Settings, agent

@agent("gated")
async def gated(turn):
    for word in range(6):
        yield f"{word} "
        await asyncio.sleep(0.05)
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    yield "end"

@agent("endless")
async def endless(turn):
    try:
        while True:
            yield "more "
            await asyncio.sleep(0.02)
    finally:
        Path(f"stopped-{turn.text}").touch()

@agent("remember")
async def remember(turn):
    yield str(len(turn.items))
"""
SETTINGS = """
from antiphon import Settings
from mine import endless, gated, remember

settings = Settings(agents=[gated, endless, remember], background_slots={slots})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of all processes."""
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "mine.py").write_text(AGENTS)
    (folder / "front.py").write_text(SETTINGS.format(slots=0))
    (folder / "back.py").write_text(SETTINGS.format(slots=100))
    return folder


@pytest.fixture(scope="module")
def processes(folder: Path) -> Iterator[list[Process]]:
    """Give two servers and two workers."""
    with run_replicas(folder, create_database()) as processes:
        yield processes


@pytest.fixture(scope="module")
def proxy(folder: Path, processes: list[Process]) -> Iterator[str]:
    """Give the address of nginx."""
    with run_nginx(folder, processes[:2]) as address:
        yield address


def test_the_cases_of_the_official_suite_pass_through_nginx(proxy: str) -> None:
    compliance.test_all_cases_at_once(proxy)


def test_the_strict_client_works_through_nginx(proxy: str) -> None:
    with Client(f"{proxy}/v1", strict=True) as client:
        with client.stream(model="demo", input="Hello!") as stream:
            events = list(stream)
        assert events[-1].type == "response.completed"
        assert client.create(model="demo", input="Hello!").status == "completed"


def test_a_chain_alternates_between_servers(processes: list[Process]) -> None:
    previous: dict[str, Any] = {}
    for turn in range(6):
        response = create_response(processes[turn % 2].url, "remember", "more", **previous)
        assert output_text(response) == str(2 * turn + 1)
        previous = {"previous_response_id": response["id"]}


def test_a_cancellation_at_the_other_server_stops_the_worker(processes: list[Process], folder: Path) -> None:
    first, second = processes[:2]
    for number, server in enumerate((second, first)):
        id = create_response((first, second)[number].url, "endless", f"run{number}", background=True)["id"]
        stopped = folder / f"stopped-run{number}"
        wait_for_status(server.url, id, "in_progress")
        answer = httpx.post(f"{server.url}/v1/responses/{id}/cancel", timeout=WAIT)
        assert answer.json()["status"] == "cancelled"
        wait_until(stopped.exists)


def test_a_stream_of_a_server_that_is_killed_is_resumed_at_the_other_at_every_event(
    processes: list[Process], proxy: str, folder: Path
) -> None:
    first, second = processes[:2]
    id = create_response(first.url, "gated", "go", background=True)["id"]
    url, query = f"{first.url}/v1/responses/{id}", {"stream": "true"}
    received: list[list[dict[str, Any]]] = []
    with ExitStack() as stack:
        for count in range(1, 10):  # of the events before the gate
            stream = stack.enter_context(httpx.stream("GET", url, params=query, timeout=WAIT))
            frames = split_frames(stream)
            received.append([parse_event(next(frames)) for _ in range(count)])
        first.send(signal.SIGKILL)
    (folder / "go").touch()
    for events in received:
        assert events + replay(proxy, id, events[-1]["sequence_number"]) == replay(second.url, id)
    response = wait_until_ended(proxy, id)
    assert response["status"] == "completed"
    assert output_text(response) == "0 1 2 3 4 5 end"
    assert replay(second.url, id)[-1]["response"] == response
    first.start()
    first.wait()
    assert json.loads(httpx.get(url, timeout=WAIT).text) == response


def wait_for_status(address: str, id: str, status: str) -> None:
    """Wait until a response has a status."""
    wait_until(lambda: get_response(address, id)["status"] == status)


def split_frames(stream: httpx.Response) -> Iterator[str]:
    """Yield the frames of a stream that is not complete."""
    rest = ""
    for chunk in stream.iter_text():
        *frames, rest = (rest + chunk).split("\n\n")
        yield from (frame for frame in frames if frame.startswith("event:"))
