"""SqliteStore: the contract, and properties of the file."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.store.base import LoggedEvents, StoredConversation, StoredResponse
from antiphon.store.lists import ResponseFilter
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.sqlite.operations import list_unfinished
from antiphon.store.sqlite.store import SqliteStore
from tests.store.builders import FULL, ITEMS, assistant_message, ended_response, make_events, new_response, user_message
from tests.store.contract import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return an empty store."""
    store = SqliteStore(tmp_path / "responses")
    yield store
    await store.close()


class TestSqlite(StoreContract):
    """The contract."""


async def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b" / "responses.db").is_file()
    assert repr(store) == f"<SqliteStore at {tmp_path}/a/b/responses.db>"
    await store.close()


async def test_an_unusable_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        SqliteStore(tmp_path / "file" / "folder")
    (tmp_path / "responses.db").write_text("this is no database, and never was one" * 100)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(tmp_path)


async def test_rows_are_made_on_the_writers_thread_and_not_in_the_event_loop(tmp_path: Path) -> None:
    def clock() -> float:  # read wherever the row of a response is made
        threads.add(threading.current_thread().name)
        return 1.0

    threads: set[str] = set()
    store = SqliteStore(tmp_path, clock)
    whole, streamed = new_response("a"), new_response("b")
    await store.begin(whole, [user_message("in")])
    await store.begin(streamed, [user_message("in")])
    await store.end(ended_response(whole, at=None))
    await store.claim("b")
    await store.append("b", 1, -1, make_events(0, 3), final=ended_response(streamed, at=None))
    await store.close()
    assert threads == {"antiphon-writer"}


async def test_everything_survives_reopening(tmp_path: Path) -> None:
    talk = StoredConversation(id="conv_1", created_at=1, metadata={"a": "b"})
    store = SqliteStore(tmp_path)
    await store.save_conversation(talk)
    await store.begin(FULL, ITEMS, request=b"body", key=("key", "print"))
    await store.begin(new_response("r"), [user_message("in")], conversation="conv_1")
    await store.claim("r")
    await store.append("r", 1, -1, make_events(0, 3))
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["responses.db"]
    store = SqliteStore(tmp_path)
    assert await store.find(FULL.id) == StoredResponse(FULL, b"body")
    assert await store.list_unfinished() == [("", StoredResponse(new_response("r"), b"", "conv_1", 1, 2))]
    assert await store.read("r", -1) == LoggedEvents(make_events(0, 3), ended=False)
    assert await store.append("r", 1, 2, [], final=ended_response(new_response("r"), assistant_message("out")))
    joined = ItemPage([user_message("in"), assistant_message("out")], has_more=False)
    assert await store.list_items("conv_1", PageCursor(order="asc")) == joined
    assert await store.find_conversation("conv_1") == talk
    claim = await store.begin(new_response("other"), [], key=("key", "print"))
    assert claim is not None
    await store.close()


@pytest.mark.parametrize("damage", ["usage = '{'", "metadata = '[5]'", "rest = '{'", "model = CAST(x'ff' AS TEXT)"])
async def test_an_unreadable_response_is_not_listed(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path)
    for id in ("good", "bad"):
        await store.begin(new_response(id), [])
    database = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    database.execute(f"UPDATE responses SET {damage} WHERE id = 'bad'")
    database.close()
    page = await store.list_responses(PageCursor(), ResponseFilter())
    assert [row.id for row in page.rows] == ["good"]
    assert "bad cannot be read and is not listed" in caplog.text
    await store.close()


