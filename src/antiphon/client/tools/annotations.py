"""Python's types and JSON's, each made of the other: an annotation's schema, a value's JSON.

msgspec knows nearly all annotations; those that hold a pydantic model are left to pydantic.
"""

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from antiphon.client.tools import pydantic_types
from antiphon.core.schema import Schema
from antiphon.core.value import InvalidValueError


def build_schemas(annotations: Mapping[str, object]) -> tuple[dict[str, Schema], Schema]:
    """Return the schema of each annotation, and the definitions they share; raises TypeError."""
    theirs = {name: a for name, a in annotations.items() if pydantic_types.uses_pydantic(a)}
    ours = {name: a for name, a in annotations.items() if name not in theirs}
    for name, annotation in ours.items():
        _check_annotation(name, annotation)
    made, shared = msgspec.json.schema_components(ours.values(), ref_template="#/$defs/{name}")
    found: dict[str, Schema] = dict(zip(ours, made, strict=True))
    definitions: Schema = shared
    if theirs:
        others, more = pydantic_types.build_pydantic_schemas(theirs)
        if clash := sorted(definitions.keys() & more.keys()):
            raise TypeError(f"two types are called {clash[0]}; rename one of them")
        found |= others
        definitions |= more
    return {name: found[name] for name in annotations}, definitions


def build_converter(annotation: object) -> Callable[[object], object]:
    """Return what turns JSON into values of an annotation, or raises ShapeError."""
    if pydantic_types.uses_pydantic(annotation):
        return pydantic_types.build_pydantic_converter(annotation)

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
    """Return a value as JSON builtins; raises TypeError if JSON has none for it."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_model)


def encode_model(value: object) -> object:
    """Return what msgspec does not know as JSON builtins; raises TypeError."""
    if pydantic_types.is_pydantic_model(value):
        return value.model_dump(mode="json")
    raise TypeError(f"JSON has no word for {type(value).__name__}")


def _check_annotation(name: str, annotation: object) -> None:
    """Refuse what msgspec cannot write a schema for, or cannot read."""
    try:
        msgspec.json.Decoder(cast("type[object]", annotation))
        msgspec.json.schema(annotation)
    except (TypeError, RuntimeError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise TypeError(
            f"no JSON Schema can be made of {annotation!r}, the type of '{name}' ({reason}); "
            "use types that msgspec or pydantic know"
        ) from error
