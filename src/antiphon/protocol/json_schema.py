"""JSON Schema: validate a value, resolve a reference, and `KEYWORD_VALUES`, the values each keyword may have.

Schemas come from clients and models, so nothing here trusts their shape.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard
from urllib.parse import unquote

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

Schema = dict[str, Any]

MAX_PROBLEMS = 5
"""How many problems of one value are reported."""


def is_object(value: object) -> TypeGuard[Schema]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a JSON number; a boolean is not."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def is_string_list(value: object) -> TypeGuard[list[str]]:
    """Return whether a value is an array of strings."""
    return is_array(value) and all(isinstance(entry, str) for entry in value)


def as_list(value: object) -> list[Any]:
    """Return a list as it is, and any other value as a list of one."""
    return value if is_array(value) else [value]


class SchemaValidator:
    """Validates values against one schema; a schema that is not valid itself allows everything."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.schema = dict(schema)

    @cached_property
    def _validator(self) -> "Validator | None":
        # Imported here because it is slow to load and most processes never need it.
        import jsonschema_rs

        try:
            return jsonschema_rs.validator_for(self.schema, retriever=refuse_lookup)
        except (ValueError, jsonschema_rs.ValidationError):
            return None

    def is_valid(self, value: object) -> bool:
        """Return whether a value satisfies the schema."""
        return self._validator is None or self._validator.is_valid(value)

    def problems(self, value: object) -> list[str]:
        """Return what is wrong with a value, and where, in words for a model."""
        if self._validator is None:
            return []
        errors = islice(self._validator.iter_errors(value), MAX_PROBLEMS)
        return [_describe_error(error) for error in errors]


def refuse_lookup(address: str) -> NoReturn:
    """Refuse to load a remote schema."""
    # By default the validator would fetch any URL and read any file that a schema refers to.
    raise ValueError(f"'{address[:80]}' is not looked up")


def format_path(steps: Iterable[object]) -> str:
    """Return the path of a nested value as text.

    >>> format_path(["days", 1, "from"])
    'days[1].from'
    """
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")


def _describe_error(error: "ValidationError") -> str:
    """Return what was expected and what came; for a union, of every branch."""
    from jsonschema_rs import ValidationErrorKind as Kind

    if isinstance(error.kind, Kind.AnyOf | Kind.OneOfNotValid):
        return " and ".join(_describe_error(branch[0]) for branch in error.kind.context if branch)
    path = format_path(error.instance_path)
    return f"{path}: {error.message}" if path else error.message


def resolve_reference(root: Schema, ref: str) -> object:
    """Return the schema that a local reference names, or False, which allows nothing."""
    start, *tokens = unquote(ref).split("/")
    node: object = root if start == "#" else False
    for token in tokens:
        # int() of a very long string of digits is slow, and no array has so many entries.
        if is_array(node) and token.isdecimal() and len(token) < 10:
            node = node[int(token)] if int(token) < len(node) else False
        else:
            name = token.replace("~1", "/").replace("~0", "~")
            node = node.get(name, False) if is_object(node) else False
    return node


JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


def _is_count(value: object) -> bool:
    return is_number(value) and isinstance(value, int) and value >= 0


KEYWORD_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (
        lambda types: types != [] and all(name in JSON_TYPES for name in as_list(types)),
        f"one or more of {', '.join(JSON_TYPES)}",
    ),
    "multipleOf": (lambda step: is_number(step) and step > 0, "a number above 0"),
    "enum": (is_array, "an array"),
    "const": (lambda _: True, "anything"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (is_number, "a number")),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), (_is_count, "a whole number from 0")),
    **dict.fromkeys(("title", "description", "format", "pattern"), (lambda it: isinstance(it, str), "a string")),
}
"""How to recognise a well-formed value of each plain keyword, and how to describe one."""
