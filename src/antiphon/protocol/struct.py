"""The base class of all protocol objects: typed, frozen, and lossless for unknown fields.

msgspec encodes structs as fast as the hot path needs, but it drops unknown fields and rejects unknown types, and the
specification requires both to be kept. So decoding is done here: a decoder is derived from each annotation, a union is
resolved by `type` with an extension as the fallback, and fields without an attribute are kept in `extra`.

A field whose default is `UNSET` is optional: null is accepted for it and never written.
"""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeVar, Union, cast, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import FieldInfo, fields

JsonObject = dict[str, object]


def as_object(value: object) -> JsonObject:
    """Return an object's fields; for anything else an empty object."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - it is JSON


def as_array(value: object) -> Sequence[object]:
    """Return an array's entries; for anything else an empty array."""
    return value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType] - it is JSON


def as_string(value: object) -> str:
    """Return a string; for anything else an empty string."""
    return value if isinstance(value, str) else ""


def drop_none(fields: Mapping[str, object]) -> JsonObject:
    """Return the fields that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


def omit(fields: Mapping[str, object], names: Container[str]) -> JsonObject:
    """Return the fields without those of some names."""
    return {name: fields[name] for name in fields if name not in names}


DecodeFunction = Callable[[object, str], object]
"""Decodes a JSON value; the second argument is the path of the value, for error messages."""

V = TypeVar("V", bound="ProtocolStruct")

UNION_ORIGINS = (Union, UnionType)
PRIMITIVE_TYPES = frozenset({str, bool, int, NoneType})
"""The types whose JSON values need no conversion."""

EXTRA_FIELD = "~extra"
# Found in the encoded bytes when some object holds unknown fields. A plain dictionary may have this
# key too; the slow encoding then gives the same result.
_EXTRA_KEY = b'"~extra":'


class InvalidValueError(ValueError):
    """A JSON value that does not fit the field it is in."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class ProtocolStructMeta(msgspec.StructMeta):
    """Makes every protocol object frozen, with keyword-only fields."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
        # gc=False: JSON is a tree, so the garbage collector would never find a cycle.
        return super().__new__(mcls, name, bases, namespace, kw_only=True, frozen=True, gc=False)


class ProtocolStruct(msgspec.Struct, metaclass=ProtocolStructMeta):
    """A protocol object; `extra` holds the fields that the class does not define."""

    extra: dict[str, object] | UnsetType = field(default=UNSET, name=EXTRA_FIELD)

    @classmethod
    def normalize(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Convert a lenient spelling to the strict one; may raise InvalidValueError."""
        del path
        return raw

    def get(self, name: str, default: object = None) -> object:
        """Return a field that has no attribute."""
        return default if self.extra is UNSET else self.extra.get(name, default)


class ExtensionStruct(ProtocolStruct):
    """The member of a union that takes every `type` of the form `slug:name`."""

    type: str


def list_unknown_fields(struct: ProtocolStruct) -> list[str]:
    """Return the names of unknown fields that are not null and not an extension's."""
    fields = (struct.extra or {}).items()
    return [name for name, given in fields if given is not None and not is_extension_type(name)]


def decode(kind: type[V], raw: object, path: str = "") -> V:
    """Decode a value of the given class from JSON builtins, without loss."""
    return cast("V", decoder_for(kind)(raw, path))


def decode_as(annotation: object, raw: object, path: str = "") -> object:
    """Decode a value of any annotation: a union of structs, a list of them, a builtin type."""
    return decoder_for(annotation)(raw, path)


# Created once and reused, as msgspec recommends.
_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Encode a value as JSON."""
    data = _encoder.encode(value)
    # Only values that really hold unknown fields pay for merging them in.
    return data if data.find(_EXTRA_KEY) < 0 else _encoder.encode(to_builtins(value))


def to_builtins(value: object, rename_type: Callable[[str], str] | None = None) -> object:
    """Return a value as JSON builtins, with its unknown fields; `rename_type` converts the types of extensions."""
    if isinstance(value, ProtocolStruct):
        out = {
            info.encode_name: to_builtins(member, rename_type)
            for info, _ in struct_fields(type(value))
            if (member := getattr(value, info.name)) is not UNSET
        }
        if value.extra is not UNSET:
            # Twice: the known fields come first, and none is overwritten by an unknown one.
            out = {**out, **value.extra, **out}
        if rename_type and isinstance(value, ExtensionStruct):
            out["type"] = rename_type(value.type)
        return out
    if isinstance(value, list):
        return [to_builtins(member, rename_type) for member in cast("list[object]", value)]
    return value


@cache
def decoder_for(annotation: object) -> DecodeFunction:
    """Derive the decoder of an annotation."""
    origin = get_origin(annotation)
    if kind := struct_class(annotation):
        return _object_decoder(kind)
    if _contains_structs(annotation):
        if origin in UNION_ORIGINS:
            return _union_decoder(get_args(annotation))
        # Anything else with structs in it is a list, perhaps with limits of its length.
        entries, limits = get_args(annotation)[:2] if origin is Annotated else (annotation, msgspec.Meta())
        return _list_decoder(get_args(entries)[0], limits)
    members = _union_members(annotation)
    if get_origin(members[0]) is Literal and members[1:] in ((), (NoneType,)):
        return _literal_decoder(get_args(members[0]), nullable=NoneType in members)
    return _builtin_decoder(annotation, members)


def struct_class(annotation: object) -> type[ProtocolStruct] | None:
    """Return an annotation that is one class of protocol objects; None for any other."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, ProtocolStruct) else None


