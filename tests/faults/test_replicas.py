"""Servers and workers that are killed or frozen, and a database that stops, lose nothing that was acknowledged.

`ANTIPHON_FAULT_RESPONSES`, `_READERS` and `_TURNS` set how much runs meanwhile; `make test-long` runs it in full.
"""

import asyncio
import os
import random
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from tests.http_client import WAIT, parse_event
from tests.postgres_server import PostgresServer, create_database
from tests.replicas import Process, run_replicas

pytestmark = pytest.mark.anyio

RESPONSES = int(os.environ.get("ANTIPHON_FAULT_RESPONSES", "60"))
READERS = int(os.environ.get("ANTIPHON_FAULT_READERS", "20"))
TURNS = int(os.environ.get("ANTIPHON_FAULT_TURNS", "40"))
AT_ONCE = 40
"""How many requests are under way."""

SPREAD_SECONDS = 10.0
"""Long enough for a fault of every kind."""

LEASE_SECONDS = 1.5
APP = """
import asyncio
from antiphon import Settings, agent

@agent("counter", idempotent=True)
async def counter(turn):
    for word in range(20):
        yield f"{word} "
        await asyncio.sleep(0.05)

@agent("remember")
async def remember(turn):
    return str(len(turn.items))

settings = Settings(
    agents=[counter, remember], background_slots=SLOTS, lease_seconds=LEASE, sweep_seconds=1, drain_seconds=0
)
"""
LOST = re.compile(r"has lost its lease: (\d+) of its writes were refused")
ENDS = ("response.completed", "response.failed", "response.incomplete")


@dataclass
class Client:
    """Sends requests to any server, again after a failure, and keeps what was acknowledged."""

    servers: list[Process]
    http: httpx.AsyncClient
    chance: random.Random
    received: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    """The events of every acknowledged background response, as far as they were read."""
    turns: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """The acknowledged turns of the chains, and how many items the model was given."""
    failures: Counter[str] = field(default_factory=Counter[str])

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request until a server answers it with a 200."""
        while True:
            try:
                url = f"{self.chance.choice(self.servers).url}/v1{path}"
                answer = await self.http.request(method, url, **options)
            except httpx.TransportError as error:
                self.failures[type(error).__name__] += 1
            else:
                if answer.status_code == 200:
                    return answer
                self.failures[str(answer.status_code)] += 1
                assert answer.status_code >= 500, answer.text
            await asyncio.sleep(0.1)

    async def respond(self, number: int) -> None:
        """Create a background response; some are read as they are made."""
        body = {"model": "counter", "input": str(number), "background": True}
        id = (await self.request("POST", "/responses", json=body)).json()["id"]
        self.received[id] = []
        if number < READERS:
            while not self.received[id] or self.received[id][-1]["type"] not in ENDS:
                await self.read_on(id)

    async def read_on(self, id: str) -> None:
        """Read where the reader stopped, until the stream or its server ends."""
        received = self.received[id]
        query = {"stream": "true"} | ({"starting_after": str(len(received) - 1)} if received else {})
        url = f"{self.chance.choice(self.servers).url}/v1/responses/{id}"
        rest = ""
        try:
            async with self.http.stream("GET", url, params=query, timeout=5) as answer:
                if answer.status_code != 200:
                    return await asyncio.sleep(0.1)
                async for chunk in answer.aiter_text():
                    *frames, rest = (rest + chunk).split("\n\n")
                    received += [parse_event(frame) for frame in frames if frame.startswith("event:")]
        except httpx.TransportError as error:
            self.failures[type(error).__name__] += 1
            await asyncio.sleep(0.1)

    async def chain(self, length: int) -> None:
        """Continue one response after the other; a turn that failed is repeated."""
        previous: dict[str, str] = {}
        done = 0
        while done < length:
            body = {"model": "remember", "input": "more", **previous}
            response = (await self.request("POST", "/responses", json=body)).json()
            if response["status"] != "completed":
                continue
            count = int(response["output"][0]["content"][0]["text"])
            assert count == 2 * done + 1
            self.turns.append((response["id"], count))
            previous = {"previous_response_id": response["id"]}
            done += 1


async def run_at_once(work: list[Any], seconds: float = 0, chance: random.Random | None = None) -> None:
    """Await everything, a number at a time; each begins at a random moment of the first seconds."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(one: Any) -> None:
        await asyncio.sleep(chance.uniform(0, seconds) if chance else 0)
        async with slots:
            await one

    await asyncio.gather(*map(run, work))


