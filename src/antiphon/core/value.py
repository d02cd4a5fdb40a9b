"""What every protocol object is: a typed value that keeps the fields it does not know.

msgspec encodes structs at the speed the hot path needs, but it drops unknown fields and refuses
unknown types, both of which the specification asks us to carry. So decoding is done here, once:
a reader is derived from each annotation, unions are chosen by `type` with an extension as the
last resort, and whatever has no field of its own is kept in `extra`.

A field whose default is `UNSET` is optional: null is accepted for it and never written.
"""

from collections.abc import Callable, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import FieldInfo, fields

Reader = Callable[[object, str], object]
"""Turns a JSON value into a typed one; the second argument is the value's path."""

V = TypeVar("V", bound="Value")

UNIONS = (Union, UnionType)
ATOMS = frozenset({str, bool, int, NoneType})
"""The types whose values are what they are, unless more is asked of them."""

EXTRA = "~extra"
_EXTRA_KEY = b'"~extra":'


class ShapeError(ValueError):
    """A JSON value that is not what its place asks for."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class ValueMeta(msgspec.StructMeta):
    """Makes every protocol object frozen, with fields by name only.

    The garbage collector does not look at them: JSON is a tree, and has no cycles to be found.
    """

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
        return super().__new__(mcls, name, bases, namespace, kw_only=True, frozen=True, gc=False)


class Value(msgspec.Struct, metaclass=ValueMeta):
    """A protocol object; `extra` holds the fields that neither dialect names."""

    extra: dict[str, object] | UnsetType = field(default=UNSET, name=EXTRA)

    fallback: ClassVar[bool] = False
    """Whether a union takes this class for a `type` that none of its members has."""

    @classmethod
    def prepare(cls, raw: dict[str, object], path: str) -> dict[str, object]:
        """Bring a lenient spelling into the strict one; may raise ShapeError."""
        del path
        return raw

    def get(self, name: str, default: object = None) -> object:
        """Return a field that has no attribute of its own."""
        return default if self.extra is UNSET else self.extra.get(name, default)


def unread(value: Value) -> list[str]:
    """Name the unknown fields of an object that say something; extensions' own are theirs."""
    if value.extra is UNSET:  # so it is nearly always
        return []
    fields = value.extra.items()
    return [name for name, given in fields if given is not None and not is_extension_type(name)]


def decode(kind: type[V], raw: object, path: str = "") -> V:
    """Read a value of the given class from JSON builtins, losing nothing."""
    return cast("V", reader(kind)(raw, path))


def read(annotation: object, raw: object, path: str = "") -> object:
    """Read a value of any annotation: a union of items, a list of them, a plain type."""
    return reader(annotation)(raw, path)


