"""The tables of the PostgreSQL store, and their migrations.

Each migration increases the version by one. During a rolling upgrade a program of the version before works beside the
new one, so a migration only adds: what a migration makes impossible for older programs it says in `OLDEST_PROGRAM`.

A response has a place in a chain, a `thread` and a `turn`, as in the SQLite store; see `store/sqlite/schema.py`.
The bodies of responses and items are JSON as bytes: the database never parses them.
"""

from collections.abc import Sequence

from antiphon.protocol.errors import StoreError
from antiphon.store.postgres.database import SCHEMA, Connection

MIGRATION_LOCK = 0x616E7469
"""The advisory lock under which one process migrates."""

# The number of the last event: stored when the response has ended, and read from the log before that.
LAST_SEQUENCE = """coalesce(r.last_seq, (
    SELECT e.first_seq + e.count - 1 FROM events e
    WHERE e.day = r.day AND e.response_id = r.id ORDER BY e.first_seq DESC LIMIT 1
), -1)"""

# Each statement of a function sees what was committed before it began: once the locks are held, no claim comes between.
# A queued response has no worker whose lock would hold a claim back, so it is locked itself. Programs of several
# versions call this function: one that does something else needs another name.
_APPEND_EVENTS = f"""
CREATE FUNCTION append_events(
    worker text, ids text[], tenants text[], epochs integer[], afters integer[], counts integer[], lines bytea[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    added text[];
    unchanged text[];
BEGIN
    PERFORM 1 FROM workers w WHERE w.id = worker AND NOT w.fenced FOR SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF 0 = ANY (epochs) THEN
        PERFORM 1 FROM responses r WHERE r.id = ANY (ids) AND r.owner IS NULL ORDER BY r.id FOR SHARE;
    END IF;
    WITH inserted AS (
        INSERT INTO events (day, response_id, first_seq, count, bodies)
        SELECT r.day, a.id, a.after + 1, a.count, a.bodies
        FROM unnest(ids, tenants, epochs, afters, counts, lines) AS a (id, tenant, epoch, after, count, bodies)
        JOIN responses r ON r.id = a.id AND r.tenant = a.tenant AND r.epoch = a.epoch AND r.ended_at IS NULL
            AND (r.owner = worker OR (r.owner IS NULL AND r.epoch = 0))
        WHERE a.count > 0 AND {LAST_SEQUENCE} = a.after
        ON CONFLICT DO NOTHING RETURNING response_id
    )
    SELECT array_agg(response_id) INTO added FROM inserted;
    IF 0 = ANY (counts) THEN
        SELECT array_agg(a.id) INTO unchanged
        FROM unnest(ids, tenants, epochs, afters, counts) AS a (id, tenant, epoch, after, count)
        JOIN responses r ON r.id = a.id AND r.tenant = a.tenant AND r.epoch = a.epoch AND r.ended_at IS NULL
            AND (r.owner = worker OR (r.owner IS NULL AND r.epoch = 0))
        WHERE a.count = 0 AND {LAST_SEQUENCE} = a.after;
    END IF;
    RETURN coalesce(added, '{{}}') || coalesce(unchanged, '{{}}');
END
$$;
"""  # noqa: S608

