"""A server under mixed load and faults for a minute (or an hour) ends with what it had after the first tenth.

`make soak` runs it for an hour.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream
from websockets.asyncio.client import connect

from tests.http_client import WAIT, parse_stream
from tests.run_server import ROOT, run_command
from tests.ws_client import TERMINAL_TYPES

pytestmark = pytest.mark.anyio

SECONDS = float(os.environ.get("ANTIPHON_SOAK_SECONDS", "60"))
CLIENTS = 10

HEAD = b"HTTP/1.1 %s\r\ncontent-type: %s\r\nconnection: close\r\n\r\n"
STREAM = HEAD % (b"200 OK", b"text/event-stream")
JSON = b"application/json"
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
END = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

UPSTREAM_ANSWERS: list[bytes] = [
    STREAM + 40 * CHUNK + END,
    STREAM + 400 * CHUNK + END,
    STREAM + 5 * CHUNK,  # ends without a finish reason
    STREAM + CHUNK + b"data: {broken\n\n",
    STREAM + CHUNK + b'data: {"error": {"message": "overloaded", "code": 529}}\n\n',
    STREAM + CHUNK[:-30],
    STREAM + 2_000 * b": a comment\n\n" + CHUNK + END,
    HEAD % (b"429 Too Many Requests", JSON) + b'{"error": {"message": "slow down"}}',
    HEAD % (b"500 Internal Server Error", b"text/html") + b"<html>" + 1000 * b"<p>oops</p>",
    HEAD % (b"400 Bad Request", JSON) + b'{"error": {"message": "no such thing", "param": "model"}}',
    b"\x00\xff\xfe not HTTP at all",
    b"",
]


async def answer_upstream(stream: SocketStream) -> None:
    """Answer one request as a provider on a bad day does."""
    async with stream:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            await stream.receive()
            answer = random.choice(UPSTREAM_ANSWERS)
            half = len(answer) // 2
            await stream.send(answer[:half])
            # Sometimes longer than the server's timeouts.
            await anyio.sleep(random.choice((0, 0, 0, 0.05, 2.5)))
            await stream.send(answer[half:])


class Attacker:
    """A client that does one thing after the other, and checks each answer."""

    def __init__(self, http: httpx.AsyncClient, outcomes: Counter[str], chance: random.Random) -> None:
        self.http, self.outcomes, self.chance = http, outcomes, chance

    async def run(self, until: float) -> None:
        """Attack until a time of the loop's clock."""
        actions: list[Callable[[], Awaitable[str]]] = [
            self.stream, self.whole, self.fail, self.run_in_background, self.cancel_background, self.use_websocket,
            self.leave_websocket, self.abort, self.refused, self.oversized, self.call_faulty_upstream,
            self.stream_faulty_upstream,
        ]  # fmt: skip
        while asyncio.get_running_loop().time() < until:
            action = self.chance.choice(actions)
            self.outcomes[f"{action.__name__}: {await action()}"] += 1

    async def post(self, **body: object) -> httpx.Response:
        return await self.http.post("/v1/responses", json={"model": "counter", "input": "20"} | body)

    async def stream(self) -> str:
        answer = await self.post(stream=True, input=str(self.chance.randrange(200)))
        return parse_stream(answer.text)[-1]["type"]

    async def whole(self) -> str:
        return (await self.post(model=self.chance.choice(["counter", "blocking", "demo"]))).json()["status"]

    async def fail(self) -> str:
        answer = await self.post(model="crash", stream=self.chance.random() < 0.5)
        return str(answer.status_code)

    async def run_in_background(self) -> str:
        id = (await self.post(background=True)).json()["id"]
        answer = await self.http.get(f"/v1/responses/{id}", params={"stream": "true"})
        return parse_stream(answer.text)[-1]["type"]

    async def cancel_background(self) -> str:
        id = (await self.post(background=True, input="100000")).json()["id"]
        await asyncio.sleep(self.chance.random() / 10)
        await self.http.post(f"/v1/responses/{id}/cancel")
        return str((await self.http.delete(f"/v1/responses/{id}")).status_code)

    async def use_websocket(self) -> str:
        async with connect(self.websocket_url, max_size=None) as socket:
            kind = ""
            for _ in range(3):
                await socket.send(self.websocket_turn("20"))
                while (kind := json.loads(await socket.recv())["type"]) not in TERMINAL_TYPES:
                    pass
            return kind

    async def leave_websocket(self) -> str:
        async with connect(self.websocket_url) as socket:
            await socket.send(self.websocket_turn("100000"))
            await socket.send(self.chance.choice(["{broken", "[]", '{"type":"response.create"}', "x" * 10_000]))
            await socket.recv()
        return "left"

    async def abort(self) -> str:
        body = {"model": "counter", "input": "100000", "stream": True, "store": self.chance.random() < 0.5}
        async with self.http.stream("POST", "/v1/responses", json=body) as answer:
            async for _ in answer.aiter_bytes():
                if self.chance.random() < 0.2:
                    break
        return "left"

    async def refused(self) -> str:
        bad: list[object] = [[], {}, {"model": "nobody", "input": ""}, {"model": "demo", "input": [{"type": "?"}]}]
        answer = await self.http.post("/v1/responses", json=self.chance.choice(bad))
        assert answer.status_code in {400, 404}, answer.text
        return "4xx"

    async def oversized(self) -> str:
        with contextlib.suppress(httpx.WriteError):  # the server closes before it has read all
            return str((await self.post(input="x" * 2_000_000)).status_code)
        return "closed"

    async def call_faulty_upstream(self) -> str:
        answer = await self.post(model="faulty/model")
        assert answer.status_code == 200 or answer.json()["error"]["message"].startswith("faulty"), answer.text
        return str(answer.status_code)

    async def stream_faulty_upstream(self) -> str:
        answer = await self.post(model="faulty/model", stream=True)
        if answer.status_code != 200:
            return str(answer.status_code)
        return parse_stream(answer.text)[-1]["type"]

    @property
    def websocket_url(self) -> str:
        return str(self.http.base_url.join("/v1/responses").copy_with(scheme="ws"))

    @staticmethod
    def websocket_turn(text: str) -> str:
        return json.dumps({"type": "response.create", "model": "counter", "input": text})


