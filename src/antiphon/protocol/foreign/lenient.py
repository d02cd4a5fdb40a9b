"""Reads any JSON as protocol values: what fits is taken, the rest is kept in `extra`.

The decoders of `protocol.struct` are strict and are tried first. Where they refuse, an unknown word
is accepted as a word, a missing field gets an empty value, and a field of the wrong type goes to
`extra`. No JSON is refused. The tables name the types that only OpenAI has.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import UNSET, UnsetType
from msgspec.structs import FieldInfo, fields

from antiphon.protocol.items import (
    Content,
    FunctionCall,
    Item,
    Message,
    OutputText,
    Reasoning,
    RefusalContent,
    TextAnnotation,
)
from antiphon.protocol.response import Response
from antiphon.protocol.struct import (
    ExtensionStruct,
    InvalidValueError,
    JsonObject,
    ProtocolStruct,
    as_array,
    as_object,
    as_string,
    decode,
    decode_as,
    drop_none,
    encode,
    is_extension_type,
    type_names,
)

SLUG = "openai:"
OPENAI_ITEMS = frozenset(
    """additional_tools apply_patch_call apply_patch_call_output code_interpreter_call
    compaction_trigger computer_call computer_call_output configuration_update custom_tool_call
    custom_tool_call_output file_search_call image_generation_call local_shell_call
    local_shell_call_output mcp_approval_request mcp_approval_response mcp_call mcp_list_tools
    program program_output shell_call shell_call_output tool_search_call tool_search_output
    web_search_call""".split()
)
OPENAI_TOOLS = frozenset(
    """apply_patch code_interpreter computer computer_use computer_use_preview custom file_search
    image_generation local_shell mcp namespace programmatic_tool_calling shell tool_search
    web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11""".split()
)
OPENAI_CONTENT = frozenset({"input_audio", "output_audio", "computer_screenshot"})
OPENAI_ANNOTATIONS = frozenset({"file_citation", "container_file_citation", "file_path"})

OPENAI_EVENT_SUBJECTS = OPENAI_ITEMS | {
    "audio",
    "code_interpreter_call_code",
    "compaction",
    "custom_tool_call_input",
    "mcp_call_arguments",
    "shell_call_command",
    "shell_call_output_content",
}
"""What OpenAI's own events are about: `response.web_search_call.searching` and the like."""

REASONING_PREFIXES = ("response.reasoning_text.", "response.reasoning_content.")
"""What OpenAI and other servers write for the specification's `response.reasoning.`."""


def add_slugs(raw: object) -> object:
    """Give OpenAI's own types their slug, wherever a request or a response may hold them."""
    if not isinstance(raw, dict):
        return raw
    # The fields of a request are also those of a response, which echoes most of them.
    fields = dict(cast("JsonObject", raw))
    for name, add in (("input", add_item_slugs), ("tools", _add_tool_slug)):
        if isinstance(fields.get(name), list):
            fields[name] = [add(entry) for entry in as_array(fields[name])]
    if isinstance(fields.get("tool_choice"), dict):
        choice = _map_lists(_add_tool_slug(fields["tool_choice"]), ("tools",), _add_tool_slug)
        fields["tool_choice"] = choice
    return fields


def add_item_slugs(raw: object) -> object:
    """Give an item, its content and their annotations their slugs."""
    return _map_lists(_add_known_slug(raw, OPENAI_ITEMS), ("content", "output"), add_content_slugs)


def add_content_slugs(raw: object) -> object:
    """Give a content part and its annotations their slugs."""
    part = _add_known_slug(raw, OPENAI_CONTENT)
    return _map_lists(part, ("annotations",), add_annotation_slug)


def add_annotation_slug(raw: object) -> object:
    """Give an annotation its slug."""
    return _add_known_slug(raw, OPENAI_ANNOTATIONS)


def add_slug(type: str, slug: str) -> str:
    """Give a type a slug, unless it has one; characters that a slug cannot be followed by become _.

    >>> add_slug("odd type", "responses:"), add_slug("acme:search", "responses:")
    ('responses:odd_type', 'acme:search')
    """
    if is_extension_type(type):
        return type
    # The specification asks for `slug:name`, both of letters, digits and underscores.
    return slug + (re.sub(r"\W", "_", type, flags=re.ASCII) or "unknown")


