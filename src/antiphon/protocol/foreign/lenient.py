"""Reads any JSON as protocol values: what fits is taken, the rest is kept in `extra`.

The decoders of `protocol.struct` are strict and are tried first. Where they refuse, an unknown word
is accepted as a word, a missing field gets an empty value, and a field of the wrong type goes to
`extra`. No JSON is refused. The tables name the types that only OpenAI has.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from types import NoneType
from typing import Annotated, Literal, NamedTuple, TypeVar, cast, get_args, get_origin

from msgspec import UNSET

from antiphon.protocol.events import Event, ExtensionEvent, SequencedEvent
from antiphon.protocol.items import Content, Item, TextAnnotation
from antiphon.protocol.response import Response
from antiphon.protocol.struct import (
    UNION_ORIGINS,
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
    join_path,
    omit,
    struct_class,
    struct_fields,
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

# A `keepalive` is about nothing, and counts as OpenAI's.
OPENAI_EVENT_SUBJECTS = OPENAI_ITEMS | frozenset(
    """audio code_interpreter_call_code compaction custom_tool_call_input keepalive
    mcp_call_arguments shell_call_command shell_call_output_content""".split()
)
"""What OpenAI's own events are about: `response.web_search_call.searching` and the like."""

OTHER_EVENT_NAMES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
    "response.reasoning_content.delta": "response.reasoning.delta",
    "response.reasoning_content.done": "response.reasoning.done",
    "response.cancelled": "response.incomplete",
}
"""What OpenAI and other servers write, and the specification's names."""

EVENT_CLASSES: dict[str, type[SequencedEvent]] = {name: kind for kind in get_args(Event) for name in type_names(kind)}
EVENT_CLASSES.update({name: EVENT_CLASSES[own] for name, own in OTHER_EVENT_NAMES.items()})
OBJECT_FIELDS = ("response", "item", "part", "annotation")
TEXT_FIELDS = ("delta", "text", "refusal", "arguments")
SUBJECT_FIELDS: dict[object, str] = {
    kind: name
    for kind in EVENT_CLASSES.values()
    for name in OBJECT_FIELDS + TEXT_FIELDS
    if name in kind.__struct_fields__
}
"""The field with the object or the text that an event is about. An `error` event has none."""


class TypedObject(NamedTuple):
    """An object of a request or response: OpenAI's own types of it, and the objects it holds."""

    own_types: frozenset[str]
    members: "tuple[tuple[str, TypedObject], ...]" = ()


ANNOTATION_TYPES = TypedObject(OPENAI_ANNOTATIONS)
CONTENT_TYPES = TypedObject(OPENAI_CONTENT, (("annotations", ANNOTATION_TYPES),))
ITEM_TYPES = TypedObject(OPENAI_ITEMS, (("content", CONTENT_TYPES), ("output", CONTENT_TYPES)))
TOOL_TYPES = TypedObject(OPENAI_TOOLS)
TOOL_CHOICE_TYPES = TypedObject(OPENAI_TOOLS, (("tools", TOOL_TYPES),))
# The fields of a request are also those of a response, which echoes most of them.
REQUEST_TYPES = TypedObject(
    frozenset(), (("input", ITEM_TYPES), ("tools", TOOL_TYPES), ("tool_choice", TOOL_CHOICE_TYPES))
)


def add_slugs(raw: object, form: TypedObject = REQUEST_TYPES) -> object:
    """Give OpenAI's own types their slug, in an object of this form and in those that it holds."""
    old = as_object(raw)
    changes: JsonObject = {}
    if (name := as_string(old.get("type"))) in form.own_types:
        changes["type"] = SLUG + name
    for name, member in form.members:
        if isinstance(old.get(name), list):
            changes[name] = [add_slugs(entry, member) for entry in as_array(old[name])]
        elif member is TOOL_CHOICE_TYPES and name in old:
            changes[name] = add_slugs(old[name], member)
    return old | changes if changes else raw


def add_slug(type: str, slug: str) -> str:
    """Give a type a slug, unless it has one; characters that a slug cannot be followed by become _.

    >>> add_slug("odd type", "responses:"), add_slug("acme:search", "responses:")
    ('responses:odd_type', 'acme:search')
    """
    if is_extension_type(type):
        return type
    # The specification asks for `slug:name`, both of letters, digits and underscores.
    return slug + (re.sub(r"\W", "_", type, flags=re.ASCII) or "unknown")


