"""Every change that the SQLite store makes: each runs inside a transaction, whole or not at all."""

import sqlite3
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.protocol.response import Response
from antiphon.store.base import ConversationBusyError, IdempotencyRecord
from antiphon.store.sqlite import sql
from antiphon.store.sqlite.rows import (
    Row,
    item_to_row,
    output_to_rows,
    response_from_row,
)

_JOINING_STATUSES = frozenset({"completed", "incomplete"})


class NewResponse(Struct, frozen=True):
    """A response that begins, and everything that comes with it."""

    response: Response
    row: Row
    input: list[Row]
    tenant: str
    request: bytes
    conversation: str | None
    key: tuple[str, str] | None


class EndedResponse(Struct, frozen=True):
    """A response that ends."""

    response: Response
    row: Row
    tenant: str


class Fence(Struct, frozen=True):
    """Where events may be added: by whom, and after which."""

    id: str
    tenant: str
    epoch: int
    after: int


def begin_response(connection: sqlite3.Connection, start: NewResponse) -> IdempotencyRecord | None:
    """Add a response, unless its key is taken or its conversation busy."""
    tenant, row = start.tenant, start.row
    if start.key:
        key = {"tenant": tenant, "key": start.key[0]}
        if claim := connection.execute(sql.FIND_IDEMPOTENCY_RECORD, key).fetchone():
            return IdempotencyRecord(claim["fingerprint"], claim["response_id"])
    place = {"tenant": tenant, "conversation": start.conversation}
    if (
        start.conversation is not None
        and connection.execute(sql.FIND_RUNNING_IN_CONVERSATION, place).fetchone()
    ):
        raise ConversationBusyError(
            f"Conversation '{start.conversation}' has a response in progress."
        )
    kept: Row = {"request": start.request, **place, **_place_in_chain(connection, row, tenant)}
    connection.execute(sql.ADD_RESPONSE, row | kept)
    connection.executemany(sql.ADD_INPUT, start.input)
    if start.key:
        claim = {"tenant": tenant, "response_id": row["id"]}
        claim |= {"key": start.key[0], "fingerprint": start.key[1]}
        connection.execute(sql.ADD_IDEMPOTENCY_RECORD, claim)
    if row["ended_at"] is not None:
        _add_output(connection, start.response, tenant, start.conversation)
    return None


def _place_in_chain(connection: sqlite3.Connection, row: Row, tenant: str) -> Row:
    """Find a response's thread and turn: its parent's, or a fork, or a new beginning."""
    parent = {"id": row["previous_response_id"], "tenant": tenant}
    found = connection.execute(sql.FIND_PLACE, parent).fetchone()
    if found is None:
        return {"thread": row["id"], "turn": 0, "forked_from": None}
    thread, turn = found["thread"], found["turn"] + 1
    if connection.execute(sql.FIND_TURN, {"thread": thread, "turn": turn}).fetchone():
        return {"thread": row["id"], "turn": turn, "forked_from": thread}
    return {"thread": thread, "turn": turn, "forked_from": None}


def end_response(connection: sqlite3.Connection, ending: EndedResponse) -> Response | None:
    """End a response if it has not ended, and return what is kept."""
    if _end_once(connection, ending):
        return ending.response
    place = {"id": ending.response.id, "tenant": ending.tenant}
    row = connection.execute(sql.FIND_RESPONSE, place).fetchone()
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
    """Make a response's output known, and let it join its conversation."""
    connection.executemany(sql.ADD_OUTPUT, output_to_rows(response))
    if conversation is None or response.status not in _JOINING_STATUSES:
        return
    list: Row = {"tenant": tenant, "id": conversation, "list": conversation}
    if connection.execute(sql.FIND_CONVERSATION, list).fetchone():
        position = connection.execute(sql.NEXT_POSITION, list).fetchone()[0]
        connection.execute(
            sql.ADD_INPUT_TO_CONVERSATION, list | {"id": response.id, "position": position}
        )
        _insert_conversation_items(
            connection, list, [item_to_row(item) for item in response.output]
        )


def claim_response(connection: sqlite3.Connection, id: str, tenant: str) -> int | None:
    """Begin a new epoch, if the response has not ended."""
    row = connection.execute(sql.NEXT_EPOCH, {"id": id, "tenant": tenant}).fetchone()
    return row and row["epoch"]


def append_events(
    connection: sqlite3.Connection,
    fence: Fence,
    events: Sequence[bytes],
    final: EndedResponse | None,
) -> bool:
    """Add events where the fence lets them in, and the end with them."""
    if (
        connection.execute(sql.ADVANCE_SEQUENCE, asdict(fence) | {"count": len(events)}).rowcount
        == 0
    ):
        return False
    rows = [(fence.id, seq, body) for seq, body in enumerate(events, fence.after + 1)]
    connection.executemany(sql.ADD_EVENT, rows)
    if final:
        _end_once(connection, final)
    return True


def sweep_expired(
    connection: sqlite3.Connection, responses_before: int, events_before: int, limit: int
) -> int:
    """Remove at most `limit` rows that are past their time: events, responses, threads."""
    went = 0
    old = {"before": max(responses_before, events_before), "limit": limit}
    for id, swept, last in connection.execute(sql.FIND_OLD_LOGS, old).fetchall():
        count = min(last + 1 - swept, limit - went)
        if count == 0:
            break
        connection.execute(sql.SWEEP_EVENTS, {"id": id, "swept": swept + count})
        connection.execute(sql.SWEEP_LOG, {"id": id, "swept": swept + count})
        went += count
    for statement in (sql.SWEEP_RESPONSES, sql.SWEEP_THREADS):
        gone = {"before": responses_before, "limit": limit - went}
        went += connection.execute(statement, gone).rowcount
    return went


def add_conversation_items(connection: sqlite3.Connection, list: Row, items: Sequence[Row]) -> bool:
    """Append items to a conversation, if there is one."""
    if not connection.execute(sql.FIND_CONVERSATION, list).fetchone():
        return False
    _insert_conversation_items(connection, list, items)
    return True


def _insert_conversation_items(
    connection: sqlite3.Connection, list: Row, items: Sequence[Row]
) -> None:
    first = connection.execute(sql.NEXT_POSITION, list).fetchone()[0]
    rows = [list | item | {"position": place} for place, item in enumerate(items, first)]
    connection.executemany(sql.ADD_CONVERSATION_ITEM, rows)
