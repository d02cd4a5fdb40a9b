"""Operations of several statements or rows on the SQLite store: reads in a snapshot, writes in a transaction each."""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.store import base, lists, pagination
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.sqlite import sql
from antiphon.store.sqlite.sql import Row

S = TypeVar("S", lists.ResponseSummary, lists.ConversationSummary)

logger = logging.getLogger("antiphon.store")


class ListQueries(Struct, frozen=True):
    """The statements for one kind of item list: its owner, the position of an item, and both directions."""

    owner: str
    position: str
    ascending: str
    descending: str


class SummaryQueries(Struct, frozen=True):
    """The statements for a list of a tenant: the position of a row, and the ids in both directions."""

    position: str
    ascending: str

    @property
    def descending(self) -> str:
        """The list in the other direction."""
        return self.ascending.replace("ORDER BY created_at, rowid", "ORDER BY created_at DESC, rowid DESC")


RESPONSES = SummaryQueries(sql.RESPONSE_POSITION, sql.LIST_RESPONSES)
CONVERSATIONS = SummaryQueries(sql.CONVERSATION_PLACE, sql.LIST_CONVERSATIONS)
INPUT_ITEMS = ListQueries(sql.FIND_PLACE, sql.INPUT_POSITION, sql.INPUT_ASCENDING, sql.INPUT_DESCENDING)
CONVERSATION_ITEMS = ListQueries(
    sql.FIND_CONVERSATION, sql.CONVERSATION_POSITION, sql.CONVERSATION_ASCENDING, sql.CONVERSATION_DESCENDING
)


def list_unfinished(
    connection: sqlite3.Connection, owners: frozenset[str | None] | None = None, running: frozenset[str] = frozenset()
) -> tuple[list[tuple[str, base.StoredResponse]], list[tuple[str, str, Exception]]]:
    """Return the unfinished responses, with their tenants; and the tenant, id and error of unreadable ones.

    With `owners` only those that these processes have begun, and no queued ones; `running` ones are left out.
    """
    found: list[tuple[str, base.StoredResponse]] = []
    unreadable: list[tuple[str, str, Exception]] = []
    for id, tenant, owner, queued in connection.execute(sql.FIND_UNFINISHED).fetchall():
        if id in running or (owners is not None and (queued or owner not in owners)):
            continue
        try:
            row = connection.execute(sql.FIND_RESPONSE, {"id": id, "tenant": tenant}).fetchone()
            found.append((tenant, sql.response_from_row(row)))
        except (ValueError, sqlite3.OperationalError) as error:
            if not _is_about_one_row(error):
                raise
            unreadable.append((tenant, id, error))
    return found, unreadable


def _is_about_one_row(error: Exception) -> bool:
    """Return whether an error is about what one row holds: no other error of SQLite is."""
    about_row = ("decode to UTF-8", "malformed JSON")
    return not isinstance(error, sqlite3.Error) or any(text in str(error) for text in about_row)


def list_owners(connection: sqlite3.Connection) -> list[str | None]:
    """Return the processes that have begun unfinished responses."""
    return [row["owner"] for row in connection.execute(sql.FIND_OWNERS).fetchall()]


def claim_queued(connection: sqlite3.Connection, owner: str, limit: int) -> list[tuple[str, base.StoredResponse]]:
    """Claim the oldest queued responses, except those that cannot be read."""
    claimed: list[tuple[str, base.StoredResponse]] = []
    for row in connection.execute(sql.FIND_QUEUED, {"limit": limit}).fetchall():
        values = {"id": row["id"], "tenant": row["tenant"], "owner": owner, "queued": True, "expected": None}
        connection.execute(sql.NEXT_EPOCH, values).fetchall()
        with suppress(ValueError):  # recovery ends it
            found = connection.execute(sql.FIND_RESPONSE, values).fetchone()
            claimed.append((row["tenant"], sql.response_from_row(found)))
    return claimed


def find_lost(connection: sqlite3.Connection, claims: Sequence[tuple[str, int]]) -> list[str]:
    """Return the ids of responses that are not in progress with a given epoch."""
    values = ({"id": id, "epoch": epoch} for id, epoch in claims)
    return [str(one["id"]) for one in values if connection.execute(sql.IS_OURS, one).fetchone() is None]


def read_history(connection: sqlite3.Connection, id: str, tenant: str) -> base.History | None:
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
        items += [sql.item_from_row(row) for row in own if row["rest"] is not None]
        items += sql.items_from_json(own[0]["output"])
        responses.append(response)
        parent = response
    return base.History(items, responses, missing)


