"""A JSON value held against a JSON Schema, and what is wrong with it in words for a model."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

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
        return [_describe_error(error) for error in islice(self._validator.iter_errors(value), MAX_PROBLEMS)]


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
