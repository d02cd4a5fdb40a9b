"""PostgresStore: the contract, and what several processes on one database see of each other."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from antiphon.protocol.errors import StoreError
from antiphon.store import base
from antiphon.store.base import LoggedEvents, StoredConversation, StoredResponse
from antiphon.store.lists import ResponseFilter
from antiphon.store.pagination import PageCursor
from antiphon.store.postgres.store import PostgresStore
from tests.postgres_server import shared_server
from tests.store.builders import FULL, ITEMS, LATER, ended_response, make_events, new_response, user_message
from tests.store.contract import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
async def other(store: PostgresStore, database_url: str) -> AsyncIterator[PostgresStore]:
    """Give a second store on the same database, as another process has it."""
    other = PostgresStore(database_url)
    await other.open()
    await store.lease.renew()  # it learns of the other one
    yield other
    await other.close()


class TestPostgres(StoreContract):
    """The contract."""


async def test_everything_survives_reopening(store: PostgresStore, database_url: str) -> None:
    talk = StoredConversation(id="conv_1", created_at=1, metadata={"a": "b"})
    await store.save_conversation(talk)
    await store.begin(FULL, ITEMS, request=b"body", key=("key", "print"))
    await store.begin(new_response("r"), [user_message("in")], conversation="conv_1")
    await store.claim("r")
    await store.append("r", 1, -1, make_events(0, 3))
    reopened = PostgresStore(database_url)
    await reopened.open()
    assert await reopened.find(FULL.id) == StoredResponse(FULL, b"body")
    assert await reopened.list_unfinished() == [("", StoredResponse(new_response("r"), b"", "conv_1", 1, 2))]
    assert await reopened.read("r", -1) == LoggedEvents(make_events(0, 3), ended=False)
    assert await reopened.find_conversation("conv_1") == talk
    await reopened.close()


@pytest.mark.parametrize("url", ["postgresql://user:secret@127.0.0.1:1/db?sslmode=disable", "postgresql://:x@["])
async def test_a_database_that_cannot_be_reached_is_a_store_error_without_its_password(url: str) -> None:
    store = PostgresStore(url)
    with pytest.raises(StoreError, match=r"cannot be (reached|used)") as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(store)


async def test_a_reader_in_another_process_is_notified(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "POLL_SECONDS", 60)
    await store.begin(new_response("r"), [])
    for change in (
        lambda: store.append("r", 0, -1, make_events(0, 1)),
        lambda: store.end(ended_response(new_response("r"))),
        lambda: store.delete("r"),
    ):
        found = await store.find("r")
        waiting = asyncio.create_task(other.wait("r", found.last_sequence if found else -1))
        await asyncio.sleep(0.05)
        await change()
        await asyncio.wait_for(waiting, 20)
        await asyncio.sleep(0.05)  # the notification has been sent: it is not the next one's


async def test_a_reader_without_notifications_polls(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "POLL_SECONDS", 0.05)
    await other._notifications.stop()
    await store.begin(new_response("r"), [])
    waiting = asyncio.create_task(read_all(other, "r"))
    await store.append("r", 0, -1, make_events(0, 2))
    await store.append("r", 0, 1, make_events(2, 1), final=ended_response(new_response("r")))
    assert await asyncio.wait_for(waiting, 20) == make_events(0, 3)


async def read_all(store: PostgresStore, id: str) -> list[bytes]:
    """Read a log to its end."""
    seen: list[bytes] = []
    while (log := await store.read(id, len(seen) - 1)) and not log.ended:
        seen += log.events
        await store.wait(id, len(seen) - 1)
    return seen + (log.events if log else [])


async def test_many_ids_are_sent_in_several_notifications(store: PostgresStore, other: PostgresStore) -> None:
    seen: set[str] = set()
    other._notifications._on_notification = seen.add
    ids = {f"resp_{n:048}" for n in range(500)}
    for id in ids:
        store._notifications.send(id)
    async with asyncio.timeout(20):
        while seen < ids:
            await asyncio.sleep(0.01)


async def test_a_process_that_is_alone_sends_no_notifications(store: PostgresStore) -> None:
    await store.begin(new_response("r"), [])
    await store.append("r", 0, -1, make_events(0, 1))
    assert not store._notifications._pending


async def test_a_listener_whose_connection_broke_listens_again(
    store: PostgresStore, other: PostgresStore, database_url: str
) -> None:
    own = f"datname = '{database_url.rpartition('/')[2]}' AND application_name = 'antiphon'"
    shared_server().execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own}")
    seen: set[str] = set()
    other._notifications._on_notification = seen.add
    async with asyncio.timeout(20):
        while not seen:
            store._notifications.send("r")
            await asyncio.sleep(0.05)


async def test_of_two_processes_with_one_idempotency_key_one_stores_its_response(
    store: PostgresStore, other: PostgresStore
) -> None:
    tries = [one.begin(new_response(f"r{n}"), [], key=("key", "print")) for n, one in enumerate([store, other] * 10)]
    records = await asyncio.gather(*tries)
    assert records.count(None) == 1
    winner = f"r{records.index(None)}"
    assert {record.response_id for record in records if record} == {winner}


async def test_of_two_processes_in_one_conversation_one_is_told_that_it_is_busy(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.save_conversation(StoredConversation(id="c", created_at=1, metadata={}))
    tries = [one.begin(new_response(f"r{n}"), [], conversation="c") for n, one in enumerate([store, other] * 5)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, base.ConversationBusyError) for outcome in outcomes) == 9


async def test_continuations_of_one_response_at_once_are_all_stored(store: PostgresStore, other: PostgresStore) -> None:
    await store.begin(new_response("root"), [user_message("q")])
    await store.end(ended_response(new_response("root")))
    await asyncio.gather(
        *(one.begin(new_response(f"r{n}", "root"), [user_message(f"m{n}")]) for n, one in enumerate([store, other] * 8))
    )
    for n in range(16):
        history = await other.read_history(f"r{n}")
        assert history is not None
        assert history.items == [user_message("q"), user_message(f"m{n}")]


async def test_a_response_with_half_a_surrogate_pair_is_a_store_error(store: PostgresStore) -> None:
    with pytest.raises(StoreError):
        await store.begin(new_response("r", model="\ud83c"), [])
    await store.begin(new_response("r"), [])
    with pytest.raises(StoreError):
        await store.append("r", 0, -1, [], final=replace(ended_response(new_response("r")), model="\ud83c"))


async def test_partitions_of_past_days_are_dropped_when_their_events_have_expired(store: PostgresStore) -> None:
    for id, created in (("old", LATER - 3 * 86_400), ("older", LATER - 9 * 86_400), ("running", LATER - 9 * 86_400)):
        await store.begin(new_response(id, created_at=created), [])
        final = ended_response(new_response(id, created_at=created), at=LATER)
        await store.append(id, 0, -1, make_events(0, 3), final=None if id == "running" else final)
    assert len(await list_partitions(store)) == 2
    while await store.sweep(responses_before=0, events_before=LATER + 1):
        pass
    days = await list_partitions(store)
    assert days == [f"events_{(LATER - 9 * 86_400) // 86_400}"]
    await store.append("running", 0, 2, [], final=ended_response(new_response("running"), at=LATER))
    while await store.sweep(responses_before=0, events_before=LATER + 1):
        pass
    assert await list_partitions(store) == []
    # A response of that day may still come, from a process whose clock is late.
    await store.begin(new_response("late", created_at=LATER - 9 * 86_400), [])
    assert await store.append("late", 0, -1, make_events(0, 1))


async def list_partitions(store: PostgresStore) -> list[str]:
    """Return the names of the partitions of events."""
    rows = await store.database.fetch("SELECT inhrelid::regclass::text FROM pg_inherits ORDER BY 1")
    return [str(row[0]).rpartition(".")[2] for row in rows if "events_" in str(row[0]) and "pkey" not in str(row[0])]


async def test_nothing_of_a_deleted_response_is_left(store: PostgresStore) -> None:
    await store.begin(new_response("r"), [user_message("m", "secret")], request=b"secret", key=("k", "p"))
    await store.append("r", 0, -1, [b"secret"], final=ended_response(new_response("r"), user_message("out", "secret")))
    assert await store.delete("r")
    for table in ("responses", "input_items", "output_items", "events", "idempotency"):
        assert (await store.database.fetch(f"SELECT count(*) FROM {table}"))[0][0] == 0


async def test_an_unreadable_response_is_not_listed(store: PostgresStore, caplog: pytest.LogCaptureFixture) -> None:
    for id in ("good", "bad", "worse"):
        await store.begin(new_response(id), [user_message(f"m_{id}", "hello")])
    await store.database.fetch("UPDATE responses SET body = 'nonsense' WHERE id = 'bad'")
    await store.database.fetch("UPDATE input_items SET body = 'hello' WHERE response_id = 'worse'")
    for search in (None, "hello"):
        page = await store.list_responses(PageCursor(), ResponseFilter(search=search))
        assert [row.id for row in page.rows] == ["good"]
    assert "bad cannot be read and is not listed" in caplog.text


async def test_a_row_that_cannot_be_read_is_ended_as_failed(store: PostgresStore) -> None:
    await store.begin(new_response("bad"), [], key=("k", "p"))
    await store.begin(new_response("good"), [])
    await store.database.fetch("UPDATE responses SET body = 'nonsense' WHERE id = 'bad'")
    assert [stored.response.id for _, stored in await store.list_unfinished()] == ["good"]
    assert [stored.response.id for _, stored in await store.list_unfinished()] == ["good"]
    with pytest.raises(StoreError, match="cannot be read"):
        await store.find("bad")
    assert await store.begin(new_response("again"), [], key=("k", "p")) is None