def find_item(connection: sqlite3.Connection, id: str, tenant: str) -> Item | None:
    """Return an item by id: from an output, else an input, else a conversation."""
    values = {"id": id, "tenant": tenant}
    # Outputs first: a client that replays an item may have changed it.
    if output := connection.execute(sql.FIND_OUTPUT_ITEM, values).fetchone():
        position: int = output["position"]
        return sql.items_from_json(output["output"])[position]
    row = connection.execute(sql.FIND_INPUT_ITEM, values).fetchone()
    row = row or connection.execute(sql.FIND_ITEM_IN_CONVERSATIONS, values).fetchone()
    return None if row is None else sql.item_from_row(row)


def list_items(
    connection: sqlite3.Connection, queries: ListQueries, id: str, tenant: str, cursor: PageCursor
) -> ItemPage | None:
    """Return a page of a list, None if its owner does not exist."""
    values = {"id": id, "list": id, "tenant": tenant}
    if connection.execute(queries.owner, values).fetchone() is None:
        return None

    def find_position(item_id: str) -> int | None:
        found = connection.execute(queries.position, values | {"id": item_id}).fetchone()
        return found and found[0]

    positions = pagination.find_range(cursor, find_position, pagination.BEFORE_FIRST, pagination.AFTER_LAST)
    # One more than the limit shows whether there are more.
    bounds = {"low": positions.low, "high": positions.high, "limit": cursor.limit + 1}
    rows: Sequence[sqlite3.Row] = connection.execute(
        queries.ascending if positions.ascending else queries.descending, values | bounds
    ).fetchall()
    return pagination.make_page([sql.item_from_row(row) for row in rows], cursor, positions)


def list_responses(
    connection: sqlite3.Connection, cursor: PageCursor, filter: lists.ResponseFilter, tenant: str
) -> lists.SummaryPage[lists.ResponseSummary]:
    """Return a page of a tenant's responses."""

    def summarize(id: str) -> lists.ResponseSummary | None:
        values = asdict(filter) | {"id": id, "tenant": tenant, "limit": lists.TITLE_MESSAGES}
        row = connection.execute(sql.FIND_SUMMARY, values).fetchone()
        if row is None or not matches_text(id):
            return None
        summary = sql.summary_from_row(row, map(sql.item_from_row, connection.execute(sql.FIRST_MESSAGES, values)))
        return summary if filter.matches_metadata(summary.metadata) else None

    def matches_text(id: str) -> bool:
        values = {"id": id, "pattern": filter.like_pattern()}
        if filter.search is None:
            return True
        if filter.matches_text(map(sql.item_from_row, connection.execute(sql.SEARCH_INPUT, values))):
            return True
        row = connection.execute(sql.SEARCH_OUTPUT, values).fetchone()
        return row is not None and filter.matches_text(sql.items_from_json(row["output"]))

    return _list_page(connection, RESPONSES, cursor, filter, tenant, summarize)


def list_conversations(
    connection: sqlite3.Connection, cursor: PageCursor, filter: lists.ListFilter, tenant: str
) -> lists.SummaryPage[lists.ConversationSummary]:
    """Return a page of a tenant's conversations."""
    values: Row = {"tenant": tenant, "pattern": filter.like_pattern()}

    def read_items(statement: str, id: str, limit: int) -> Iterable[Item]:
        return map(sql.item_from_row, connection.execute(statement, values | {"id": id, "limit": limit}))

    def summarize(id: str) -> lists.ConversationSummary | None:
        row = connection.execute(sql.FIND_CONVERSATION, values | {"id": id}).fetchone()
        found = sql.conversation_from_row(row)
        if not filter.matches_metadata(found.metadata):
            return None
        searched = filter.search is not None and read_items(sql.SEARCH_CONVERSATION, id, lists.SEARCHED_ITEMS)
        if searched and not filter.matches_text(searched):
            return None
        title = lists.make_title(read_items(sql.FIRST_CONVERSATION_MESSAGES, id, lists.TITLE_MESSAGES))
        return lists.ConversationSummary(id=id, created_at=found.created_at, title=title, metadata=found.metadata)

    return _list_page(connection, CONVERSATIONS, cursor, filter, tenant, summarize)


