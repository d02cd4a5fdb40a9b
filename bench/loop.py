"""The agent loop over each transport: bytes sent per round, and total time.

The same agent runs through the same gateway to the same upstream: a scripted chat model that calls
a tool in twenty rounds, receives 16 kB each time, and then answers. Chat completions send the whole
history in every round; Responses send only new items. Each run has its own client, so opening the
connection (and closing the WebSocket) is included. It runs on plain loopback, and over the network
that `bench/slow_network.py` simulates.
"""

import asyncio
import contextlib
import json
import random
import re
import statistics
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from antiphon.client.agent.run import AgentOptions, stream_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.tools.tool import tool
from bench.gateway import DONE, HEAD, chunk, http_chunk
from bench.programs import run_process
from bench.serve import free_port
from bench.slow_network import DELAY, UPLINK
from bench.table import show

ROUNDS = 20
RESULT_BYTES = 16_000
REPEATS = 7
ANSWER = "That is all."

WAYS = {
    "chat": AgentOptions(use_responses_api=False, smoothing_delay=0),
    "http": AgentOptions(use_responses_api=True, smoothing_delay=0),
    "ws": AgentOptions(use_responses_api=True, use_responses_websocket=True, smoothing_delay=0),
}
NAMES = {"chat": "chat", "http": "Responses, HTTP", "ws": "Responses, WebSocket"}
DETOURS = {"connection_update", "context_management"}
"""Events that show that a run changed its transport."""


def answer(done: int) -> bytes:
    """Encode the model's answer after a number of tool results."""
    if done < ROUNDS:
        arguments = json.dumps({"number": done})
        function = {"name": "read_page", "arguments": arguments}
        call = {"index": 0, "id": f"call_{done:024}", "type": "function", "function": function}
        said = chunk({"role": "assistant", "tool_calls": [call]}) + chunk({}, "tool_calls")
    else:
        said = chunk({"role": "assistant", "content": ANSWER}) + chunk({}, "stop")
    usage = {"prompt_tokens": 4000 * done, "completion_tokens": 20, "total_tokens": 4000 * done + 20}
    counted = json.dumps({"choices": [], "usage": usage}).encode()
    return HEAD + said + http_chunk(b"data: " + counted + b"\n\n") + DONE


async def play(port: int) -> None:
    """Run the upstream."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                writer.write(answer(len(re.findall(rb'"role": ?"tool"', body))))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", port)
    await server.serve_forever()


LETTERS = random.Random(0).choices(string.ascii_letters, k=RESULT_BYTES * ROUNDS)
BOOK = "".join(LETTERS)


@tool
def read_page(number: int) -> str:
    """Read a page of the book."""
    return BOOK[number * RESULT_BYTES :][:RESULT_BYTES]


async def loop(port: int, options: AgentOptions) -> float:
    """Run the agent; return the seconds it took."""
    begin = time.perf_counter()
    async with AsyncClient(f"http://127.0.0.1:{port}/v1") as client:
        run = stream_agent(
            "Read the book to me.",
            model="local/reader",
            tools=[read_page],
            instructions="You read one page after the other.",
            options=options,
            client=client,
        )
        detours = [event.type async for event in run if event.type in DETOURS]
        seconds = time.perf_counter() - begin
    result = run.result
    if detours or not result or result.final != ANSWER or len(result.tool_calls) != ROUNDS:
        raise SystemExit(f"bench loop: the loop went astray: {detours or result}")
    return seconds


@dataclass(frozen=True)
class NetworkUsage:
    """What one run sent over the network."""

    connections: int
    uplink: int
    bodies: list[int]


def over_link(gateway: int, options: AgentOptions) -> tuple[float, NetworkUsage]:
    """Run the agent over the simulated network; return its seconds and what it sent."""
    port = free_port()
    command = [sys.executable, "-m", "bench.slow_network", str(port), str(gateway)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as link:
        assert link.stdout is not None
        link.stdout.readline()
        try:
            seconds = asyncio.run(loop(port, options))
        finally:
            link.terminate()
        return seconds, NetworkUsage(**json.loads(link.stdout.read()))


@contextlib.contextmanager
def gateway() -> Iterator[int]:
    """Run the upstream and a gateway in front of it; give the gateway's port."""
    upstream, port = free_port(), free_port()
    model = [sys.executable, "-m", "bench.loop", str(upstream)]
    door = [sys.executable, "-m", "bench.gateway", "serve", str(port), str(upstream)]
    with run_process(*model, port=upstream), run_process(*door, port=port):
        yield port


def show_bytes(tallies: dict[str, NetworkUsage]) -> None:
    """Print the bytes of each round, and their sum."""
    rounds = zip(*(tally.bodies for tally in tallies.values()), strict=True)
    lines = {str(number): sizes for number, sizes in enumerate(rounds, 1)}
    lines["bodies"] = tuple(sum(tally.bodies) for tally in tallies.values())
    lines["uplink"] = tuple(tally.uplink for tally in tallies.values())
    lines["connections"] = tuple(tally.connections for tally in tallies.values())
    print(f"\nloop: bytes of the body that each round sends; {RESULT_BYTES} of them are the result")
    print("  round      " + "".join(f"{NAMES[way]:>22}" for way in tallies))
    for name, sizes in lines.items():
        print(f"  {name:<11}" + "".join(f"{size:>22,}" for size in sizes))
    print("  uplink is all that was sent: headers, handshakes and frames included")


def compare_ways(place: str, seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return the times on one network, and their ratios to chat completions."""
    medians = {way: statistics.median(times) for way, times in seconds.items()}
    figures = {f"{place}{way}_seconds": median for way, median in medians.items()}
    for way in ("http", "ws"):
        figures[f"{place}{way}_time_over_chat_time"] = medians[way] / medians["chat"]
    return figures


def main() -> None:
    """Measure."""
    bare: dict[str, list[float]] = {way: [] for way in WAYS}
    link: dict[str, list[float]] = {way: [] for way in WAYS}
    tallies: dict[str, NetworkUsage] = {}
    with gateway() as port:
        for _ in range(REPEATS):
            for way, options in WAYS.items():
                bare[way].append(asyncio.run(loop(port, options)))
                seconds, tallies[way] = over_link(port, options)
                link[way].append(seconds)
    show_bytes(tallies)
    figures = compare_ways("", link) | compare_ways("loopback_", bare)
    rows = [
        (name.replace("_", " "), value, "s" if name.endswith("seconds") else "×") for name, value in figures.items()
    ]
    for way, name in {"chat": "chat", "http": "responses", "ws": "ws"}.items():
        figures[f"{name}_bytes"] = tallies[way].uplink
    link_model = f"{DELAY * 1000:.0f} ms each way, {UPLINK / 1e6:.0f} Mbit/s up"
    title = f"loop: {ROUNDS} tool rounds over a link of {link_model}, median of {REPEATS}"
    show(f"{title} (aim: ws over chat ≤ 0.6)", rows, figures)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        asyncio.run(play(int(sys.argv[1])))
    else:
        main()