@asynccontextmanager
async def run_upstream() -> AsyncIterator[str]:
    """Run the faulty provider; give its address."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer_upstream)
        yield f"http://127.0.0.1:{port}/v1"
        tasks.cancel_scope.cancel()


async def attack(address: str, seconds: float, outcomes: Counter[str]) -> None:
    """Run all clients at once for some seconds."""
    until = asyncio.get_running_loop().time() + seconds
    async with httpx.AsyncClient(base_url=address, timeout=WAIT, trust_env=False) as http:
        attackers = [Attacker(http, outcomes, random.Random(number)) for number in range(CLIENTS)]
        await asyncio.gather(*(attacker.run(until) for attacker in attackers))


async def measure(address: str) -> dict[str, Any]:
    """Return the server's figures at rest: after what the clients left behind has ended."""
    async with httpx.AsyncClient(base_url=address, timeout=WAIT, trust_env=False) as http:
        await asyncio.sleep(5)
        answer = await http.post("/v1/responses", json={"model": "probe", "input": "", "store": False})
        return json.loads(answer.json()["output"][0]["content"][0]["text"])


@pytest.mark.timeout(SECONDS + 120)
async def test_a_minute_of_abuse_leaves_nothing_behind(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    async with run_upstream() as upstream:
        command = ("--app", "tests.faults.soak_app:SETTINGS", "--data", str(tmp_path), "--drain-seconds", "1")
        environment = {"SOAK_UPSTREAM": upstream, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "no_proxy": "127.0.0.1"}
        with run_command(*command, env=environment) as (address, process):
            # Read all the time: a full pipe would stop the server.
            reading = asyncio.create_task(asyncio.to_thread(process.communicate))
            try:
                await measure(address)  # starts the measurement of the loop's lag
                await attack(address, SECONDS / 10, outcomes)
                before = await measure(address)
                await attack(address, SECONDS * 9 / 10, outcomes)
                after = await measure(address)
            except Exception:
                # The server writes the stacks of its threads to its log, and ends.
                process.send_signal(signal.SIGABRT)
                print((await reading)[0][-10_000:])
                raise
            process.terminate()
            log, _ = await reading
    print(json.dumps({"before": before, "after": after, "outcomes": dict(sorted(outcomes.items()))}, indent=1))
    assert log.count("Traceback") == log.count("\nRuntimeError: a bug in the agent")
    assert len(outcomes) > 20  # each action, most of them with several outcomes
    assert after["rss_mb"] < before["rss_mb"] + 10
    assert after["files"] <= before["files"] + 2
    assert after["tasks"] <= before["tasks"] + 2
    assert after["lag_ms"] < before["lag_ms"] + 50
