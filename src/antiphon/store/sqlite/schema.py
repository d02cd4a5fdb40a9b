"""The tables of the SQLite store, their migrations, and the import of a Xaibo database.

The version of a database is its `user_version`. Each migration increases it by one, in a
transaction of its own; a database with a newer version than this program knows is refused.

A response has a place in a chain: a `thread`, named after the thread's first response, and a
`turn`, its distance from the start of the chain. The first response to continue another takes the
next turn of the same thread; a later one starts a thread of its own and records the thread it was
`forked_from`. So a chain is one range of turns per thread, however long it is.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from antiphon.protocol.errors import StoreError
from antiphon.protocol.response import Response
from antiphon.protocol.struct import InvalidValueError, decode, drop_none
from antiphon.store.base import TERMINAL_STATUSES
from antiphon.store.sqlite import operations, sql
from antiphon.store.sqlite.sql import Row

logger = logging.getLogger("antiphon.store")

Migration = Callable[[sqlite3.Connection], None]

_TABLES = (
    """
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    object TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    error TEXT,
    incomplete_details TEXT,
    instructions TEXT,
    max_output_tokens INTEGER,
    model TEXT NOT NULL,
    output TEXT NOT NULL,
    parallel_tool_calls BOOLEAN NOT NULL,
    previous_response_id TEXT,
    reasoning TEXT,
    store BOOLEAN NOT NULL,
    temperature REAL,
    text TEXT,
    tool_choice TEXT,
    tools TEXT,
    top_p REAL,
    truncation TEXT,
    usage TEXT,
    user_id TEXT,
    metadata TEXT,
    background BOOLEAN NOT NULL,
    rest TEXT NOT NULL,                     -- every other field of the response
    tenant TEXT NOT NULL,
    thread TEXT NOT NULL,
    turn INTEGER NOT NULL,
    forked_from TEXT,
    conversation TEXT,
    request BLOB NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT -1,
    swept INTEGER NOT NULL DEFAULT 0,       -- how many events retention has deleted, from the front
    ended_at INTEGER                        -- retention counts from it; null until the status is terminal
)""",
    # Ids are not unique here: clients replay items of earlier responses in their input.
    """
CREATE TABLE input_items (
    id TEXT,
    response_id TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    type TEXT NOT NULL,
    role TEXT,
    content TEXT,
    created_at INTEGER NOT NULL,
    rest TEXT NOT NULL,
    PRIMARY KEY (response_id, position)
)""",
    """
CREATE TABLE output_items (
    id TEXT NOT NULL,
    response_id TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,              -- in responses.output, which holds the item itself
    PRIMARY KEY (id, response_id, position)
) WITHOUT ROWID""",
    """
CREATE TABLE events (
    response_id TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (response_id, seq)
) WITHOUT ROWID""",
    """
CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    response_id TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID""",
    """
CREATE TABLE conversations (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
)""",
    """
CREATE TABLE conversation_items (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    position INTEGER NOT NULL,
    id TEXT,
    type TEXT NOT NULL,
    role TEXT,
    content TEXT,
    rest TEXT NOT NULL,
    PRIMARY KEY (tenant, conversation, position),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
)""",
    # The messages up to and including each response, for people who read the file with other tools.
    # It is a view with the columns of Xaibo's table of that name; nothing is copied.
    """
CREATE VIEW conversation_history AS
SELECT
    r.id AS id,
    r.id AS response_id,
    r.previous_response_id AS previous_response_id,
    (
        WITH RECURSIVE chain (id, previous, output, turn) AS (
            SELECT r.id, r.previous_response_id, r.output, r.turn
            UNION ALL
            SELECT p.id, p.previous_response_id, p.output, p.turn
            FROM chain JOIN responses p
                ON p.id = chain.previous AND p.tenant = r.tenant AND p.turn = chain.turn - 1
        ),
        said (turn, half, position, role, content) AS (
            SELECT chain.turn, 0, i.position, i.role, i.content
            FROM chain JOIN input_items i ON i.response_id = chain.id
            WHERE i.type = 'message'
            UNION ALL
            SELECT chain.turn, 1, o.key, o.value ->> 'role', o.value -> 'content'
            FROM chain, json_each(chain.output) o
            WHERE o.value ->> 'type' = 'message'
        )
        SELECT json_object('messages', json_group_array(
            json_object('role', role, 'content', json(content))
        ))
        FROM (SELECT role, content FROM said ORDER BY turn, half, position)
    ) AS conversation_data,
    r.created_at AS created_at
