"""Values as rows of the SQLite store, and rows as values again; every field survives.

What has a column of its own goes there, as JSON where it is structured. Everything else, unknown
fields included, is the JSON object in `rest`.
"""

import sqlite3
from collections.abc import Sequence
from typing import cast

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import (
    decode,
    decode_as,
    encode,
    to_builtins,
)
from antiphon.store.base import TERMINAL_STATUSES, StoredConversation, StoredResponse

Row = dict[str, object]

SCALAR_COLUMNS = (
    "id object created_at status instructions max_output_tokens model previous_response_id "
    "temperature top_p truncation"
).split()
FLAG_COLUMNS = ("parallel_tool_calls", "store", "background")
JSON_COLUMNS = (
    "error incomplete_details output reasoning text tool_choice tools usage metadata"
).split()


def response_to_row(response: Response, now: int) -> Row:
    """Write a response as the columns that it fills; `now` is when it ended, if it says nothing."""
    fields = _fields(response)
    row: Row = {name: fields.pop(name) for name in (*SCALAR_COLUMNS, *FLAG_COLUMNS)}
    row |= {name: _to_json(fields.pop(name)) for name in JSON_COLUMNS}
    row["user_id"] = fields.pop("user", None)
    row["rest"] = _to_json(fields)
    row["ended_at"] = end_time(response, now)
    return row


def end_time(response: Response, now: int) -> int | None:
    """Tell when a response ended, None if it has not."""
    if response.status not in TERMINAL_STATUSES:
        return None
    return now if response.completed_at is None else response.completed_at


def response_from_row(row: sqlite3.Row) -> Response:
    """Read the response that a row holds."""
    fields: Row = {name: row[name] for name in SCALAR_COLUMNS}
    fields |= {name: bool(row[name]) for name in FLAG_COLUMNS}
    fields |= {name: _from_json(row[name]) for name in JSON_COLUMNS}
    fields["user"] = row["user_id"]
    return decode(Response, fields | msgspec.json.decode(row["rest"], type=Row))


def stored_from_row(row: sqlite3.Row) -> StoredResponse:
    """Read a response and what the store knows about it."""
    return StoredResponse(
        response=response_from_row(row),
        request=row["request"],
        conversation=row["conversation"],
        epoch=row["epoch"],
        last_sequence=row["last_seq"],
    )


def item_to_row(item: Item) -> Row:
    """Write an item as the columns that it fills."""
    fields = _fields(item)
    named = isinstance(fields.get("role"), str)  # an extension's role may be anything
    return {
        "id": fields.pop("id", None),
        "type": fields.pop("type"),
        "role": fields.pop("role") if named else None,
        "content": encode(fields.pop("content")).decode() if "content" in fields else None,
        "rest": _to_json(fields),
    }


def item_from_row(row: sqlite3.Row) -> Item:
    """Read the item that a row holds."""
    fields = msgspec.json.decode(row["rest"], type=Row)
    fields["type"] = row["type"]
    for name in ("id", "role"):
        if row[name] is not None:
            fields[name] = row[name]
    if row["content"] is not None:
        fields["content"] = _from_json(row["content"])
    return cast("Item", decode_as(Item, fields))


def input_to_rows(response: Response, input: Sequence[Item]) -> list[Row]:
    """Write a response's input as rows, in order."""
    place: Row = {"response_id": response.id, "created_at": response.created_at}
    return [place | item_to_row(item) | {"position": n} for n, item in enumerate(input)]


def output_to_rows(response: Response) -> list[Row]:
    """Write where each item of a response's output is found."""
    return [
        {"id": item.id, "response_id": response.id, "position": position}
        for position, item in enumerate(response.output)
        if isinstance(item.id, str)
    ]


def items_from_json(text: str) -> list[Item]:
    """Read the items of an `output` column."""
    return cast("list[Item]", decode_as(list[Item], _from_json(text)))


def conversation_from_row(row: sqlite3.Row) -> StoredConversation:
    """Read a conversation."""
    metadata = msgspec.json.decode(row["metadata"], type=dict[str, str])
    return StoredConversation(id=row["id"], created_at=row["created_at"], metadata=metadata)


def _fields(value: Response | Item) -> Row:
    return cast("Row", to_builtins(value))


def _to_json(value: object) -> str | None:
    return None if value is None else encode(value).decode()


def _from_json(text: str | None) -> object:
    return None if text is None else msgspec.json.decode(text)
