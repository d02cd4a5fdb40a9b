"""The SQLite store: durable events per second, lookups among many, and chains of any length."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from antiphon.protocol.items import InputText, Message, OutputText
from antiphon.protocol.response import Response
from antiphon.store.base import Store
from antiphon.store.pagination import PageCursor
from antiphon.store.sqlite.store import SqliteStore
from bench.table import show

EVENT = (
    b'{"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_'
    + b"0" * 48
    + b'","output_index":0,"content_index":0,"delta":" hello"}'
)
SECONDS = 3.0
STREAMS = (1, 10, 100)
COALESCED = 16  # events that come in 20 ms or less are appended together
FEW, MANY = 1_002, 100_002  # three to a chain
LOOKUPS = 400
SHORT, LONG = 10, 1_000
TEXT = "All that is gold does not glitter, not all those who wander are lost. " * 3


def new_response(id: str, after: str | None = None) -> Response:
    """Return a response that is in progress."""
    return Response(id=id, created_at=1, model="m", previous_response_id=after)


async def save(store: Store, id: str, after: str | None = None) -> None:
    """Store a completed response with one question and one answer."""
    asked = Message(id=f"{id}_in", role="user", content=[InputText(text=TEXT)])
    told = Message(id=f"{id}_out", role="assistant", status="completed", content=[OutputText(text=TEXT)])
    response = new_response(id, after)
    await store.begin(response, [asked])
    await store.end(replace(response, status="completed", completed_at=1, output=[told]))


async def gather(work: Iterable[Awaitable[object]], width: int = 500) -> None:
    """Await many operations, `width` at a time."""
    todo = iter(work)

    async def worker() -> None:
        for one in todo:
            await one

    await asyncio.gather(*(worker() for _ in range(width)))


async def appending(store: SqliteStore, streams: int, count: int) -> tuple[float, float, float]:
    """Return events per second, and the median and 99th percentile of an append in ms."""
    latencies: list[float] = []
    stop = time.perf_counter() + SECONDS
    batch = [EVENT] * count

    async def stream(id: str) -> int:
        await store.begin(new_response(id), [])
        last = -1
        while (start := time.perf_counter()) < stop:
            assert await store.append(id, 0, last, batch)
            latencies.append(time.perf_counter() - start)
            last += count
        return last + 1

    ids = [f"s{streams}_{count}_{n}" for n in range(streams)]
    total = sum(await asyncio.gather(*map(stream, ids)))
    cuts = statistics.quantiles(latencies, n=100)
    return total / SECONDS, statistics.median(latencies) * 1e3, cuts[98] * 1e3


async def each(work: Callable[[int], Awaitable[object]], count: int = LOOKUPS) -> float:
    """Return the median microseconds of one call."""
    taken: list[float] = []
    for number in range(count):
        start = time.perf_counter()
        assert await work(number) is not None
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


async def lookups(store: SqliteStore, stored: int) -> dict[str, float]:
    """Measure lookups among a number of stored responses, in chains of three."""

    def id(number: int) -> str:
        return f"r{number * 7919 % (stored // 3) * 3 + 2}"  # the third of some chain

    return {
        "find": await each(lambda n: store.find(id(n))),
        "history": await each(lambda n: store.read_history(id(n))),
        "input_items": await each(lambda n: store.list_input_items(id(n), PageCursor())),
        "find_item": await each(lambda n: store.find_item(f"{id(n)}_out")),
    }


async def fill(store: SqliteStore, first: int, last: int) -> None:
    """Store responses, three to a chain."""

    async def chain(number: int) -> None:
        for n in range(number, number + 3):
            await save(store, f"r{n}", f"r{n - 1}" if n % 3 else None)

    await gather(chain(number) for number in range(first, last, 3))


async def grow(store: SqliteStore, length: int) -> str:
    """Store one long chain; return the id of its last response."""
    for n in range(length):
        await save(store, f"turn{length}_{n}", f"turn{length}_{n - 1}" if n else None)
    return f"turn{length}_{length - 1}"


async def measure(folder: str) -> tuple[list[tuple[str, float, str]], dict[str, float]]:
    """Measure everything; return rows and figures."""
    rows: list[tuple[str, float, str]] = []
    figures: dict[str, float] = {}

    def add(name: str, label: str, value: float, unit: str) -> None:
        rows.append((label, value, unit))
        figures[name] = value

    store = SqliteStore(f"{folder}/events")
    for streams in STREAMS:
        for count in (1, COALESCED):
            rate, middle, high = await appending(store, streams, count)
            what = f"{streams} streams, {count} an append"
            add(f"events_{streams}x{count}_per_s", what, rate, "durable events/s")
            add(f"append_{streams}x{count}_p50_ms", f"{what}, p50", middle, "ms")
            add(f"append_{streams}x{count}_p99_ms", f"{what}, p99", high, "ms")
    await store.close()

    store = SqliteStore(f"{folder}/lookups")
    await fill(store, 0, FEW)
    few = await lookups(store, FEW)
    start = time.perf_counter()
    await fill(store, FEW, MANY)
    stored = (MANY - FEW) / (time.perf_counter() - start)
    add("stored_per_s", "begin and end", stored, "responses/s")
    many = await lookups(store, MANY)
    for name in few:
        add(f"{name}_us", f"{name} among {FEW}", few[name], "µs")
        add(f"{name}_many_us", f"{name} among {MANY}", many[name], "µs")
        add(f"{name}_ratio", f"{name}, many over few", many[name] / few[name], "×")

    per_item: dict[int, float] = {}
    for length in (SHORT, LONG):
        last = await grow(store, length)
        taken = await each(lambda _, last=last: store.read_history(last), 50)
        per_item[length] = taken / (2 * length)
        add(f"chain_{length}_us", f"history of {length} turns", taken, "µs")
        add(f"chain_{length}_per_item_us", "  for each item", per_item[length], "µs")
    ratio = per_item[LONG] / per_item[SHORT]
    add("chain_ratio", "an item, long over short", ratio, "× (aim: ≤ 1.5)")
    await store.close()
    return rows, figures


def main() -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        rows, figures = asyncio.run(measure(folder))
    show("store: SQLite, synchronous=FULL", rows, figures)


if __name__ == "__main__":
    main()