def extension_event_type(type: str) -> str:
    """Return the type of an event that the specification does not have; OpenAI's get a slug."""
    subject = type.removeprefix("response.").partition(".")[0]
    return f"{SLUG}{subject}" if subject in OPENAI_EVENT_SUBJECTS else type


S = TypeVar("S", bound=ProtocolStruct)

MISSING = object()
"""Stands for a value that does not fit its field."""

REPAIRABLE = frozenset({"message", "function_call", "reasoning", "output_text", "refusal"})
"""The types that hold the answer: their values are repaired, even by a reader with a slug."""


RESULT_FIELDS = ("id", "status", "error", "incomplete_details", "usage", "output")
RESPONSE_DEFAULTS: JsonObject = {"created_at": 0, "model": ""}


class LenientReader:
    """Reads values of any server, and collects what did not fit in `misfits`, if that is a list.

    Without a slug, types stay as the server wrote them. With a slug, every type that is not in the specification gets
    it; so does a value that lacks what its type requires, with all its fields. The values are then legal, and nothing
    in them is made up. Of a response, a reader with a slug takes only the result: the rest repeats the request.
    """

    def __init__(self, slug: str | None = None, misfits: list[InvalidValueError] | None = None) -> None:
        self._slug = slug
        self._misfits = misfits

    def read(self, kind: type[S], raw: object, path: str = "") -> S:
        """Read a value of a class; `path` is its place, for the misfits."""
        try:
            return decode(kind, raw)
        except InvalidValueError:
            return cast("S", self._read_struct(kind, as_object(raw), path))

    def read_event(self, sent: JsonObject, number: int) -> Event:
        """Read any event but an `error`."""
        name = as_string(sent.get("type"))
        kind = EVENT_CLASSES.get(name)
        subject = SUBJECT_FIELDS.get(kind, "")
        # Without its object or text, an event would be read as an empty one.
        if kind is None or not isinstance(sent.get(subject), dict if subject in OBJECT_FIELDS else str):
            if kind is not None:
                self._report(subject, "this field is required")
            rest = omit(sent, ("type", "sequence_number"))
            return ExtensionEvent(type=name, sequence_number=number, extra=rest or UNSET)
        value, values = sent[subject], sent | {"sequence_number": number}
        del values["type"]  # each class has its own
        match subject:
            case "response":
                status = "in_progress" if name == "response.created" else name.removeprefix("response.")
                values[subject] = self.read_response(value, subject, status)
            case "item":
                values[subject] = self.read_item(value, subject)
            case "part":
                values[subject] = self._read_member(Content, add_slugs(value, CONTENT_TYPES), subject)
            case "annotation":
                values[subject] = self._read_member(TextAnnotation, add_slugs(value, ANNOTATION_TYPES), subject)
            case _:
                pass
        return cast("Event", self.read(kind, values))

    def read_item(self, raw: object, path: str = "") -> Item:
        """Read an item, in any dialect."""
        item = as_object(add_slugs(raw, ITEM_TYPES))
        arguments = item.get("arguments")
        # Some servers send the arguments of a call as an object instead of as JSON in a string.
        if item.get("type") == "function_call" and not isinstance(arguments, str | None):
            self._report(f"{path}.arguments", "expected a string")
            item = item | {"arguments": encode(arguments).decode()}
        return cast("Item", self._read_member(Item, item, path))

    def read_items(self, value: object, path: str = "") -> list[Item]:
        """Read the items of an array; what is not an object is left out."""
        entries = enumerate(as_array(value))
        return [self.read_item(entry, f"{path}[{index}]") for index, entry in entries if as_object(entry)]

    def read_response(self, raw: object, path: str = "", status: str = "completed") -> Response:
        """Read a response, in any dialect; `status` is the default."""
        fields = as_object(raw)
        if self._slug is None:
            fields = as_object(add_slugs(fields))
        else:
            fields = RESPONSE_DEFAULTS | {name: fields[name] for name in RESULT_FIELDS if name in fields}
        output = self.read_items(fields.get("output"), join_path(path, "output"))
        return self.read(Response, {"status": status, **drop_none(fields), "output": output}, path)

    def _report(self, path: str, reason: str) -> None:
        if self._misfits is not None:
            self._misfits.append(InvalidValueError(path, reason))

    def _read_struct(self, kind: type[ProtocolStruct], raw: JsonObject, path: str) -> ProtocolStruct:
        # Normalizing may refuse what follows from it, a message's content for example.
        with suppress(InvalidValueError):
            raw = kind.normalize(raw, path)
        values: JsonObject = {}
        extra = drop_none(raw)
        for info, hint in struct_fields(kind):
            name = info.encode_name
            place = join_path(path, name)
            value = self._read_member(hint, raw[name], place) if name in raw else MISSING
            if value is not MISSING:
                extra.pop(name, None)
                values[info.name] = value
            elif info.required:
                self._report(place, "this field is required")
                values[info.name] = self._empty_value(hint, place)
        return kind(**values, extra=extra or UNSET)  # pyright: ignore[reportArgumentType]

    def _read_member(self, hint: object, raw: object, path: str) -> object:
        if raw is None and NoneType not in get_args(hint):
            return MISSING
        try:
            return decode_as(hint, raw, path)
        except InvalidValueError as error:
            # Errors of values inside this one are found again when these are read.
            if error.path == path:
                self._report(path, error.reason)
            return self._read_misfit(hint, raw, path)

    def _read_misfit(self, hint: object, raw: object, path: str) -> object:
        """Read what the strict decoder of a field refuses."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._read_misfit(inner[0], raw, path)
        if origin in UNION_ORIGINS:
            return self._read_one_of(inner, raw, path)
        if origin is Literal:
            # A word that is not in the specification yet is more use than none.
            return raw if any(type(raw) is type(allowed) for allowed in inner) else MISSING
        if origin in (list, dict):
            return (
                self._read_entries(inner[-1], raw, path) if isinstance(raw, cast("type[object]", origin)) else MISSING
            )
        if kind := struct_class(hint):
            return self._read_struct(kind, cast("JsonObject", raw), path) if isinstance(raw, dict) else MISSING
        return _read_scalar(hint, raw)

    def _read_entries(self, hint: object, raw: object, path: str) -> object:
        """Read the entries of an array or an object; what does not fit is left out."""
        if isinstance(raw, list):
            members = enumerate(cast("list[object]", raw))
            entries = (self._read_member(hint, entry, f"{path}[{index}]") for index, entry in members)
            return [entry for entry in entries if entry is not MISSING]
        named = {name: self._read_member(hint, value, path) for name, value in as_object(raw).items()}
        return {name: value for name, value in named.items() if value is not MISSING}

    def _read_one_of(self, members: tuple[object, ...], raw: object, path: str) -> object:
        """Read an object by its type, anything else as the first member of a union that fits."""
        kinds = [kind for member in members if (kind := struct_class(member))]
        if kinds and isinstance(raw, dict):
            return self._read_tagged(kinds, cast("JsonObject", raw), path)
        others = (self._read_misfit(member, raw, path) for member in members if not struct_class(member))
        return next((value for value in others if value is not MISSING), MISSING)

    def _read_tagged(self, kinds: list[type[ProtocolStruct]], raw: JsonObject, path: str) -> ProtocolStruct:
        name = as_string(raw.get("type"))
        typed = [kind for kind in kinds if "type" in kind.__struct_fields__]
        known = next((kind for kind in typed if name in type_names(kind)), None)
        extension = next((kind for kind in kinds if issubclass(kind, ExtensionStruct)), None)
        # Always read as its own type, so that the misfits are known.
        value = self._read_struct(known or extension or kinds[0], raw, path)
        if self._slug and extension and name not in REPAIRABLE:
            return self._read_struct(extension, raw | {"type": add_slug(name, self._slug)}, path)
        return value

    def _empty_value(self, hint: object, path: str) -> object:
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Literal:
            return inner[0]
        if kind := struct_class(hint):
            return self._read_struct(kind, {}, path)
        if inner and origin not in (list, dict):
            return self._empty_value(inner[0], path)
        return cast("Callable[[], object]", origin or hint)()


LENIENT = LenientReader()


def _read_scalar(hint: object, raw: object) -> object:
    # Some servers write whole numbers as 1.0, and fractions such as a timestamp's where an integer
    # belongs. Floats beyond 2**63 do not fit a 64-bit integer.
    if hint is int and isinstance(raw, float) and abs(raw) < 2**63:
        return int(raw)
    return raw if type(raw) is hint else MISSING