def canonical_event_type(type: str) -> str:
    """Return the specification's name of an event that has several."""
    for prefix in REASONING_PREFIXES:
        if type.startswith(prefix):
            return "response.reasoning." + type.removeprefix(prefix)
    return type


def extension_event_type(type: str) -> str:
    """Return the type of an event that the specification does not have; OpenAI's get a slug."""
    subject = type.partition("response.")[2].partition(".")[0]
    # A `keepalive` is about nothing, and counts as OpenAI's.
    is_openai = subject in OPENAI_EVENT_SUBJECTS or type == "keepalive"
    return f"{SLUG}{subject}" if is_openai else type


def _add_tool_slug(raw: object) -> object:
    return _add_known_slug(raw, OPENAI_TOOLS)


def _map_lists(raw: object, names: tuple[str, ...], change: Callable[[object], object]) -> object:
    fields = as_object(raw)
    lists = {name: as_array(fields[name]) for name in names if isinstance(fields.get(name), list)}
    changed = {name: [change(entry) for entry in lists[name]] for name in lists}
    return fields | changed if changed else raw


def _add_known_slug(raw: object, known: frozenset[str]) -> object:
    name = as_string(as_object(raw).get("type"))
    return as_object(raw) | {"type": SLUG + name} if name in known else raw


S = TypeVar("S", bound=ProtocolStruct)

MISSING = object()
"""Stands for a value that does not fit its field."""

EMPTY: dict[object, object] = {str: "", int: 0, float: 0.0, bool: False, NoneType: None}

REPAIRABLE = (Message, FunctionCall, Reasoning, OutputText, RefusalContent)
"""The types that hold the answer: their values are repaired, even by a reader with a slug."""


