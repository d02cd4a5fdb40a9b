"""A JSON value held against a JSON Schema, and what is wrong with it in words for a model."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MAX_PROBLEMS = 5
"""How many problems are told at once."""


class SchemaValidator:
    """What one schema allows; a schema that cannot be read allows everything."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.schema = dict(schema)

    @cached_property
    def _validator(self) -> "Validator | None":
        import jsonschema_rs  # slow to load, and seldom needed

        try:
            return jsonschema_rs.validator_for(self.schema, retriever=refuse_lookup)
        except (ValueError, jsonschema_rs.ValidationError):
            return None

    def is_valid(self, value: object) -> bool:
        """Tell whether a value satisfies the schema."""
        return self._validator is None or self._validator.is_valid(value)

    def problems(self, value: object) -> list[str]:
        """Say what is wrong with a value, and where."""
        if self._validator is None:
            return []
        return [
            _describe_error(error)
            for error in islice(self._validator.iter_errors(value), MAX_PROBLEMS)
        ]


def refuse_lookup(address: str) -> NoReturn:
    """Find nothing at an address; by itself the checker would ask any server, or read any file."""
    raise ValueError(f"'{address[:80]}' is not looked up")


def format_path(steps: Iterable[object]) -> str:
    """Write the way to a value within another.

    >>> place(["days", 1, "from"])
    'days[1].from'
    """
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")


def _describe_error(error: "ValidationError") -> str:
    """Say what was expected and what came, of every branch if it is a union."""
    from jsonschema_rs import ValidationErrorKind as Kind

    if isinstance(error.kind, Kind.AnyOf | Kind.OneOfNotValid):
        return " and ".join(_describe_error(branch[0]) for branch in error.kind.context if branch)
    path = format_path(error.instance_path)
    return f"{path}: {error.message}" if path else error.message


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

_COUNT_KEYWORDS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
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
    known = {
        key: value
        for key, value in schema.items()
        if key in KEYWORD_VALUES and KEYWORD_VALUES[key][0](value)
    }
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
