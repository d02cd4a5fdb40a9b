"""The server that the soak test attacks: agents that work, fail and wait, and one that measures its process."""

import asyncio
import faulthandler
import gc
import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

from antiphon import Settings, agent
from antiphon.adapters.base import Provider
from antiphon.agents.agent import Turn

LAGS: deque[float] = deque(maxlen=20_000)
"""How late the event loop woke a sleeping task, since the last measurement. An hour of them would be 10 MB."""

TICK = 0.01

faulthandler.enable()  # what hangs can be asked with SIGABRT where it is


@agent("counter")
async def counter(turn: Turn) -> AsyncIterator[str]:
    """Count slowly to the number in the input."""
    for word in range(int(turn.text)):
        yield f"{word} "
        await asyncio.sleep(0.001)


@agent("crash")
async def crash() -> AsyncIterator[str]:
    """Fail after the first text."""
    yield "so far "
    raise RuntimeError("a bug in the agent")


@agent("blocking")
def blocking() -> str:
    """Block a thread, not the loop."""
    time.sleep(0.02)
    return "done"


@agent("probe")
async def probe() -> str:
    """Return the figures of this process as JSON."""
    if not LAGS:
        asyncio.get_running_loop().create_task(measure_lag(), name="measure_lag")
        await asyncio.sleep(2 * TICK)
    gc.collect()
    lags, newest = sorted(LAGS), LAGS[-1]
    LAGS.clear()
    LAGS.append(newest)
    status = Path("/proc/self/status").read_text()
    figures = {
        "rss_mb": int(status.split("VmRSS:")[1].split()[0]) / 1024,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "lag_ms": 1000 * lags[len(lags) * 99 // 100],
    }
    return json.dumps(figures)


async def measure_lag() -> None:
    """Record how late the loop is, for ever."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(TICK)
        LAGS.append(time.monotonic() - before - TICK)


SETTINGS = Settings(
    agents=[counter, crash, blocking, probe],
    providers=[Provider(name="faulty", adapter="openai", base_url=os.environ["SOAK_UPSTREAM"])],
    # Small limits, so that a minute reaches them.
    body_limit=1_000_000,
    memory_bytes=2_000_000,
    memory_seconds=2,
    response_seconds=2,
    event_seconds=1,
    sweep_seconds=1,
    background_slots=10,
    idle_seconds=2,
    first_byte_seconds=2,
    retries=1,
    retry_seconds=0.01,
)
