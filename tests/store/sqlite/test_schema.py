"""The tables, their migrations, and query plans without table scans."""

import json
import logging
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.protocol.response import ResponseUsage
from antiphon.store.base import History, StoredResponse
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.sqlite import operations, sql
from antiphon.store.sqlite.database import connect_writer
from antiphon.store.sqlite.operations import SummaryQueries
from antiphon.store.sqlite.schema import MIGRATIONS, migrate
from antiphon.store.sqlite.store import SqliteStore
from tests.store.builders import assistant_message, ended_response, new_response, user_message

RESPONSES = """
id TEXT, object TEXT, created_at INTEGER, status TEXT, error TEXT, incomplete_details TEXT,
instructions TEXT, max_output_tokens INTEGER, model TEXT, output TEXT, parallel_tool_calls BOOLEAN,
previous_response_id TEXT, reasoning TEXT, store BOOLEAN, temperature REAL, text TEXT,
tool_choice TEXT, tools TEXT, top_p REAL, truncation TEXT, usage TEXT, user_id TEXT, metadata TEXT,
background BOOLEAN"""
ITEMS = "id TEXT, response_id TEXT, type TEXT, role TEXT, content TEXT, created_at INTEGER"
HISTORY = "id, response_id, previous_response_id, conversation_data, created_at"

SMALL = {"SCAN segment", "SCAN last_items"}
"""Allowed scans: the threads of a chain, and the items of a conversation that a search looks at, which are few."""
QUERIES = {
    name: value
    for name, value in vars(sql).items()
    if name.isupper() and not name.startswith("_") and isinstance(value, str)
}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Return a writing connection to a new database."""
    connection = connect_writer(tmp_path / "responses.db")
    yield connection
    connection.close()


def columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the names and types of a table's columns."""
    rows = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return {row["name"]: row["type"] for row in rows}


def parse_columns(text: str) -> dict[str, str]:
    """Return names and types from a list of columns."""
    return dict(column.split() for column in text.split(","))


def test_the_tables_have_the_documented_columns(connection: sqlite3.Connection) -> None:
    assert parse_columns(RESPONSES).items() <= columns(connection, "responses").items()
    assert parse_columns(ITEMS).items() <= columns(connection, "input_items").items()
    assert [*columns(connection, "conversation_history")] == HISTORY.split(", ")


@pytest.mark.parametrize(
    ("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("secure_delete", 1)]
)
def test_the_pragmas_for_durability_are_set(connection: sqlite3.Connection, pragma: str, value: object) -> None:
    assert connection.execute(f"PRAGMA {pragma}").fetchone()[0] == value


FEW = {
    "FIND_UNFINISHED": "responses_unfinished",
    "FIND_OWNERS": "responses_unfinished",
    "HAS_QUEUED": "responses_queued",
    "FIND_QUEUED": "responses_queued",
}
"""Queries that read a whole index, of few rows."""


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - FEW.keys()))
def test_no_query_scans_a_table(connection: sqlite3.Connection, name: str) -> None:
    text = QUERIES[name]
    values: object = (0, 0, 0) if "?" in text else dict.fromkeys(re.findall(r":(\w+)", text), 0)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", values)  # pyright: ignore[reportArgumentType]
    steps = [row["detail"] for row in plan]
    assert [s for s in steps if s.startswith("SCAN") and s not in SMALL] == [], steps
    assert not any("AUTOMATIC" in step for step in steps), steps


@pytest.mark.parametrize(
    "queries", [operations.RESPONSES, operations.CONVERSATIONS], ids=["responses", "conversations"]
)
def test_a_list_is_read_in_the_order_of_its_index(connection: sqlite3.Connection, queries: SummaryQueries) -> None:
    values: dict[str, int] = dict.fromkeys("tenant low_time low high_time high limit".split(), 0)
    for statement in (queries.ascending, queries.descending):
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        steps = [row["detail"] for row in plan]
        assert len(steps) == 1
        assert "_listed (tenant=? AND created_at>? AND created_at<?)" in steps[0]


@pytest.mark.parametrize("name", FEW)
def test_unfinished_and_queued_responses_are_found_by_an_index(connection: sqlite3.Connection, name: str) -> None:
    steps = connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", {"limit": 1}).fetchall()
    assert steps[0]["detail"] == f"SCAN responses USING INDEX {FEW[name]}"


