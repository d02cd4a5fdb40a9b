"""The SQLite store's statements, and the conversion between rows and values.

Values are always bound, never written into a statement. A field with a column of its own is stored
there, structured ones as JSON; all other fields, unknown ones included, are the JSON object in
`rest`, so that every field of a response or item survives.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode, decode_as, encode, to_builtins
from antiphon.store.base import TERMINAL_STATUSES, StoredConversation, StoredResponse, make_ids_unique
from antiphon.store.lists import ResponseSummary, make_title

Row = dict[str, object]

SCALAR_COLUMNS = (
    "id object created_at status instructions max_output_tokens model previous_response_id temperature top_p truncation"
).split()
FLAG_COLUMNS = ("parallel_tool_calls", "store", "background")
JSON_COLUMNS = ("error incomplete_details output reasoning text tool_choice tools usage metadata").split()

_COLUMNS = (*SCALAR_COLUMNS, *FLAG_COLUMNS, *JSON_COLUMNS, "user_id", "rest", "ended_at")
_STORE_COLUMNS = ("tenant", "thread", "turn", "forked_from", "conversation", "request", "owner", "queued")

# These two are built from our own column names; values are bound as everywhere.
_ADDED = (*_COLUMNS, *_STORE_COLUMNS)
ADD_RESPONSE = (
    f"INSERT INTO responses ({', '.join(_ADDED)}) "  # noqa: S608
    f"VALUES ({', '.join(f':{name}' for name in _ADDED)})"
)

# A response ends once: this does not change a response that has ended. Its parent is its place in
# the chain, and never changes.
_ENDED = ", ".join(f"{name} = :{name}" for name in _COLUMNS if name != "previous_response_id")
END_RESPONSE = (
    f"UPDATE responses SET {_ENDED} "  # noqa: S608
    "WHERE id = :id AND tenant = :tenant AND ended_at IS NULL RETURNING conversation"
)
SAVE_OUTPUT = "UPDATE responses SET output = :output WHERE id = :id AND tenant = :tenant AND ended_at IS NULL"

FIND_RESPONSE = "SELECT * FROM responses WHERE id = :id AND tenant = :tenant"
# Foreign keys delete the items, events and idempotency records of a response with it.
DELETE_RESPONSE = "DELETE FROM responses WHERE id = :id AND tenant = :tenant"
FIND_UNFINISHED = "SELECT id, tenant, owner, queued FROM responses WHERE ended_at IS NULL ORDER BY created_at, rowid"
FAIL_UNREADABLE = """
UPDATE responses SET status = 'failed', ended_at = :ended_at
WHERE id = :id AND tenant = :tenant AND ended_at IS NULL"""
FIND_PLACE = "SELECT thread, turn FROM responses WHERE id = :id AND tenant = :tenant"
FIND_TURN = "SELECT 1 FROM responses WHERE thread = :thread AND turn = :turn"
# The same conditions as the unique index `responses_busy`, so that SQLite uses it.
FIND_RUNNING_IN_CONVERSATION = """
SELECT id FROM responses
WHERE tenant = :tenant AND conversation = :conversation
    AND ended_at IS NULL AND conversation IS NOT NULL"""

FIND_IDEMPOTENCY_RECORD = "SELECT fingerprint, response_id FROM idempotency WHERE tenant = :tenant AND key = :key"
ADD_IDEMPOTENCY_RECORD = """
INSERT INTO idempotency (tenant, key, fingerprint, response_id)
VALUES (:tenant, :key, :fingerprint, :response_id)"""
RELEASE_KEY = "DELETE FROM idempotency WHERE tenant = :tenant AND response_id = :id"

# One row per input item, with the response's output on the first. A chain is one range of turns in
# each thread it passes through, so its length does not make the recursion deeper; forks do.
READ_HISTORY = """
WITH RECURSIVE segment (thread, turn) AS (
    SELECT thread, turn FROM responses WHERE id = :id AND tenant = :tenant
    UNION ALL
    SELECT f.forked_from, f.turn - 1
    FROM segment JOIN responses f ON f.id = segment.thread
    WHERE f.forked_from IS NOT NULL
)
SELECT
    r.id AS response, r.turn, r.previous_response_id,
    CASE WHEN i.position IS NULL OR i.position = 0 THEN r.output END AS output,
    i.id, i.type, i.role, i.content, i.rest
