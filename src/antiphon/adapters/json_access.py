"""Helpers to write JSON objects for providers and to read the JSON texts of models."""

from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from antiphon.protocol.struct import JsonObject, as_string
from antiphon.wire import json

T = TypeVar("T")


def drop_empty(fields: Mapping[str, object]) -> JsonObject:
    """Return the fields that are neither None nor an empty string, list or object."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def to_json_text(value: object) -> str:
    """Return a string unchanged, None as an empty object, and anything else encoded as JSON."""
    if isinstance(value, str):
        return value
    return json.encode({} if value is None else value).decode()


def parse_arguments(text: str) -> JsonObject:
    """Return the arguments of a call as an object; what is not an object is wrapped in one."""
    value = _parse_or_text(text)
    return cast("JsonObject", value) if isinstance(value, dict) else {"arguments": value}


def normalize_arguments(text: str) -> str:
    """Return the arguments of a call as the JSON text of an object, unchanged if they are one."""
    is_object = text.strip() and isinstance(_parse_or_text(text), dict)
    return text if is_object else to_json_text(parse_arguments(text))


def _parse_or_text(text: str) -> object:
    # Models leave the arguments empty when a function has no parameters.
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
    """Return whether a text is complete JSON."""
    try:
        json.decode_lenient(text.encode(errors="replace"))
    except json.JSONError:
        return False
    return True


def decode_as(kind: type[T], text: object) -> T | None:
    """Decode a JSON text that we once encoded; None if it is not of this type."""
    try:
        return msgspec.json.decode(as_string(text), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
