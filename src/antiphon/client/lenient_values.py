"""JSON of strangers, read leniently: what fits is taken, the rest is kept beside it.

The readers of `core.value` go by the letter, and are asked first. Where they refuse, this one takes
a word it does not know for a word, fills what is missing with nothing, and keeps in `extra` what
has the wrong shape. It refuses no JSON.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import UNSET
from msgspec.structs import FieldInfo, fields

from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    as_string,
    drop_none,
)
from antiphon.protocol.foreign.openai_types import add_item_slugs
from antiphon.protocol.items import Item
from antiphon.protocol.struct import (
    InvalidValueError,
    ProtocolStruct,
    decode,
    decode_as,
    type_names,
)
from antiphon.protocol.surrogates import repair_value
from antiphon.wire import json

V = TypeVar("V", bound=ProtocolStruct)

MISSING = object()
"""What a value becomes that has no place where it stands."""

DEFAULTS: dict[object, object] = {str: "", int: 0, float: 0.0, bool: False, NoneType: None}


def parse_json(data: bytes) -> object:
    """Read JSON, or return None for what is none.

    Every string is whole but a delta, whose other half may follow.
    """
    try:
        raw = json.decode_lenient(data)
    except (json.JSONError, RecursionError):
        return None
    if b"\\ud" not in data and b"\\uD" not in data:
        return raw
    delta = as_object(raw).get("delta")
    return (
        as_object(repair_value(raw)) | {"delta": delta}
        if isinstance(delta, str)
        else repair_value(raw)
    )


def read_value(kind: type[V], raw: object) -> V:
    """Read a value of a class from any JSON."""
    try:
        return decode(kind, raw)
    except InvalidValueError:
        return cast("V", _value(kind, as_object(raw)))


def read_items(value: object) -> list[Item]:
    """Read the items of a list, in either dialect."""
    entries = [add_item_slugs(entry) for entry in as_array(value) if as_object(entry)]
    return [cast("Item", _member(Item, entry)) for entry in entries]


def _value(kind: type[ProtocolStruct], raw: JsonObject) -> ProtocolStruct:
    with suppress(InvalidValueError):  # or else it is read as it is
        raw = kind.normalize(raw, "")
    values: JsonObject = {}
    extra = drop_none(raw)
    for info, hint in _slots(kind):
        value = _member(hint, raw[info.encode_name]) if info.encode_name in raw else MISSING
        if value is not MISSING:
            extra.pop(info.encode_name, None)
            values[info.name] = value
        elif info.required:
            values[info.name] = _default(hint)
    return kind(**values, extra=extra or UNSET)  # pyright: ignore[reportArgumentType]


@cache
def _slots(kind: type[ProtocolStruct]) -> list[tuple[FieldInfo, object]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(info, hints[info.name]) for info in fields(kind) if info.name != "extra"]


def _member(hint: object, raw: object) -> object:
    """Read what stands in a field: by the letter if possible."""
    if raw is None and NoneType not in get_args(hint):
        return MISSING
    known = tuple(member for member in get_args(hint) if member is not type(UNSET))
    hint = Union[known] if _is_union(hint) else hint
    try:
        return decode_as(hint, raw)
    except InvalidValueError:
        return _any(hint, raw)


def _any(hint: object, raw: object) -> object:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _any(inner[0], raw)
    if _is_union(hint):
        return _one_of(inner, raw)
    if origin is Literal:
        return raw if any(type(raw) is type(allowed) for allowed in inner) else MISSING
    if origin in (list, dict):
        return _many(inner[-1], raw) if _is(origin, raw) else MISSING
    if kind := _class(hint):
        return _value(kind, as_object(raw)) if _is(dict, raw) else MISSING
    return _scalar(hint, raw)


def _many(hint: object, raw: object) -> object:
    """Read the entries of a list or an object; what does not fit is left out."""
    if isinstance(raw, list):
        entries = [_member(hint, entry) for entry in as_array(cast("object", raw))]
        return [entry for entry in entries if entry is not MISSING]
    named = {name: _member(hint, value) for name, value in as_object(raw).items()}
    return {name: named[name] for name in named if named[name] is not MISSING}


def _one_of(members: tuple[object, ...], raw: object) -> object:
    """Read one of several: an object by its type, anything else by the first that takes it."""
    kinds = [kind for member in members if (kind := _class(member))]
    if kinds and isinstance(raw, dict):
        source = as_object(cast("object", raw))
        typed = [kind for kind in kinds if "type" in kind.__struct_fields__]
        known = {name: kind for kind in typed for name in type_names(kind)}
        other = next((kind for kind in kinds if kind.accepts_unknown_types), kinds[0])
        return _value(known.get(as_string(source.get("type")), other), source)
    others = (_any(member, raw) for member in members if not _class(member))
    return next((value for value in others if value is not MISSING), MISSING)


def _scalar(hint: object, raw: object) -> object:
    if hint is object:
        return raw
    if hint is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw) if abs(raw) < 2**1000 else MISSING
    if hint is int and isinstance(raw, float) and abs(raw) < 2**63:
        return int(raw)
    return raw if type(raw) is hint else MISSING


def _default(hint: object) -> object:
    """Return what a field holds that must hold something, and was not told."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return inner[0]
    if origin in (list, dict):
        return cast("Callable[[], object]", origin)()
    if inner:
        return _default(inner[0])
    kind = _class(hint)
    return _value(kind, {}) if kind else DEFAULTS.get(hint)


def _class(hint: object) -> type[ProtocolStruct] | None:
    is_one = isinstance(hint, type) and issubclass(hint, ProtocolStruct)
    return cast("type[ProtocolStruct]", hint) if is_one else None


def _is(kind: object, raw: object) -> bool:
    return isinstance(raw, cast("type[object]", kind))


def _is_union(hint: object) -> bool:
    return get_origin(hint) in (Union, UnionType)
