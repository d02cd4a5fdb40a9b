"""The SQLite store's changes of more than one statement. Each runs within a transaction."""

import sqlite3
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.protocol.response import Response
from antiphon.store.base import ConversationBusyError, IdempotencyRecord
from antiphon.store.sqlite import sql
from antiphon.store.sqlite.sql import Row, item_to_row, output_to_rows, response_from_row

_JOINING_STATUSES = frozenset({"completed", "incomplete"})


class NewResponse(Struct, frozen=True):
    """A response to add, and everything stored with it."""

    response: Response
    row: Row
    input: list[Row]
    tenant: str
    request: bytes
    conversation: str | None
    key: tuple[str, str] | None


class EndedResponse(Struct, frozen=True):
    """The end of a response."""

    response: Response
    row: Row
    tenant: str


class Fence(Struct, frozen=True):
    """The condition for an append: the worker's epoch and the last sequence number it knows."""

    id: str
    tenant: str
    epoch: int
    after: int


def begin_response(connection: sqlite3.Connection, new: NewResponse) -> IdempotencyRecord | None:
    """Add a response, unless its idempotency key is in use or its conversation is busy."""
    tenant, row = new.tenant, new.row
    # The key comes first: a repeated request must get its own response, not "busy".
    if new.key:
        key = {"tenant": tenant, "key": new.key[0]}
        if used := connection.execute(sql.FIND_IDEMPOTENCY_RECORD, key).fetchone():
            return IdempotencyRecord(used["fingerprint"], used["response_id"])
    values: Row = {"tenant": tenant, "conversation": new.conversation, "request": new.request}
    if new.conversation is not None:
        find_running = connection.execute(sql.FIND_RUNNING_IN_CONVERSATION, values)
        if find_running.fetchone():
            raise ConversationBusyError(new.conversation)
    values |= row | _place_in_chain(connection, row, tenant)
    connection.execute(sql.ADD_RESPONSE, values)
    connection.executemany(sql.ADD_INPUT, new.input)
    if new.key:
        record = {"tenant": tenant, "response_id": row["id"]}
        record |= {"key": new.key[0], "fingerprint": new.key[1]}
        connection.execute(sql.ADD_IDEMPOTENCY_RECORD, record)
    if row["ended_at"] is not None:
        _add_output(connection, new.response, tenant, new.conversation)
    return None


def _place_in_chain(connection: sqlite3.Connection, row: Row, tenant: str) -> Row:
    """Return a response's thread and turn: the next turn of its parent's, a fork, or a new one."""
    parent = {"id": row["previous_response_id"], "tenant": tenant}
    found = connection.execute(sql.FIND_PLACE, parent).fetchone()
    if found is None:
        return {"thread": row["id"], "turn": 0, "forked_from": None}
    thread, turn = found["thread"], found["turn"] + 1
    if connection.execute(sql.FIND_TURN, {"thread": thread, "turn": turn}).fetchone():
        return {"thread": row["id"], "turn": turn, "forked_from": thread}
    return {"thread": thread, "turn": turn, "forked_from": None}


def end_response(connection: sqlite3.Connection, ended: EndedResponse) -> Response | None:
    """End a response unless it has ended; return what is stored."""
    if _end_once(connection, ended):
        return ended.response
    key = {"id": ended.response.id, "tenant": ended.tenant}
    row = connection.execute(sql.FIND_RESPONSE, key).fetchone()
    return None if row is None else response_from_row(row)


def _end_once(connection: sqlite3.Connection, ended: EndedResponse) -> bool:
    row = ended.row | {"tenant": ended.tenant}
    found = connection.execute(sql.END_RESPONSE, row).fetchone()
    if found is not None:
        _add_output(connection, ended.response, ended.tenant, found["conversation"])
    return found is not None


def _add_output(
    connection: sqlite3.Connection, response: Response, tenant: str, conversation: str | None
) -> None:
    """Index a response's output, and append its items to its conversation."""
    connection.executemany(sql.ADD_OUTPUT, output_to_rows(response))
    if conversation is None or response.status not in _JOINING_STATUSES:
        return
    list: Row = {"tenant": tenant, "id": conversation, "list": conversation}
    # The conversation may have been deleted while the response was in progress.
    if connection.execute(sql.FIND_CONVERSATION, list).fetchone():
        position = connection.execute(sql.NEXT_POSITION, list).fetchone()[0]
        values = list | {"id": response.id, "position": position}
        connection.execute(sql.ADD_INPUT_TO_CONVERSATION, values)
        rows = [item_to_row(item) for item in response.output]
        _insert_conversation_items(connection, list, rows)


def claim_response(connection: sqlite3.Connection, id: str, tenant: str) -> int | None:
    """Begin a new epoch, unless the response has ended."""
    row = connection.execute(sql.NEXT_EPOCH, {"id": id, "tenant": tenant}).fetchone()
    return row and row["epoch"]


def append_events(
    connection: sqlite3.Connection,
    fence: Fence,
    events: Sequence[bytes],
    final: EndedResponse | None,
) -> bool:
    """Append events if the fence holds, and end the response in the same transaction."""
    values = asdict(fence) | {"count": len(events)}
    if connection.execute(sql.ADVANCE_SEQUENCE, values).rowcount == 0:
        return False
    # The update above holds the write lock, so these numbers are free and without a gap.
    rows = [(fence.id, seq, body) for seq, body in enumerate(events, fence.after + 1)]
    connection.executemany(sql.ADD_EVENT, rows)
    if final:
        _end_once(connection, final)
    return True


def sweep_expired(
    connection: sqlite3.Connection, responses_before: int, events_before: int, limit: int
) -> int:
    """Delete at most `limit` expired rows: events first, then responses and threads."""
    deleted = 0
    old = {"before": max(responses_before, events_before), "limit": limit}
    # A response is deleted only after its events, so that no sweep deletes more than `limit`
    # rows by cascade.
    for id, swept, last in connection.execute(sql.FIND_OLD_LOGS, old).fetchall():
        count = min(last + 1 - swept, limit - deleted)
        if count == 0:
            break
        connection.execute(sql.SWEEP_EVENTS, {"id": id, "swept": swept + count})
        connection.execute(sql.SWEEP_LOG, {"id": id, "swept": swept + count})
        deleted += count
    for statement in (sql.SWEEP_RESPONSES, sql.SWEEP_THREADS):
        values = {"before": responses_before, "limit": limit - deleted}
        deleted += connection.execute(statement, values).rowcount
    return deleted


def add_conversation_items(connection: sqlite3.Connection, list: Row, items: Sequence[Row]) -> bool:
    """Append items to a conversation; return whether it exists."""
    if not connection.execute(sql.FIND_CONVERSATION, list).fetchone():
        return False
    _insert_conversation_items(connection, list, items)
    return True


def _insert_conversation_items(
    connection: sqlite3.Connection, list: Row, items: Sequence[Row]
) -> None:
    first = connection.execute(sql.NEXT_POSITION, list).fetchone()[0]
    rows = [list | item | {"position": position} for position, item in enumerate(items, first)]
    connection.executemany(sql.ADD_CONVERSATION_ITEM, rows)
