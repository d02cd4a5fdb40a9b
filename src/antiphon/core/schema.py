"""A JSON Schema, read as what it demands of one value.

Schemas come from strangers: a keyword of the wrong shape is not read, and no comparison here looks
into the values that a schema describes. Only the keywords of one level are known; how levels and
alternatives combine is for those who walk them.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeGuard
from urllib.parse import unquote

Schema = dict[str, Any]

MAX_CHOICES = 100
"""How many values of an `enum` are looked at when two of them are joined."""


# --- the types -------------------------------------------------------------------------------


def is_object(value: object) -> TypeGuard[Schema]:
    """Tell whether a value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Tell whether a value is a JSON array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a JSON number; a boolean is not."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return is_number(value) and value % 1 == 0


def _is_count(value: object) -> bool:
    return is_number(value) and isinstance(value, int) and value >= 0


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


TYPES: dict[str, Callable[[object], bool]] = {
    "string": _is_string,
    "number": is_number,
    "integer": _is_integer,
    "boolean": _is_boolean,
    "object": is_object,
    "array": is_array,
    "null": lambda value: value is None,
}


# --- reading ---------------------------------------------------------------------------------

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SHAPES: dict[str, Callable[[Any], bool]] = {
    "type": lambda names: is_array(names) and all(_is_string(n) and n in TYPES for n in names),
    "required": lambda names: is_array(names) and all(map(_is_string, names)),
    "multipleOf": lambda step: is_number(step) and step > 0,
    "uniqueItems": _is_boolean,
    "properties": is_object,
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(_BOUNDS, is_number),
    **dict.fromkeys(("format", "pattern"), _is_string),
    **dict.fromkeys(("enum", "examples", "prefixItems"), is_array),
    **dict.fromkeys(("default", "items", "additionalProperties"), lambda _: True),
}


def read(schema: Schema) -> Schema:
    """Keep the keywords that are known and well formed: `type` as a list, `const` as an `enum`."""
    read = {key: value for key, value in schema.items() if key in _SHAPES}
    if _is_string(name := schema.get("type")):
        read["type"] = [name]
    read = {key: value for key, value in read.items() if _SHAPES[key](value)}
    return combine(read, {"enum": [schema["const"]]}) if "const" in schema else read


def resolve(root: Schema, ref: str) -> object:
    """Return the schema that a local reference names; False, which allows nothing, if none."""
    start, *tokens = unquote(ref).split("/")
    node: object = root if start == "#" else False
    for token in tokens:
        if is_array(node):
            node = {str(index): member for index, member in enumerate(node)}
        name = token.replace("~1", "/").replace("~0", "~")
        node = node.get(name, False) if is_object(node) else False
    return node


# --- joining ---------------------------------------------------------------------------------


def same(one: object, other: object) -> bool:
    """Tell whether two values are the same to JSON, where true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _common_values(some: list[Any], others: list[Any]) -> list[Any]:
    return [value for value in some[:MAX_CHOICES] if any(same(value, o) for o in others)]


def _common_types(some: list[str], others: list[str]) -> list[str]:
    def allows(types: list[str], name: str) -> bool:
        return name in types or (name == "integer" and "number" in types)

    return [name for name in (*some, *others) if allows(some, name) and allows(others, name)]


def _both(one: object, other: object) -> Schema:
    return {"allOf": [one, other]}


def _properties(some: Schema, others: Schema) -> Schema:
    return some | {k: _both(some[k], v) if k in some else v for k, v in others.items()}


_JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "type": _common_types,
    "enum": _common_values,
    "required": lambda some, others: some + others,
    "properties": _properties,
    "items": _both,
    "additionalProperties": lambda one, other: one if one is False else other,
    "uniqueItems": max,
    **{key: max if "min" in key.lower() else min for key in (*_COUNTS, *_BOUNDS)},
}


def combine(one: Schema, other: Schema) -> Schema:
    """Return what two schemas demand together; of keywords that cannot join, the first's."""
    joined = {k: _JOINED[k](one[k], other[k]) for k in one if k in other and k in _JOINED}
    return other | one | joined


# --- judging ---------------------------------------------------------------------------------


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    return (value / step).is_integer()


_LIMITS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, Any], bool]]] = {
    "minimum": (is_number, lambda value, limit: value >= limit),
    "maximum": (is_number, lambda value, limit: value <= limit),
    "exclusiveMinimum": (is_number, lambda value, limit: value > limit),
    "exclusiveMaximum": (is_number, lambda value, limit: value < limit),
    "multipleOf": (is_number, _is_multiple),
    "minLength": (_is_string, lambda value, limit: len(value) >= limit),
    "maxLength": (_is_string, lambda value, limit: len(value) <= limit),
    "minItems": (is_array, lambda value, limit: len(value) >= limit),
    "maxItems": (is_array, lambda value, limit: len(value) <= limit),
    "minProperties": (is_object, lambda value, limit: len(value) >= limit),
    "maxProperties": (is_object, lambda value, limit: len(value) <= limit),
    "required": (is_object, lambda value, names: all(name in value for name in names)),
}
"""Whom each limit concerns, and what it asks of them."""


def fits(value: object, schema: Schema) -> bool:
    """Tell whether a value has a type that a read schema names and keeps to its limits."""
    if "type" in schema and not any(TYPES[name](value) for name in schema["type"]):
        return False
    limits = ((schema[key], *_LIMITS[key]) for key in _LIMITS if key in schema)
    return all(keeps(value, limit) for limit, concerns, keeps in limits if concerns(value))
