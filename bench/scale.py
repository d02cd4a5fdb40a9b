"""Durable events on SQLite and PostgreSQL: rates, delays from append to reader, CPU, and look-ups among many.

Every stream appends five events each 20 ms, as a fast model does, and has one reader. CPU is that of this process, and
of the database's processes beside it. PostgreSQL is the server of the tests, with fsync.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psutil
from tests.postgres_server import PostgresServer, create_database

from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore
from bench.store import EVENT, LOOKUPS, new_response, save
from bench.table import show

STREAMS = (1, 10, 100, 1000)
SECONDS = float(os.environ.get("BENCH_SCALE_SECONDS", "4"))
BATCH, PAUSE = 5, 0.02
FEW, MANY = 1_000, int(os.environ.get("BENCH_SCALE_RESPONSES", "100000"))

AnyStore = SqliteStore | PostgresStore


def database_cpu(server: PostgresServer | None) -> dict[int, float]:
    """Return the CPU seconds of the database's processes."""
    if server is None or server.process_id is None:
        return {}
    used: dict[int, float] = {}
    for process in psutil.Process(server.process_id).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used[process.pid] = times.user + times.system
    return used


async def stream_events(store: AnyStore, server: PostgresServer | None, streams: int) -> dict[str, float]:
    """Append and read in a number of streams; return the figures."""
    delays: list[float] = []
    stop = time.perf_counter() + SECONDS

    async def write(id: str, sent: dict[int, float]) -> int:
        last = -1
        while (start := time.perf_counter()) < stop:
            sent[last + BATCH] = start
            assert await store.append(id, 0, last, [EVENT] * BATCH)
            last += BATCH
            await asyncio.sleep(max(0, PAUSE - (time.perf_counter() - start)))
        return last + 1

    async def read(id: str, sent: dict[int, float]) -> None:
        after = -1
        while True:
            found = await store.read(id, after)
            if found and found.events:
                after += len(found.events)
                if after in sent:
                    delays.append(time.perf_counter() - sent[after])
            else:
                await store.wait(id, after)

    ids = [f"s{streams}_{n}" for n in range(streams)]
    for id in ids:
        await store.begin(new_response(id), [])
    stop = time.perf_counter() + SECONDS
    logs: list[dict[int, float]] = [{} for _ in ids]
    before, cpu = database_cpu(server), time.process_time()
    readers = [asyncio.create_task(read(id, sent)) for id, sent in zip(ids, logs, strict=True)]
    total = sum(await asyncio.gather(*(write(id, sent) for id, sent in zip(ids, logs, strict=True))))
    cpu = time.process_time() - cpu
    database = sum(used - before.get(pid, 0) for pid, used in database_cpu(server).items())
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return {
        "events_per_s": total / SECONDS,
        "delay_p50_ms": statistics.median(delays) * 1e3,
        "delay_p99_ms": statistics.quantiles(delays, n=100)[98] * 1e3,
        "cpu_us_per_event": cpu / total * 1e6,
        "database_us_per_event": database / total * 1e6,
    }


async def fill(store: AnyStore, first: int, last: int) -> None:
    """Store responses, some at a time."""
    numbers = iter(range(first, last))

    async def add() -> None:
        for number in numbers:
            await save(store, f"r{number}")

    await asyncio.gather(*(add() for _ in range(16)))


async def look_up(work: Callable[[int], Awaitable[object]]) -> float:
    """Return the median microseconds of a look-up."""
    taken: list[float] = []
    for number in range(LOOKUPS):
        start = time.perf_counter()
        assert await work(number) is not None
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


async def measure(name: str, store: AnyStore, server: PostgresServer | None) -> dict[str, float]:
    """Measure one store."""
    figures: dict[str, float] = {}
    for streams in STREAMS:
        found = await stream_events(store, server, streams)
        figures |= {f"{name}_{streams}_{key}": value for key, value in found.items()}
    await fill(store, 0, FEW)
    for count in (FEW, MANY):
        await fill(store, FEW, count)
        for key, find in (("find", store.find), ("history", store.read_history)):
            figures[f"{name}_{key}_{count}_us"] = await look_up(lambda n, c=count, f=find: f(f"r{n * 7919 % c}"))
    return figures


async def measure_all(folder: str, server: PostgresServer) -> dict[str, float]:
    """Measure both stores."""
    sqlite = SqliteStore(folder)
    figures = await measure("sqlite", sqlite, None)
    await sqlite.close()
    postgres = PostgresStore(create_database(server))
    await postgres.open()
    figures |= await measure("postgres", postgres, server)
    await postgres.close()
    for streams in STREAMS:
        ours, theirs = (figures[f"{name}_{streams}_cpu_us_per_event"] for name in ("postgres", "sqlite"))
        figures[f"cpu_{streams}_ratio"] = ours / theirs
    return figures


def unit(name: str) -> str:
    """Return the unit of a figure."""
    return "×" if "ratio" in name else "events/s" if name.endswith("_per_s") else "ms" if "_ms" in name else "µs"


def main() -> None:
    """Measure."""
    server = PostgresServer(durable=True)
    try:
        server.start()
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(measure_all(folder, server))
    finally:
        server.remove()
    rows = [(name, value, unit(name)) for name, value in figures.items()]
    show("scale: SQLite and PostgreSQL", rows, figures)


if __name__ == "__main__":
    main()
