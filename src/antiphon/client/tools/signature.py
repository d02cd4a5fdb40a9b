"""The signature of a tool's function: the JSON Schema of its arguments, and their conversion.

The description of a parameter comes from its annotation (`Annotated[int, "how many"]`, `msgspec.Meta`, pydantic's
`Field`) or from the docstring, in Google's, NumPy's or Sphinx's style. Without an annotation a parameter takes any
JSON. One annotated `ToolContext` is not shown to the model.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from inspect import cleandoc
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, cast, get_args, get_type_hints, is_typeddict

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
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

# How pydantic marks the types that it can validate.
_PYDANTIC_ATTRIBUTES = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")


def is_pydantic_model(value: object) -> "TypeGuard[BaseModel]":
    module = sys.modules.get("pydantic.main")  # not imported: then nothing is an instance
    return module is not None and isinstance(value, module.BaseModel)


def is_pydantic_field(value: object) -> "TypeGuard[FieldInfo]":
    """Return whether a value is the result of pydantic's `Field`."""
    module = sys.modules.get("pydantic.fields")
    return module is not None and isinstance(value, module.FieldInfo)


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
            for member in get_type_hints(cast("object", kind), include_extras=True).values():
                yield from _walk_annotation(member, seen)


def build_pydantic_schemas(annotations: Mapping[str, object]) -> tuple[dict[str, Schema], Schema]:
    """Return the schema of each annotation, and the definitions they share; raises TypeError."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        made, shared = TypeAdapter.json_schemas(
            ((name, "validation", TypeAdapter(cast("Any", a))) for name, a in annotations.items()),
            ref_template="#/$defs/{model}",
        )
    except PydanticUserError as error:
        raise TypeError(f"pydantic can make no JSON Schema: {error}") from error
    return {name: schema for (name, _), schema in made.items()}, shared.get("$defs", {})


def build_pydantic_converter(annotation: object) -> Callable[[object], object]:
    """Return a function that converts JSON to a pydantic type or raises InvalidValueError."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(cast("Any", annotation))

    def convert(raw: object) -> object:
        try:
            return adapter.validate_json(msgspec.json.encode(raw))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            raise InvalidValueError(format_path(first["loc"]), first["msg"]) from None

    return convert


ToolFunction = Callable[..., Any]

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ToolContext:
    """The call that a tool executes; passed to a parameter annotated with this class.

    `cancelled` is set when the result is no longer needed. A function in a thread cannot be
    stopped, so it should check it.
    """

    def __init__(self, call_id: str = "", name: str = "", report: Callable[[object], None] | None = None) -> None:
        self.call_id = call_id
        self.name = name
        self.cancelled = Event()
        self._report = report

    def __repr__(self) -> str:
        return f"<ToolContext {self.name} {self.call_id}>"

    def progress(self, value: object) -> None:
        """Report progress, from any thread; ignored after the end of the call."""
        if self._report is not None:
            self._report(value)


class ToolSignature:
    """The parameters of a function, as the model sees them."""

    def __init__(self, function: ToolFunction) -> None:
        description, documented = parse_docstring(inspect.getdoc(function))
        found = _model_parameters(function)
        self.description = description or None
        self.context_parameter = find_context_parameter(found)
        self._parameters = {n: p for n, p in found.items() if n != self.context_parameter}
        annotations = {n: p.annotation for n, p in self._parameters.items()}
        members, definitions = build_schemas(annotations)
        self._converters = {name: build_converter(a) for name, a in annotations.items()}
        for name, parameter in self._parameters.items():
            members[name] = _describe_parameter(members[name], parameter, documented.get(name))
        self.schema: Schema = {
            "type": "object",
            "properties": members,
            "required": [n for n, p in self._parameters.items() if p.default is p.empty],
            "additionalProperties": False,
        }
        if definitions:
            self.schema["$defs"] = definitions

    def convert(self, given: Schema) -> dict[str, object]:
        """Convert the arguments from JSON to the function's types; raises InvalidValueError."""
        values: dict[str, object] = {}
        for name, raw in given.items():
            try:
                values[name] = self._converters[name](raw)
            except InvalidValueError as error:
                dot = "." if error.path and not error.path.startswith("[") else ""
                raise InvalidValueError(f"{name}{dot}{error.path}", error.reason) from None
        return values


def inspect_parameters(function: ToolFunction) -> dict[str, inspect.Parameter]:
    """Return a function's parameters, their annotations evaluated.

    Raises NameError or TypeError for annotations, ValueError for a builtin without a signature.
    """
    # get_type_hints() needs the function itself, behind decorators, partials and objects.
    inner = inspect.unwrap(function)
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    hints = get_type_hints(inner, include_extras=True)
    found = inspect.signature(function).parameters
    return {n: p.replace(annotation=hints.get(n, p.annotation)) for n, p in found.items()}