def _list_page(
    connection: sqlite3.Connection,
    queries: SummaryQueries,
    cursor: PageCursor,
    filter: lists.ListFilter,
    tenant: str,
    summarize: Callable[[str], S | None],
) -> lists.SummaryPage[S]:
    """Return a page of the rows that `summarize` returns; it returns None for one that is not wanted."""

    def find_position(id: str) -> lists.Position | None:
        found = connection.execute(queries.position, {"id": id, "tenant": tenant}).fetchone()
        return found and (found[0], found[1])

    page = lists.PageBuilder[S](cursor, filter, find_position)
    (low_time, low), (high_time, high) = page.low, page.high
    values: Row = {"low_time": low_time, "low": low, "high_time": high_time, "high": high}
    statement = queries.ascending if page.ascending else queries.descending
    for row in connection.execute(statement, values | {"tenant": tenant, "limit": page.read_limit}):
        summary = None
        try:
            summary = summarize(row["id"])
        except (ValueError, sqlite3.OperationalError) as error:
            if not _is_about_one_row(error):
                raise
            # It must not hide all others.
            logger.error("%s cannot be read and is not listed: %s", row["id"], error)  # noqa: TRY400
        if not page.add(row["id"], summary):
            break
    return page.page()


def list_threads(
    connection: sqlite3.Connection, limit: int, after: str | None, tenant: str
) -> list[base.ThreadSummary]:
    """Return threads from the one that follows `after`, the last saved first; raises RequestError."""
    position = (pagination.AFTER_LAST, pagination.AFTER_LAST)
    if after is not None:
        position = connection.execute(sql.FIND_THREAD_POSITION, {"tenant": tenant, "id": after}).fetchone()
        if position is None:
            raise pagination.not_listed_error(after)
    values: Row = {"tenant": tenant, "limit": limit, "saved_at": position[0], "position": position[1]}
    return [base.ThreadSummary(*row) for row in connection.execute(sql.LIST_THREADS, values)]


def read_events(
    connection: sqlite3.Connection, id: str, tenant: str, after: int, limit: int
) -> base.LoggedEvents | None:
    """Return events of a log, None if there is none or retention has deleted a part of it."""
    values = {"id": id, "tenant": tenant, "after": after, "limit": limit}
    log = connection.execute(sql.FIND_LOG, values).fetchone()
    # A log with a part missing would look complete to its reader.
    if log is None or log["swept"]:
        return None
    rows: list[sqlite3.Row] = connection.execute(sql.READ_EVENTS, values).fetchall()
    last_read = rows[-1]["seq"] if rows else after
    ended = log["ended_at"] is not None and last_read >= log["last_seq"]
    return base.LoggedEvents([row["body"] for row in rows], ended)


def begin_response(
    connection: sqlite3.Connection, response: Response, row: Row, input: Sequence[Row], key: tuple[str, str] | None
) -> base.IdempotencyRecord | None:
    """Add a response, unless its idempotency key is in use or its conversation is busy.

    `row` has all columns but its place in the chain.
    """
    claim: Row = {"tenant": row["tenant"], "response_id": response.id}
    # The key comes first: a repeated request must get its own response, not "busy".
    if key:
        claim |= {"key": key[0], "fingerprint": key[1]}
        if used := connection.execute(sql.FIND_IDEMPOTENCY_RECORD, claim).fetchone():
            return base.IdempotencyRecord(used["fingerprint"], used["response_id"])
    conversation = row["conversation"]
    if conversation is not None and connection.execute(sql.FIND_RUNNING_IN_CONVERSATION, row).fetchone():
        raise base.ConversationBusyError(str(conversation))
    connection.execute(sql.ADD_RESPONSE, row | _place_in_chain(connection, row))
    connection.executemany(sql.ADD_INPUT, input)
    if key:
        connection.execute(sql.ADD_IDEMPOTENCY_RECORD, claim)
    if row["ended_at"] is not None:
        _add_output(connection, response, row["tenant"], conversation)
    return None


def _place_in_chain(connection: sqlite3.Connection, row: Row) -> Row:
    """Return a response's thread and turn: the next turn of its parent's, a fork, or a new one."""
    parent = {"id": row["previous_response_id"], "tenant": row["tenant"]}
    found = connection.execute(sql.FIND_PLACE, parent).fetchone()
    if found is None:
        return {"thread": row["id"], "turn": 0, "forked_from": None}
    thread, turn = found["thread"], found["turn"] + 1
    if connection.execute(sql.FIND_TURN, {"thread": thread, "turn": turn}).fetchone():
        return {"thread": row["id"], "turn": turn, "forked_from": thread}
    return {"thread": thread, "turn": turn, "forked_from": None}


def save_output(connection: sqlite3.Connection, response: Response, tenant: str) -> None:
    """Store the output so far; it is encoded here, on the writer's thread, because it may be long."""
    values = {"id": response.id, "tenant": tenant, "output": encode(response.output).decode()}
    connection.execute(sql.SAVE_OUTPUT, values)


def end_response(connection: sqlite3.Connection, response: Response, row: Row) -> Response | None:
    """End a response unless it has ended; return what is stored."""
    if _end_once(connection, response, row):
        return response
    found = connection.execute(sql.FIND_RESPONSE, row).fetchone()
    return None if found is None else sql.response_from_row(found).response


