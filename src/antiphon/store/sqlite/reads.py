"""The SQLite store's reads. Each runs in a reader thread, on one snapshot of the database."""

import sqlite3
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from antiphon.protocol.items import Item
from antiphon.store.base import (
    History,
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
    build_stored_response,
    conversation_from_row,
    item_from_row,
    items_from_json,
)


class ListQueries(Struct, frozen=True):
    """The statements for one kind of item list: its owner, item positions, and both directions."""

    owner: str
    positions: str
    ascending: str
    descending: str


INPUT_ITEMS = ListQueries(
    sql.FIND_PLACE, sql.INPUT_POSITIONS, sql.INPUT_ASCENDING, sql.INPUT_DESCENDING
)
CONVERSATION_ITEMS = ListQueries(
    sql.FIND_CONVERSATION,
    sql.CONVERSATION_POSITIONS,
    sql.CONVERSATION_ASCENDING,
    sql.CONVERSATION_DESCENDING,
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
            if stored := find_response(connection, id, tenant):
                found.append((tenant, stored))
        except (ValueError, sqlite3.OperationalError) as error:
            # Text that is not UTF-8 is the only SQLite error that is about this row alone.
            if isinstance(error, sqlite3.Error) and "decode to UTF-8" not in str(error):
                raise
            unreadable.append(UnreadableResponse(id, tenant, str(error)))
    return found, unreadable


def read_history(connection: sqlite3.Connection, id: str, tenant: str) -> History | None:
    """Return the chain that ends with a response; None if a response in it is missing."""
    rows: list[sqlite3.Row] = connection.execute(
        sql.READ_HISTORY, {"id": id, "tenant": tenant}
    ).fetchall()
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


def read_events(
    connection: sqlite3.Connection, id: str, tenant: str, after: int, limit: int
) -> LoggedEvents | None:
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


def find_conversation(
    connection: sqlite3.Connection, id: str, tenant: str
) -> StoredConversation | None:
    """Return a conversation."""
    row = connection.execute(sql.FIND_CONVERSATION, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else conversation_from_row(row)


def find_conversation_item(
    connection: sqlite3.Connection, id: str, item_id: str, tenant: str
) -> Item | None:
    """Return an item of a conversation."""
    values = {"list": id, "id": item_id, "tenant": tenant}
    row = connection.execute(sql.FIND_CONVERSATION_ITEM, values).fetchone()
    return None if row is None else item_from_row(row)
