"""JSON objects: written with nothing in vain, and read from strangers with patience."""

from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from antiphon.protocol.json_values import JsonObject as JsonObject
from antiphon.protocol.json_values import as_array as as_array
from antiphon.protocol.json_values import as_object as as_object
from antiphon.protocol.json_values import as_string as as_string
from antiphon.protocol.json_values import drop_none as drop_none
from antiphon.protocol.json_values import omit as omit
from antiphon.wire import json

T = TypeVar("T")


# --- writing --------------------------------------------------------------------------------------


def drop_empty(fields: Mapping[str, object]) -> JsonObject:
    """Return the fields that say something: neither null, nor an empty text, list or object."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def to_json_text(value: object) -> str:
    """Return a text as it is, and anything else as JSON; nothing is an empty object."""
    if isinstance(value, str):
        return value
    return json.encode({} if value is None else value).decode()


# --- reading --------------------------------------------------------------------------------------


def parse_arguments(text: str) -> JsonObject:
    """Read the arguments of a call; what is no object is put into one."""
    value = _parse_or_text(text)
    return cast("JsonObject", value) if isinstance(value, dict) else {"arguments": value}


def normalize_arguments(text: str) -> str:
    """Write the arguments of a call as an object: as they came, if they are one."""
    is_object = text.strip() and isinstance(_parse_or_text(text), dict)
    return text if is_object else to_json_text(parse_arguments(text))


def _parse_or_text(text: str) -> object:
    try:
        return json.decode(text.encode(errors="replace") if text.strip() else b"{}")
    except json.JSONError:
        return text


def parse_json(data: bytes) -> object:
    """Parse JSON of any server; return None for what is not JSON."""
    try:
        return json.decode_foreign(data)
    except (json.JSONError, RecursionError):
        return None


def is_json(text: str) -> bool:
    """Tell whether a text is JSON, and whole."""
    try:
        json.decode_lenient(text.encode(errors="replace"))
    except json.JSONError:
        return False
    return True


def decode_as(kind: type[T], text: object) -> T | None:
    """Read a text that we once wrote for something of a kind; None for what is not of it."""
    try:
        return msgspec.json.decode(as_string(text), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
