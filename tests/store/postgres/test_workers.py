"""The fence: a process that lost its lease, or a response, writes nothing."""

import asyncio

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.store.base import LoggedEvents
from antiphon.store.postgres.store import PostgresStore
from tests.store.builders import ended_response, make_events, new_response

pytestmark = pytest.mark.anyio


async def open_store(url: str, lease_seconds: float = 60) -> PostgresStore:
    """Return an open store."""
    store = PostgresStore(url, lease_seconds=lease_seconds)
    await store.open()
    return store


async def freeze(store: PostgresStore) -> None:
    """Let the lease of a store expire, as if its process were stopped."""
    assert store.lease._task
    store.lease._task.cancel()
    await store.database.fetch(
        "UPDATE workers SET expires_at = now() - interval '1 second' WHERE id = $1", store.lease.id
    )


async def test_a_process_that_lost_its_lease_writes_nothing(database_url: str) -> None:
    zombie, other = await open_store(database_url), await open_store(database_url)
    for id in "ab":
        await zombie.begin(new_response(id), [])
        await zombie.append(id, 0, -1, make_events(0, 1))
    await freeze(zombie)
    assert await other.lease.fence_expired() == [zombie.lease.id]
    assert await other.lease.fence_expired() == []
    assert not await zombie.append("a", 0, 0, make_events(1, 1))
    assert not await zombie.append("a", 0, 0, make_events(1, 1), final=ended_response(new_response("a")))
    with pytest.raises(StoreError, match="lost its lease"):
        await zombie.end(ended_response(new_response("b")))
    assert await other.read("a", -1) == LoggedEvents(make_events(0, 1), ended=False)
    # The other process takes one over, and ends it.
    assert await other.claim("a") == 1
    assert await other.append("a", 1, 0, make_events(1, 1), final=ended_response(new_response("a"), status="failed"))
    assert not await zombie.append("a", 0, 0, make_events(1, 1))
    assert await other.read("a", -1) == LoggedEvents(make_events(0, 2), ended=True)
    await zombie.close()
    await other.close()


async def test_a_process_that_lost_its_lease_goes_on_under_a_new_id(database_url: str) -> None:
    zombie, other = await open_store(database_url), await open_store(database_url)
    await zombie.begin(new_response("old"), [])
    epoch = await zombie.claim("old")
    assert epoch == 1
    old = zombie.lease.id
    await freeze(zombie)
    await other.lease.fence_expired()
    await zombie.lease.renew()
    assert zombie.lease.id != old
    # What it made under its old id is lost, whether another process has taken it over by now or not.
    assert await zombie.find_lost([("old", epoch)]) == ["old"]
    assert not await zombie.append("old", epoch, -1, make_events(0, 1))
    await zombie.begin(new_response("r"), [])
    assert await zombie.append("r", 0, -1, make_events(0, 1), final=ended_response(new_response("r")))
    await zombie.close()
    await other.close()


async def test_leases_are_renewed(database_url: str) -> None:
    store, other = await open_store(database_url, lease_seconds=1), await open_store(database_url)
    before = await expiry_of(store)
    async with asyncio.timeout(20):
        while await expiry_of(store) == before:
            await asyncio.sleep(0.05)
    assert await other.lease.fence_expired() == []
    await store.close()
    await other.close()


async def expiry_of(store: PostgresStore) -> object:
    """Return when the lease of a store expires."""
    return (await store.database.fetch("SELECT expires_at FROM workers WHERE id = $1", store.lease.id))[0][0]


async def test_a_closed_store_has_given_its_lease_up(database_url: str) -> None:
    store, other = await open_store(database_url), await open_store(database_url)
    await store.close()
    rows = await other.database.fetch("SELECT id FROM workers WHERE NOT fenced")
    assert [row[0] for row in rows] == [other.lease.id]
    await other.close()


async def test_a_response_that_another_process_claims_is_lost_to_its_owner(database_url: str) -> None:
    owner, other = await open_store(database_url), await open_store(database_url)
    await owner.begin(new_response("r"), [])
    assert await owner.claim("r") == 1
    last = -1

    async def write() -> int:
        nonlocal last
        while await owner.append("r", 1, last, make_events(last + 1, 1)):
            last += 1
        return last

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.2)
    assert await other.claim("r") == 2
    log = await other.read("r", -1, limit=100_000)
    assert log is not None
    # Nothing of the owner can come after the claim: the new owner goes on where the log ends.
    count = len(log.events)
    assert await other.append("r", 2, count - 1, make_events(count, 1), final=ended_response(new_response("r")))
    assert await asyncio.wait_for(writing, 20) == count - 1
    assert await owner.read("r", -1, limit=100_000) == LoggedEvents(make_events(0, count + 1), ended=True)
    await owner.close()
    await other.close()


async def test_after_an_outage_of_the_database_no_process_fences_the_others_at_once(database_url: str) -> None:
    one, other = await open_store(database_url), await open_store(database_url)
    await freeze(one)
    # As if no renewal had succeeded for longer than a lease.
    other.lease._renewed_at -= 61
    assert await other.lease.fence_expired() == []
    await other.lease.renew()
    assert await other.lease.fence_expired() == []
    other.lease._may_fence_at -= 61
    assert await other.lease.fence_expired() == [one.lease.id]
    await one.close()
    await other.close()


async def test_refused_writes_of_a_fenced_process_are_counted(database_url: str) -> None:
    zombie, other = await open_store(database_url), await open_store(database_url)
    await zombie.begin(new_response("r"), [])
    await freeze(zombie)
    await other.lease.fence_expired()
    assert not await zombie.append("r", 0, -1, make_events(0, 1))
    assert (zombie.writer.refused, other.writer.refused) == (1, 0)
    await zombie.close()
    await other.close()
