"""Checks that a client leaks no sockets and timers."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


@asynccontextmanager
async def check_no_leaks() -> AsyncIterator[None]:
    """Check that no socket, timer or event-loop error is left behind."""
    loop = asyncio.get_running_loop()
    messages: list[str] = []

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        if "incoming connection" not in context["message"]:  # that is the server's own
            messages.append(repr(context))

    handler = loop.get_exception_handler()
    loop.set_exception_handler(handle)
    before = open_sockets()
    yield
    for _ in range(100):
        if open_sockets() <= before:
            break
        await asyncio.sleep(0.02)
    gc.collect(1)  # what this test made is young
    await asyncio.sleep(0)
    loop.set_exception_handler(handler)
    assert (messages, running_timers(), open_sockets() - before) == ([], [], set())


def open_sockets() -> set[str]:
    """Return the TCP sockets of this process."""
    tables = (Path(f"/proc/self/net/{name}").read_text() for name in ("tcp", "tcp6"))
    known = {line.split()[9] for table in tables for line in table.splitlines()[1:]}
    found: set[str] = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.removeprefix("socket:[").removesuffix("]") in known:
            found.add(target)
    return found


def running_timers() -> list[str]:
    """Return the running timers of connections; uvloop has no way to list them."""
    handles = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return [repr(handle) for handle in handles if _is_connection_timer(handle)]


def _is_connection_timer(handle: asyncio.TimerHandle) -> bool:
    return not handle.cancelled() and "Connection" in repr(handle)
