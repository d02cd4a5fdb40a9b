"""The PostgreSQL store's statements, and the conversion between rows and values.

Values are always bound, never written into a statement. Bodies are JSON as bytes, so that every field survives; what
the store itself selects by has a column.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode, decode_as, encode
from antiphon.store import base
from antiphon.store.postgres.database import Row
from antiphon.store.postgres.schema import LAST_SEQUENCE

SECONDS_PER_DAY = 86_400

_RESPONSE_COLUMNS = f"""
r.id, r.tenant, r.body, r.output, r.request, r.conversation, r.epoch, r.attempts, {LAST_SEQUENCE} AS last_seq"""

# One statement, so that a request waits for one round trip and one commit. The first continuation of a response takes
# the next turn of its thread, and any other starts a thread of its own.
BEGIN_RESPONSE = """
WITH claimed AS (
    INSERT INTO idempotency (tenant, key, fingerprint, response_id)
    SELECT $2::text, $3::text, $4::text, $1::text WHERE $3::text IS NOT NULL
    ON CONFLICT DO NOTHING RETURNING 1
), parent AS (
    -- Retention does not delete it meanwhile.
    SELECT thread, turn FROM responses WHERE id = $5 AND tenant = $2 FOR KEY SHARE
), sibling AS (
    SELECT 1 FROM responses r JOIN parent ON r.thread = parent.thread AND r.turn = parent.turn + 1
), added AS (
    INSERT INTO responses (
        id, tenant, status, model, created_at, ended_at, background, previous_response_id, thread, turn, forked_from,
        conversation, owner, queued, day, last_seq, body, output, request
    )
    SELECT
        $1, $2, $6::text, $7::text, $8::bigint, $9::bigint, $10::boolean, $5::text,
        CASE WHEN EXISTS (SELECT 1 FROM sibling) THEN $1 ELSE coalesce((SELECT thread FROM parent), $1) END,
        coalesce((SELECT turn + 1 FROM parent), 0),
        CASE WHEN EXISTS (SELECT 1 FROM sibling) THEN (SELECT thread FROM parent) END,
        $11::text, CASE WHEN $6 <> 'queued' THEN $12::text END, $6 = 'queued', $13::integer,
        CASE WHEN $9::bigint IS NOT NULL THEN -1 END,
        $14::bytea, $15::bytea, $16::bytea
    WHERE $3::text IS NULL OR EXISTS (SELECT 1 FROM claimed)
    RETURNING 1
), input AS (
    INSERT INTO input_items (response_id, position, id, type, body)
    SELECT $1, i.position - 1, i.id, i.type, i.body
    FROM unnest($17::text[], $18::text[], $19::bytea[]) WITH ORDINALITY AS i (id, type, body, position)
    WHERE EXISTS (SELECT 1 FROM added)
)
SELECT 1 FROM added"""
FIND_RUNNING_IN_CONVERSATION = """
SELECT 1 FROM responses WHERE tenant = $1 AND conversation = $2 AND ended_at IS NULL AND conversation IS NOT NULL"""
ADD_SECRET = "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING"  # noqa: S105
FIND_SECRET = "SELECT value FROM secrets WHERE name = $1"  # noqa: S105

FIND_IDEMPOTENCY_RECORD = "SELECT fingerprint, response_id FROM idempotency WHERE tenant = $1 AND key = $2"
RELEASE_KEY = "DELETE FROM idempotency WHERE tenant = $1 AND response_id = $2"

FIND_RESPONSE = f"SELECT {_RESPONSE_COLUMNS} FROM responses r WHERE r.id = $1 AND r.tenant = $2"  # noqa: S608
SAVE_OUTPUT = "UPDATE responses SET output = $3 WHERE id = $1 AND tenant = $2 AND ended_at IS NULL"

# A response ends once. The row of a fenced worker is not found, so a process that lost its lease ends nothing; an
# update of that row waits until this statement has committed.
END_RESPONSE = f"""
WITH worker AS (
    SELECT 1 FROM workers WHERE id = $8 AND NOT fenced FOR SHARE
), ended AS (
    UPDATE responses r SET
        status = $3, ended_at = $4, body = $5, output = $6, last_seq = coalesce($7, {LAST_SEQUENCE}), owner = NULL
    WHERE id = $1 AND tenant = $2 AND ended_at IS NULL AND EXISTS (SELECT 1 FROM worker)
    RETURNING r.conversation
), output AS (
    INSERT INTO output_items (id, response_id, position)
    SELECT o.id, $1, o.position FROM unnest($9::text[], $10::integer[]) AS o (id, position)
    WHERE EXISTS (SELECT 1 FROM ended)
)
SELECT conversation FROM ended"""  # noqa: S608
ADD_OUTPUT = """
INSERT INTO output_items (id, response_id, position)
SELECT o.id, $1, o.position FROM unnest($2::text[], $3::integer[]) AS o (id, position)"""

# A chain is one range of turns in each thread that it passes through; forks make the recursion deeper.
READ_HISTORY = """
WITH RECURSIVE segment (thread, turn) AS (
    SELECT thread, turn FROM responses WHERE id = $1 AND tenant = $2
    UNION ALL
    SELECT f.forked_from, f.turn - 1
    FROM segment JOIN responses f ON f.id = segment.thread
    WHERE f.forked_from IS NOT NULL
)
SELECT
    r.id, r.turn, r.previous_response_id, r.output,
    (SELECT array_agg(i.body ORDER BY i.position) FROM input_items i WHERE i.response_id = r.id) AS input
