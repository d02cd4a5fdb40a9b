"""Pydantic's types, understood if the program uses pydantic; nothing here loads it otherwise."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast, get_args, get_type_hints, is_typeddict

import msgspec

from antiphon.adapters.validity import format_path
from antiphon.core.schema import Schema
from antiphon.core.value import InvalidValueError

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter
    from pydantic.fields import FieldInfo

_PYDANTIC_ATTRIBUTES = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")


def is_pydantic_model(value: object) -> "TypeGuard[BaseModel]":
    """Tell whether a value is an instance of a pydantic model."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic import BaseModel

    return isinstance(value, BaseModel)


def is_pydantic_field(value: object) -> "TypeGuard[FieldInfo]":
    """Tell whether a value is what pydantic's `Field` returns."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic.fields import FieldInfo

    return isinstance(value, FieldInfo)


def uses_pydantic(annotation: object) -> bool:
    """Tell whether an annotation is pydantic's or holds what is."""
    return "pydantic" in sys.modules and any(
        is_pydantic_field(part) or any(hasattr(part, mark) for mark in _PYDANTIC_ATTRIBUTES)
        for part in _walk_annotation(annotation, set())
    )


def _walk_annotation(annotation: object, seen: set[type]) -> Iterator[object]:
    """Walk an annotation, its arguments, and the fields of the classes in it."""
    yield annotation
    for member in get_args(annotation):
        yield from _walk_annotation(member, seen)
    if isinstance(annotation, type) and annotation not in seen:
        kind = cast("type[object]", annotation)
        seen.add(kind)
        if is_dataclass(kind) or is_typeddict(kind) or issubclass(kind, msgspec.Struct):
            hints = get_type_hints(cast("object", kind), include_extras=True)
            for member in hints.values():
                yield from _walk_annotation(member, seen)


def build_pydantic_schemas(annotations: Mapping[str, object]) -> tuple[dict[str, Schema], Schema]:
    """Return the schema of each annotation, and the definitions they share; raises TypeError."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        made, shared = TypeAdapter.json_schemas(
            ((name, "validation", _type_adapter(a)) for name, a in annotations.items()),
            ref_template="#/$defs/{model}",
        )
    except PydanticUserError as error:
        raise TypeError(f"pydantic can make no JSON Schema: {error}") from error
    return {name: schema for (name, _), schema in made.items()}, shared.get("$defs", {})


def build_pydantic_converter(annotation: object) -> Callable[[object], object]:
    """Return what turns JSON into values of an annotation, or raises ShapeError."""
    from pydantic import ValidationError

    adapter = _type_adapter(annotation)

    def convert(raw: object) -> object:
        try:
            return adapter.validate_json(msgspec.json.encode(raw))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            raise InvalidValueError(format_path(first["loc"]), first["msg"]) from None

    return convert


def _type_adapter(annotation: object) -> "TypeAdapter[object]":
    from pydantic import TypeAdapter

    return TypeAdapter(cast("Any", annotation))
