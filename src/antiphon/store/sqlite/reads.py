"""Everything that the SQLite store looks up: each sees one moment of the database."""

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
)
from antiphon.store.pagination import find_range, make_page
from antiphon.store.sqlite import sql
from antiphon.store.sqlite.rows import (
    conversation_from_row,
    item_from_row,
    items_from_json,
    stored_from_row,
)


class ListQueries(Struct, frozen=True):
    """A list of items that can be paged through: who owns it, and how it is asked."""

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
    """Find a response."""
    row = connection.execute(sql.FIND_RESPONSE, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else stored_from_row(row)


class Unreadable(Struct, frozen=True):
    """A response whose row cannot be read, and why."""

    id: str
    tenant: str
    reason: str


def list_unfinished(
    connection: sqlite3.Connection,
) -> tuple[list[tuple[str, StoredResponse]], list[Unreadable]]:
    """Find every response that has not ended, with its tenant; apart, those that are unreadable."""
    found: list[tuple[str, StoredResponse]] = []
    unreadable: list[Unreadable] = []
    for id, tenant in connection.execute(sql.FIND_UNFINISHED).fetchall():
        try:
            if stored := find_response(connection, id, tenant):
                found.append((tenant, stored))
        except (ValueError, sqlite3.OperationalError) as error:
            # SQLite's own troubles are not the row's, save text that is not UTF-8.
            if isinstance(error, sqlite3.Error) and "decode to UTF-8" not in str(error):
                raise
            unreadable.append(Unreadable(id, tenant, str(error)))
    return found, unreadable


def read_history(connection: sqlite3.Connection, id: str, tenant: str) -> History | None:
    """Read a chain; None if a link is missing."""
    rows: list[sqlite3.Row] = connection.execute(
        sql.READ_HISTORY, {"id": id, "tenant": tenant}
    ).fetchall()
    if not rows or rows[0]["turn"] != 0:
        return None
    items: list[Item] = []
    responses: list[str] = []
    missing = parent = rows[0]["previous_response_id"]
    for response, turn in groupby(rows, key=lambda row: row["response"]):
        own = list(turn)
        # A turn that was deleted may have been taken again, by a response with other children.
        if own[0]["previous_response_id"] != parent:
            return None
        items += [item_from_row(row) for row in own if row["rest"] is not None]
        items += items_from_json(own[0]["output"])
        responses.append(response)
        parent = response
    return History(items, responses, missing)


def find_item(connection: sqlite3.Connection, id: str, tenant: str) -> Item | None:
    """Find an item where it was made, or else where it was given."""
    place = {"id": id, "tenant": tenant}
    if made := connection.execute(sql.FIND_OUTPUT_ITEM, place).fetchone():
        position: int = made["position"]
        return items_from_json(made["output"])[position]
    row = connection.execute(sql.FIND_INPUT_ITEM, place).fetchone()
    row = row or connection.execute(sql.FIND_ITEM_IN_CONVERSATIONS, place).fetchone()
    return None if row is None else item_from_row(row)


def list_items(
    connection: sqlite3.Connection, listing: ListQueries, id: str, tenant: str, cursor: PageCursor
) -> ItemPage | None:
    """Read a page of a list, None if it has no owner."""
    place = {"id": id, "list": id, "tenant": tenant}
    if connection.execute(listing.owner, place).fetchone() is None:
        return None

    def places(item_id: str) -> tuple[int, int] | None:
        first, last = connection.execute(listing.positions, place | {"id": item_id}).fetchone()
        return None if first is None else (first, last)

    stretch = find_range(cursor, places)
    between = {"low": stretch.low, "high": stretch.high, "limit": cursor.limit + 1}
    rows: Sequence[sqlite3.Row] = connection.execute(
        listing.ascending if stretch.ascending else listing.descending, place | between
    ).fetchall()
    return make_page([item_from_row(row) for row in rows], cursor, stretch)


def read_events(
    connection: sqlite3.Connection, id: str, tenant: str, after: int, limit: int
) -> LoggedEvents | None:
    """Read a stretch of a log, None if there is none or retention has begun to take it."""
    wanted = {"id": id, "tenant": tenant, "after": after, "limit": limit}
    log = connection.execute(sql.FIND_LOG, wanted).fetchone()
    if log is None or log["swept"]:
        return None
    rows: list[sqlite3.Row] = connection.execute(sql.READ_EVENTS, wanted).fetchall()
    reached = rows[-1]["seq"] if rows else after
    ended = log["ended_at"] is not None and reached >= log["last_seq"]
    return LoggedEvents([row["body"] for row in rows], ended)


def has_news(connection: sqlite3.Connection, id: str, after: int) -> bool:
    """Tell whether a reader who has come this far need not wait."""
    row = connection.execute(sql.HAS_NEWS, {"id": id, "after": after}).fetchone()
    return row is None or bool(row[0])


def find_thread(connection: sqlite3.Connection, id: str, tenant: str) -> bytes | None:
    """Find a thread."""
    row = connection.execute(sql.FIND_THREAD, {"id": id, "tenant": tenant}).fetchone()
    return row and row["messages"]


def find_conversation(
    connection: sqlite3.Connection, id: str, tenant: str
) -> StoredConversation | None:
    """Find a conversation."""
    row = connection.execute(sql.FIND_CONVERSATION, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else conversation_from_row(row)


def find_conversation_item(
    connection: sqlite3.Connection, id: str, item_id: str, tenant: str
) -> Item | None:
    """Find an item of a conversation."""
    place = {"list": id, "id": item_id, "tenant": tenant}
    row = connection.execute(sql.FIND_CONVERSATION_ITEM, place).fetchone()
    return None if row is None else item_from_row(row)
