"""Strict mode for tools: schemas of their parameters converted to the subset that OpenAI accepts.

In strict mode every object is closed and every property required; a property that was optional becomes nullable
instead. Keywords that only annotate are dropped where OpenAI rejects them. A constraint that the subset cannot express
is reported as a problem and left as it is, because a constraint dropped silently would be violated later. Paths in
problems are written `properties.address.anyOf[1]`; that of the root is empty.

`drop_optional_nulls` is the way back: it removes the nulls that the model sends for optional
properties. `explain_schema_error` adds the tool and the path to a server's rejection.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.json_schema import (
    KEYWORD_VALUES,
    Schema,
    SchemaValidator,
    as_list,
    is_array,
    is_object,
    is_string_list,
    resolve_reference,
)
from antiphon.protocol.struct import as_array, join_path, omit
from antiphon.protocol.tools import FunctionTool

NON_STRICT_ADVICE = "`@tool(strict=False)` for this tool or `strict_tools=False` for all of them"

MAX_NULL_DEPTH = 256
"""How deep a schema is followed; it may be recursive."""

MAX_STRICT_DEPTH = 64
"""How deep a schema may nest; OpenAI's limit is lower, that of Python's stack a little higher."""

MAX_NAME_IN_PATH = 64
"""How many characters of a property's name a path shows."""


class StrictProblem(msgspec.Struct, frozen=True):
    """A part of a schema that strict mode cannot express: its path, and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class StrictSchema(msgspec.Struct, frozen=True):
    """A converted schema; servers accept it if there are no problems."""

    schema: Schema
    problems: list[StrictProblem]

    @property
    def summary(self) -> str:
        """The first problem, and the number of the others."""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"{self.problems[0]}{more}" if self.problems else ""


def make_strict(schema: Mapping[str, object]) -> StrictSchema:
    """Return a strict copy of a schema, and the problems in it."""
    converter = _StrictConverter(schema)
    # Without repetitions: a definition that is used twice has its problems twice.
    return StrictSchema(converter.convert_root(), list(dict.fromkeys(converter.problems)))


_ANNOTATION_KEYWORDS = ("title", "description")
_DEFINITION_KEYWORDS = ("$defs", "definitions")
_STRUCTURE_KEYWORDS = ("$ref", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf")
_TYPING_KEYWORDS = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")
_SUPPORTED_KEYWORDS = """title description type enum const pattern format minLength maxLength minItems maxItems
minimum maximum exclusiveMinimum exclusiveMaximum multipleOf""".split()

_SUPPORTED_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""OpenAI rejects any other format with a 400. A format only annotates, so it is dropped."""

_ADVICE_CASES = "give each case its own member of `anyOf`"
_ADVICE_PAIRS = "use an array of objects with a name and a value"
_ADVICE_NAMES = "use an object with one property for each position"
_ADVICE_DESCRIPTION = "remove it and ask for it in `description`"
_ADVICE = {
    "allOf": "merge its members into one schema",
    "not": "say what is allowed, with `enum` or `anyOf`",
    **dict.fromkeys(("if", "then", "else"), _ADVICE_CASES),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), _ADVICE_CASES),
    **dict.fromkeys(("patternProperties", "propertyNames", "unevaluatedProperties"), _ADVICE_PAIRS),
    **dict.fromkeys(("prefixItems", "additionalItems", "unevaluatedItems"), _ADVICE_NAMES),
    **dict.fromkeys(("contains", "minContains", "maxContains", "uniqueItems"), _ADVICE_DESCRIPTION),
    **dict.fromkeys(("minProperties", "maxProperties"), _ADVICE_DESCRIPTION),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef", "$id"), "use a `$ref` into `$defs`"),
}
"""Keywords that constrain a value in ways the subset cannot, and what to write instead."""


def _schema_types(schema: Schema) -> list[object]:
    """Return the types that a schema names, or the one that its keywords imply."""
    if "type" in schema:
        return as_list(schema["type"])
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema else []


def _has_constraints(schema: Schema, *apart: str) -> bool:
    """Return whether a schema constrains values, apart from some keywords."""
    keys = schema.keys() - {*apart, *_ANNOTATION_KEYWORDS}
    if schema.get("format") not in _SUPPORTED_FORMATS:
        keys -= {"format"}  # it will be dropped
    return any(key in _STRUCTURE_KEYWORDS or key in _SUPPORTED_KEYWORDS or key in _ADVICE for key in keys)


