"""Clients that read the same recorded streams, and the CPU time each takes per event.

Ours are imported from the public package, so that an older checkout on the import path is measured
by the same code: `python -m bench.stream_readers URL EVENTS` prints the figures of ours as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from openai import AsyncOpenAI, OpenAI

from antiphon import AsyncClient, Client

STREAMS = 3
MODEL, INPUT = "played", "Hi!"


async def read_ours(url: str) -> int:
    """Read streams with `AsyncClient`."""
    received = 0
    async with AsyncClient(url) as client:
        for _ in range(STREAMS):
            async with client.stream(model=MODEL, input=INPUT) as stream:
                async for _event in stream:
                    received += 1
    return received


async def read_ours_sync(url: str) -> int:
    """Read streams with `Client`, which runs its own event loop."""
    received = 0
    with Client(url) as client:
        for _ in range(STREAMS):
            with client.stream(model=MODEL, input=INPUT) as stream:
                for _event in stream:
                    received += 1
    return received


async def read_openai(url: str) -> int:
    """Read streams with `AsyncOpenAI`."""
    received = 0
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        for _ in range(STREAMS):
            async for _event in await client.responses.create(model=MODEL, input=INPUT, stream=True):
                received += 1
    return received


async def read_openai_sync(url: str) -> int:
    """Read streams with `OpenAI`."""
    received = 0
    with OpenAI(base_url=url, api_key="none") as client:
        for _ in range(STREAMS):
            for _event in client.responses.create(model=MODEL, input=INPUT, stream=True):
                received += 1
    return received


CLIENTS: dict[str, Callable[[str], Awaitable[int]]] = {
    "antiphon": read_ours,
    "antiphon_sync": read_ours_sync,
    "openai": read_openai,
    "openai_sync": read_openai_sync,
}


async def cost(name: str, url: str, events: int) -> float:
    """Return a client's CPU microseconds per event; it must receive all events."""
    begin = time.process_time()
    received = await CLIENTS[name](url)
    spent = time.process_time() - begin
    if received != STREAMS * events:
        raise SystemExit(f"bench client: {received} events instead of {STREAMS * events}")
    return spent / received * 1e6


def main(url: str, events: int) -> None:
    """Print what our own clients cost, after one reading that warms them up."""
    figures: dict[str, float] = {}
    for name in ("antiphon", "antiphon_sync"):
        asyncio.run(cost(name, url, events))
        figures[f"{name}_us_per_event"] = asyncio.run(cost(name, url, events))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
