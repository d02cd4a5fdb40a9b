"""JSON Schemas of Python annotations, and conversion between their values and JSON.

msgspec handles nearly all annotations. Those that contain pydantic models are left to pydantic,
which is never imported unless the program uses it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast, get_args, get_type_hints, is_typeddict

import msgspec

from antiphon.protocol.json_schema import Schema, format_path
from antiphon.protocol.struct import InvalidValueError


def build_schemas(annotations: Mapping[str, object]) -> tuple[dict[str, Schema], Schema]:
    """Return the schema of each annotation, and the definitions they share; raises TypeError."""
    theirs = {name: a for name, a in annotations.items() if uses_pydantic(a)}
    ours = {name: a for name, a in annotations.items() if name not in theirs}
    for name, annotation in ours.items():
        _check_annotation(name, annotation)
    made, shared = msgspec.json.schema_components(ours.values(), ref_template="#/$defs/{name}")
    found: dict[str, Schema] = dict(zip(ours, made, strict=True))
    definitions: Schema = shared
    if theirs:
        others, more = build_pydantic_schemas(theirs)
        # Both kinds of definitions share one `$defs`.
        if clash := sorted(definitions.keys() & more.keys()):
            raise TypeError(f"two types are called {clash[0]}; rename one of them")
        found |= others
        definitions |= more
    return {name: found[name] for name in annotations}, definitions


def build_converter(annotation: object) -> Callable[[object], object]:
    """Return a function that converts JSON to an annotation's type or raises InvalidValueError."""
    if uses_pydantic(annotation):
        return build_pydantic_converter(annotation)

    def convert(raw: object) -> object:
        try:
            return msgspec.convert(raw, annotation, str_keys=True)
        except msgspec.ValidationError as error:
            refusal = error
        try:  # to a schema 5.0 is an integer, which msgspec only grants when it is lenient
            return msgspec.convert(raw, annotation, str_keys=True, strict=False)
        except msgspec.ValidationError:
            reason, _, path = str(refusal).partition(" - at ")
            raise InvalidValueError(path.strip("`$").removeprefix("."), reason) from None

    return convert


def to_builtins(value: object) -> object:
    """Convert a value to JSON builtins; raises TypeError if that is impossible."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_model)


def encode_model(value: object) -> object:
    """Convert a pydantic model, which msgspec does not know; raises TypeError for others."""
    if is_pydantic_model(value):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def _check_annotation(name: str, annotation: object) -> None:
    """Raise TypeError if msgspec has no schema or no decoder for an annotation."""
    try:
        # Both are needed: msgspec has schemas for types that it cannot decode, and vice versa.
        msgspec.json.Decoder(cast("type[object]", annotation))
        msgspec.json.schema(annotation)
    except (TypeError, RuntimeError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise TypeError(
            f"no JSON Schema can be made of {annotation!r}, the type of '{name}' ({reason}); "
            "use types that msgspec or pydantic know"
        ) from error


if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter
    from pydantic.fields import FieldInfo

# How pydantic marks the types that it can validate.
_PYDANTIC_ATTRIBUTES = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")


def is_pydantic_model(value: object) -> "TypeGuard[BaseModel]":
    """Return whether a value is an instance of a pydantic model."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic import BaseModel

    return isinstance(value, BaseModel)


def is_pydantic_field(value: object) -> "TypeGuard[FieldInfo]":
    """Return whether a value is the result of pydantic's `Field`."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic.fields import FieldInfo

    return isinstance(value, FieldInfo)


def uses_pydantic(annotation: object) -> bool:
    """Return whether an annotation is or contains a type of pydantic's."""
    return "pydantic" in sys.modules and any(
        is_pydantic_field(part) or any(hasattr(part, mark) for mark in _PYDANTIC_ATTRIBUTES)
        for part in _walk_annotation(annotation, set())
    )


def _walk_annotation(annotation: object, seen: set[type]) -> Iterator[object]:
    """Yield an annotation, its arguments, and the fields of the classes in it."""
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
    """Return a function that converts JSON to a pydantic type or raises InvalidValueError."""
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
