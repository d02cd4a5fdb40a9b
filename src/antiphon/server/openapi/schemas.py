"""JSON Schemas of our annotations, as the components of an OpenAPI document.

What is sent is described completely: every field that is always written is required. A type that clients may send as
well requires only what they must send. Types of OpenAI's dialect are allowed beside extensions, because one document
describes all doors.
"""

from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

from msgspec import UNSET, Meta, UnsetType

from antiphon.protocol import events, items, request, tools
from antiphon.protocol.foreign import lenient
from antiphon.protocol.struct import (
    UNION_ORIGINS,
    ExtensionStruct,
    JsonObject,
    ProtocolStruct,
    struct_class,
    struct_fields,
)

PRIMITIVES: dict[object, JsonObject] = {
    NoneType: {"type": "null"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    object: {},
}

EXTENSION_PATTERN = r"\w+:\w+"

OPENAI_TYPES: dict[type[ProtocolStruct], frozenset[str]] = {
    items.ExtensionItem: lenient.OPENAI_ITEMS,
    items.ExtensionContent: lenient.OPENAI_CONTENT,
    items.ExtensionAnnotation: lenient.OPENAI_ANNOTATIONS,
    tools.ExtensionTool: lenient.OPENAI_TOOLS,
    tools.ExtensionToolChoice: lenient.OPENAI_TOOLS,
    events.ExtensionEvent: frozenset(rf"response\.{name}\.\w+" for name in lenient.OPENAI_EVENT_SUBJECTS),
}
"""What the OpenAI doors have instead of an extension's name."""

OPENAI_NAMES = {f"response.reasoning.{end}": f"response.reasoning_text.{end}" for end in ("delta", "done")}
"""The names that the OpenAI doors have for events of the specification."""

SHORT_FORMS: dict[tuple[type[ProtocolStruct], str], JsonObject] = {
    (request.Request, "input"): PRIMITIVES[str],
    (request.CompactRequest, "input"): PRIMITIVES[str],
    (request.Request, "conversation"): PRIMITIVES[str],
    (request.Request, "stop"): PRIMITIVES[str],
    (items.Message, "content"): PRIMITIVES[str],
}
"""What `normalize` accepts for a field beside its type; the fields of subclasses, too."""

LIMITS: dict[str, tuple[str, str]] = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
"""The names of `min_length` and `max_length` by JSON type."""


class SchemaBuilder:
    """Builds schemas; each class is a component that is described once."""

    def __init__(self) -> None:
        self.components: dict[str, JsonObject] = {}
        self._names: dict[type[ProtocolStruct], str] = {}
        self._is_input = False

    def input_schema(self, annotation: object) -> JsonObject:
        """Return the schema of what clients send; all of it must be built before any output."""
        self._is_input = True
        try:
            return self.schema(annotation)
        finally:
            self._is_input = False

    def schema(self, annotation: object) -> JsonObject:
        """Return the schema of an annotation."""
        if kind := struct_class(annotation):
            return self._reference(kind)
        if annotation in PRIMITIVES:
            return dict(PRIMITIVES[annotation])
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.schema(arguments[0]) | _limits(self.schema(arguments[0]), arguments[1])
        if origin is Literal:
            others = [OPENAI_NAMES[name] for name in arguments if name in OPENAI_NAMES]
            return {"type": "string", "enum": [*arguments, *others]}
        if origin in UNION_ORIGINS:
            return {"anyOf": [self.schema(member) for member in arguments if member is not UnsetType]}
        return self._container_schema(origin, arguments)

    def _container_schema(self, origin: object, arguments: Sequence[object]) -> JsonObject:
        if origin is list:
            return {"type": "array", "items": self.schema(arguments[0])}
        names = self.schema(arguments[0])
        named = {"propertyNames": names} if names != PRIMITIVES[str] else {}
        return {"type": "object", "additionalProperties": self.schema(arguments[1]), **named}

    def _reference(self, kind: type[ProtocolStruct]) -> JsonObject:
        if kind not in self._names:
            self._names[kind] = name = _component_name(kind)
            self.components[name] = {}  # a type that holds itself finds it
            self.components[name] = self._describe(kind)
        return {"$ref": f"#/components/schemas/{self._names[kind]}"}

    def _describe(self, kind: type[ProtocolStruct]) -> JsonObject:
        properties: dict[str, JsonObject] = {}
        required: list[str] = []
        for info, annotation in struct_fields(kind):
            name = info.encode_name
            properties[name] = self._describe_field(kind, info.name, annotation)
            if isinstance(info.default, str | int | float | bool) and "$ref" not in properties[name]:
                properties[name]["default"] = info.default
            is_always_written = info.default is not UNSET and not self._is_input
            is_type = name == "type" and info.default is not UNSET and not issubclass(kind, items.Message)
            if info.required or is_always_written or is_type:
                required.append(name)
        description = (kind.__doc__ or "").strip().partition("\n")[0]
        return {"type": "object", "description": description, "properties": properties, "required": required}

    def _describe_field(self, kind: type[ProtocolStruct], name: str, annotation: object) -> JsonObject:
        if name == "type" and issubclass(kind, ExtensionStruct):
            others = "|".join(sorted(OPENAI_TYPES.get(kind, ())))
            return {"type": "string", "pattern": f"^({EXTENSION_PATTERN}{'|' if others else ''}{others})$"}
        schema = self.schema(annotation)
        short = next((SHORT_FORMS[base, name] for base in kind.__mro__ if (base, name) in SHORT_FORMS), None)
        if short is None or not self._is_input:
            return schema
        return {"anyOf": [short, schema]}


def _component_name(kind: type[ProtocolStruct]) -> str:
    # Chat completions have types of the same names as the protocol.
    prefix = "Chat" if ".wire.chat." in kind.__module__ else ""
    return prefix + kind.__name__.lstrip("_")


def _limits(schema: JsonObject, meta: Meta) -> JsonObject:
    lengths = LIMITS.get(str(schema.get("type")), ("", ""))
    found = {
        lengths[0]: meta.min_length,
        lengths[1]: meta.max_length,
        "minimum": meta.ge,
        "maximum": meta.le,
        "exclusiveMinimum": meta.gt,
        "exclusiveMaximum": meta.lt,
        "pattern": meta.pattern,
    }
    return {name: value for name, value in found.items() if value is not None}