FROM segment JOIN responses r ON r.thread = segment.thread AND r.turn <= segment.turn
ORDER BY r.turn"""

FIND_OUTPUT_ITEM = """
SELECT r.output, o.position FROM output_items o JOIN responses r ON r.id = o.response_id
WHERE o.id = $1 AND r.tenant = $2 ORDER BY r.number DESC LIMIT 1"""
FIND_INPUT_ITEM = """
SELECT i.body FROM input_items i JOIN responses r ON r.id = i.response_id
WHERE i.id = $1 AND i.type <> 'item_reference' AND r.tenant = $2 ORDER BY r.number DESC LIMIT 1"""
FIND_ITEM_IN_CONVERSATIONS = """
SELECT body FROM conversation_items
WHERE tenant = $2 AND id = $1 AND type <> 'item_reference' ORDER BY number DESC LIMIT 1"""

FIND_PLACE = "SELECT thread, turn FROM responses WHERE id = $1 AND tenant = $2"
INPUT_POSITION = "SELECT position FROM input_items WHERE response_id = $1 AND id = $2"
INPUT_ASCENDING = """
SELECT body FROM input_items WHERE response_id = $1 AND position > $2 AND position < $3 ORDER BY position LIMIT $4"""
INPUT_DESCENDING = INPUT_ASCENDING.replace("ORDER BY position", "ORDER BY position DESC")

# The index of these holds all three columns: a page costs the same, however many rows there are.
RESPONSE_POSITION = "SELECT created_at, number FROM responses WHERE tenant = $1 AND id = $2"
LIST_RESPONSES = """
SELECT id FROM responses
WHERE tenant = $1 AND (created_at, number) > ($2, $3) AND (created_at, number) < ($4, $5)
ORDER BY created_at, number LIMIT $6"""
CONVERSATION_PLACE = RESPONSE_POSITION.replace("responses", "conversations")
LIST_CONVERSATIONS = LIST_RESPONSES.replace("responses", "conversations")
FIND_SUMMARIES = """
SELECT r.id, r.body, r.conversation, (
    SELECT array_agg(m.body ORDER BY m.position) FROM (
        SELECT i.body, i.position FROM input_items i
        WHERE i.response_id = r.id AND i.type = 'message' ORDER BY i.position LIMIT $3
    ) m
) AS messages
FROM responses r
WHERE r.tenant = $1 AND r.id = ANY($2::text[])
    AND ($4::text IS NULL OR r.model = $4)
    AND ($5::text IS NULL OR r.status = $5)
    AND ($6::boolean IS NULL OR r.background = $6)
    AND ($7::text IS NULL OR r.previous_response_id = $7)
    AND ($8::text IS NULL OR r.conversation = $8)"""
FIND_CONVERSATION_SUMMARIES = """
SELECT c.id, c.created_at, c.metadata, (
    SELECT array_agg(m.body ORDER BY m.position) FROM (
        SELECT i.body, i.position FROM conversation_items i
        WHERE i.tenant = c.tenant AND i.conversation = c.id AND i.type = 'message' ORDER BY i.position LIMIT $3
    ) m
) AS messages
FROM conversations c WHERE c.tenant = $1 AND c.id = ANY($2::text[])"""
# The same comparison as SQLite's LIKE: only of ASCII letters upper and lower case are the same.
_MATCHES = """convert_from({}, 'UTF8') COLLATE "C" ILIKE $2 ESCAPE '!'"""
SEARCH_RESPONSES = f"""
SELECT id, output AS items FROM responses WHERE id = ANY($1::text[]) AND {_MATCHES.format("output")}
UNION ALL
SELECT response_id, '['::bytea || body || ']'::bytea FROM input_items
WHERE response_id = ANY($1::text[]) AND {_MATCHES.format("body")}"""  # noqa: S608
SEARCH_CONVERSATIONS = f"""
SELECT c.id, '['::bytea || i.body || ']'::bytea AS items
FROM unnest($1::text[]) AS c (id), LATERAL (
    SELECT body FROM conversation_items
    WHERE tenant = $3 AND conversation = c.id ORDER BY position DESC LIMIT $4
) i WHERE {_MATCHES.format("i.body")}"""  # noqa: S608

FIND_OWNER = "SELECT owner, queued, epoch FROM responses WHERE id = $1 AND tenant = $2 AND ended_at IS NULL"
# Waits for the flush that the owner has in flight, and holds the next one back: it then sees the new epoch.
LOCK_WORKER = "SELECT 1 FROM workers WHERE id = $1 FOR UPDATE"
CLAIM_RESPONSE = """
UPDATE responses SET epoch = epoch + 1, owner = $3, queued = false, attempts = attempts + queued::integer
WHERE id = $1 AND tenant = $2 AND ended_at IS NULL AND owner IS NOT DISTINCT FROM $4 AND (queued OR NOT $5)
    AND epoch = coalesce($6, epoch)
