"""CPU per streamed event in the client's process, beside openai-python, on the same bytes.

A server in a process of its own plays one response of many deltas, each event in a chunk of its
own, as fast as it is read. The clients take turns, each reads typed events to the end, and what
counts is the CPU time of this process: all of its threads, the kernel's share included.
"""

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

from openai import AsyncOpenAI, OpenAI

from antiphon.client.client import AsyncClient
from antiphon.client.sync import Client
from antiphon.core.parts import Finish, Text, Usage
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.wire import sse
from antiphon.wire.dialects import OpenAIDialect
from bench.serve import free_port
from bench.table import show

DELTAS = 1000
STREAMS = 3
ROUNDS = 5

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
MODEL, INPUT = "played", "Hi!"


def played() -> list[bytes]:
    """Return the events of one response, as OpenAI writes them."""
    counter = itertools.count()
    response = Response.new(Request(model="played"), id="resp_" + "0" * 48, created_at=0)
    synth = Synth(response, ids=lambda prefix: f"{prefix}_{next(counter):048}", clock=time.time)
    events = synth.start()
    for number in range(DELTAS):
        events += synth.feed(Text(f" word {number}"))
    events += synth.feed(Usage(8, DELTAS))
    events += synth.feed(Finish("stop"))
    events += synth.end()
    dialect = OpenAIDialect()
    return [dialect.sse(event) for event in events]


FRAMES = played()


async def play(port: int) -> None:
    """Be the server."""
    chunks = [b"%x\r\n%b\r\n" % (len(f), f) for f in [*FRAMES, sse.DONE_FRAME]]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(HEAD)
                for chunk in chunks:
                    writer.write(chunk)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


@contextlib.contextmanager
def playing() -> Iterator[str]:
    """Run the server; give its address."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "bench.client", str(port)]) as process:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


async def ours(url: str) -> int:
    """Read streams with `AsyncClient`."""
    heard = 0
    async with AsyncClient(url) as client:
        for _ in range(STREAMS):
            async with client.stream(model=MODEL, input=INPUT) as stream:
                async for _event in stream:
                    heard += 1
    return heard


async def ours_sync(url: str) -> int:
    """Read streams with `Client`, which has a loop of its own."""
    heard = 0
    with Client(url) as client:
        for _ in range(STREAMS):
            with client.stream(model=MODEL, input=INPUT) as stream:
                for _event in stream:
                    heard += 1
    return heard


async def theirs(url: str) -> int:
    """Read streams with `AsyncOpenAI`."""
    heard = 0
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        for _ in range(STREAMS):
            async for _event in await client.responses.create(
                model=MODEL, input=INPUT, stream=True
            ):
                heard += 1
    return heard


async def theirs_sync(url: str) -> int:
    """Read streams with `OpenAI`."""
    heard = 0
    with OpenAI(base_url=url, api_key="none") as client:
        for _ in range(STREAMS):
            for _event in client.responses.create(model=MODEL, input=INPUT, stream=True):
                heard += 1
    return heard


CLIENTS: dict[str, Callable[[str], Awaitable[int]]] = {
    "antiphon": ours,
    "antiphon_sync": ours_sync,
    "openai": theirs,
    "openai_sync": theirs_sync,
}


async def cost(client: Callable[[str], Awaitable[int]], url: str) -> float:
    """Return CPU microseconds per event; all events must have come."""
    begin = time.process_time()
    heard = await client(url)
    spent = time.process_time() - begin
    if heard != STREAMS * len(FRAMES):
        raise SystemExit(f"bench client: {heard} events instead of {STREAMS * len(FRAMES)}")
    return spent / heard * 1e6


def main() -> None:
    """Measure."""
    best = dict.fromkeys(CLIENTS, float("inf"))
    with playing() as url:
        for _ in range(ROUNDS):
            for name, client in CLIENTS.items():
                best[name] = min(best[name], asyncio.run(cost(client, url)))
    figures = {f"{name}_us_per_event": value for name, value in best.items()}
    figures["openai_over_antiphon"] = best["openai"] / best["antiphon"]
    figures["openai_over_antiphon_sync"] = best["openai_sync"] / best["antiphon_sync"]
    rows = [(name.replace("_", ", "), value, "µs") for name, value in best.items()]
    rows += [
        ("openai over antiphon", figures["openai_over_antiphon"], "×"),
        ("openai over antiphon, sync", figures["openai_over_antiphon_sync"], "×"),
    ]
    title = f"client: CPU per event, {len(FRAMES)} events a stream (aim: antiphon ≤ 15 µs)"
    show(title, rows, figures)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        asyncio.run(play(int(sys.argv[1])))
    else:
        main()
