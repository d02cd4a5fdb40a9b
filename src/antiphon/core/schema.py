"""A JSON Schema, read as what it demands of one value.

Schemas come from strangers, so a keyword of the wrong shape is not read. Only the demands of one
level are known here: what a property or an item must be is handed out as a schema of its own, and
references and alternatives are left to those who follow them.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeGuard
from urllib.parse import unquote

import msgspec

Schema = dict[str, Any]


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


def _is_any(value: object) -> bool:
    del value
    return True


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


JSON_TYPES: dict[str, Callable[[object], bool]] = {
    "string": _is_string,
    "number": is_number,
    "integer": _is_integer,
    "boolean": _is_boolean,
    "object": is_object,
    "array": is_array,
    "null": lambda value: value is None,
}


# --- reading ---------------------------------------------------------------------------------

_COUNT_KEYWORDS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUND_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def as_list(value: object) -> list[Any]:
    """Return a value in a list, unless it is one."""
    return value if is_array(value) else [value]


def _are_types(value: object) -> bool:
    return value != [] and all(_is_string(name) and name in JSON_TYPES for name in as_list(value))


def is_string_list(value: object) -> TypeGuard[list[str]]:
    """Tell whether a value is an array of strings."""
    return is_array(value) and all(map(_is_string, value))


KEYWORD_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_are_types, f"one or more of {', '.join(JSON_TYPES)}"),
    "required": (is_string_list, "an array of names"),
    "properties": (is_object, "an object"),
    "uniqueItems": (_is_boolean, "a boolean"),
    "multipleOf": (lambda step: is_number(step) and step > 0, "a number above 0"),
    **dict.fromkeys(_BOUND_KEYWORDS, (is_number, "a number")),
    **dict.fromkeys(_COUNT_KEYWORDS, (_is_count, "a whole number from 0")),
    **dict.fromkeys(("title", "description", "format", "pattern"), (_is_string, "a string")),
    **dict.fromkeys(("enum", "examples", "prefixItems"), (is_array, "an array")),
    **dict.fromkeys(("const", "default", "items", "additionalProperties"), (_is_any, "anything")),
}
"""What the value of each keyword must be, and how to say it."""


def keep_known_keywords(schema: Schema) -> Schema:
    """Keep the keywords that are known and well formed, `type` as a list."""
    known = {key: value for key, value in schema.items() if key in KEYWORD_VALUES and KEYWORD_VALUES[key][0](value)}
    return known | {"type": as_list(known["type"])} if "type" in known else known


def resolve_reference(root: Schema, ref: str) -> object:
    """Return the schema that a local reference names; False, which allows nothing, if none."""
    start, *tokens = unquote(ref).split("/")
    node: object = root if start == "#" else False
    for token in tokens:
        if is_array(node) and token.isdecimal() and len(token) < 10:
            node = node[int(token)] if int(token) < len(node) else False
        else:
            name = token.replace("~1", "/").replace("~0", "~")
            node = node.get(name, False) if is_object(node) else False
    return node


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


def _fits(value: object, schema: Schema) -> bool:
    if "type" in schema and not any(JSON_TYPES[name](value) for name in schema["type"]):
        return False
    limits = ((schema[key], *_LIMITS[key]) for key in _LIMITS if key in schema)
    return all(keeps(value, limit) for limit, concerns, keeps in limits if concerns(value))


class Demands(msgspec.Struct, frozen=True):
    """What several schemas demand of one value together."""

    schemas: tuple[Schema, ...] = ()

    def __and__(self, schema: Schema) -> "Demands":
        return Demands((*self.schemas, keep_known_keywords(schema)))

    def __contains__(self, key: str) -> bool:
        return any(key in schema for schema in self.schemas)

    def every(self, key: str) -> list[Any]:
        """Return what each schema that has a keyword says by it."""
        return [schema[key] for schema in self.schemas if key in schema]

    def names(self, key: str) -> list[str]:
        """Return the names that any schema lists under a keyword, each once."""
        return list(dict.fromkeys(name for listing in self.every(key) for name in listing))

    def types(self) -> list[str]:
        """Return the types that every schema with a `type` allows."""
        wide = [{*types, "integer"} if "number" in types else types for types in self.every("type")]
        return [name for name in self.names("type") if all(name in types for types in wide)]

    def allow(self, value: object) -> bool:
        """Tell whether a value is of the types and keeps to the limits of every schema."""
        return all(_fits(value, schema) for schema in self.schemas)

    def property(self, name: str) -> list[object]:
        """Return the schemas of a property."""
        return [
            schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            for schema in self.schemas
        ]

    def item(self, index: int) -> list[object]:
        """Return the schemas of an item."""
        return [
            prefix[index] if index < len(prefix) else schema.get("items", True)
            for schema in self.schemas
            for prefix in [schema.get("prefixItems", [])]
        ]