RETURNING epoch"""
CLAIM_QUEUED = f"""
WITH taken AS (
    SELECT id FROM responses WHERE queued AND ended_at IS NULL
    ORDER BY created_at, number LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE responses r SET epoch = epoch + 1, owner = $1, queued = false, attempts = attempts + 1
FROM taken WHERE r.id = taken.id RETURNING {_RESPONSE_COLUMNS}, r.created_at, r.number"""  # noqa: S608
REQUEUE = """
UPDATE responses SET queued = true, owner = NULL WHERE id = $1 AND tenant = $2 AND epoch = $3 AND ended_at IS NULL
RETURNING 1"""
FIND_LOST = """
SELECT c.id FROM unnest($1::text[], $2::integer[]) AS c (id, epoch)
LEFT JOIN responses r ON r.id = c.id AND r.epoch = c.epoch AND r.ended_at IS NULL
    AND (r.owner = $3 OR r.epoch = 0)
WHERE r.id IS NULL"""

# A function of the schema, so that a flush is one round trip. NULL if this process is fenced, else the accepted ids.
APPEND_EVENTS = "SELECT append_events($1, $2, $3, $4, $5, $6, $7)"
FIND_APPENDED = """
SELECT r.status
FROM responses r LEFT JOIN events e
    ON e.day = r.day AND e.response_id = r.id AND e.first_seq = $4 AND e.count = $5 AND e.bodies = $6
WHERE r.id = $1 AND r.tenant = $2 AND r.epoch = $3 AND ($5 = 0 OR e.count IS NOT NULL)"""

FIND_DAYS = "SELECT DISTINCT day FROM responses WHERE id = ANY($1::text[])"

READ_EVENTS = """
SELECT r.ended_at, r.swept, r.last_seq, e.first_seq, e.bodies
FROM responses r LEFT JOIN LATERAL (
    SELECT first_seq, bodies FROM events e
    WHERE e.day = r.day AND e.response_id = r.id AND e.first_seq + e.count > $3 + 1
    ORDER BY first_seq LIMIT $4
) e ON true
WHERE r.id = $1 AND r.tenant = $2 ORDER BY e.first_seq"""
HAS_NEWS = f"SELECT r.ended_at IS NOT NULL OR {LAST_SEQUENCE} > $2 FROM responses r WHERE r.id = $1"  # noqa: S608

# Foreign keys would cost every insert a look-up: what belongs to a response is deleted with it here.
DELETE_RESPONSE = """
WITH gone AS (DELETE FROM responses WHERE id = $1 AND tenant = $2 RETURNING id, day),
    input AS (DELETE FROM input_items i USING gone WHERE i.response_id = gone.id),
    output AS (DELETE FROM output_items o USING gone WHERE o.response_id = gone.id),
    log AS (DELETE FROM events e USING gone WHERE e.day = gone.day AND e.response_id = gone.id),
    key AS (DELETE FROM idempotency k USING gone WHERE k.response_id = gone.id)
SELECT id FROM gone"""

FIND_UNFINISHED = f"""
SELECT {_RESPONSE_COLUMNS} FROM responses r WHERE r.ended_at IS NULL ORDER BY r.created_at, r.number"""  # noqa: S608
# Of processes whose lease has ended, of none, or our own that are not running ($2).
FIND_ABANDONED = f"""
SELECT {_RESPONSE_COLUMNS} FROM responses r
WHERE r.ended_at IS NULL AND NOT r.queued AND (
    (r.owner = $1 AND r.id <> ALL ($2::text[]))
    OR NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = r.owner AND NOT w.fenced)
) ORDER BY r.created_at, r.number"""  # noqa: S608
FAIL_UNREADABLE = """
UPDATE responses SET status = 'failed', ended_at = $3, last_seq = coalesce(last_seq, -1), owner = NULL
WHERE id = $1 AND tenant = $2 AND ended_at IS NULL"""

SWEEP_LOCK = 0x73776565
TRY_SWEEP_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
# `swept` counts deleted events, so a log is empty when it is above `last_seq`. The rows go with their partition.
SWEEP_LOGS = """
WITH old AS (
    SELECT id, last_seq + 1 - swept AS count, sum(last_seq + 1 - swept) OVER (ORDER BY ended_at, number) AS total
    FROM responses WHERE ended_at < $1 AND swept <= last_seq ORDER BY ended_at, number LIMIT $2
), swept AS (
    UPDATE responses r SET swept = swept + least(old.count, $2 - (old.total - old.count))
    FROM old WHERE r.id = old.id AND old.total - old.count < $2
    RETURNING least(old.count, $2 - (old.total - old.count)) AS count
)
SELECT coalesce(sum(count), 0)::bigint FROM swept"""
LIST_PARTITIONS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'events'::regclass"""
HAS_LOGS = "SELECT EXISTS (SELECT 1 FROM responses WHERE day = $1 AND swept <= coalesce(last_seq, 0))"
# Newest first, and so children before their parents: a chain is deleted from its end.
FIND_EXPIRED = """
SELECT id, tenant, thread, turn, ended_at FROM responses
WHERE ended_at < $1 AND swept > last_seq ORDER BY ended_at DESC, turn DESC LIMIT $2 FOR UPDATE SKIP LOCKED"""
FIND_LAST_CHILD_END = """
SELECT max(coalesce(ended_at, $1)) FROM (
    SELECT ended_at, previous_response_id AS parent FROM responses WHERE thread = $2 AND turn = $3 + 1
    UNION ALL
    SELECT ended_at, previous_response_id FROM responses WHERE forked_from = $2 AND turn = $3 + 1
) AS children WHERE parent = $4"""
KEEP_RESPONSE = "UPDATE responses SET ended_at = $3 WHERE id = $1 AND tenant = $2"
SWEEP_THREADS = """
WITH gone AS (
    DELETE FROM hashbrown_threads WHERE (tenant, id) IN (
        SELECT tenant, id FROM hashbrown_threads WHERE saved_at < $1 ORDER BY saved_at LIMIT $2
    ) RETURNING 1
)
SELECT count(*) FROM gone"""