FROM segment
JOIN responses r ON r.thread = segment.thread AND r.turn <= segment.turn
LEFT JOIN input_items i ON i.response_id = r.id
ORDER BY r.turn, i.position"""

ADD_INPUT = """
INSERT INTO input_items (id, response_id, position, type, role, content, created_at, rest)
VALUES (:id, :response_id, :position, :type, :role, :content, :created_at, :rest)"""
ADD_OUTPUT = "INSERT INTO output_items (id, response_id, position) VALUES (:id, :response_id, :position)"

INPUT_POSITION = "SELECT position FROM input_items WHERE id = :id AND response_id = :list"
INPUT_ASCENDING = """
SELECT * FROM input_items
WHERE response_id = :list AND position > :low AND position < :high
ORDER BY position LIMIT :limit"""
INPUT_DESCENDING = INPUT_ASCENDING.replace("ORDER BY position", "ORDER BY position DESC")

# The index of these holds the tenant, the time and the rowid: a page costs the same, however many rows there are.
RESPONSE_POSITION = "SELECT created_at, rowid FROM responses WHERE id = :id AND tenant = :tenant"
LIST_RESPONSES = """
SELECT id FROM responses
WHERE tenant = :tenant AND (created_at, rowid) > (:low_time, :low) AND (created_at, rowid) < (:high_time, :high)
ORDER BY created_at, rowid LIMIT :limit"""
CONVERSATION_PLACE = RESPONSE_POSITION.replace("responses", "conversations")
LIST_CONVERSATIONS = LIST_RESPONSES.replace("responses", "conversations")
FIND_SUMMARY = """
SELECT
    id, created_at, rest ->> '$.completed_at' AS completed_at, status, model, usage, previous_response_id,
    conversation, background, metadata, error
FROM responses
WHERE id = :id AND tenant = :tenant
    AND (:model IS NULL OR model = :model)
    AND (:status IS NULL OR status = :status)
    AND (:background IS NULL OR background = :background)
    AND (:previous_response_id IS NULL OR previous_response_id = :previous_response_id)
    AND (:conversation IS NULL OR conversation = :conversation)"""
FIRST_MESSAGES = """
SELECT * FROM input_items WHERE response_id = :id AND type = 'message' ORDER BY position LIMIT :limit"""
FIRST_CONVERSATION_MESSAGES = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND conversation = :id AND type = 'message' ORDER BY position LIMIT :limit"""
_MATCHES = "(content LIKE :pattern ESCAPE '!' OR rest LIKE :pattern ESCAPE '!')"
SEARCH_OUTPUT = "SELECT output FROM responses WHERE id = :id AND output LIKE :pattern ESCAPE '!'"
SEARCH_INPUT = f"SELECT * FROM input_items WHERE response_id = :id AND {_MATCHES}"  # noqa: S608
SEARCH_CONVERSATION = f"""
SELECT * FROM (
    SELECT * FROM conversation_items
    WHERE tenant = :tenant AND conversation = :id ORDER BY position DESC LIMIT :limit
) AS last_items WHERE {_MATCHES}"""  # noqa: S608

FIND_OUTPUT_ITEM = """
SELECT r.output, o.position
FROM output_items o JOIN responses r ON r.id = o.response_id
WHERE o.id = :id AND r.tenant = :tenant ORDER BY r.rowid DESC LIMIT 1"""
FIND_INPUT_ITEM = """
SELECT i.*
FROM input_items i JOIN responses r ON r.id = i.response_id
WHERE i.id = :id AND i.type <> 'item_reference' AND r.tenant = :tenant
ORDER BY r.rowid DESC LIMIT 1"""
FIND_ITEM_IN_CONVERSATIONS = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND id = :id AND type <> 'item_reference' ORDER BY rowid DESC LIMIT 1"""

NEXT_EPOCH = """
UPDATE responses SET epoch = epoch + 1, owner = :owner, attempts = attempts + queued, queued = 0
WHERE id = :id AND tenant = :tenant AND ended_at IS NULL AND (queued OR NOT :queued)
    AND epoch = coalesce(:expected, epoch)
