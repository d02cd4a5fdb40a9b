"""A server that is killed at any moment loses nothing that it has acknowledged."""

import asyncio
import os
import random
import signal
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http_client import WAIT, parse_event
from tests.run_server import run_command
from tests.server.stateful_server import get_response, replay, serve_agents, wait_until_ended

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("ANTIPHON_KILLS", "10"))
JOBS = int(os.environ.get("ANTIPHON_JOBS", "20"))
AGENTS = """
import asyncio
from antiphon import agent

@agent("counter")
async def counter(turn):
    for word in range(int(turn.text)):
        yield f"{word} "
        await asyncio.sleep(0.005)
"""


@dataclass
class Driver:
    """Creates background responses, reads them, and records what it received."""

    chance: random.Random
    received: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    """The events of every acknowledged response, as far as somebody read them."""

    async def ask(self, http: httpx.AsyncClient) -> None:
        """Ask for responses and follow them, until the server is gone."""
        try:
            while True:
                body = {"model": "counter", "input": str(self.chance.randrange(100))}
                answer = await http.post("/v1/responses", json=body | {"background": True})
                assert answer.status_code == 200
                id = answer.json()["id"]
                self.received[id] = []
                if self.chance.random() < 0.7:
                    await self.follow(http, id)
        except httpx.TransportError:
            return

    async def follow(self, http: httpx.AsyncClient, id: str) -> None:
        """Read on where this reader stopped."""
        received = self.received[id]
        query = {"stream": "true"} | ({"starting_after": str(len(received) - 1)} if received else {})
        async with http.stream("GET", f"/v1/responses/{id}", params=query) as answer:
            assert answer.status_code == 200
            rest = ""
            async for chunk in answer.aiter_text():
                *frames, rest = (rest + chunk).split("\n\n")
                received += [parse_event(frame) for frame in frames if frame.startswith("event:")]


async def drive(driver: Driver, address: str, seconds: float, kill: Any) -> None:
    """Keep a server busy, and kill it after a while."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=WAIT, trust_env=False, limits=limits) as http:
        earlier = [id for id in driver.received if driver.chance.random() < 0.2]
        work = [driver.ask(http) for _ in range(JOBS)]
        work += [ignore_disconnect(driver.follow(http, id)) for id in earlier]
        working = asyncio.gather(*work)
        await asyncio.sleep(seconds)
        kill()
        await working


async def ignore_disconnect(reading: Any) -> None:
    """Read until the server is gone."""
    try:
        await reading
    except httpx.TransportError:
        return


async def test_after_a_kill_acknowledged_responses_exist_and_logs_match_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENTS)
    data = tmp_path / "data"
    driver = Driver(random.Random(7))
    for _ in range(KILLS):
        options = ["--app", "mine", "--data", str(data)]
        with run_command(*options, cwd=tmp_path) as (address, process):
            seconds = 0.05 + driver.chance.random() * 0.8
            await drive(driver, address, seconds, lambda: process.send_signal(signal.SIGKILL))
            assert process.wait(20) == -signal.SIGKILL
        assert is_database_sound(data)
    assert len(driver.received) > KILLS * 5
    with serve_agents(data) as address:
        ends = await asyncio.to_thread(compare, address, driver)
    assert ends == {"completed", "failed"}
    assert is_database_sound(data)


async def test_after_a_kill_a_foreground_response_keeps_its_output_up_to_its_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENTS)
    data, text, id = tmp_path / "data", "", ""
    body = {"model": "counter", "input": "1000000", "stream": True}
    with run_command("--app", "mine", "--data", str(data), cwd=tmp_path) as (address, process):
        async with httpx.AsyncClient(base_url=address, timeout=WAIT, trust_env=False) as http:
            try:
                async with http.stream("POST", "/v1/responses", json=body) as answer:
                    async for chunk in answer.aiter_text():
                        text += chunk
                        id = parse_event(text.split("\n\n")[0])["response"]["id"]
                        stored = await http.get(f"/v1/responses/{id}")
                        if len(stored.json()["output"]):
                            process.send_signal(signal.SIGKILL)
            except httpx.TransportError:
                pass
        process.wait(20)
    with serve_agents(data) as address:
        response = get_response(address, id)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    [message] = response["output"]
    counted = message["content"][0]["text"]
    assert message["status"] == "incomplete"
    assert "0 1 2 3 4 5 " in counted
    deltas = [parse_event(frame) for frame in text.split("\n\n")[:-1] if "output_text.delta" in frame]
    received = "".join(event["delta"] for event in deltas)
    assert received.startswith(counted) or counted.startswith(received)


def is_database_sound(folder: Path) -> bool:
    """Tell whether the database is whole."""
    connection = sqlite3.connect(folder / "responses.db")
    [(found,)] = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return found == "ok"


def compare(address: str, driver: Driver) -> set[str]:
    """Check that every response exists and matches what was received; return the statuses."""
    statuses: set[str] = set()
    for id, received in driver.received.items():
        response = wait_until_ended(address, id)
        whole = replay(address, id)
        assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
        assert whole[: len(received)] == received
        assert whole[-1]["response"] == response == get_response(address, id)
        if response["status"] == "failed":
            assert response["error"]["code"] == "server_error"
        statuses.add(response["status"])
    return statuses
