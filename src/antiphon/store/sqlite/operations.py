"""The operations of the SQLite store: reads in one snapshot each, writes in one transaction each."""

import sqlite3
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import (
    ConversationBusyError,
    History,
    IdempotencyRecord,
    ItemPage,
    LoggedEvents,
    PageCursor,
    StoredConversation,
    StoredResponse,
    find_range,
    make_page,
)
from antiphon.store.sqlite import sql
from antiphon.store.sqlite.sql import (
    Row,
    build_stored_response,
    conversation_from_row,
    item_from_row,
    item_to_row,
    items_from_json,
    output_to_rows,
    response_from_row,
)


class ListQueries(Struct, frozen=True):
    """The statements for one kind of item list: its owner, item positions, and both directions."""

    owner: str
    positions: str
    ascending: str
    descending: str


INPUT_ITEMS = ListQueries(sql.FIND_PLACE, sql.INPUT_POSITIONS, sql.INPUT_ASCENDING, sql.INPUT_DESCENDING)
CONVERSATION_ITEMS = ListQueries(
    sql.FIND_CONVERSATION, sql.CONVERSATION_POSITIONS, sql.CONVERSATION_ASCENDING, sql.CONVERSATION_DESCENDING
)


def find_response(connection: sqlite3.Connection, id: str, tenant: str) -> StoredResponse | None:
    """Return a response."""
    row = connection.execute(sql.FIND_RESPONSE, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else build_stored_response(row)


class UnreadableResponse(Struct, frozen=True):
    """A response whose row cannot be read, and the reason."""

    id: str
    tenant: str
    reason: str


def list_unfinished(
    connection: sqlite3.Connection,
) -> tuple[list[tuple[str, StoredResponse]], list[UnreadableResponse]]:
    """Return the responses that have not ended, with their tenants; and the unreadable ones."""
    found: list[tuple[str, StoredResponse]] = []
    unreadable: list[UnreadableResponse] = []
    for id, tenant in connection.execute(sql.FIND_UNFINISHED).fetchall():
        try:
            row = connection.execute(sql.FIND_RESPONSE, {"id": id, "tenant": tenant}).fetchone()
            found.append((tenant, build_stored_response(row)))
        except (ValueError, sqlite3.OperationalError) as error:
            # Text that is not UTF-8 is the only SQLite error that is about this row alone.
            if isinstance(error, sqlite3.Error) and "decode to UTF-8" not in str(error):
                raise
            unreadable.append(UnreadableResponse(id, tenant, str(error)))
    return found, unreadable


def read_history(connection: sqlite3.Connection, id: str, tenant: str) -> History | None:
    """Return the chain that ends with a response; None if a response in it is missing."""
    rows: list[sqlite3.Row] = connection.execute(sql.READ_HISTORY, {"id": id, "tenant": tenant}).fetchall()
    if not rows or rows[0]["turn"] != 0:
        return None
    items: list[Item] = []
    responses: list[str] = []
    missing = parent = rows[0]["previous_response_id"]
    for response, group in groupby(rows, key=lambda row: row["response"]):
        own = list(group)
        # The turn of a deleted response may have been reused by a response of another branch.
        if own[0]["previous_response_id"] != parent:
            return None
        items += [item_from_row(row) for row in own if row["rest"] is not None]
        items += items_from_json(own[0]["output"])
        responses.append(response)
        parent = response
    return History(items, responses, missing)


def find_item(connection: sqlite3.Connection, id: str, tenant: str) -> Item | None:
    """Return an item by id: from an output, else an input, else a conversation."""
    values = {"id": id, "tenant": tenant}
    # Outputs first: a client that replays an item may have changed it.
    if output := connection.execute(sql.FIND_OUTPUT_ITEM, values).fetchone():
        position: int = output["position"]
        return items_from_json(output["output"])[position]
    row = connection.execute(sql.FIND_INPUT_ITEM, values).fetchone()
    row = row or connection.execute(sql.FIND_ITEM_IN_CONVERSATIONS, values).fetchone()
    return None if row is None else item_from_row(row)


def list_items(
    connection: sqlite3.Connection, queries: ListQueries, id: str, tenant: str, cursor: PageCursor
) -> ItemPage | None:
    """Return a page of a list, None if its owner does not exist."""
    values = {"id": id, "list": id, "tenant": tenant}
    if connection.execute(queries.owner, values).fetchone() is None:
        return None

    def find_positions(item_id: str) -> tuple[int, int] | None:
        first, last = connection.execute(queries.positions, values | {"id": item_id}).fetchone()
        return None if first is None else (first, last)

    positions = find_range(cursor, find_positions)
    # One more than the limit shows whether there are more.
    bounds = {"low": positions.low, "high": positions.high, "limit": cursor.limit + 1}
    rows: Sequence[sqlite3.Row] = connection.execute(
        queries.ascending if positions.ascending else queries.descending, values | bounds
    ).fetchall()
    return make_page([item_from_row(row) for row in rows], cursor, positions)


def read_events(connection: sqlite3.Connection, id: str, tenant: str, after: int, limit: int) -> LoggedEvents | None:
    """Return events of a log, None if there is none or retention has deleted a part of it."""
    values = {"id": id, "tenant": tenant, "after": after, "limit": limit}
    log = connection.execute(sql.FIND_LOG, values).fetchone()
    # A log with a part missing would look complete to its reader.
    if log is None or log["swept"]:
        return None
    rows: list[sqlite3.Row] = connection.execute(sql.READ_EVENTS, values).fetchall()
    last_read = rows[-1]["seq"] if rows else after
    ended = log["ended_at"] is not None and last_read >= log["last_seq"]
    return LoggedEvents([row["body"] for row in rows], ended)


def has_news(connection: sqlite3.Connection, id: str, after: int) -> bool:
    """Return whether there are events after a number, or the response has ended or is gone."""
    row = connection.execute(sql.HAS_NEWS, {"id": id, "after": after}).fetchone()
    return row is None or bool(row[0])


def find_thread(connection: sqlite3.Connection, id: str, tenant: str) -> bytes | None:
    """Return a thread's messages."""
    row = connection.execute(sql.FIND_THREAD, {"id": id, "tenant": tenant}).fetchone()
    return row and row["messages"]


def find_conversation(connection: sqlite3.Connection, id: str, tenant: str) -> StoredConversation | None:
    """Return a conversation."""
    row = connection.execute(sql.FIND_CONVERSATION, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else conversation_from_row(row)


def find_conversation_item(connection: sqlite3.Connection, id: str, item_id: str, tenant: str) -> Item | None:
    """Return an item of a conversation."""
    values = {"list": id, "id": item_id, "tenant": tenant}
    row = connection.execute(sql.FIND_CONVERSATION_ITEM, values).fetchone()
    return None if row is None else item_from_row(row)


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


def _add_output(connection: sqlite3.Connection, response: Response, tenant: str, conversation: str | None) -> None:
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
    connection: sqlite3.Connection, fence: Fence, events: Sequence[bytes], final: EndedResponse | None
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


def sweep_expired(connection: sqlite3.Connection, responses_before: int, events_before: int, limit: int) -> int:
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


def _insert_conversation_items(connection: sqlite3.Connection, list: Row, items: Sequence[Row]) -> None:
    first = connection.execute(sql.NEXT_POSITION, list).fetchone()[0]
    rows = [list | item | {"position": position} for position, item in enumerate(items, first)]
    connection.executemany(sql.ADD_CONVERSATION_ITEM, rows)