# Statements may be repeated after a lost connection: the second time they change nothing.
CREATE_THREAD = """
INSERT INTO hashbrown_threads (tenant, id, messages, title, saved_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, id) DO NOTHING"""
# `number` says in which order threads were saved.
REPLACE_THREAD = """
UPDATE hashbrown_threads SET messages = $4, saved_at = $5, number = DEFAULT
WHERE tenant = $1 AND id = $2 AND messages IN ($3, $4) RETURNING 1"""
LIST_THREADS = """
SELECT id, coalesce(own_title, title) AS title, saved_at FROM hashbrown_threads
WHERE tenant = $1 AND number < $2 ORDER BY number DESC LIMIT $3"""
FIND_THREAD_NUMBER = "SELECT number FROM hashbrown_threads WHERE tenant = $1 AND id = $2"
RENAME_THREAD = "UPDATE hashbrown_threads SET own_title = $3 WHERE tenant = $1 AND id = $2 RETURNING 1"
DELETE_THREAD = "DELETE FROM hashbrown_threads WHERE tenant = $1 AND id = $2 RETURNING 1"
FIND_THREAD = "SELECT messages FROM hashbrown_threads WHERE tenant = $1 AND id = $2"

SAVE_CONVERSATION = """
INSERT INTO conversations (tenant, id, created_at, metadata) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, id) DO UPDATE SET created_at = excluded.created_at, metadata = excluded.metadata"""
FIND_CONVERSATION = "SELECT id, created_at, metadata FROM conversations WHERE tenant = $1 AND id = $2"
LOCK_CONVERSATION = FIND_CONVERSATION + " FOR UPDATE"
DELETE_CONVERSATION = """
WITH gone AS (DELETE FROM conversations WHERE tenant = $1 AND id = $2 RETURNING tenant, id),
    items AS (DELETE FROM conversation_items i USING gone WHERE i.tenant = gone.tenant AND i.conversation = gone.id)
SELECT id FROM gone"""
NEXT_POSITION = """
SELECT coalesce(max(position), -1) + 1 FROM conversation_items WHERE tenant = $1 AND conversation = $2"""
FIND_TAKEN_IDS = "SELECT id FROM conversation_items WHERE tenant = $1 AND conversation = $2 AND id = ANY($3::text[])"
ADD_CONVERSATION_ITEMS = """
INSERT INTO conversation_items (tenant, conversation, position, id, type, body)
SELECT $1, $2, i.position - 1 + $3, i.id, i.type, i.body
FROM unnest($4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY AS i (id, type, body, position)"""
DELETE_CONVERSATION_ITEM = """
DELETE FROM conversation_items WHERE tenant = $1 AND conversation = $2 AND id = $3 RETURNING 1"""
FIND_CONVERSATION_ITEM = "SELECT body FROM conversation_items WHERE tenant = $1 AND conversation = $2 AND id = $3"
CONVERSATION_POSITION = FIND_CONVERSATION_ITEM.replace("body", "position")
CONVERSATION_ASCENDING = """
SELECT body FROM conversation_items
WHERE tenant = $1 AND conversation = $2 AND position > $3 AND position < $4 ORDER BY position LIMIT $5"""
CONVERSATION_DESCENDING = CONVERSATION_ASCENDING.replace("ORDER BY position", "ORDER BY position DESC")