def _contains_structs(annotation: object) -> bool:
    return bool(struct_class(annotation)) or any(map(_contains_structs, get_args(annotation)))


def _object_decoder(kind: type[ProtocolStruct]) -> DecodeFunction:
    # By name: the attribute, whether null means absent, and the decoder.
    slots = {
        info.encode_name: (
            info.name,
            info.default is UNSET or not (info.required or NoneType in get_args(hint)),
            decoder_for(hint),
        )
        for info, hint in struct_fields(kind)
    }
    required = [info.encode_name for info, _ in struct_fields(kind) if info.required]
    make = cast("Callable[..., ProtocolStruct]", kind)

    def decode_object(raw: object, path: str) -> object:
        if isinstance(raw, kind):
            return raw
        if not isinstance(raw, dict):
            raise InvalidValueError(path, f"expected an object, got {_describe_json(raw)}")
        source = kind.normalize(cast("dict[str, object]", raw), path)
        for wire in required:
            if wire not in source:
                raise InvalidValueError(join_path(path, wire), "this field is required")
        before = f"{path}." if path else ""
        values: dict[str, object] = {}
        extra: dict[str, object] = {}
        for wire, member in source.items():
            if slot := slots.get(wire):
                attribute, optional, decode_member = slot
                if member is not None or not optional:
                    values[attribute] = decode_member(member, before + wire)
            else:
                extra[wire] = member
        if extra:
            values["extra"] = extra
        return make(**values)

    return decode_object


@cache
def struct_fields(kind: type[ProtocolStruct]) -> list[tuple[FieldInfo, object]]:
    """Return the fields of a class, and the annotations of their JSON, which is never UNSET."""
    hints = get_type_hints(kind, include_extras=True)
    for name, hint in hints.items():
        if UnsetType in get_args(hint):
            hints[name] = Union[tuple(member for member in get_args(hint) if member is not UnsetType)]
    return [(info, hints[info.name]) for info in fields(kind) if info.name != "extra"]


def _list_decoder(member: object, limits: msgspec.Meta) -> DecodeFunction:
    decode_member = decoder_for(member)
    least, most = limits.min_length or 0, limits.max_length or 2**31

    def decode_list(raw: object, path: str) -> object:
        if not isinstance(raw, list):
            raise InvalidValueError(path, f"expected an array, got {_describe_json(raw)}")
        entries = cast("list[object]", raw)
        # Checked before the entries are decoded: a huge array must not cost time first.
        if not least <= len(entries) <= most:
            raise InvalidValueError(path, f"expected {least} to {most} entries, got {len(entries)}")
        return [decode_member(entry, f"{path}[{index}]") for index, entry in enumerate(entries)]

    return decode_list


def _union_decoder(members: Sequence[object]) -> DecodeFunction:
    kinds = [kind for m in members if (kind := struct_class(m))]
    lists = [m for m in members if get_origin(m) is list]
    others = tuple(m for m in members if not struct_class(m) and m not in lists)
    decode_kind = _union_by_type_decoder(kinds) if kinds else None
    decode_list = decoder_for(lists[0]) if lists else None
    decode_other = decoder_for(Union[others]) if others else None

    def decode_union(raw: object, path: str) -> object:
        # Objects are resolved by their `type`, lists by their member, other values by msgspec.
        is_object, is_list = isinstance(raw, dict | ProtocolStruct), isinstance(raw, list)
        if decode_kind and is_object:
            return decode_kind(raw, path)
        if decode_list and is_list:
            return decode_list(raw, path)
        return (decode_other or decode_kind or cast("DecodeFunction", decode_list))(raw, path)

    return decode_union


def _union_by_type_decoder(kinds: Sequence[type[ProtocolStruct]]) -> DecodeFunction:
    if len(kinds) == 1:
        return decoder_for(kinds[0])
    # Resolved once per union: decoding an item is then one dictionary lookup.
    table = {name: decoder_for(kind) for kind in kinds for name in type_names(kind)}
    rest = next((decoder_for(kind) for kind in kinds if issubclass(kind, ExtensionStruct)), None)
    known = ", ".join(f"'{name}'" for name in table)

    def decode_kind(raw: object, path: str) -> object:
        if isinstance(raw, ProtocolStruct):
            return raw
        if not isinstance(raw, dict):
            raise InvalidValueError(path, f"expected an object, got {_describe_json(raw)}")
        source = cast("dict[str, object]", raw)
        name = source.get("type")
        if not isinstance(name, str):
            reason = "this field is required" if name is None else "expected a string"
            raise InvalidValueError(join_path(path, "type"), f"{reason}: one of {known}")
        if choose := table.get(name) or (rest if is_extension_type(name) else None):
            return choose(source, path)
        hint = f"; extensions are written 'slug:{name[:64]}'" if rest else ""
        raise InvalidValueError(join_path(path, "type"), f"unknown type '{name[:64]}'; known: {known}{hint}")

    return decode_kind