FROM responses r""",
    "CREATE UNIQUE INDEX responses_place ON responses (thread, turn)",
    "CREATE INDEX responses_unfinished ON responses (created_at) WHERE ended_at IS NULL",
    "CREATE INDEX responses_ended ON responses (ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX responses_logged ON responses (ended_at) WHERE swept <= last_seq",
    # `responses_busy` is the lock of a conversation: at most one response in progress.
    "CREATE UNIQUE INDEX responses_busy ON responses (tenant, conversation)"
    " WHERE ended_at IS NULL AND conversation IS NOT NULL",
    "CREATE INDEX input_items_id ON input_items (id)",
    "CREATE INDEX output_items_response ON output_items (response_id)",
    "CREATE INDEX idempotency_response ON idempotency (response_id)",
    "CREATE INDEX conversation_items_id ON conversation_items (tenant, id)",
)


def _create_tables(connection: sqlite3.Connection) -> None:
    has_xaibo_tables = connection.execute(_FIND_XAIBO).fetchone() is not None
    if has_xaibo_tables:
        for table in ("responses", "input_items", "conversation_history"):
            connection.execute(f"ALTER TABLE {table} RENAME TO {table}_v0")
    for statement in _TABLES:
        connection.execute(statement)
    if has_xaibo_tables:
        _add_workers(connection)  # the import writes rows of the newest version
        _import_xaibo_responses(connection)


# Xaibo's adapter stored its responses in a file of the same name, in tables of the same names and
# without a version. Its tables are renamed, never dropped: what cannot be imported stays there.
_FIND_XAIBO = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'responses'"
_XAIBO_RESPONSES = "SELECT * FROM responses_v0 ORDER BY created_at, rowid"
_XAIBO_ITEMS = "SELECT *, '{}' AS rest FROM input_items_v0 WHERE response_id = ? ORDER BY rowid"


def _import_xaibo_responses(connection: sqlite3.Connection) -> None:
    """Add every response that has ended and can be read, parents before children."""
    found, imported = connection.execute(_XAIBO_RESPONSES).fetchall(), 0
    # Retention counts from now: old responses must not be gone a minute after they were imported.
    now: Row = {"ended_at": int(time.time())}
    unused: Row = {"conversation": None, "request": b"", "owner": None, "queued": False}
    for row in found:
        with suppress(InvalidValueError, msgspec.DecodeError, TypeError):
            response = decode(Response, drop_none(sql.fields_from_row(row)))
            if response.status in TERMINAL_STATUSES:
                rows = connection.execute(_XAIBO_ITEMS, (response.id,))
                input = sql.input_to_rows(response, [sql.item_from_row(row) for row in rows])
                new = sql.response_to_row(response, 0, "") | unused | now
                operations.begin_response(connection, response, new, input, None)
                imported += 1
    logger.info("%d of %d responses of a Xaibo database were imported", imported, len(found))


def _add_threads(connection: sqlite3.Connection) -> None:
    connection.execute("""
CREATE TABLE hashbrown_threads (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    messages BLOB NOT NULL,                 -- JSON, opaque to the store
    saved_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
)""")
    connection.execute("CREATE INDEX hashbrown_threads_saved ON hashbrown_threads (saved_at)")


def _index_forks(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE INDEX responses_forks ON responses (forked_from, turn) WHERE forked_from IS NOT NULL")


def _title_threads(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE hashbrown_threads ADD COLUMN title TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE hashbrown_threads ADD COLUMN own_title TEXT")  # set by hand
    # Threads begin with a message of the user.
    connection.execute("""
UPDATE hashbrown_threads
SET title = substr(trim(coalesce(json_extract(CAST(messages AS TEXT), '$[0].content'), '')), 1, 80)""")
    connection.execute("CREATE INDEX hashbrown_threads_listed ON hashbrown_threads (tenant, saved_at)")


def _add_workers(connection: sqlite3.Connection) -> None:
    existing = {row["name"] for row in connection.execute("PRAGMA table_info(responses)")}
    for name, definition in WORKER_COLUMNS.items():
        if name not in existing:
            connection.execute(f"ALTER TABLE responses ADD COLUMN {name} {definition}")
    connection.execute(
        "CREATE INDEX IF NOT EXISTS responses_queued ON responses (created_at) WHERE queued AND ended_at IS NULL"
    )
    # What no worker had claimed waits in the queue now.
    connection.execute("UPDATE responses SET queued = 1 WHERE ended_at IS NULL AND status = 'queued' AND epoch = 0")


def _index_lists(connection: sqlite3.Connection) -> None:
    for table in ("responses", "conversations"):
        connection.execute(f"CREATE INDEX {table}_listed ON {table} (tenant, created_at)")


WORKER_COLUMNS = {
    "owner": "TEXT",  # the process that makes it
    "queued": "BOOLEAN NOT NULL DEFAULT 0",  # whether it waits for a worker
    "attempts": "INTEGER NOT NULL DEFAULT 0",  # how often a worker took it from the queue
}

MIGRATIONS: Sequence[Migration] = (
    _create_tables,
    _add_threads,
    _index_forks,
    _title_threads,
    _add_workers,
    _index_lists,
)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Migrate a database to the newest version; raises StoreError for a newer one."""
    # Another process may start at the same time: the version is read again under the write lock.
    while (version := _version(connection)) < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == version:
                migrations[version](connection)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    if version > len(migrations):
        raise StoreError(
            f"The database is of version {version}, and this program knows versions up to "
            f"{len(migrations)}. Use a newer Antiphon, or another folder."
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