def _wrap_in_union(schema: Schema, *others: Schema) -> Schema:
    """Put a schema into a union, its annotations outside."""
    notes = {key: schema[key] for key in _ANNOTATION_KEYWORDS if key in schema}
    return {**notes, "anyOf": [omit(schema, notes), *others]}


def _make_nullable(schema: Schema) -> Schema:
    """Allow null beside everything that a strict schema allows."""
    # Their allowed values cannot be extended in place.
    if "$ref" in schema or schema.get("const") is not None:
        return _wrap_in_union(schema, {"type": "null"})
    wider = dict(schema)
    if "type" in schema and "null" not in (names := as_list(schema["type"])):
        wider["type"] = [*names, "null"]
    if is_array(values := schema.get("enum")) and None not in values:
        wider["enum"] = [*values, None]
    if is_array(members := schema.get("anyOf")) and not any(map(_admits_null, members)):
        wider["anyOf"] = [*members, {"type": "null"}]
    return wider


def _admits_null(schema: object) -> bool:
    return is_object(schema) and "null" in _schema_types(schema) and None in as_list(schema.get("enum"))


class _StrictConverter:
    """Converts one schema; each family of keywords has its method."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.problems: list[StrictProblem] = []
        self.schema: Schema = omit(schema, ["$schema", "$id"])
        self.groups: dict[str, Schema] = {}
        self.targets: dict[object, tuple[Schema, str]] = {"#": (self.schema, "")}
        # pydantic and msgspec write "$defs", older generators "definitions".
        for group in _DEFINITION_KEYWORDS:
            entries = self.schema.pop(group, None)
            if is_object(entries):
                self.groups[group] = entries
                for name, entry in entries.items():
                    ref = f"#/{group}/{name.replace('~', '~0').replace('/', '~1')}"
                    if is_object(entry):
                        self.targets[ref] = entry, join_path(group, name)
            elif entries is not None:
                self.report(group, f"`{group}` must be an object")

    def convert_root(self) -> Schema:
        """Convert the root, and each definition once."""
        made = self._convert_keywords(*self._resolve_root_reference(), depth=0)
        if made.get("type") != "object":
            self.report("", "strict mode needs an object at the root; make this a property of one")
        if "anyOf" in made:
            self.report("", "strict mode takes no union at the root; make this a property")
        for group, entries in self.groups.items():
            made[group] = self._convert_each(entries, group, depth=1)
        return made

    def report(self, path: str, message: str) -> None:
        self.problems.append(StrictProblem(path, message))

    def convert(self, schema: object, path: str, depth: int) -> object:
        """Convert a subschema, if it is one."""
        if not is_object(schema):
            self.report(path, "strict mode needs a schema with a `type` here")
        elif depth > MAX_STRICT_DEPTH:
            self.report(path, f"nested deeper than {MAX_STRICT_DEPTH} levels; move it into `$defs`")
        else:
            return self._convert_keywords(schema, path, depth)
        return schema

    def _convert_each(self, schemas: Schema, path: str, depth: int) -> Schema:
        return {n: self.convert(schemas[n], join_path(path, n[:MAX_NAME_IN_PATH]), depth) for n in schemas}

    def _resolve_root_reference(self) -> tuple[Schema, str]:
        """Resolve a root that is only a reference; pydantic writes recursive models so."""
        schema, path, seen = self.schema, "", {"#"}
        while isinstance(ref := schema.get("$ref"), str) and ref in self.targets.keys() - seen:
            if _has_constraints(schema, "$ref"):
                break
            seen.add(ref)
            target, path = self.targets[ref]
            schema = target | {key: schema[key] for key in _ANNOTATION_KEYWORDS if key in schema}
        return schema, path

    def _convert_keywords(self, schema: Schema, path: str, depth: int) -> Schema:
        schema, path = _unwrap_all_of(schema, path)
        made = self._convert_plain(schema, path)
        for family in (self._convert_reference, self._convert_union, self._convert_object, self._convert_array):
            made |= family(schema, path, depth + 1)
        if not any(key in made for key in _TYPING_KEYWORDS):
            self.report(path, "strict mode needs a `type` here")
        # OpenAI: "$ref cannot have keywords {'description'}"; a union around it can.
        described = "$ref" in made and len(made) > 1 and set(made) <= {"$ref", *_ANNOTATION_KEYWORDS}
        return _wrap_in_union(made) if described else made

    def _convert_plain(self, schema: Schema, path: str) -> Schema:
        """Keep the keywords of the subset, and report those that it cannot express."""
        made: Schema = {}
        for key, value in schema.items():
            if key in _ADVICE:
                self.report(join_path(path, key), f"strict mode has no `{key}`; {_ADVICE[key]}")
            elif key not in _SUPPORTED_KEYWORDS or (key == "format" and value not in _SUPPORTED_FORMATS):
                continue
            elif not KEYWORD_VALUES[key][0](value):
                self.report(join_path(path, key), f"`{key}` must be {KEYWORD_VALUES[key][1]}")
            elif key == "enum" and not value:
                self.report(join_path(path, key), "`enum` must not be empty")
            made[key] = value
        if types := _schema_types(schema):
            made.setdefault("type", types[0])
        return made

    def _convert_reference(self, schema: Schema, path: str, depth: int) -> Schema:
        del depth  # references are not followed, so recursion needs no limit
        if "$ref" not in schema:
            return {}
        ref, place = schema["$ref"], join_path(path, "$ref")
        if not isinstance(ref, str) or unquote(ref) not in self.targets:
            self.report(place, "this is neither `#` nor an entry of `$defs`; move its target there")
        elif _has_constraints(schema, "$ref"):
            self.report(place, "a `$ref` stands alone; move what is beside it into the definition")
        return {"$ref": ref}

    def _convert_union(self, schema: Schema, path: str, depth: int) -> Schema:
        stood = {key: schema[key] for key in ("anyOf", "oneOf") if key in schema}
        for key, members in stood.items():
            place = join_path(path, key)
            if not is_array(members) or not members:
                self.report(place, f"`{key}` must be an array of schemas")
            elif len(stood) > 1:
                self.report(place, "strict mode knows one union at a time; merge the two")
            elif "object" in _schema_types(schema):
                self.report(place, "an object is no union; move its keywords into every member")
            else:
                return {"anyOf": [self.convert(m, f"{place}[{i}]", depth) for i, m in enumerate(members)]}
        return stood

    def _convert_object(self, schema: Schema, path: str, depth: int) -> Schema:
        if "object" not in _schema_types(schema):
            return {}
        properties, required = schema.get("properties", {}), schema.get("required", [])
        extra = schema.get("additionalProperties", False)
        if extra is not False:
            self.report(join_path(path, "additionalProperties"), f"a strict object is closed; {_ADVICE_PAIRS}")
        if not is_object(properties):
            self.report(join_path(path, "properties"), "`properties` must be an object")
        elif not is_string_list(required) or not set(required) <= properties.keys():
            self.report(join_path(path, "required"), "`required` must list names that `properties` has")
        else:
            made = self._convert_each(properties, join_path(path, "properties"), depth)
            for name in made.keys() - set(required):
                made[name] = _make_nullable(made[name]) if is_object(made[name]) else made[name]
            properties, required = made, list(made)
        return {"properties": properties, "required": required, "additionalProperties": extra}

    def _convert_array(self, schema: Schema, path: str, depth: int) -> Schema:
        if "array" not in _schema_types(schema):
            return {}
        if "items" not in schema:
            self.report(path, "strict mode needs `items` with a `type` for an array")
            return {}
        return {"items": self.convert(schema["items"], join_path(path, "items"), depth)}


def _unwrap_all_of(schema: Schema, path: str) -> tuple[Schema, str]:
    """Unwrap an `allOf` with one member if no keyword beside it constrains values."""
    while is_array(members := schema.get("allOf")) and len(members) == 1:
        member, beside = members[0], omit(schema, ["allOf"])
        if not is_object(member):
            break
        if isinstance(kind := beside.get("type"), str) and kind == member.get("type"):
            del beside["type"]
        if _has_constraints(beside):
            break
        schema, path = {**member, **beside}, join_path(path, "allOf[0]")
    return schema, path


def drop_optional_nulls(value: object, schema: Schema) -> object:
    """Remove the optional properties that are null.

    In strict mode null is how a model omits an optional property, even if null is a valid value.
    """
    return _NullDropper(schema).drop(value, schema)


class _NullDropper:
    """Removes the nulls of one value.

    Results are cached per value and union: without that, nested unions of objects would take a
    time that doubles with every level.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._definitions = {key: root[key] for key in _DEFINITION_KEYWORDS if key in root}
        self._validators: dict[int, SchemaValidator] = {}
        self._results: dict[tuple[int, int], tuple[object, object]] = {}
        """Results by the ids of value and union. Keeping the value keeps its id unique."""

    def drop(self, value: object, schema: object, depth: int = 0) -> object:
        if not is_object(schema) or depth > MAX_NULL_DEPTH:
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self.drop(value, resolve_reference(self._root, ref), depth + 1)
        for member in as_array(schema.get("allOf")):
            value = self.drop(value, member, depth + 1)
        if members := [*as_array(schema.get("anyOf")), *as_array(schema.get("oneOf"))]:
            place = id(value), id(schema)
            if place not in self._results:
                self._results[place] = value, self._drop_as_member(members, value, depth)
            _, value = self._results[place]
        # After the unions, which may have replaced the value.
        if is_array(value) and "items" in schema:
            return [self.drop(entry, schema["items"], depth + 1) for entry in value]
        if is_object(value) and is_object(properties := schema.get("properties")):
            optional = properties.keys() - set(as_array(schema.get("required")))
            return {
                name: self.drop(member, properties.get(name), depth + 1)
                for name, member in value.items()
                if member is not None or name not in optional
            }
        return value

    def _drop_as_member(self, members: list[object], value: object, depth: int) -> object:
        """Remove nulls according to the first member of a union that allows the result."""
        for member in filter(is_object, members):
            rest = self.drop(value, member, depth + 1)
            if id(member) not in self._validators:
                self._validators[id(member)] = SchemaValidator({**self._definitions, **member})
            if self._validators[id(member)].is_valid(rest):
                return rest
        return value


