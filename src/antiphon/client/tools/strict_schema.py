"""The nulls of strict form, taken back.

In strict form every property is required, and one that was optional may be null instead. So a null
where a property is optional means that it was left out, even if null is a value it may have.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

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
from antiphon.protocol.struct import join_path

MAX_NULL_DEPTH = 256
"""How far a schema is followed; it may go round in circles."""

_DEFINITION_KEYS = ("$defs", "definitions")


def drop_optional_nulls(value: object, schema: Schema) -> object:
    """Leave out the properties that are null and optional."""
    return _NullDropper(schema).drop(value, schema)


class _NullDropper:
    """What the unions of one schema make of one value.

    Each is asked once about each value within: asked again for every way that leads there, a union
    of objects that hold such objects would take a time that doubles with every level.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._definitions = {key: root[key] for key in _DEFINITION_KEYS if key in root}
        self._validators: dict[int, SchemaValidator] = {}
        self._results: dict[tuple[int, int], tuple[object, object]] = {}
        """What was made of a value, by the union; the value is held, so that its id stays its."""

    def drop(self, value: object, schema: object, depth: int = 0) -> object:
        """Leave out the properties that are null and optional."""
        if not is_object(schema) or depth > MAX_NULL_DEPTH:
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self.drop(value, resolve_reference(self._root, ref), depth + 1)
        for member in _array_at(schema, "allOf"):
            value = self.drop(value, member, depth + 1)
        if members := [*_array_at(schema, "anyOf"), *_array_at(schema, "oneOf")]:
            place = id(value), id(schema)
            if place not in self._results:
                self._results[place] = value, self._drop_as_member(members, value, depth)
            _, value = self._results[place]
        if is_array(value) and "items" in schema:
            return [self.drop(entry, schema["items"], depth + 1) for entry in value]
        if is_object(value) and is_object(properties := schema.get("properties")):
            optional = properties.keys() - set(_array_at(schema, "required"))
            return {
                name: self.drop(member, properties.get(name), depth + 1)
                for name, member in value.items()
                if member is not None or name not in optional
            }
        return value

    def _drop_as_member(self, members: list[object], value: object, depth: int) -> object:
        """Take the nulls back as the first member would that allows the rest."""
        for member in filter(is_object, members):
            rest = self.drop(value, member, depth + 1)
            if self._validator(member).is_valid(rest):
                return rest
        return value

    def _validator(self, member: Schema) -> SchemaValidator:
        if id(member) not in self._validators:
            self._validators[id(member)] = SchemaValidator({**self._definitions, **member})
        return self._validators[id(member)]


def _array_at(schema: Schema, key: str) -> list[object]:
    return value if is_array(value := schema.get(key)) else []


MAX_SCHEMA_DEPTH = 64
"""How deep a schema may nest; OpenAI stops far earlier, Python's stack a little later."""

MAX_NAME_IN_PATH = 64
"""How much of a property's name a path shows."""