RETURNING epoch"""
HAS_QUEUED = "SELECT 1 FROM responses WHERE queued AND ended_at IS NULL LIMIT 1"
FIND_QUEUED = (
    "SELECT id, tenant FROM responses WHERE queued AND ended_at IS NULL ORDER BY created_at, rowid LIMIT :limit"
)
REQUEUE = """
UPDATE responses SET queued = 1, owner = NULL
WHERE id = :id AND tenant = :tenant AND epoch = :epoch AND ended_at IS NULL"""
IS_OURS = "SELECT 1 FROM responses WHERE id = :id AND epoch = :epoch AND ended_at IS NULL"
FIND_OWNERS = "SELECT DISTINCT owner FROM responses WHERE ended_at IS NULL AND NOT queued"

# The fence: only the newest worker may append, only after the last number, only before the end.
ADVANCE_SEQUENCE = """
UPDATE responses SET last_seq = last_seq + :count
WHERE id = :id AND tenant = :tenant AND epoch = :epoch AND last_seq = :after
    AND ended_at IS NULL"""
ADD_EVENT = "INSERT INTO events (response_id, seq, body) VALUES (?, ?, ?)"
FIND_LOG = "SELECT last_seq, ended_at, swept FROM responses WHERE id = :id AND tenant = :tenant"
READ_EVENTS = "SELECT seq, body FROM events WHERE response_id = :id AND seq > :after ORDER BY seq LIMIT :limit"
HAS_NEWS = "SELECT last_seq > :after OR ended_at IS NOT NULL FROM responses WHERE id = :id"

# `swept` counts deleted events, so a log is empty when it is above `last_seq`.
FIND_OLD_LOGS = """
SELECT id, swept, last_seq FROM responses
WHERE ended_at < :before AND swept <= last_seq ORDER BY ended_at LIMIT :limit"""
SWEEP_EVENTS = "DELETE FROM events WHERE response_id = :id AND seq < :swept"
SWEEP_LOG = "UPDATE responses SET swept = :swept WHERE id = :id"
# Newest first, and so children before their parents: a chain is deleted from its end.
FIND_EXPIRED = """
SELECT id, tenant, thread, turn, ended_at FROM responses
WHERE ended_at < :before AND swept > last_seq ORDER BY ended_at DESC, turn DESC LIMIT :limit"""
FIND_LAST_CHILD_END = """
SELECT max(coalesce(ended_at, :before)) FROM (
    SELECT ended_at, previous_response_id AS parent FROM responses WHERE thread = :thread AND turn = :turn + 1
    UNION ALL
    SELECT ended_at, previous_response_id FROM responses WHERE forked_from = :thread AND turn = :turn + 1
) WHERE parent = :id"""
KEEP_RESPONSE = "UPDATE responses SET ended_at = :end WHERE id = :id AND tenant = :tenant"
SWEEP_THREADS = """
DELETE FROM hashbrown_threads WHERE rowid IN (
    SELECT rowid FROM hashbrown_threads WHERE saved_at < :before ORDER BY saved_at LIMIT :limit
)"""

CREATE_THREAD = """
INSERT INTO hashbrown_threads (tenant, id, messages, title, saved_at)
VALUES (:tenant, :id, :messages, :title, :saved_at)"""
# Of the threads saved in one second, the last one has the largest rowid.
REPLACE_THREAD = """
UPDATE hashbrown_threads
SET messages = :messages, saved_at = :saved_at, rowid = (SELECT max(rowid) + 1 FROM hashbrown_threads)
WHERE tenant = :tenant AND id = :id AND messages = :before"""
LIST_THREADS = """
SELECT id, coalesce(own_title, title) AS title, saved_at FROM hashbrown_threads
WHERE tenant = :tenant AND (saved_at, rowid) < (:saved_at, :position)
ORDER BY saved_at DESC, rowid DESC LIMIT :limit"""
FIND_THREAD_POSITION = "SELECT saved_at, rowid FROM hashbrown_threads WHERE tenant = :tenant AND id = :id"
RENAME_THREAD = "UPDATE hashbrown_threads SET own_title = :title WHERE tenant = :tenant AND id = :id"
DELETE_THREAD = "DELETE FROM hashbrown_threads WHERE tenant = :tenant AND id = :id"
FIND_THREAD = "SELECT messages FROM hashbrown_threads WHERE tenant = :tenant AND id = :id"

SAVE_CONVERSATION = """
INSERT INTO conversations (tenant, id, created_at, metadata)
VALUES (:tenant, :id, :created_at, :metadata)
ON CONFLICT (tenant, id) DO UPDATE SET created_at = :created_at, metadata = :metadata"""
FIND_CONVERSATION = "SELECT * FROM conversations WHERE tenant = :tenant AND id = :id"
DELETE_CONVERSATION = "DELETE FROM conversations WHERE tenant = :tenant AND id = :id"

NEXT_POSITION = """
SELECT coalesce(max(position), -1) + 1 FROM conversation_items
WHERE tenant = :tenant AND conversation = :list"""
ADD_CONVERSATION_ITEM = """
INSERT INTO conversation_items (tenant, conversation, position, id, type, role, content, rest)
VALUES (:tenant, :list, :position, :id, :type, :role, :content, :rest)"""
DELETE_CONVERSATION_ITEM = "DELETE FROM conversation_items WHERE tenant = :tenant AND conversation = :list AND id = :id"

FIND_CONVERSATION_ITEM = "SELECT * FROM conversation_items WHERE tenant = :tenant AND conversation = :list AND id = :id"
CONVERSATION_POSITION = FIND_CONVERSATION_ITEM.replace("*", "position")
CONVERSATION_ASCENDING = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND conversation = :list AND position > :low AND position < :high
ORDER BY position LIMIT :limit"""
CONVERSATION_DESCENDING = CONVERSATION_ASCENDING.replace("ORDER BY position", "ORDER BY position DESC")