_PARAM = re.compile(r"tools(?:\[(\d{1,6})\]|\.(\d{1,6}))(?:.*?parameters\.(?P<path>.+))?")
_CONTEXT = re.compile(r"context=\(([^()]*)\)")
_QUOTED = re.compile(r"['\"`]([^'\"`]{1,64})['\"`]")
_REJECTED_STATUSES = (400, 422)


def explain_schema_error(error: UpstreamError, tools: Sequence[FunctionTool]) -> UpstreamError:
    """Add the rejected tool, the place in its schema and advice to a 400 or 422; return any other error unchanged."""
    tool = _find_tool(error, tools) if error.status in _REJECTED_STATUSES else None
    if tool is None:
        return error
    payload, place = error.payload, _locate_problem(error, tool)
    advice = f", or disable strict mode: {NON_STRICT_ADVICE}" if tool.strict else " or its schema"
    return UpstreamError(
        f"{payload.message.rstrip('. ')}. The server rejected the tool '{tool.name}'{place}. "
        f"Change its annotations{advice}.",
        status=error.status,
        type=payload.type,
        code=payload.code,
        param=payload.param,
        retryable=error.retryable,
        headers=error.headers,
    )


def _find_tool(error: UpstreamError, tools: Sequence[FunctionTool]) -> FunctionTool | None:
    """Return the tool that an error is about, found by its index or its name."""
    payload = error.payload
    if found := _PARAM.match(payload.param or ""):
        index = int(found[1] or found[2])
        return tools[index] if index < len(tools) else None
    # Without one of these words a quoted name may be anything.
    about = f"{payload.param} {payload.code} {payload.message}".lower()
    if not any(word in about for word in ("schema", "tool", "function")):
        return None
    quoted = _QUOTED.findall(payload.message)
    return next((tool for tool in tools if tool.name in quoted), None)


def _locate_problem(error: UpstreamError, tool: FunctionTool) -> str:
    """Return the place in the schema: strict mode's problem, or else what the server names."""
    if problem := make_strict(tool.parameters or {"type": "object"}).summary:
        return f"; strict mode rejects {problem}"
    param = _PARAM.match(error.payload.param or "")
    context = _CONTEXT.search(error.payload.message)
    steps = _QUOTED.findall(context[1]) if context else []
    path = (param and param["path"]) or ".".join(steps)
    return f" at {path}" if path else ""