@pytest.mark.parametrize("damage", ["output = '[{'", "output = '[5]'", "rest = '[]'", "model = CAST(x'ff' AS TEXT)"])
async def test_an_unreadable_unfinished_response_is_ended_as_failed(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path, clock=lambda: 1000)
    key = ("key", "print")
    await store.begin(new_response("bad"), [user_message("a")], tenant="t", conversation="conv_1", key=key)
    await store.begin(new_response("good"), [user_message("b")])
    database = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    database.execute(f"UPDATE responses SET {damage} WHERE id = 'bad'")
    assert await store.list_unfinished() == [("", StoredResponse(new_response("good")))]
    assert "bad cannot be read and is ended as failed" in caplog.text
    ended = "SELECT id, status, ended_at FROM responses WHERE ended_at IS NOT NULL"
    assert database.execute(ended).fetchall() == [("bad", "failed", 1000)]
    with pytest.raises(StoreError):
        await store.find("bad", tenant="t")
    retry = store.begin(new_response("next"), [user_message("c")], tenant="t", conversation="conv_1", key=key)
    assert await retry is None
    assert await store.delete("bad", tenant="t")
    database.close()
    await store.close()


async def test_an_interrupted_query_ends_no_unfinished_response(store: SqliteStore) -> None:
    await store.begin(new_response("a"), [])
    statements: list[str] = []

    def list_until_interrupted(connection: sqlite3.Connection) -> object:
        connection.set_trace_callback(statements.append)
        connection.set_progress_handler(lambda: len(statements) == 2, 1)
        return list_unfinished(connection)

    with pytest.raises(StoreError, match="interrupted"):
        await store.database.read(list_until_interrupted)
    assert len(statements) == 2  # it was interrupted while it read the response
    assert await store.list_unfinished() == [("", StoredResponse(new_response("a")))]


async def test_a_closed_store_raises_a_store_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    pending = asyncio.gather(*(store.begin(new_response(f"r{n}"), []) for n in range(20)))
    await asyncio.sleep(0)
    await store.close()
    assert await pending == [None] * 20  # what was begun is finished
    with pytest.raises(StoreError, match="closed"):
        await store.find("r1")
    with pytest.raises(StoreError, match="closed"):
        await store.begin(new_response("r"), [])
    await store.close()
    store = SqliteStore(tmp_path)
    assert len(await store.list_unfinished()) == 20
    await store.close()


async def test_one_process_sees_the_writes_of_another(store: SqliteStore, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "responses")
    await store.begin(new_response("r"), [])
    waiting = asyncio.create_task(store.wait("r", -1))
    await other.append("r", 0, -1, make_events(0, 1))
    await waiting
    assert await store.read("r", -1) == LoggedEvents(make_events(0, 1), ended=False)
    assert await store.append("r", 0, 0, make_events(1, 1))
    assert not await other.append("r", 0, 0, make_events(1, 1))
    await other.close()


async def test_subscriptions_are_removed(store: SqliteStore) -> None:
    await store.begin(new_response("r"), [])
    readers = [asyncio.create_task(store.wait("r", -1)) for _ in range(10)]
    await asyncio.sleep(0.05)
    assert len(store.notifier) == 1
    readers[0].cancel()
    await store.append("r", 0, -1, make_events(0, 1))
    await asyncio.gather(*readers, return_exceptions=True)
    assert len(store.notifier) == 0


async def test_a_cancelled_append_is_still_committed(store: SqliteStore) -> None:
    await store.begin(new_response("r"), [])
    reader = asyncio.create_task(store.wait("r", -1))
    writing = asyncio.create_task(store.append("r", 0, -1, make_events(0, 1)))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait_for(reader, 0.9)
    assert await store.read("r", -1) == LoggedEvents(make_events(0, 1), ended=False)


async def test_a_value_that_sqlite_cannot_store_is_a_store_error(store: SqliteStore) -> None:
    with pytest.raises(StoreError):
        await store.find("\ud800")
    with pytest.raises(StoreError):
        await store.begin(new_response("r", created_at=2**70), [])
    assert await store.find("r") is None
    await store.begin(new_response("r"), [])
    with pytest.raises(StoreError):
        await store.read("r", 2**70)