def response_to_row(response: Response, now: int, tenant: str) -> Row:
    """Return a response's columns; `now` is its end time if it has ended without one."""
    fields = cast("Row", to_builtins(response))
    row: Row = {name: fields.pop(name) for name in (*SCALAR_COLUMNS, *FLAG_COLUMNS)}
    row |= {name: _to_json(fields.pop(name)) for name in JSON_COLUMNS}
    row["tenant"], row["user_id"], row["ended_at"] = tenant, fields.pop("user", None), None
    row["rest"] = _to_json(fields)
    if response.status in TERMINAL_STATUSES:
        row["ended_at"] = now if response.completed_at is None else response.completed_at
    return row


def response_from_row(row: sqlite3.Row) -> StoredResponse:
    """Return the response of a row and the store's own data."""
    response = decode(Response, fields_from_row(row) | msgspec.json.decode(row["rest"], type=Row))
    return StoredResponse(response, row["request"], row["conversation"], row["epoch"], row["last_seq"], row["attempts"])


def summary_from_row(row: sqlite3.Row, messages: Iterable[Item]) -> ResponseSummary:
    """Return the row of a list of responses."""
    fields: Row = dict(row) | {name: _from_json(row[name]) for name in ("usage", "metadata", "error")}
    fields["background"] = bool(row["background"])
    fields["conversation"] = None if row["conversation"] is None else {"id": row["conversation"]}
    return decode(ResponseSummary, fields | {"title": make_title(messages)})


def fields_from_row(row: sqlite3.Row) -> Row:
    """Return the fields of a response that have a column of their own."""
    fields: Row = {name: row[name] for name in SCALAR_COLUMNS}
    fields |= {name: bool(row[name]) for name in FLAG_COLUMNS if row[name] is not None}
    fields |= {name: _from_json(row[name]) for name in JSON_COLUMNS}
    return fields | {"user": row["user_id"]}


def item_to_row(item: Item) -> Row:
    """Return an item's columns."""
    fields = cast("Row", to_builtins(item))
    # The role of an extension item may be any JSON; only a string fits the column.
    has_role = isinstance(fields.get("role"), str)
    return {
        "id": fields.pop("id", None),
        "type": fields.pop("type"),
        "role": fields.pop("role") if has_role else None,
        "content": encode(fields.pop("content")).decode() if "content" in fields else None,
        "rest": _to_json(fields),
    }


def item_from_row(row: sqlite3.Row) -> Item:
    """Return the item of a row."""
    fields = msgspec.json.decode(row["rest"], type=Row)
    fields["type"] = row["type"]
    for name in ("id", "role"):
        if row[name] is not None:
            fields[name] = row[name]
    if row["content"] is not None:
        fields["content"] = _from_json(row["content"])
    return cast("Item", decode_as(Item, fields))


def input_to_rows(response: Response, input: Sequence[Item]) -> list[Row]:
    """Return a response's input as rows, with unique ids."""
    owner: Row = {"response_id": response.id, "created_at": response.created_at}
    return [owner | item_to_row(item) | {"position": n} for n, item in enumerate(make_ids_unique(input))]


def output_to_rows(response: Response) -> list[Row]:
    """Return the index rows of a response's output: the position of each item id."""
    return [
        {"id": item.id, "response_id": response.id, "position": position}
        for position, item in enumerate(response.output)
        if isinstance(item.id, str)
    ]


def items_from_json(text: str) -> list[Item]:
    """Return the items of an `output` column."""
    return cast("list[Item]", decode_as(list[Item], _from_json(text)))


def conversation_from_row(row: sqlite3.Row) -> StoredConversation:
    """Return the conversation of a row."""
    metadata = msgspec.json.decode(row["metadata"], type=dict[str, str])
    return StoredConversation(row["id"], row["created_at"], metadata)


def _to_json(value: object) -> str | None:
    return None if value is None else encode(value).decode()


def _from_json(text: str | None) -> object:
    return None if text is None else msgspec.json.decode(text)