_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Write a value as JSON; only objects that really carry unknown fields pay for them."""
    data = _encoder.encode(value)
    return data if data.find(_EXTRA_KEY) < 0 else _encoder.encode(plain(value))


def plain(value: object, retype: Callable[[str], str] | None = None) -> object:
    """Return a value as JSON builtins, unknown fields beside the known ones.

    `retype` renames the types of extensions.
    """
    if isinstance(value, Value):
        out = {
            wire: plain(member, retype)
            for attribute, wire in _names(type(value)).items()
            if (member := getattr(value, attribute)) is not UNSET
        }
        if value.extra is not UNSET:
            out = {**out, **value.extra, **out}  # a field we know is never an unknown one
        if retype and value.fallback:
            out["type"] = retype(str(out["type"]))
        return out
    if isinstance(value, list):
        return [plain(member, retype) for member in cast("list[object]", value)]
    return value


@cache
def _names(kind: type[Value]) -> dict[str, str]:
    return {f.name: f.encode_name for f in fields(kind) if f.name != "extra"}


# --- readers, derived from annotations -------------------------------------------------------


@cache
def reader(annotation: object) -> Reader:
    """Derive the reader of an annotation."""
    origin = get_origin(annotation)
    if kind := _value_class(annotation):
        return _object_reader(kind)
    if origin is list and (member := get_args(annotation)[0]) and _holds_values(member):
        return _list_reader(member)
    if origin in UNIONS and _holds_values(annotation):
        return _union_reader(get_args(annotation))
    if origin is Annotated and _holds_values(get_args(annotation)[0]):
        return _limited_reader(*get_args(annotation)[:2])
    if origin is Literal:
        return _literal_reader(get_args(annotation))
    return _plain_reader(annotation)


def _value_class(annotation: object) -> type[Value] | None:
    is_one = isinstance(annotation, type) and issubclass(annotation, Value)
    return cast("type[Value]", annotation) if is_one else None


def _holds_values(annotation: object) -> bool:
    return bool(_value_class(annotation)) or any(map(_holds_values, get_args(annotation)))


def _object_reader(kind: type[Value]) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    known = [info for info in fields(kind) if info.name != "extra"]
    slots = {info.encode_name: _slot(info, hints[info.name]) for info in known}
    required = [info.encode_name for info in known if info.required]
    make = cast("Callable[..., Value]", kind)

    def read_object(raw: object, path: str) -> object:
        if isinstance(raw, kind):
            return raw
        if not isinstance(raw, dict):
            raise ShapeError(path, f"expected an object, got {_name_of(raw)}")
        source = kind.prepare(cast("dict[str, object]", raw), path)
        for wire in required:
            if wire not in source:
                raise ShapeError(join(path, wire), "this field is required")
        before = f"{path}." if path else ""
        values: dict[str, object] = {}
        extra: dict[str, object] = {}
        for wire, member in source.items():
            if slot := slots.get(wire):
                attribute, optional, read_member = slot
                if member is not None or not optional:
                    values[attribute] = read_member(member, before + wire)
            else:
                extra[wire] = member
        if extra:
            values["extra"] = extra
        return make(**values)

    return read_object


def _slot(info: FieldInfo, hint: object) -> tuple[str, bool, Reader]:
    """Describe a field: attribute, null means absent, reader."""
    unset = info.default is UNSET
    nullable = NoneType in get_args(hint)
    optional = unset or (not info.required and not nullable)
    members = [member for member in get_args(hint) if member is not UnsetType]
    shape = Union[tuple(members)] if unset and UnsetType in get_args(hint) else hint
    return info.name, optional, reader(shape)


def _list_reader(member: object) -> Reader:
    read_member = reader(member)

    def read_list(raw: object, path: str) -> object:
        if not isinstance(raw, list):
            raise ShapeError(path, f"expected an array, got {_name_of(raw)}")
        entries = cast("list[object]", raw)
        return [read_member(entry, f"{path}[{index}]") for index, entry in enumerate(entries)]

    return read_list


def _limited_reader(annotation: object, meta: msgspec.Meta) -> Reader:
    read_list = reader(annotation)
    least, most = meta.min_length or 0, meta.max_length or 2**31

    def read_limited(raw: object, path: str) -> object:
        # Before the entries are read, because that takes its time.
        count = len(cast("list[object]", raw)) if isinstance(raw, list) else least
        if not least <= count <= most:
            raise ShapeError(path, f"expected {least} to {most} entries, got {count}")
        return read_list(cast("object", raw), path)

    return read_limited


def _union_reader(members: Sequence[object]) -> Reader:
    kinds = [kind for m in members if (kind := _value_class(m))]
    lists = [m for m in members if get_origin(m) is list]
    others = tuple(m for m in members if not _value_class(m) and m not in lists)
    read_kind = _kinds_reader(kinds) if kinds else None
    read_list = reader(lists[0]) if lists else None
    read_other = reader(Union[others]) if others else None

    def read_union(raw: object, path: str) -> object:
        is_object, is_list = isinstance(raw, dict | Value), isinstance(raw, list)
        if read_kind and is_object:
            return read_kind(raw, path)
        if read_list and is_list:
            return read_list(raw, path)
        return (read_other or read_kind or cast("Reader", read_list))(raw, path)

    return read_union


def _kinds_reader(kinds: Sequence[type[Value]]) -> Reader:
    if len(kinds) == 1:
        return reader(kinds[0])
    table = {name: reader(kind) for kind in kinds for name in type_names(kind)}
    rest = next((reader(kind) for kind in kinds if kind.fallback), None)
    known = ", ".join(f"'{name}'" for name in table)

    def read_kind(raw: object, path: str) -> object:
        if isinstance(raw, Value):
            return raw
        if not isinstance(raw, dict):
            raise ShapeError(path, f"expected an object, got {_name_of(raw)}")
        source = cast("dict[str, object]", raw)
        name = source.get("type")
        if not isinstance(name, str):
            reason = "this field is required" if name is None else "expected a string"
            raise ShapeError(join(path, "type"), f"{reason}: one of {known}")
        if choose := table.get(name) or (rest if is_extension_type(name) else None):
            return choose(source, path)
        hint = f"; extensions are written 'slug:{name[:64]}'" if rest else ""
        raise ShapeError(join(path, "type"), f"unknown type '{name[:64]}'; known: {known}{hint}")

    return read_kind


def type_names(kind: type[Value]) -> tuple[str, ...]:
    """Return the values of `type` that a class stands for."""
    return tuple(get_args(get_type_hints(kind)["type"])) if not kind.fallback else ()


def _literal_reader(allowed: Sequence[object]) -> Reader:
    names = ", ".join(f"'{value}'" for value in allowed)

    def read_literal(raw: object, path: str) -> object:
        if isinstance(raw, str | int | None) and raw in allowed:
            return raw
        raise ShapeError(path, f"expected one of {names}, got {_name_of(raw)}")

    return read_literal


def _plain_reader(annotation: object) -> Reader:
    literal = next((m for m in get_args(annotation) if get_origin(m) is Literal), None)
    allowed = get_args(literal) if get_origin(annotation) is not Annotated else ()
    nullable = NoneType in get_args(annotation)
    if allowed and {type(value) for value in allowed} == {str} and len(get_args(annotation)) == 2:
        read_literal = _literal_reader(allowed)
        return lambda raw, path: None if raw is None and nullable else read_literal(raw, path)

    members = get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,)
    exact = frozenset(members) if ATOMS.issuperset(members) else frozenset[object]()

    def read_plain(raw: object, path: str) -> object:
        if type(raw) in exact:
            return raw
        try:
            return msgspec.convert(raw, annotation)
        except msgspec.ValidationError as error:
            reason, _, place = str(error).partition(" - at ")
            inner = _entry(raw, annotation) if place else ""
            raise ShapeError(path + inner, reason[0].lower() + reason[1:]) from None

    return read_plain


def _entry(raw: object, annotation: object) -> str:
    """Name the entry of an object or array that does not fit; msgspec does not."""
    if isinstance(raw, dict):
        entries = cast("dict[str, object]", raw).items()
        return next(
            (f".{name[:80]}" for name, v in entries if not _fits({name: v}, annotation)), ""
        )
    if isinstance(raw, list):
        members = enumerate(cast("list[object]", raw))
        return next((f"[{index}]" for index, v in members if not _fits([v], annotation)), "")
    return ""


def _fits(raw: object, annotation: object) -> bool:
    try:
        msgspec.convert(raw, annotation)
    except msgspec.ValidationError:
        return False
    return True


def _name_of(raw: object) -> str:
    match raw:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return f"'{raw[:40]}'"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


def join(path: str, name: str) -> str:
    """Extend a path by a field."""
    return f"{path}.{name}" if path else name


_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def is_extension_type(name: str) -> bool:
    """Tell whether a type is an extension's, `slug:name`, as the specification asks.

    >>> is_extension_type("acme:search_result"), is_extension_type("search_result")
    (True, False)
    """
    slug, _, rest = name.partition(":")
    return bool(slug and rest) and _WORD.issuperset(slug) and _WORD.issuperset(rest)