class StrictProblem(msgspec.Struct, frozen=True):
    """What strict mode cannot express: where it stands, and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class StrictSchema(msgspec.Struct, frozen=True):
    """A schema as strict as it could be made; it will be accepted if there are no problems."""

    schema: Schema
    problems: list[StrictProblem]


class StrictSchemaError(ValueError):
    """A schema that strict mode cannot express."""

    def __init__(self, problems: list[StrictProblem]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems


def make_strict(schema: Mapping[str, object]) -> StrictSchema:
    """Make a schema strict, and tell what stands in the way; the given one is left alone."""
    walk = _StrictConverter(schema)
    made = walk.convert_root()
    return StrictSchema(made, list(dict.fromkeys(walk.problems)))


def require_strict(schema: Mapping[str, object]) -> Schema:
    """Return the schema made strict, or raise StrictError."""
    result = make_strict(schema)
    if result.problems:
        raise StrictSchemaError(result.problems)
    return result.schema


# --- the vocabulary --------------------------------------------------------------------------

_ANNOTATION_KEYWORDS = ("title", "description")
_DEFINITION_KEYWORDS = ("$defs", "definitions")
_STRUCTURE_KEYWORDS = (
    "$ref",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "oneOf",
)
_TYPING_KEYWORDS = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")
_NUMERIC_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SIZE_KEYWORDS = ("minLength", "maxLength", "minItems", "maxItems")
_SUPPORTED_KEYWORDS = (
    *_ANNOTATION_KEYWORDS,
    *_NUMERIC_KEYWORDS,
    *_SIZE_KEYWORDS,
    "type",
    "enum",
    "const",
    "pattern",
    "format",
)

_SUPPORTED_FORMATS = (
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
)
"""OpenAI answers any other format with a 400; being an annotation, it can go."""

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
"""The keywords that constrain a value in ways the subset cannot, and what to write instead."""


def _schema_types(schema: Schema) -> list[object]:
    """Return the types a schema names, or the one that its keywords speak of."""
    if "type" in schema:
        return as_list(schema["type"])
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema else []


def _has_constraints(schema: Schema, *apart: str) -> bool:
    """Tell whether a schema says anything about values, apart from some keywords."""
    keys = schema.keys() - {*apart, *_ANNOTATION_KEYWORDS}
    return any(
        key in _STRUCTURE_KEYWORDS or key in _SUPPORTED_KEYWORDS or key in _ADVICE for key in keys
    )


# --- optional becomes nullable ---------------------------------------------------------------


def _wrap_in_union(schema: Schema, *others: Schema) -> Schema:
    """Put a schema into a union, its notes outside."""
    notes = {key: schema[key] for key in _ANNOTATION_KEYWORDS if key in schema}
    rest = {key: value for key, value in schema.items() if key not in notes}
    return {**notes, "anyOf": [rest, *others]}


def _make_nullable(schema: Schema) -> Schema:
    """Admit null beside everything a strict schema admits."""
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
    return (
        is_object(schema)
        and "null" in _schema_types(schema)
        and None in as_list(schema.get("enum"))
    )


# --- the walk --------------------------------------------------------------------------------


class _StrictConverter:
    """One pass over a schema; each family of keywords has its method."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.problems: list[StrictProblem] = []
        self.schema = {key: schema[key] for key in schema if key not in ("$schema", "$id")}
        self.groups: dict[str, Schema] = {}
        self.targets: dict[object, tuple[Schema, str]] = {"#": (self.schema, "")}
        for group in _DEFINITION_KEYWORDS:
            entries = self.schema.pop(group, None)
            if is_object(entries):
                self.groups[group] = entries
                self.targets |= _reference_targets(group, entries)
            elif entries is not None:
                self.report(group, f"`{group}` must be an object")

    def convert_root(self) -> Schema:
        """Make the whole schema strict: the root, and each definition once."""
        made = self._convert_keywords(*self._resolve_root_reference(), depth=0)
        if made.get("type") != "object":
            self.report("", "strict mode needs an object at the root; make this a property of one")
        if "anyOf" in made:
            self.report("", "strict mode takes no union at the root; make this a property")
        for group, entries in self.groups.items():
            made[group] = self._convert_each(entries, group, depth=1)
        return made

    def report(self, path: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(StrictProblem(path, message))

    def convert(self, schema: object, path: str, depth: int) -> object:
        """Make a schema strict, if it is one."""
        if not is_object(schema):
            self.report(path, "strict mode needs a schema with a `type` here")
        elif depth > MAX_SCHEMA_DEPTH:
            self.report(path, f"nested deeper than {MAX_SCHEMA_DEPTH} levels; move it into `$defs`")
        else:
            return self._convert_keywords(schema, path, depth)
        return schema

    def _convert_each(self, schemas: Schema, path: str, depth: int) -> Schema:
        return {
            n: self.convert(schemas[n], join_path(path, n[:MAX_NAME_IN_PATH]), depth)
            for n in schemas
        }

    def _resolve_root_reference(self) -> tuple[Schema, str]:
        """Open a root that is only a reference, as pydantic writes a recursive model."""
        schema, path, seen = self.schema, "", {"#"}
        while isinstance(ref := schema.get("$ref"), str) and ref in self.targets.keys() - seen:
            if _has_constraints(schema, "$ref"):
                break
            seen.add(ref)
            target, path = self.targets[ref]
            schema = target | {key: schema[key] for key in _ANNOTATION_KEYWORDS if key in schema}
        return schema, path

    def _convert_keywords(self, schema: Schema, path: str, depth: int) -> Schema:
        """Make a schema strict, one family of keywords after another."""
        schema, path = _unwrap_all_of(schema, path)
        made = self._convert_plain(schema, path)
        for family in (
            self._convert_reference,
            self._convert_union,
            self._convert_object,
            self._convert_array,
        ):
            made |= family(schema, path, depth + 1)
        if not any(key in made for key in _TYPING_KEYWORDS):
            self.report(path, "strict mode needs a `type` here")
        # "$ref cannot have keywords {'description'}", says OpenAI; a union around it can.
        described = (
            "$ref" in made and len(made) > 1 and set(made) <= {"$ref", *_ANNOTATION_KEYWORDS}
        )
        return _wrap_in_union(made) if described else made

    def _convert_plain(self, schema: Schema, path: str) -> Schema:
        """Keep what the subset knows, and report what it cannot express."""
        made: Schema = {}
        for key, value in schema.items():
            if key in _ADVICE:
                self.report(join_path(path, key), f"strict mode has no `{key}`; {_ADVICE[key]}")
            elif key not in _SUPPORTED_KEYWORDS or (
                key == "format" and value not in _SUPPORTED_FORMATS
            ):
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
        del depth  # a reference is never followed, so recursion costs nothing
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
                made = [self.convert(m, f"{place}[{i}]", depth) for i, m in enumerate(members)]
                return {"anyOf": made}
        return stood

    def _convert_object(self, schema: Schema, path: str, depth: int) -> Schema:
        if "object" not in _schema_types(schema):
            return {}
        properties, required = schema.get("properties", {}), schema.get("required", [])
        extra = schema.get("additionalProperties", False)
        if extra is not False:
            place = join_path(path, "additionalProperties")
            self.report(place, f"a strict object is closed; {_ADVICE_PAIRS}")
        if not is_object(properties):
            self.report(join_path(path, "properties"), "`properties` must be an object")
        elif not is_string_list(required) or not set(required) <= properties.keys():
            self.report(
                join_path(path, "required"), "`required` must list names that `properties` has"
            )
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


def _reference_targets(group: str, entries: Schema) -> dict[object, tuple[Schema, str]]:
    """Return where a `$ref` may point, and what it finds there."""
    return {
        f"#/{group}/{name.replace('~', '~0').replace('/', '~1')}": (entry, join_path(group, name))
        for name, entry in entries.items()
        if is_object(entry)
    }


def _unwrap_all_of(schema: Schema, path: str) -> tuple[Schema, str]:
    """Open an `allOf` with one member, when nothing beside it could change its meaning."""
    while is_array(members := schema.get("allOf")) and len(members) == 1:
        member, beside = members[0], {key: schema[key] for key in schema if key != "allOf"}
        if not is_object(member):
            break
        if isinstance(kind := beside.get("type"), str) and kind == member.get("type"):
            del beside["type"]
        if _has_constraints(beside):
            break
        schema, path = {**member, **beside}, join_path(path, "allOf[0]")
    return schema, path
