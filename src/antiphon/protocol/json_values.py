"""Plain JSON values of any shape: the accessors never raise, the wrong type reads as empty."""

from collections.abc import Container, Mapping, Sequence
from typing import cast

JsonObject = dict[str, object]


def as_object(value: object) -> JsonObject:
    """Return an object's fields; for anything else an empty object."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_array(value: object) -> Sequence[object]:
    """Return an array's entries; for anything else an empty array."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def as_string(value: object) -> str:
    """Return a string; for anything else an empty string."""
    return value if isinstance(value, str) else ""


def drop_none(fields: Mapping[str, object]) -> JsonObject:
    """Return the fields that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


def omit(fields: Mapping[str, object], names: Container[str]) -> JsonObject:
    """Return the fields without those of some names."""
    return {name: fields[name] for name in fields if name not in names}