def escape_nul(text: str) -> str:
    """Return a text that a column can hold: PostgreSQL has no NUL. Different texts stay different."""
    return text.replace("\\", "\\\\").replace("\0", "\\0") if "\0" in text or "\\" in text else text


def end_values(response: Response, now: int) -> tuple[str, int | None, bytes, bytes]:
    """Return the columns that change when a response ends: status, end time, body and output."""
    ended_at = None
    if response.status in base.TERMINAL_STATUSES:
        ended_at = now if response.completed_at is None else response.completed_at
    return response.status, ended_at, encode(replace(response, output=[])), encode(response.output)


def row_size(*rows: Row) -> int:
    """Return how many bytes rows have in their bodies."""
    return sum(len(value) for row in rows for value in row.values() if isinstance(value, bytes))


def response_from_row(row: Row) -> base.StoredResponse:
    """Return the response of a row and the store's own data."""
    response = decode(Response, msgspec.json.decode(row["body"]))
    response = replace(response, output=items_from_json(row["output"]))
    return base.StoredResponse(
        response, row["request"], row["conversation"], row["epoch"], row["last_seq"], row["attempts"]
    )


def item_columns(items: Sequence[Item]) -> list[list[Any]]:
    """Return the columns of items: ids, types and bodies."""
    ids = [escape_nul(item.id) if isinstance(item.id, str) else None for item in items]
    return [ids, [escape_nul(item.type) for item in items], [encode(item) for item in items]]


def output_columns(response: Response) -> list[list[Any]]:
    """Return the index columns of a response's output: ids and positions."""
    found = [(escape_nul(item.id), n) for n, item in enumerate(response.output) if isinstance(item.id, str)]
    return [[id for id, _ in found], [position for _, position in found]]


def item_from_json(body: bytes) -> Item:
    """Return the item of a body."""
    return cast("Item", decode_as(Item, msgspec.json.decode(body)))


def items_from_json(body: bytes) -> list[Item]:
    """Return the items of an output."""
    return cast("list[Item]", decode_as(list[Item], msgspec.json.decode(body)))


def messages_from_row(row: Row) -> list[Item]:
    """Return the first messages of a row in a list."""
    return [item_from_json(body) for body in row["messages"] or ()]


def conversation_from_row(row: Row) -> base.StoredConversation:
    """Return the conversation of a row."""
    return base.StoredConversation(
        row["id"], row["created_at"], msgspec.json.decode(row["metadata"], type=dict[str, str])
    )
