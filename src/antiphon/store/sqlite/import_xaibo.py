"""A database that Xaibo's adapter left in the same place: its responses become ours.

Xaibo gave its file no version, and its tables have the names of ours. They are renamed, never
dropped: what cannot be read as a response that has ended stays where it was.
"""

import sqlite3
from contextlib import suppress
from typing import cast

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import InvalidValueError, decode, decode_as
from antiphon.store.base import TERMINAL_STATUSES
from antiphon.store.sqlite import writes
from antiphon.store.sqlite.rows import (
    FLAG_COLUMNS,
    JSON_COLUMNS,
    SCALAR_COLUMNS,
    Row,
    input_to_rows,
    response_to_row,
)

_FIND_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'responses'"
_RENAME_TABLES = (
    "ALTER TABLE responses RENAME TO responses_v0",
    "ALTER TABLE input_items RENAME TO input_items_v0",
    "ALTER TABLE conversation_history RENAME TO conversation_history_v0",
)
_RESPONSES = "SELECT * FROM responses_v0 ORDER BY created_at, rowid"
_ITEMS = "SELECT * FROM input_items_v0 WHERE response_id = ? ORDER BY rowid"


def rename_tables(connection: sqlite3.Connection) -> bool:
    """Rename the tables of an older owner; tell whether there were any."""
    if connection.execute(_FIND_TABLES).fetchone() is None:
        return False
    for statement in _RENAME_TABLES:
        connection.execute(statement)
    return True


def import_responses(connection: sqlite3.Connection) -> None:
    """Take over every response that can be read, parents before children."""
    for row in connection.execute(_RESPONSES).fetchall():
        with suppress(InvalidValueError, msgspec.DecodeError, TypeError):
            response = _read_response(row)
            if response.status in TERMINAL_STATUSES:
                items = [_read_item(item) for item in connection.execute(_ITEMS, (response.id,))]
                writes.begin_response(connection, _new_response(response, items))


def _read_response(row: sqlite3.Row) -> Response:
    fields: Row = {name: row[name] for name in SCALAR_COLUMNS}
    fields |= {name: bool(row[name]) for name in FLAG_COLUMNS if row[name] is not None}
    fields |= {
        name: msgspec.json.decode(row[name]) for name in JSON_COLUMNS if row[name] is not None
    }
    fields["user"] = row["user_id"]
    given = {name: value for name, value in fields.items() if value is not None}
    return decode(Response, given)


def _read_item(row: sqlite3.Row) -> Item:
    fields = {"id": row["id"], "type": row["type"], "role": row["role"]}
    fields["content"] = msgspec.json.decode(row["content"])
    given = {name: value for name, value in fields.items() if value is not None}
    return cast("Item", decode_as(Item, given))


def _new_response(response: Response, input: list[Item]) -> writes.NewResponse:
    return writes.NewResponse(
        response=response,
        row=response_to_row(response, response.created_at),
        input=input_to_rows(response, input),
        tenant="",
        request=b"",
        conversation=None,
        key=None,
    )