def find_context_parameter(found: dict[str, inspect.Parameter]) -> str | None:
    """Return the name of the parameter for the ToolContext, if there is one."""
    annotations = {name: (p.annotation, *get_args(p.annotation)) for name, p in found.items()}
    return next((name for name, members in annotations.items() if ToolContext in members), None)


def _model_parameters(function: ToolFunction) -> dict[str, inspect.Parameter]:
    """Return the parameters; raises TypeError if a model could not fill one."""
    try:
        found = inspect_parameters(function)
    except NameError as error:
        raise TypeError(f"an annotation cannot be evaluated: {error}; define it before") from error
    except ValueError as error:
        raise TypeError(f"no signature is known: {error}; wrap it in a function") from error
    for name, parameter in found.items():
        # A model sends arguments by name.
        if parameter.kind not in _NAMED_KINDS:
            raise TypeError(
                f"'{name}' is {parameter.kind.description}; a model names every argument, "
                "so give each one a parameter with a name"
            )
    return {name: _normalize_parameter(parameter) for name, parameter in found.items()}


def _normalize_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """Make implicit annotations and defaults explicit: any JSON, pydantic's `= Field(...)`."""
    annotation, default = parameter.annotation, parameter.default
    if annotation in (parameter.empty, object):
        annotation = Any
    if is_pydantic_field(default):
        annotation = Annotated[annotation, default]
        default = default.get_default(call_default_factory=True)
        default = parameter.empty if parameter.default.is_required() else default
    return parameter.replace(annotation=annotation, default=default)


def _describe_parameter(schema: Schema, parameter: inspect.Parameter, documented: str | None) -> Schema:
    """Add the description, from the annotation or the docstring, and the default."""
    more: Schema = {}
    notes = getattr(parameter.annotation, "__metadata__", ())  # what `Annotated` adds to a type
    texts = [note for note in notes if isinstance(note, str)]
    if description := schema.get("description") or next(iter(texts), documented):
        more["description"] = description
    if parameter.default is not parameter.empty:
        with suppress(TypeError):  # not a JSON value; the parameter is still optional
            more["default"] = msgspec.to_builtins(parameter.default, str_keys=True, enc_hook=encode_model)
    return {**schema, **more}


_PARAMETER_SECTIONS = ("args", "arguments", "parameters", "params", "other parameters")
_OTHER_SECTIONS = """returns return yields yield raises receives warns warnings example examples
note notes attributes references todo""".split()
_SECTIONS = {*_PARAMETER_SECTIONS, *_OTHER_SECTIONS, "see also", "keyword args", "keyword arguments"}

_GOOGLE = re.compile(r"(?P<names>\w+)(?:\s*\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY = re.compile(r"(?P<names>\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$(?P<text>)")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s(?:[^:]*\s)?(?P<names>\w+):(?P<text>.*)")
_FIELD = re.compile(r":\w[^:]*:")


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the description and the parameters in a docstring of any of the three styles.

    >>> parse_docstring("Add.\\n\\nArgs:\\n    a (int): the first\\n    b: other")
    ('Add.', {'a': 'the first', 'b': 'other'})
    """
    (_, body), *sections = _sections(cleandoc(text or "").splitlines())
    fields = [index for index, line in enumerate(body) if _FIELD.match(line)]
    # Sections on results and errors are for people: the description ends before the first.
    description = body[: fields[0]] if fields else body
    parameters = _entries(body[len(description) :], _SPHINX)
    for title, lines in sections:
        if title in _PARAMETER_SECTIONS:
            parameters |= _entries(lines, _GOOGLE if _first_indent(lines) else _NUMPY)
    return "\n".join(description).strip(), parameters


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Split a docstring at its headings; the first section has none."""
    title, body = "", list[str]()
    for index, line in enumerate(lines):
        after = lines[index + 1] if index + 1 < len(lines) else ""
        underlined = len(after) > 2 and set(after) == {"-"}
        name = line.lower() if underlined else line.lower().removesuffix(":").rstrip()
        # Without the list of known names every line with a colon would be a heading.
        if name in _SECTIONS and (underlined or line.endswith(":")):
            yield title, body
            title, body = name, []
        elif not (title and len(line) > 2 and set(line) == {"-"}):
            body.append(line)
    yield title, body


def _entries(lines: list[str], heading: re.Pattern[str]) -> dict[str, str]:
    """Parse the entries of a section; lines with more indentation continue an entry."""
    base = _first_indent(lines)
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in filter(str.strip, lines):
        if _indent(line) < base:
            break
        if _indent(line) > base:
            current.append(line)
        elif entry := heading.match(line.strip()):
            current = [entry["text"]]
            found |= dict.fromkeys(map(str.strip, entry["names"].split(",")), current)
        else:
            current = []  # another kind of field, or a stray line
    texts = {name: " ".join(map(str.strip, words)).strip() for name, words in found.items()}
    return {name: text for name, text in texts.items() if text}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _first_indent(lines: list[str]) -> int:
    return next((_indent(line) for line in lines if line.strip()), 0)
