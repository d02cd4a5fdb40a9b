"""A real server whose model calls tools in rounds, with faults injected per request.

The prompt tells the model `worker` what to do: `rounds=3` of tool calls, `parallel=2` in each.
Everything the client sends is recorded.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.client.agent.events import ToolUpdate
from antiphon.client.agent.run import AgentOptions, stream_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.tools.tool import tool
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from tests.run_server import run_server, without_store

PROMPT_OPTION = re.compile(r"(\w+)=(\d+)")


def parse_prompt(turn: Turn) -> dict[str, int]:
    """Parse the options of a prompt."""
    return {name: int(value) for name, value in PROMPT_OPTION.findall(turn.text)}


@agent("worker")
async def worker(turn: Turn) -> AsyncIterator[Part]:
    """Calls the first tool in a number of rounds, then lists the results."""
    todo = parse_prompt(turn)
    rounds, parallel = todo.get("rounds", 0), todo.get("parallel", 1)
    outputs = turn.tool_outputs
    done = len(outputs) // parallel
    yield parts.Usage(input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2)
    if "THINK" in turn.text:
        yield parts.Reasoning(f"I think about round {done}. ")
        yield parts.Reasoning("It is well.")
    if done >= rounds:
        for word in ("Done", ":", " ", ", ".join(o.text[:40] for o in outputs) or "nothing", "."):
            if todo.get("slow"):
                await asyncio.sleep(todo["slow"] / 1000)
            yield parts.Text(word)
        return
    yield parts.Text(f"Round {done}.")
    for place in range(parallel):
        key, id = f"c{place}", f"call_{done}_{place}"
        if todo.get("slow"):
            await asyncio.sleep(todo["slow"] / 1000)
        yield parts.Call(key, turn.functions[0].name, '{"value":', id)
        yield parts.Call(key, arguments=f" {done * 10 + place}}}", complete=True)


@dataclass
class Fault:
    """A fault in the answer to one request.

    `status` rejects the request; `cut_after` drops the connection after a number of events;
    `envelope` answers a WebSocket message with an error.
    """

    status: int = 0
    code: str = ""
    message: str = "It was not to be."
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    envelope: bool = False


RESPONSE_NOT_FOUND = Fault(400, "previous_response_not_found")
CONNECTION_LIMIT = Fault(400, "websocket_connection_limit_reached", envelope=True)


@dataclass
class FaultyServer:
    """The server's URL, its faults, and the requests that it received."""

    url: str = ""
    bodies: list[dict] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    sockets: int = 0
    refuse_sockets: int = 0
    faults: dict[int, Fault] = field(default_factory=dict)
    """By the number of the request, from 0."""
    disconnects: int = 0
    """How many answers nobody waited for."""

    def take(self, path: str, data: bytes) -> Fault | None:
        """Record a request; return its fault."""
        number = len(self.bodies)
        self.bodies.append(json.loads(data))
        self.sizes.append(len(data))
        self.paths.append(path)
        return self.faults.get(number)


class FaultMiddleware:
    """ASGI middleware that records requests and injects faults."""

    def __init__(self, app, arena: FaultyServer) -> None:
        self._app = app
        self._server = arena

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST":
            await self._http(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope, receive, send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        fault = self._server.take(scope["path"], body)
        if fault and fault.status:
            await self._refuse(fault, send)
            return
        given = False

        async def replay():
            nonlocal given
            if given:
                message = await receive()
                self._server.disconnects += message["type"] == "http.disconnect"
                return message
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        passed = 0

        async def checked(message):
            nonlocal passed
            passed += message.get("body", b"").count(b"data: ")
            if fault and fault.cut_after is not None and passed > fault.cut_after:
                raise OSError("the connection was cut")
            await send(message)

        await self._app(scope, replay, checked)

    async def _refuse(self, fault: Fault, send) -> None:
        error = {"message": fault.message, "type": "invalid_request", "code": fault.code or None}
        headers = [(b"content-type", b"application/json")]
        headers += [(name.encode(), value.encode()) for name, value in fault.headers.items()]
        await send({"type": "http.response.start", "status": fault.status, "headers": headers})
        body = json.dumps({"error": error | {"param": None}}).encode()
        await send({"type": "http.response.body", "body": body})

    async def _socket(self, scope, receive, send) -> None:
        arena = self._server
        if arena.refuse_sockets:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        arena.sockets += 1
        cut: list[int] = []

        async def checked():
            while True:
                message = await receive()
                if message["type"] != "websocket.receive":
                    return message
                fault = arena.take("socket", message["text"].encode())
                if fault is None:
                    return message
                if fault.cut_after is not None:
                    cut.append(fault.cut_after)
                    return message
                error = {"message": fault.message, "type": "invalid_request", "code": fault.code}
                text = json.dumps({"type": "error", "status": fault.status, "error": error})
                await send({"type": "websocket.send", "text": text})

        async def passing(message):
            if cut and message["type"] == "websocket.send":
                cut[0] -= 1
                if cut[0] < 0:
                    cut.clear()
                    await send({"type": "websocket.close", "code": 1011})
                    return
            await send(message)

        await self._app(scope, checked, passing)


@contextmanager
def serve_worker(make: Callable[[], FaultyServer] = FaultyServer, **settings: object) -> Iterator[FaultyServer]:
    """Run a server with the worker model and the fault middleware."""
    made = make()
    app = create_app(without_store(Settings(agents=[worker], **settings)))  # type: ignore[arg-type]
    with run_server(FaultMiddleware(app, made)) as url:
        made.url = f"{url}/v1"
        yield made


def outputs_in(body: dict) -> list[str]:
    """Return the tool outputs in a request's input."""
    given = [item for item in body.get("input", []) if item.get("type") == "function_call_output"]
    return [item["output"] for item in given]


CHAT = AgentOptions(use_responses_api=False, smoothing_delay=0, retry_delay=1)
HTTP = AgentOptions(use_responses_api=True, smoothing_delay=0, retry_delay=1)
SOCKET = AgentOptions(use_responses_api=True, use_responses_websocket=True, smoothing_delay=0, retry_delay=1)
ALL_TRANSPORTS = pytest.mark.parametrize("options", [CHAT, HTTP, SOCKET], ids=["chat", "http", "socket"])
STATEFUL_TRANSPORTS = pytest.mark.parametrize("options", [HTTP, SOCKET], ids=["http", "socket"])


@tool
def double(value: int) -> str:
    """Double a number."""
    return str(value * 2)


async def run_to_end(client: AsyncClient, prompt: str, options: AgentOptions, **params: Any) -> tuple[Any, list[Any]]:
    """Run an agent; return its result and its events."""
    params = {"model": "worker", "tools": [double], **params}
    run = stream_agent(prompt, options=options, client=client, **params)
    events = [event async for event in run]
    return run.result, events


def event_types(events) -> list[str]:
    """Return the types of events, without repetitions."""
    seen = [f"tool_update:{e.status}" if isinstance(e, ToolUpdate) else e.type for e in events]
    return [name for place, name in enumerate(seen) if place == 0 or name != seen[place - 1]]