def version(connection: sqlite3.Connection) -> int:
    """Return the version of a database."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def test_migrating_twice_changes_nothing(connection: sqlite3.Connection) -> None:
    before = connection.execute("SELECT sql FROM sqlite_master").fetchall()
    migrate(connection)
    assert connection.execute("SELECT sql FROM sqlite_master").fetchall() == before
    assert version(connection) == len(MIGRATIONS)


@pytest.mark.anyio
async def test_migrations_keep_existing_rows(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.begin(new_response("r"), [user_message("a")])
    await store.close()
    connection = connect_writer(store.database.path)
    newer = [*MIGRATIONS, lambda c: c.execute("ALTER TABLE responses ADD COLUMN colour TEXT")]
    migrate(connection, newer)  # pyright: ignore[reportArgumentType]
    migrate(connection, newer)  # pyright: ignore[reportArgumentType]
    assert version(connection) == len(MIGRATIONS) + 1
    row = connection.execute("SELECT id, colour FROM responses").fetchone()
    assert tuple(row) == ("r", None)
    connection.close()


@pytest.mark.anyio
async def test_rows_of_an_old_version_get_titles_and_their_place_in_the_queue(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    old.row_factory = sqlite3.Row
    migrate(old, MIGRATIONS[:3])
    messages = b'[{"role": "user", "content": "  Hello there"}, {"role": "assistant", "content": "Hi"}]'
    old.execute("INSERT INTO hashbrown_threads VALUES ('', 't', ?, 1)", (messages,))
    for id, status, epoch in (("waiting", "queued", 0), ("begun", "queued", 1), ("foreground", "in_progress", 0)):
        columns = "id, status, epoch, object, created_at, model, output, parallel_tool_calls, store, background, rest"
        values = (id, status, epoch, "response", 1, "m", "[]", 1, 1, int(status == "queued"), "{}")
        marks = ", ".join("?" * len(values))
        old.execute(
            f"INSERT INTO responses ({columns}, tenant, thread, turn, request) VALUES ({marks}, '', ?, 0, 'x')",
            (*values, id),
        )
    old.close()
    store = SqliteStore(tmp_path)
    assert [stored.response.id for _, stored in await store.claim_queued(5)] == ["waiting"]
    assert sorted(stored.response.id for _, stored in await store.take_abandoned(["waiting"])) == [
        "begun",
        "foreground",
    ]
    await store.close()
    connection = connect_writer(tmp_path / "responses.db")
    assert connection.execute("SELECT title FROM hashbrown_threads").fetchone()[0] == "Hello there"
    connection.close()


def test_a_migration_that_another_process_makes_first_is_not_made_again(connection: sqlite3.Connection) -> None:
    def add_colour(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE responses ADD COLUMN colour TEXT")

    newer = [*MIGRATIONS, add_colour]
    other = sqlite3.connect(connection.execute("PRAGMA database_list").fetchone()["file"], isolation_level=None)

    def migrate_first(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE":
            migrate(other, newer)

    connection.set_trace_callback(migrate_first)
    migrate(connection, newer)
    connection.set_trace_callback(None)
    other.close()
    assert version(connection) == len(newer)
    assert "colour" in columns(connection, "responses")


def test_a_failed_migration_is_rolled_back(connection: sqlite3.Connection) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE events")
        connection.execute("this is not SQL")

    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [*MIGRATIONS, fail])
    assert version(connection) == len(MIGRATIONS)
    assert connection.execute("SELECT count(*) FROM events").fetchone()[0] == 0
    assert not connection.in_transaction


def test_a_newer_database_is_rejected_and_not_changed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "responses.db") as connection:
        connection.execute("PRAGMA user_version = 999")
        connection.execute("CREATE TABLE responses (id TEXT)")
    connection.close()
    with pytest.raises(StoreError, match=r"version 999.*Use a newer Antiphon"):
        SqliteStore(tmp_path)
    connection = sqlite3.connect(tmp_path / "responses.db")
    assert version(connection) == 999
    connection.close()


XAIBO = f"""
CREATE TABLE responses ({RESPONSES.replace("id TEXT,", "id TEXT PRIMARY KEY,", 1)});
CREATE TABLE input_items ({ITEMS.replace("id TEXT,", "id TEXT PRIMARY KEY,", 1)});
CREATE TABLE conversation_history (
    id TEXT PRIMARY KEY, response_id TEXT, previous_response_id TEXT, conversation_data TEXT,
    created_at INTEGER
);
INSERT INTO responses (id, object, created_at, status, model, output, previous_response_id, user_id,
    usage, parallel_tool_calls, store, background)
VALUES
    ('b', 'response', 2, 'completed', 'm', '[]', 'a', 'ann', NULL, 1, 1, 0),
    ('a', 'response', 1, 'completed', 'm',
     '[{{"type":"message","id":"x","role":"assistant","status":"completed",
        "content":[{{"type":"output_text","text":"hi"}}]}}]',
     NULL, NULL, '{{"input_tokens":1,"output_tokens":2,"total_tokens":3}}', 0, 1, 0),
    ('running', 'response', 3, 'in_progress', 'm', '[]', NULL, NULL, NULL, 1, 1, 0),
    ('broken', 'response', 4, 'completed', 'm', 'not JSON', NULL, NULL, NULL, 1, 1, 0);
INSERT INTO input_items VALUES ('i', 'a', 'message', 'user', '"hello"', 1);
INSERT INTO conversation_history VALUES ('h', 'a', NULL, '{json.dumps({"messages": []})}', 1);
"""


@pytest.mark.anyio
async def test_a_xaibo_database_is_imported_without_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.store")
    old = sqlite3.connect(tmp_path / "responses.db")
    old.executescript(XAIBO)
    old.close()
    store = SqliteStore(tmp_path)
    first = ended_response(
        new_response("a", created_at=1, parallel_tool_calls=False, usage=ResponseUsage.of(1, 2)),
        assistant_message("x"),
        at=None,
    )
    second = ended_response(new_response("b", "a", created_at=2, user="ann"), at=None)
    assert await store.find("a") == StoredResponse(first)
    assert await store.find("b") == StoredResponse(second)
    assert await store.read_history("b") == History([user_message("i"), assistant_message("x")], ["a", "b"])
    assert await store.list_input_items("a", PageCursor()) == ItemPage([user_message("i")], has_more=False)
    assert [await store.find("running"), await store.find("broken")] == [None, None]
    assert "2 of 4 responses of a Xaibo database were imported" in caplog.text
    day_ago = int(time.time()) - 24 * 3600
    assert await store.sweep(responses_before=day_ago, events_before=day_ago) == 0
    await store.close()
    connection = sqlite3.connect(tmp_path / "responses.db")
    kept = [
        connection.execute(f"SELECT count(*) FROM {table}_v0").fetchone()[0]
        for table in ("responses", "input_items", "conversation_history")
    ]
    connection.close()
    assert kept == [4, 1, 1]