async def test_an_unreadable_row_is_a_store_error(store: SqliteStore) -> None:
    await store.begin(new_response("r"), [])
    with sqlite3.connect(store.database.path) as connection:
        connection.execute("UPDATE responses SET status = 'unheard of'")
    connection.close()
    with pytest.raises(StoreError, match="status"):
        await store.find("r")


async def test_the_history_view_shows_the_messages_of_a_chain(store: SqliteStore) -> None:
    await store.begin(new_response("a"), [user_message("1", "hello"), *ITEMS[4:]])
    await store.end(ended_response(new_response("a"), assistant_message("2", "hi")))
    await store.begin(new_response("b", "a"), [user_message("3", "and?")])
    await store.end(ended_response(new_response("b", "a"), assistant_message("4", "so")))
    connection = sqlite3.connect(store.database.path)
    rows = connection.execute("SELECT * FROM conversation_history ORDER BY id").fetchall()
    connection.close()
    messages = [
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]},
    ]
    assert [row[:3] for row in rows] == [("a", "a", None), ("b", "b", "a")]
    assert [json.loads(row[3]) for row in rows] == [{"messages": messages[:2]}, {"messages": messages}]


async def test_a_deleted_response_is_deleted_from_every_table(store: SqliteStore) -> None:
    await store.begin(new_response("r"), ITEMS, key=("key", "print"))
    await store.append("r", 0, -1, make_events(0, 3), final=ended_response(new_response("r"), assistant_message("out")))
    await store.delete("r")
    await store.close()
    connection = sqlite3.connect(store.database.path)
    tables = "responses input_items output_items events idempotency conversation_history".split()
    counts = [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables]
    connection.close()
    assert counts == [0] * 6
    assert b"DROP TABLE" not in store.database.path.read_bytes()  # nor anywhere in the file


def find_in_files(folder: Path, text: bytes) -> list[str]:
    """Return the names of the files that contain a text."""
    return [path.name for path in folder.iterdir() if text in path.read_bytes()]


@pytest.mark.parametrize("swept", [False, True], ids=["deleted", "swept"])
@pytest.mark.parametrize("crashed", [False, True], ids=["running", "after a crash"])
async def test_deleted_text_leaves_every_file_while_the_store_is_open(
    tmp_path: Path, crashed: bool, swept: bool
) -> None:
    store = SqliteStore(tmp_path)
    await asyncio.sleep(1.1)  # after the truncation that follows the start
    secret = "the secret text"
    await store.begin(new_response("r"), [user_message("in", secret)])
    await store.end(ended_response(new_response("r"), assistant_message("out", secret)))
    assert find_in_files(tmp_path, secret.encode()) != []
    if swept:
        assert await store.sweep(responses_before=2**40, events_before=0) == 1
    else:
        await store.delete("r")
    if crashed:
        for path in list(tmp_path.iterdir()):
            (tmp_path / "copy").mkdir(exist_ok=True)
            (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
        await store.close()
        store = SqliteStore(tmp_path := tmp_path / "copy")
    async with asyncio.timeout(30):
        while find_in_files(tmp_path, secret.encode()):
            await asyncio.sleep(0.05)
    await store.close()


async def test_a_reader_delays_the_removal_of_deleted_text_and_nothing_else(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.begin(new_response("r"), [user_message("in", "the secret text")])
    reader = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM responses").fetchone() == (1,)
    await store.delete("r")
    await asyncio.sleep(1.5)
    await store.begin(new_response("s"), [])
    assert find_in_files(tmp_path, b"the secret text") != []
    reader.execute("COMMIT")
    async with asyncio.timeout(30):
        while find_in_files(tmp_path, b"the secret text"):
            await asyncio.sleep(0.05)
    reader.close()
    await store.close()


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    for _ in range(2):
        store = SqliteStore(folder)
        await store.begin(new_response("r"), [])
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        await store.delete("r")
        await store.close()
        (folder / "responses.db").chmod(0o644)