async def break_things(
    processes: list[Process], database: PostgresServer, chance: random.Random, faults: Counter[str]
) -> None:
    """Kill, freeze and stop, until cancelled; every kind in turn."""
    while True:
        faults["freeze"] += 1
        frozen = chance.choice(processes)
        frozen.send(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS * 2.5)
        frozen.send(signal.SIGCONT)
        await asyncio.sleep(1)
        faults["kill"] += 1
        killed = chance.choice(processes)
        await asyncio.to_thread(killed.send, signal.SIGKILL)
        killed.start()
        await asyncio.sleep(chance.uniform(1, 3))
        faults["stop the database"] += 1
        await asyncio.to_thread(database.stop, immediately=True)
        await asyncio.to_thread(database.start)
        await asyncio.sleep(chance.uniform(1, 3))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """Give an HTTP client."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=WAIT, trust_env=False, limits=limits) as http:
        yield http


async def test_nothing_acknowledged_is_lost(tmp_path: Path, http: httpx.AsyncClient) -> None:
    for name, slots in (("front", 0), ("back", 50)):
        (tmp_path / f"{name}.py").write_text(APP.replace("SLOTS", str(slots)).replace("LEASE", str(LEASE_SECONDS)))
    database = PostgresServer(durable=True)
    database.start()
    try:
        with run_replicas(tmp_path, create_database(database)) as processes:
            client = Client(processes[:2], http, random.Random(7))
            happened = Counter[str]()
            faults = asyncio.create_task(break_things(processes, database, random.Random(11), happened))
            chains = [client.chain(10) for _ in range(max(1, TURNS // 10))]
            work = asyncio.create_task(
                run_at_once([*chains, *map(client.respond, range(RESPONSES))], SPREAD_SECONDS, random.Random(3))
            )
            await asyncio.wait([work, faults], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await faults  # raises what broke
            await work
            faults.cancel()
            await asyncio.gather(faults, return_exceptions=True)
            assert len(happened) == 3, happened
            await recover(processes, database)
            statuses = await check(client)
            refused = sum(int(count) for process in processes for count in LOST.findall(process.log))
        outcomes = f"{dict(statuses)}; {len(client.turns)} turns; {refused} writes refused"
        print(f"{dict(happened)}; {outcomes}; failed requests: {dict(client.failures)}")
    finally:
        database.remove()


async def recover(processes: list[Process], database: PostgresServer) -> None:
    """Have everything run again."""
    await asyncio.to_thread(database.stop, immediately=True)
    await asyncio.to_thread(database.start)
    for process in processes:
        process.send(signal.SIGCONT)
        await asyncio.to_thread(process.wait)


async def check(client: Client) -> Counter[str]:
    """Check all that was acknowledged; return how many responses ended how."""
    statuses = Counter[str]()
    assert len(client.received) == RESPONSES

    async def check_response(id: str, received: list[dict[str, Any]]) -> None:
        while (response := (await client.request("GET", f"/responses/{id}")).json())["status"] in (
            "queued",
            "in_progress",
        ):
            await asyncio.sleep(0.2)
        whole = list[dict[str, Any]]()
        client.received[id] = whole
        await client.read_on(id)
        assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
        assert whole[: len(received)] == received
        assert [event["type"] in ENDS for event in whole] == [False] * (len(whole) - 1) + [True]
        assert whole[-1]["response"] == response
        assert find_violations([decode_event(event) for event in whole]) == []
        if response["status"] == "completed":
            text = response["output"][0]["content"][0]["text"]
            assert text == "".join(f"{word} " for word in range(20))
        statuses[response["status"]] += 1

    async with asyncio.timeout(120 + RESPONSES / 10):
        await run_at_once([check_response(id, received) for id, received in list(client.received.items())])
        for id, count in client.turns:
            response = (await client.request("GET", f"/responses/{id}")).json()
            assert response["status"] == "completed"
            assert response["output"][0]["content"][0]["text"] == str(count)
    return statuses
