"""Appends of many responses share transactions, and survive broken connections."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from antiphon.protocol.errors import StoreError
from antiphon.store.base import LoggedEvents
from antiphon.store.postgres.store import PostgresStore
from tests.store.builders import ended_response, make_events, new_response

pytestmark = pytest.mark.anyio


async def test_appends_of_many_responses_share_transactions(store: PostgresStore) -> None:
    for n in range(100):
        await store.begin(new_response(f"r{n}"), [])
    before = store.writer.flushes
    accepted = await asyncio.gather(*(store.append(f"r{n}", 0, -1, make_events(0, 5)) for n in range(100)))
    assert accepted == [True] * 100
    assert store.writer.flushes - before <= 3


async def test_appends_of_one_response_stay_in_order(store: PostgresStore) -> None:
    await store.begin(new_response("r"), [])
    accepted = await asyncio.gather(*(store.append("r", 0, n - 1, make_events(n, 1)) for n in range(10)))
    assert accepted == [True] * 10
    assert await store.read("r", -1) == LoggedEvents(make_events(0, 10), ended=False)


async def test_an_append_that_cannot_be_written_does_not_affect_others(store: PostgresStore) -> None:
    for id in "abc":
        await store.begin(new_response(id), [])
    bad = ended_response(new_response("b", model="\ud83c"))
    outcomes = await asyncio.gather(
        store.append("a", 0, -1, make_events(0, 1)),
        store.append("b", 0, -1, make_events(0, 1), final=bad),
        store.append("c", 0, -1, make_events(0, 1)),
        return_exceptions=True,
    )
    assert outcomes[0] is True
    assert isinstance(outcomes[1], StoreError)
    assert outcomes[2] is True
    assert await store.read("b", -1) == LoggedEvents([], ended=False)


async def test_a_closed_store_takes_no_appends(store: PostgresStore) -> None:
    await store.begin(new_response("r"), [])
    pending = asyncio.create_task(store.append("r", 0, -1, make_events(0, 1)))
    await asyncio.sleep(0)
    await store.writer.stop()
    assert await pending is True
    with pytest.raises(StoreError, match="closed"):
        await store.append("r", 0, 0, make_events(1, 1))


class CuttingProxy:
    """Forwards connections to PostgreSQL; cuts one after it has sent some bytes, before the answer arrives."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut_after: bytes | None = None
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        is_cut = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(65536):
                if self.cut_after and self.cut_after in data:
                    self.cut_after = None
                    self.cuts += 1
                    is_cut.set()
                up_writer.write(data)

        async def answer() -> None:
            while data := await up_reader.read(65536):
                if is_cut.is_set():  # the commit has succeeded, and nobody knows
                    return
                writer.write(data)

        tasks = [asyncio.create_task(forward()), asyncio.create_task(answer())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in (writer, up_writer):
            end.transport.abort()


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
    """Give a proxy in front of the server, and the address of the database behind it."""
    host, _, name = database_url.rpartition("/")
    proxy = CuttingProxy(int(host.rpartition(":")[2]))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield proxy, f"postgresql://postgres@127.0.0.1:{port}/{name}"
    server.close()


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("count", [0, 2])
async def test_an_append_whose_commit_was_not_acknowledged_is_accepted_once(
    proxy: tuple[CuttingProxy, str], final: bool, count: int
) -> None:
    if not count and not final:
        return  # there is nothing to commit
    cutter, url = proxy
    store = PostgresStore(url)
    await store.open()
    await store.begin(new_response("r"), [])
    await store.append("r", 0, -1, make_events(0, 1))
    end = ended_response(new_response("r")) if final else None
    # Without an end the append is one statement, which commits itself.
    cutter.cut_after = b"COMMIT;" if final else make_events(1, 1)[0]
    with pytest.raises(StoreError):
        await store.append("r", 0, 0, make_events(1, count), final=end)
    assert cutter.cuts == 1
    # The engine repeats what failed. The first attempt was committed, though nobody could know.
    assert await store.append("r", 0, 0, make_events(1, count), final=end)
    assert await store.read("r", -1) == LoggedEvents(make_events(0, 1 + count), ended=final)
    # Another append at the same place is refused as ever.
    assert not await store.append("r", 0, 0, [b"other"], final=end)
    await store.close()


async def test_the_first_events_of_a_queued_response_are_written_before_it_is_claimed_or_not_at_all(
    store: PostgresStore, database_url: str
) -> None:
    other = PostgresStore(database_url)
    await other.open()

    async def announce(id: str) -> bool:
        await store.begin(replace(new_response(id), status="queued"), [])
        return await store.append(id, 0, -1, make_events(0, 2))

    async def claim_all() -> list[str]:
        found = await other.claim_queued(100)
        logs = [await other.read(stored.response.id, -1) for _, stored in found]
        # What the new worker reads is all that there will be.
        before = [len(log.events) if log else 0 for log in logs]
        appends = [
            other.append(stored.response.id, stored.epoch, n - 1, make_events(n, 1))
            for (_, stored), n in zip(found, before, strict=True)
        ]
        assert all(await asyncio.gather(*appends))
        return [stored.response.id for _, stored in found]

    for round in range(20):
        ids = {f"r{round}_{n}" for n in range(10)}
        announcing = asyncio.gather(*map(announce, ids))
        claimed: set[str] = set()
        while not ids <= claimed:
            claimed.update(await claim_all())
        await announcing
    await other.close()


async def test_a_deleted_response_leaves_no_events_of_an_append_in_flight(store: PostgresStore) -> None:
    for round in range(30):
        await store.begin(new_response(f"r{round}"), [])
        appending = asyncio.create_task(store.append(f"r{round}", 0, -1, make_events(0, 1)))
        await asyncio.sleep(0.0005 * (round % 4))
        assert await store.delete(f"r{round}")
        await appending
    assert (await store.database.fetch("SELECT count(*) FROM events"))[0][0] == 0