_TABLES = """
CREATE TABLE workers (
    id text PRIMARY KEY,                    -- one per start of a process, so that an id is never used again
    started_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    seal_keys text[] NOT NULL DEFAULT '{}', -- hashes of its encryption keys, the one that encrypts first
    fenced boolean NOT NULL DEFAULT false   -- true for ever: nothing is written in the name of this worker any more
);

CREATE TABLE secrets (
    name text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE responses (
    id text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL,
    status text NOT NULL,
    model text NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,                        -- retention counts from it; null until the status is terminal
    background boolean NOT NULL,
    previous_response_id text,
    thread text NOT NULL,
    turn integer NOT NULL,
    forked_from text,
    conversation text,
    owner text,                             -- the worker that makes it
    queued boolean NOT NULL,                -- whether it waits for a worker
    epoch integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,    -- how often a worker took it from the queue
    day integer NOT NULL,                   -- the partition of its events
    last_seq integer,                       -- null until it has ended: the log itself says it
    swept integer NOT NULL DEFAULT 0,       -- how many events retention has deleted, from the front
    body bytea NOT NULL,                    -- the response without its output
    output bytea NOT NULL,
    request bytea NOT NULL
);
CREATE UNIQUE INDEX responses_place ON responses (thread, turn);
CREATE UNIQUE INDEX responses_busy ON responses (tenant, conversation)
    WHERE ended_at IS NULL AND conversation IS NOT NULL;
CREATE INDEX responses_unfinished ON responses (created_at, number) WHERE ended_at IS NULL;
CREATE INDEX responses_queued ON responses (created_at, number) WHERE queued AND ended_at IS NULL;
CREATE INDEX responses_ended ON responses (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX responses_logged ON responses (day, ended_at) WHERE swept <= coalesce(last_seq, 0);
CREATE INDEX responses_listed ON responses (tenant, created_at, number);
CREATE INDEX responses_forks ON responses (forked_from, turn) WHERE forked_from IS NOT NULL;

CREATE TABLE input_items (
    response_id text NOT NULL,
    position integer NOT NULL,
    id text,
    type text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (response_id, position)
);
CREATE INDEX input_items_id ON input_items (id);

CREATE TABLE output_items (
    id text NOT NULL,
    response_id text NOT NULL,
    position integer NOT NULL,              -- in responses.output, which holds the item itself
    PRIMARY KEY (id, response_id, position)
);
CREATE INDEX output_items_response ON output_items (response_id);

CREATE TABLE events (
    day integer NOT NULL,
    response_id text NOT NULL,
    first_seq integer NOT NULL,
    count integer NOT NULL,
    bodies bytea NOT NULL,                  -- lines of JSON
    PRIMARY KEY (day, response_id, first_seq)
) PARTITION BY LIST (day);

CREATE TABLE idempotency (
    tenant text NOT NULL,
    key text NOT NULL,
    fingerprint text NOT NULL,
    response_id text NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_response ON idempotency (response_id);

CREATE TABLE conversations (
    tenant text NOT NULL,
    id text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    created_at bigint NOT NULL,
    metadata bytea NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX conversations_listed ON conversations (tenant, created_at, number);

CREATE TABLE conversation_items (
    tenant text NOT NULL,
    conversation text NOT NULL,
    position integer NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text,
    type text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, conversation, position)
);
CREATE INDEX conversation_items_id ON conversation_items (tenant, id);

CREATE TABLE hashbrown_threads (
    tenant text NOT NULL,
    id text NOT NULL,
    messages bytea NOT NULL,
    title bytea NOT NULL,
    own_title bytea,
    saved_at bigint NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX hashbrown_threads_saved ON hashbrown_threads (saved_at);
CREATE INDEX hashbrown_threads_listed ON hashbrown_threads (tenant, number);
"""

MIGRATIONS: Sequence[str] = (_TABLES + _APPEND_EVENTS,)

OLDEST_PROGRAM: Sequence[int] = (1,)
"""For each version of the database, the oldest version of the program that can still work with it."""


async def migrate(connection: Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Migrate a database to the newest version; raises StoreError if it is too new for this program."""
    await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
    try:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL, oldest_program integer NOT NULL)"
        )
        found = await connection.fetchrow("SELECT version, oldest_program FROM schema_version")
        if found is None:
            await connection.execute("INSERT INTO schema_version VALUES (0, 0)")
        version, oldest = (found["version"], found["oldest_program"]) if found else (0, 0)
        if oldest > len(migrations):
            raise StoreError(
                f"The database is of version {version}, which needs a program of version {oldest} or newer; "
                f"this one has {len(migrations)}. Use a newer Antiphon, or another database."
            )
        for number, migration in enumerate(migrations[version:], version + 1):
            async with connection.transaction():
                await connection.execute(migration)
                await connection.execute(
                    "UPDATE schema_version SET version = $1, oldest_program = $2",
                    number,
                    OLDEST_PROGRAM[min(number, len(OLDEST_PROGRAM)) - 1],
                )
    finally:
        if not connection.is_closed():
            await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATION_LOCK)