class LenientReader:
    """Reads values of any server.

    Without a slug, types stay as the server wrote them. With a slug, every type that is not in the
    specification gets it; so does a value that lacks what its type requires, with all its fields.
    The values are then legal, and nothing in them is made up.
    """

    def __init__(self, slug: str | None = None) -> None:
        self._slug = slug

    def read(self, kind: type[S], raw: object) -> S:
        """Read a value of a class."""
        try:
            return decode(kind, raw)
        except InvalidValueError:
            return cast("S", self._read_struct(kind, as_object(raw)))

    def read_item(self, raw: object) -> Item:
        """Read an item, in any dialect."""
        item = as_object(add_item_slugs(raw))
        arguments = item.get("arguments")
        # Some servers send the arguments of a call as an object instead of as JSON in a string.
        if item.get("type") == "function_call" and not isinstance(arguments, str | None):
            item = item | {"arguments": encode(arguments).decode()}
        return cast("Item", self._read_member(Item, item))

    def read_items(self, value: object) -> list[Item]:
        """Read the items of an array; what is not an object is left out."""
        return [self.read_item(entry) for entry in as_array(value) if as_object(entry)]

    def read_content(self, raw: object) -> Content:
        """Read a content part, in any dialect."""
        return cast("Content", self._read_member(Content, add_content_slugs(raw)))

    def read_annotation(self, raw: object) -> TextAnnotation:
        """Read an annotation, in any dialect."""
        return cast("TextAnnotation", self._read_member(TextAnnotation, add_annotation_slug(raw)))

    def read_response(self, raw: object, status: str = "completed") -> Response:
        """Read a response, in any dialect; `status` is the default."""
        values = {"status": status} | drop_none(as_object(add_slugs(raw)))
        return self.read(Response, values | {"output": self.read_items(values.get("output"))})

    def _read_struct(self, kind: type[ProtocolStruct], raw: JsonObject) -> ProtocolStruct:
        # Normalizing may refuse what follows from it, a message's content for example.
        with suppress(InvalidValueError):
            raw = kind.normalize(raw, "")
        values: JsonObject = {}
        extra = drop_none(raw)
        for info, hint in _struct_fields(kind):
            name = info.encode_name
            value = self._read_member(hint, raw[name]) if name in raw else MISSING
            if value is not MISSING:
                extra.pop(name, None)
                values[info.name] = value
            elif info.required:
                values[info.name] = self._empty_value(hint)
        return kind(**values, extra=extra or UNSET)  # pyright: ignore[reportArgumentType]

    def _read_member(self, hint: object, raw: object) -> object:
        hint = _without_unset(hint)
        if raw is None and NoneType not in get_args(hint):
            return MISSING
        try:
            return decode_as(hint, raw)
        except InvalidValueError:
            return self._read_misfit(hint, raw)

    def _read_misfit(self, hint: object, raw: object) -> object:
        """Read what the strict decoder of a field refuses."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._read_misfit(inner[0], raw)
        if origin in (Union, UnionType):
            return self._read_one_of(inner, raw)
        if origin is Literal:
            # A word that is not in the specification yet is more use than none.
            return raw if any(type(raw) is type(allowed) for allowed in inner) else MISSING
        if origin in (list, dict):
            return self._read_entries(inner[-1], raw) if _is(origin, raw) else MISSING
        if kind := _struct_class(hint):
            return self._read_struct(kind, as_object(raw)) if _is(dict, raw) else MISSING
        return _read_scalar(hint, raw)

    def _read_entries(self, hint: object, raw: object) -> object:
        """Read the entries of an array or an object; what does not fit is left out."""
        if _is(list, raw):
            entries = [self._read_member(hint, entry) for entry in as_array(raw)]
            return [entry for entry in entries if entry is not MISSING]
        named = {name: self._read_member(hint, value) for name, value in as_object(raw).items()}
        return {name: named[name] for name in named if named[name] is not MISSING}

    def _read_one_of(self, members: tuple[object, ...], raw: object) -> object:
        """Read an object by its type, anything else as the first member of a union that fits."""
        kinds = [kind for member in members if (kind := _struct_class(member))]
        if kinds and _is(dict, raw):
            return self._read_tagged(kinds, as_object(raw))
        others = (self._read_misfit(member, raw) for member in members if not _struct_class(member))
        return next((value for value in others if value is not MISSING), MISSING)

    def _read_tagged(self, kinds: list[type[ProtocolStruct]], raw: JsonObject) -> ProtocolStruct:
        name = as_string(raw.get("type"))
        typed = [kind for kind in kinds if "type" in kind.__struct_fields__]
        known = next((kind for kind in typed if name in type_names(kind)), None)
        extension = next((kind for kind in kinds if issubclass(kind, ExtensionStruct)), None)
        if self._slug and extension and known not in REPAIRABLE:
            return self._read_struct(extension, raw | {"type": add_slug(name, self._slug)})
        return self._read_struct(known or extension or kinds[0], raw)

    def _empty_value(self, hint: object) -> object:
        """Return the empty value of a required field."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Literal:
            return inner[0]
        if origin in (list, dict):
            return cast("Callable[[], object]", origin)()
        if inner:
            return self._empty_value(inner[0])
        kind = _struct_class(hint)
        return self._read_struct(kind, {}) if kind else EMPTY.get(hint)


LENIENT = LenientReader()


@cache
def _struct_fields(kind: type[ProtocolStruct]) -> list[tuple[FieldInfo, object]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(info, hints[info.name]) for info in fields(kind) if info.name != "extra"]


@cache
def _without_unset(hint: object) -> object:
    members = get_args(hint)
    is_optional = get_origin(hint) in (Union, UnionType) and UnsetType in members
    return Union[tuple(m for m in members if m is not UnsetType)] if is_optional else hint


def _read_scalar(hint: object, raw: object) -> object:
    if hint is object:
        return raw
    # Some servers write whole numbers as 1.0, and fractions such as a timestamp's where an integer
    # belongs. Integers beyond 2**1000 do not fit a float, floats beyond 2**63 no 64-bit integer.
    if hint is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw) if abs(raw) < 2**1000 else MISSING
    if hint is int and isinstance(raw, float) and abs(raw) < 2**63:
        return int(raw)
    return raw if type(raw) is hint else MISSING


def _is(kind: object, raw: object) -> bool:
    return isinstance(raw, cast("type[object]", kind))


def _struct_class(hint: object) -> type[ProtocolStruct] | None:
    is_one = isinstance(hint, type) and issubclass(hint, ProtocolStruct)
    return cast("type[ProtocolStruct]", hint) if is_one else None
