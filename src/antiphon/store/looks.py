"""Everything that the SQLite store looks up: each sees one moment of the database."""

import sqlite3
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from antiphon.core.items import Item
from antiphon.store import queries
from antiphon.store.base import Conversation, Cursor, History, Logged, Page, Stored
from antiphon.store.pages import page, window
from antiphon.store.rows import conversation_of, item_of, output_of, stored_of


class Listing(Struct, frozen=True):
    """A list of items that can be paged through: who owns it, and how it is asked."""

    owner: str
    places: str
    up: str
    down: str


INPUT = Listing(queries.FIND_PLACE, queries.INPUT_PLACES, queries.INPUT_UP, queries.INPUT_DOWN)
CONVERSATION = Listing(
    queries.FIND_CONVERSATION,
    queries.CONVERSATION_PLACES,
    queries.CONVERSATION_UP,
    queries.CONVERSATION_DOWN,
)


def response(connection: sqlite3.Connection, id: str, tenant: str) -> Stored | None:
    """Find a response."""
    row = connection.execute(queries.FIND_RESPONSE, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else stored_of(row)


class Unreadable(Struct, frozen=True):
    """A response whose row cannot be read, and why."""

    id: str
    tenant: str
    reason: str


def unfinished(
    connection: sqlite3.Connection,
) -> tuple[list[tuple[str, Stored]], list[Unreadable]]:
    """Find every response that has not ended, with its tenant; apart, those that are unreadable."""
    found: list[tuple[str, Stored]] = []
    unreadable: list[Unreadable] = []
    for id, tenant in connection.execute(queries.UNFINISHED).fetchall():
        try:
            if stored := response(connection, id, tenant):
                found.append((tenant, stored))
        except (ValueError, sqlite3.OperationalError) as error:
            # SQLite's own troubles are not the row's, save text that is not UTF-8.
            if isinstance(error, sqlite3.Error) and "decode to UTF-8" not in str(error):
                raise
            unreadable.append(Unreadable(id, tenant, str(error)))
    return found, unreadable


def history(connection: sqlite3.Connection, id: str, tenant: str) -> History | None:
    """Read a chain; None if a link is missing."""
    rows: list[sqlite3.Row] = connection.execute(
        queries.HISTORY, {"id": id, "tenant": tenant}
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
        items += [item_of(row) for row in own if row["rest"] is not None]
        items += output_of(own[0]["output"])
        responses.append(response)
        parent = response
    return History(items, responses, missing)


def item(connection: sqlite3.Connection, id: str, tenant: str) -> Item | None:
    """Find an item where it was made, or else where it was given."""
    place = {"id": id, "tenant": tenant}
    if made := connection.execute(queries.FIND_OUTPUT_ITEM, place).fetchone():
        position: int = made["position"]
        return output_of(made["output"])[position]
    row = connection.execute(queries.FIND_INPUT_ITEM, place).fetchone()
    row = row or connection.execute(queries.FIND_CONVERSATION_ITEM, place).fetchone()
    return None if row is None else item_of(row)


def items(
    connection: sqlite3.Connection, listing: Listing, id: str, tenant: str, cursor: Cursor
) -> Page | None:
    """Read a page of a list, None if it has no owner."""
    place = {"id": id, "list": id, "tenant": tenant}
    if connection.execute(listing.owner, place).fetchone() is None:
        return None

    def places(item_id: str) -> tuple[int, int] | None:
        first, last = connection.execute(listing.places, place | {"id": item_id}).fetchone()
        return None if first is None else (first, last)

    stretch = window(cursor, places)
    between = {"low": stretch.low, "high": stretch.high, "limit": cursor.limit + 1}
    rows: Sequence[sqlite3.Row] = connection.execute(
        listing.up if stretch.up else listing.down, place | between
    ).fetchall()
    return page([item_of(row) for row in rows], cursor, stretch)


def events(
    connection: sqlite3.Connection, id: str, tenant: str, after: int, limit: int
) -> Logged | None:
    """Read a stretch of a log, None if there is none or retention has begun to take it."""
    wanted = {"id": id, "tenant": tenant, "after": after, "limit": limit}
    log = connection.execute(queries.FIND_LOG, wanted).fetchone()
    if log is None or log["swept"]:
        return None
    rows: list[sqlite3.Row] = connection.execute(queries.READ_EVENTS, wanted).fetchall()
    reached = rows[-1]["seq"] if rows else after
    ended = log["ended_at"] is not None and reached >= log["last_seq"]
    return Logged([row["body"] for row in rows], ended)


def news(connection: sqlite3.Connection, id: str, after: int) -> bool:
    """Tell whether a reader who has come this far need not wait."""
    row = connection.execute(queries.FIND_NEWS, {"id": id, "after": after}).fetchone()
    return row is None or bool(row[0])


def thread(connection: sqlite3.Connection, id: str, tenant: str) -> bytes | None:
    """Find a thread."""
    row = connection.execute(queries.FIND_THREAD, {"id": id, "tenant": tenant}).fetchone()
    return row and row["messages"]


def conversation(connection: sqlite3.Connection, id: str, tenant: str) -> Conversation | None:
    """Find a conversation."""
    row = connection.execute(queries.FIND_CONVERSATION, {"id": id, "tenant": tenant}).fetchone()
    return None if row is None else conversation_of(row)


def conversation_item(
    connection: sqlite3.Connection, id: str, item_id: str, tenant: str
) -> Item | None:
    """Find an item of a conversation."""
    place = {"list": id, "id": item_id, "tenant": tenant}
    row = connection.execute(queries.FIND_ITEM, place).fetchone()
    return None if row is None else item_of(row)