def type_names(kind: type[ProtocolStruct]) -> tuple[str, ...]:
    """Return the values of `type` that a class represents."""
    return get_args(get_type_hints(kind)["type"])


def _literal_decoder(allowed: Sequence[object], *, nullable: bool) -> DecodeFunction:
    names = ", ".join(f"'{value}'" for value in allowed)

    def decode_literal(raw: object, path: str) -> object:
        if (isinstance(raw, str | int) and raw in allowed) or (raw is None and nullable):
            return raw
        raise InvalidValueError(path, f"expected one of {names}, got {_describe_json(raw)}")

    return decode_literal


def _builtin_decoder(annotation: object, members: Sequence[object]) -> DecodeFunction:
    exact = frozenset(members) if PRIMITIVE_TYPES.issuperset(members) else frozenset[object]()

    def decode_builtin(raw: object, path: str) -> object:
        # Fast path: most fields are strings, numbers and booleans that need no conversion.
        if type(raw) in exact:
            return raw
        try:
            return msgspec.convert(raw, annotation)
        except msgspec.ValidationError:
            raise _invalid_builtin_error(raw, annotation, path) from None

    return decode_builtin


def _invalid_builtin_error(raw: object, annotation: object, path: str) -> InvalidValueError:
    """Return the error of a value, or raise that of an entry: msgspec does not report which one does not fit."""
    entries: list[tuple[str, object, object]] = []
    for member in _union_members(annotation):
        kind = get_args(member)[0] if get_origin(member) is Annotated else member
        types = get_args(kind)
        if get_origin(kind) is list:
            entries += [(f"[{index}]", entry, types[0]) for index, entry in enumerate(as_array(raw))]
        elif get_origin(kind) is dict:
            for name, value in as_object(raw).items():
                entries += [(f".{name[:80]}", name, types[0]), (f".{name[:80]}", value, types[1])]
    for place, entry, kind in entries:
        decode_as(kind, entry, path + place)
    expected, got = describe_type(annotation), _describe_json(raw)
    if "entries" in expected and isinstance(raw, list | dict):
        got += f" of {len(cast('list[object]', raw))}"
    return InvalidValueError(path, f"expected {expected}, got {got}")


def _union_members(annotation: object) -> Sequence[object]:
    return get_args(annotation) if get_origin(annotation) in UNION_ORIGINS else (annotation,)


_TYPE_NAMES: dict[object, str] = {
    NoneType: "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
}
_LENGTH_UNITS: dict[object, str] = {str: "characters", list: "entries", dict: "entries"}


def describe_type(annotation: object) -> str:
    """Return a type in words, such as "a number between 0 and 2, or null"."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in UNION_ORIGINS:
        return ", or ".join(map(describe_type, args))
    if origin is Literal:
        return f"one of {', '.join(map(repr, args))}"
    if origin is not Annotated:
        return _TYPE_NAMES.get(origin or annotation, "an object")
    kind, meta = args
    if unit := _LENGTH_UNITS.get(get_origin(kind) or kind):
        least, most = meta.min_length, meta.max_length
        amount = f"{least} to {most}" if least and most else f"at most {most}" if most else f"at least {least}"
        limits = " that is not empty" if amount == "at least 1" else f" of {amount} {unit}"
    elif meta.ge is not None and meta.le is not None:
        limits = f" between {meta.ge} and {meta.le}"
    else:
        bounds = (("above", meta.gt), ("at least", meta.ge), ("at most", meta.le))
        limits = ", " + " and ".join(f"{word} {limit}" for word, limit in bounds if limit is not None)
    return f"{describe_type(kind)}{limits}" + (f" that matches {meta.pattern}" if meta.pattern else "")


def _describe_json(raw: object) -> str:
    if isinstance(raw, str):
        return f"'{raw}'" if len(raw) <= 40 else f"'{raw[:40]}…' ({len(raw)} characters)"
    # Python refuses to write an integer of thousands of digits.
    if isinstance(raw, int | float) and abs(raw) < 1e300:
        return str(raw).lower()
    return _TYPE_NAMES.get(type(raw), "an object")


def join_path(path: str, name: str) -> str:
    """Extend a path by a field."""
    return f"{path}.{name}" if path else name


_EXTENSION_TYPE = re.compile(r"\w+:\w+", re.ASCII)


def is_extension_type(name: str) -> bool:
    """Return whether a type is an extension's, `slug:name`, as the specification requires.

    >>> is_extension_type("acme:search_result"), is_extension_type("search_result")
    (True, False)
    """
    return _EXTENSION_TYPE.fullmatch(name) is not None
