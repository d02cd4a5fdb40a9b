"""Operations of several statements on the PostgreSQL store; each takes a connection, and those that write run in the
caller's transaction or in one of their own.
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from antiphon.protocol.errors import StoreError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store import base, pagination
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.postgres import sql
from antiphon.store.postgres.database import (
    CONCURRENT_CREATION_ERRORS,
    Connection,
    LockTimeout,
    Row,
    convert,
    violated_index,
)

PARTITION_PREFIX = "events_"

PARTITION_LOCK_TIMEOUT = "200ms"
"""Appends wait behind the lock."""


class ListQueries(Struct, frozen=True):
    """The statements for one kind of item list: its owner, the position of an item, and both directions."""

    owner: str
    position: str
    ascending: str
    descending: str


INPUT_ITEMS = ListQueries(sql.FIND_PLACE, sql.INPUT_POSITION, sql.INPUT_ASCENDING, sql.INPUT_DESCENDING)
CONVERSATION_ITEMS = ListQueries(
    sql.FIND_CONVERSATION, sql.CONVERSATION_POSITION, sql.CONVERSATION_ASCENDING, sql.CONVERSATION_DESCENDING
)


async def ensure_partition(connection: Connection, day: int) -> None:
    """Create the partition for the events of one day."""
    statement = f"CREATE TABLE IF NOT EXISTS {PARTITION_PREFIX}{day} PARTITION OF events FOR VALUES IN ({day})"
    # Another process may create it at the same moment.
    with suppress(*CONCURRENT_CREATION_ERRORS):
        await connection.execute(statement)


async def begin_response(
    connection: Connection, values: Sequence[object], response: Response, tenant: str, conversation: str | None
) -> bool:
    """Add a response, and its output if it has ended already; return False if its idempotency key is in use."""
    if response.status not in base.TERMINAL_STATUSES:  # one statement is a transaction of its own
        return await connection.fetchval(sql.BEGIN_RESPONSE, *values) is not None
    async with connection.transaction():
        if await connection.fetchval(sql.BEGIN_RESPONSE, *values) is None:
            return False
        await connection.execute(sql.ADD_OUTPUT, response.id, *sql.output_columns(response))
        await append_to_conversation(connection, response, tenant, conversation)
        return True


async def end_response(
    connection: Connection, response: Response, tenant: str, worker: str, now: int, *, last_sequence: int | None = None
) -> bool:
    """End a response unless it has ended, or this process is fenced; return whether it ended now."""
    columns = (*sql.end_values(response, now), last_sequence, worker, *sql.output_columns(response))
    found = await connection.fetchrow(sql.END_RESPONSE, response.id, tenant, *columns)
    if found is None:
        return False
    await append_to_conversation(connection, response, tenant, found["conversation"])
    return True


async def append_to_conversation(
    connection: Connection, response: Response, tenant: str, conversation: str | None
) -> None:
    """Append the input and the output of a response that has ended to its conversation, if it has one."""
    if conversation is None or response.status not in ("completed", "incomplete"):
        return
    every = (response.id, pagination.BEFORE_FIRST, 2**31 - 1, None)
    input = [sql.item_from_json(row["body"]) for row in await connection.fetch(sql.INPUT_ASCENDING, *every)]
    await add_items(connection, conversation, [*input, *response.output], tenant)


async def add_items(connection: Connection, conversation: str, items: Sequence[Item], tenant: str) -> list[Item] | None:
    """Append items to a conversation; return them as they are stored, None if it does not exist."""
    # The lock makes those that append at the same time take turns: positions have no gap and no repetition.
    if await connection.fetchrow(sql.LOCK_CONVERSATION, tenant, conversation) is None:
        return None
    ids = [sql.escape_nul(item.id) for item in items if isinstance(item.id, str)]
    rows = await connection.fetch(sql.FIND_TAKEN_IDS, tenant, conversation, ids)
    taken = {row["id"] for row in rows}
    stored = base.make_ids_unique(
        items, [item.id for item in items if item.id and sql.escape_nul(str(item.id)) in taken]
    )
    position = await connection.fetchval(sql.NEXT_POSITION, tenant, conversation)
    await connection.execute(sql.ADD_CONVERSATION_ITEMS, tenant, conversation, position, *sql.item_columns(stored))
    return stored


async def read_history(connection: Connection, id: str, tenant: str) -> base.History | None:
    """Return the chain that ends with a response; None if a response in it is missing."""
    rows = await connection.fetch(sql.READ_HISTORY, id, tenant)
    size = sql.row_size(*rows) + sum(len(body) for row in rows for body in row["input"] or ())
    return await convert(size, _history_from_rows, rows)


def _history_from_rows(rows: Sequence[Row]) -> base.History | None:
    if not rows or rows[0]["turn"] != 0:
        return None
    items: list[Item] = []
    missing = parent = rows[0]["previous_response_id"]
    for row in rows:
        # The turn of a deleted response may have been reused by a response of another branch.
        if row["previous_response_id"] != parent:
            return None
        items += map(sql.item_from_json, row["input"] or ())
        items += sql.items_from_json(row["output"])
        parent = row["id"]
    return base.History(items, [row["id"] for row in rows], missing)


async def find_item(connection: Connection, id: str, tenant: str) -> Item | None:
    """Return an item by id: from an output, else an input, else a conversation."""
    id = sql.escape_nul(id)
    # Outputs first: a client that replays an item may have changed it.
    if output := await connection.fetchrow(sql.FIND_OUTPUT_ITEM, id, tenant):
        position: int = output["position"]
        return sql.items_from_json(output["output"])[position]
    row = await connection.fetchrow(sql.FIND_INPUT_ITEM, id, tenant)
    row = row or await connection.fetchrow(sql.FIND_ITEM_IN_CONVERSATIONS, id, tenant)
    if row is None:
        return None
    return sql.item_from_json(row["body"])


async def list_items(
    connection: Connection, queries: ListQueries, owner: tuple[str, ...], list: tuple[str, ...], cursor: PageCursor
) -> ItemPage | None:
    """Return a page of a list, None if its owner does not exist."""
    if await connection.fetchrow(queries.owner, *owner) is None:
        return None
    found: dict[str, int | None] = {}
    for id in filter(None, (cursor.after, cursor.before)):
        row = await connection.fetchrow(queries.position, *list, sql.escape_nul(id))
        found[id] = row and row[0]
    positions = pagination.find_range(cursor, found.get, pagination.BEFORE_FIRST, pagination.AFTER_LAST)
    # One more than the limit shows whether there are more. A position is an integer of 32 bits.
    bounds = (positions.low, min(positions.high, 2**31 - 1), cursor.limit + 1)
    rows = await connection.fetch(queries.ascending if positions.ascending else queries.descending, *list, *bounds)
    return pagination.make_page(await convert(sql.row_size(*rows), _items_from_rows, rows), cursor, positions)


def _items_from_rows(rows: Sequence[Row]) -> list[Item]:
    return [sql.item_from_json(row["body"]) for row in rows]


def events_from_rows(rows: Sequence[Row], after: int, limit: int) -> base.LoggedEvents | None:
    """Return the events of a log, None if there is none or retention has deleted a part of it."""
    # A log with a part missing would look complete to its reader.
    if not rows or rows[0]["swept"]:
        return None
    events: list[bytes] = []
    for row in rows:
        if row["bodies"] is not None:
            events += row["bodies"].split(b"\n")[max(0, after + 1 - row["first_seq"]) :]
    del events[limit:]
    last = max(after, -1) + len(events)
    return base.LoggedEvents(events, rows[0]["ended_at"] is not None and last >= rows[0]["last_seq"])


async def sweep_expired(connection: Connection, responses_before: int, events_before: int, limit: int) -> int:
    """Delete at most `limit` expired rows: events first, then responses and threads."""
    if not await connection.fetchval(sql.TRY_SWEEP_LOCK, sql.SWEEP_LOCK):
        return 0  # another process is at it
    deleted: int = await connection.fetchval(sql.SWEEP_LOGS, max(responses_before, events_before), limit)
    deleted += await _sweep_responses(connection, responses_before, limit - deleted)
    return deleted + await connection.fetchval(sql.SWEEP_THREADS, responses_before, limit - deleted)


async def _sweep_responses(connection: Connection, before: int, limit: int) -> int:
    """Delete at most `limit` expired responses that no other one continues."""
    deleted, is_done = 0, False
    while not is_done:
        is_done = True
        for row in await connection.fetch(sql.FIND_EXPIRED, before, limit - deleted):
            place = (before, row["thread"], row["turn"], row["id"])
            end = await connection.fetchval(sql.FIND_LAST_CHILD_END, *place)
            if end is None:
                await connection.execute(sql.DELETE_RESPONSE, row["id"], row["tenant"])
                deleted += 1
            else:
                # From now on it expires with its newest child, and is not looked at before.
                await connection.execute(sql.KEEP_RESPONSE, row["id"], row["tenant"], end)
            is_done = is_done and end == row["ended_at"]
    return deleted


async def drop_empty_partitions(connection: Connection, today: int) -> list[int]:
    """Drop the partitions of past days of which no response has events any more; return the days."""
    dropped: list[int] = []
    for row in await connection.fetch(sql.LIST_PARTITIONS):
        day = int(row["relname"].removeprefix(PARTITION_PREFIX))
        if day < today and not await connection.fetchval(sql.HAS_LOGS, day) and await _drop_partition(connection, day):
            dropped.append(day)
    return dropped


async def _drop_partition(connection: Connection, day: int) -> bool:
    """Drop the partition of a day unless it is in use; return whether it was dropped."""
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{PARTITION_LOCK_TIMEOUT}'")
            # As the drop itself would, but before the check: now nobody appends to a response that was begun since.
            await connection.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            if await connection.fetchval(sql.HAS_LOGS, day):
                return False
            await connection.execute(f"DROP TABLE IF EXISTS {PARTITION_PREFIX}{day}")
            return True
    except LockTimeout:
        return False  # the next sweep tries again


async def find_claimed(connection: Connection, tenant: str, key: str) -> base.IdempotencyRecord | None:
    """Return the record of an idempotency key."""
    row = await connection.fetchrow(sql.FIND_IDEMPOTENCY_RECORD, tenant, key)
    if row is None:
        return None
    return base.IdempotencyRecord(row["fingerprint"], row["response_id"])


async def find_duplicate_error(
    connection: Connection, error: Exception, response: Response, tenant: str, conversation: str | None
) -> StoreError | None:
    """Return the error for a row that violates a unique index; None if another attempt may succeed."""
    index = violated_index(error)
    if index == "responses_place":  # another continuation of the same response was stored at this moment
        return None
    if index == "responses_busy" or await connection.fetchval(sql.FIND_RUNNING_IN_CONVERSATION, tenant, conversation):
        return base.ConversationBusyError(str(conversation))
    return StoreError(f"There is a response '{response.id}' already.")