def _end_once(connection: sqlite3.Connection, response: Response, row: Row) -> bool:
    found = connection.execute(sql.END_RESPONSE, row).fetchone()
    if found is not None:
        _add_output(connection, response, row["tenant"], found["conversation"])
    return found is not None


def _add_output(connection: sqlite3.Connection, response: Response, tenant: object, conversation: object) -> None:
    """Index a response's output, and append its items to its conversation."""
    connection.executemany(sql.ADD_OUTPUT, sql.output_to_rows(response))
    if conversation is None or response.status not in ("completed", "incomplete"):
        return
    owner: Row = {"tenant": tenant, "id": conversation, "list": conversation}
    # The conversation may have been deleted while the response was in progress.
    if connection.execute(sql.FIND_CONVERSATION, owner).fetchone():
        every = {"list": response.id, "low": pagination.BEFORE_FIRST, "high": pagination.AFTER_LAST, "limit": -1}
        input = connection.execute(sql.INPUT_ASCENDING, every).fetchall()
        _insert_conversation_items(connection, owner, [*map(dict, input), *map(sql.item_to_row, response.output)])


def append_events(
    connection: sqlite3.Connection,
    fence: Row,
    events: Sequence[tuple[str, int, bytes]],
    end: tuple[Response, Row] | None,
) -> bool:
    """Append events if the fence holds, and the response's end in the same transaction.

    `fence` is the worker's epoch, the last sequence number it knows, and the count of new events.
    """
    if connection.execute(sql.ADVANCE_SEQUENCE, fence).rowcount == 0:
        return False
    # The update above holds the write lock, so these numbers are free and without a gap.
    connection.executemany(sql.ADD_EVENT, events)
    if end:
        _end_once(connection, *end)
    return True


def sweep_expired(connection: sqlite3.Connection, responses_before: int, events_before: int, limit: int) -> int:
    """Delete at most `limit` expired rows: events first, then responses and threads."""
    deleted = 0
    old = {"before": max(responses_before, events_before), "limit": limit}
    # A response is deleted only after its events, so that no sweep deletes more than `limit` rows by cascade.
    for id, swept, last in connection.execute(sql.FIND_OLD_LOGS, old).fetchall():
        count = min(last + 1 - swept, limit - deleted)
        if count == 0:
            break
        connection.execute(sql.SWEEP_EVENTS, {"id": id, "swept": swept + count})
        connection.execute(sql.SWEEP_LOG, {"id": id, "swept": swept + count})
        deleted += count
    deleted += _sweep_responses(connection, responses_before, limit - deleted)
    values = {"before": responses_before, "limit": limit - deleted}
    return deleted + connection.execute(sql.SWEEP_THREADS, values).rowcount


def _sweep_responses(connection: sqlite3.Connection, before: int, limit: int) -> int:
    """Delete at most `limit` expired responses that no other one continues."""
    deleted, is_done = 0, False
    while not is_done:
        is_done = True
        expired = connection.execute(sql.FIND_EXPIRED, {"before": before, "limit": limit - deleted})
        for row in map(dict, expired.fetchall()):
            end = connection.execute(sql.FIND_LAST_CHILD_END, row | {"before": before}).fetchone()[0]
            if end is None:
                deleted += connection.execute(sql.DELETE_RESPONSE, row).rowcount
            else:
                # From now on it expires with its newest child, and is not looked at before.
                connection.execute(sql.KEEP_RESPONSE, row | {"end": end})
            is_done = is_done and end == row["ended_at"]
    return deleted


def add_conversation_items(
    connection: sqlite3.Connection, conversation: Row, items: Sequence[Item]
) -> list[Item] | None:
    """Append items to a conversation; return them as they are stored, None if it does not exist."""
    if not connection.execute(sql.FIND_CONVERSATION, conversation).fetchone():
        return None
    ids = _insert_conversation_items(connection, conversation, [sql.item_to_row(item) for item in items])
    return [replace(item, id=id) for item, id in zip(items, ids, strict=True)]


def _insert_conversation_items(connection: sqlite3.Connection, conversation: Row, items: Sequence[Row]) -> list[str]:
    """Append rows of items; those that repeat an id get a new one. Return the ids."""
    ids: list[str] = []
    for position, item in enumerate(items, connection.execute(sql.NEXT_POSITION, conversation).fetchone()[0]):
        row = conversation | item | {"position": position}
        if connection.execute(sql.CONVERSATION_POSITION, row).fetchone():
            row["id"] = base.renew_id(str(row["id"]))
        connection.execute(sql.ADD_CONVERSATION_ITEM, row)
        ids.append(str(row["id"]))
    return ids
