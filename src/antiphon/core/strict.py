"""A JSON Schema made strict: the subset that OpenAI's structured outputs and tools accept.

In strict mode every object is closed and every property required, so a property that was optional
becomes nullable instead. Keywords that only annotate are dropped where OpenAI refuses them; a
constraint that the subset cannot express is a problem, reported and left as it stood, since one
that vanished in silence would be a promise broken later.

Paths are written `properties.address.anyOf[1]`; the root's is empty.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from antiphon.core.schema import SHAPES, Schema, are_names, is_array, is_object, listed
from antiphon.core.value import join

MAX_DEPTH = 64
"""How deep a schema may nest; OpenAI stops far earlier, Python's stack a little later."""

MAX_NAME = 64
"""How much of a property's name a path shows."""


class Problem(msgspec.Struct, frozen=True):
    """What strict mode cannot express: where it stands, and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Strict(msgspec.Struct, frozen=True):
    """A schema as strict as it could be made; it will be accepted if there are no problems."""

    schema: Schema
    problems: list[Problem]


class StrictError(ValueError):
    """A schema that strict mode cannot express."""

    def __init__(self, problems: list[Problem]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems


def strict(schema: Mapping[str, object]) -> Strict:
    """Make a schema strict, and tell what stands in the way; the given one is left alone."""
    walk = _Walk(schema)
    made = walk.root()
    return Strict(made, list(dict.fromkeys(walk.problems)))


def check(schema: Mapping[str, object]) -> Schema:
    """Return the schema made strict, or raise StrictError."""
    result = strict(schema)
    if result.problems:
        raise StrictError(result.problems)
    return result.schema


# --- the vocabulary --------------------------------------------------------------------------

_NOTES = ("title", "description")
_DEFINITIONS = ("$defs", "definitions")
_STRUCTURE = ("$ref", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf")
_TYPED_BY = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SIZES = ("minLength", "maxLength", "minItems", "maxItems")
_KEPT = (*_NOTES, *_NUMERIC, *_SIZES, "type", "enum", "const", "pattern", "format")

_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""OpenAI answers any other format with a 400; being an annotation, it can go."""

_BY_CASE = "give each case its own member of `anyOf`"
_BY_PAIRS = "use an array of objects with a name and a value"
_BY_NAME = "use an object with one property for each position"
_BY_WORDS = "remove it and ask for it in `description`"
_ADVICE = {
    "allOf": "merge its members into one schema",
    "not": "say what is allowed, with `enum` or `anyOf`",
    **dict.fromkeys(("if", "then", "else"), _BY_CASE),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), _BY_CASE),
    **dict.fromkeys(("patternProperties", "propertyNames", "unevaluatedProperties"), _BY_PAIRS),
    **dict.fromkeys(("prefixItems", "additionalItems", "unevaluatedItems"), _BY_NAME),
    **dict.fromkeys(("contains", "minContains", "maxContains", "uniqueItems"), _BY_WORDS),
    **dict.fromkeys(("minProperties", "maxProperties"), _BY_WORDS),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef", "$id"), "use a `$ref` into `$defs`"),
}
"""The keywords that constrain a value in ways the subset cannot, and what to write instead."""


def _types(schema: Schema) -> list[object]:
    """Return the types a schema names, or the one that its keywords speak of."""
    if "type" in schema:
        return listed(schema["type"])
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema else []


def _constrained(schema: Schema, *apart: str) -> bool:
    """Tell whether a schema says anything about values, apart from some keywords."""
    keys = schema.keys() - {*apart, *_NOTES}
    return any(key in _STRUCTURE or key in _KEPT or key in _ADVICE for key in keys)


# --- optional becomes nullable ---------------------------------------------------------------


def _either(schema: Schema, *others: Schema) -> Schema:
    """Put a schema into a union, its notes outside."""
    notes = {key: schema[key] for key in _NOTES if key in schema}
    rest = {key: value for key, value in schema.items() if key not in notes}
    return {**notes, "anyOf": [rest, *others]}


def _nullable(schema: Schema) -> Schema:
    """Admit null beside everything a strict schema admits."""
    if "$ref" in schema or schema.get("const") is not None:
        return _either(schema, {"type": "null"})
    wider = dict(schema)
    if "type" in schema and "null" not in (names := listed(schema["type"])):
        wider["type"] = [*names, "null"]
    if is_array(values := schema.get("enum")) and None not in values:
        wider["enum"] = [*values, None]
    if is_array(members := schema.get("anyOf")) and not any(map(_admits_null, members)):
        wider["anyOf"] = [*members, {"type": "null"}]
    return wider


def _admits_null(schema: object) -> bool:
    return is_object(schema) and "null" in _types(schema) and None in listed(schema.get("enum"))


# --- the walk --------------------------------------------------------------------------------


class _Walk:
    """One pass over a schema; each family of keywords has its method."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.problems: list[Problem] = []
        self.schema = {key: schema[key] for key in schema if key not in ("$schema", "$id")}
        self.groups: dict[str, Schema] = {}
        self.targets: dict[object, tuple[Schema, str]] = {"#": (self.schema, "")}
        for group in _DEFINITIONS:
            entries = self.schema.pop(group, None)
            if is_object(entries):
                self.groups[group] = entries
                self.targets |= _targets(group, entries)
            elif entries is not None:
                self.report(group, f"`{group}` must be an object")

    def root(self) -> Schema:
        """Make the whole schema strict: the root, and each definition once."""
        made = self._keywords(*self._behind_reference(), depth=0)
        if made.get("type") != "object":
            self.report("", "strict mode needs an object at the root; make this a property of one")
        if "anyOf" in made:
            self.report("", "strict mode takes no union at the root; make this a property")
        for group, entries in self.groups.items():
            made[group] = self._each(entries, group, depth=1)
        return made

    def report(self, path: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(path, message))

    def visit(self, schema: object, path: str, depth: int) -> object:
        """Make a schema strict, if it is one."""
        if not is_object(schema):
            self.report(path, "strict mode needs a schema with a `type` here")
        elif depth > MAX_DEPTH:
            self.report(path, f"nested deeper than {MAX_DEPTH} levels; move it into `$defs`")
        else:
            return self._keywords(schema, path, depth)
        return schema

    def _each(self, schemas: Schema, path: str, depth: int) -> Schema:
        return {n: self.visit(schemas[n], join(path, n[:MAX_NAME]), depth) for n in schemas}

    def _behind_reference(self) -> tuple[Schema, str]:
        """Open a root that is only a reference, as pydantic writes a recursive model."""
        schema, path, seen = self.schema, "", {"#"}
        while isinstance(ref := schema.get("$ref"), str) and ref in self.targets.keys() - seen:
            if _constrained(schema, "$ref"):
                break
            seen.add(ref)
            target, path = self.targets[ref]
            schema = target | {key: schema[key] for key in _NOTES if key in schema}
        return schema, path

    def _keywords(self, schema: Schema, path: str, depth: int) -> Schema:
        """Make a schema strict, one family of keywords after another."""
        schema, path = _without_all_of(schema, path)
        made = self._plain(schema, path)
        for family in (self._reference, self._union, self._object, self._array):
            made |= family(schema, path, depth + 1)
        if not any(key in made for key in _TYPED_BY):
            self.report(path, "strict mode needs a `type` here")
        # "$ref cannot have keywords {'description'}", says OpenAI; a union around it can.
        described = "$ref" in made and len(made) > 1 and set(made) <= {"$ref", *_NOTES}
        return _either(made) if described else made

    def _plain(self, schema: Schema, path: str) -> Schema:
        """Keep what the subset knows, and report what it cannot express."""
        made: Schema = {}
        for key, value in schema.items():
            if key in _ADVICE:
                self.report(join(path, key), f"strict mode has no `{key}`; {_ADVICE[key]}")
            elif key not in _KEPT or (key == "format" and value not in _FORMATS):
                continue
            elif not SHAPES[key][0](value):
                self.report(join(path, key), f"`{key}` must be {SHAPES[key][1]}")
            elif key == "enum" and not value:
                self.report(join(path, key), "`enum` must not be empty")
            made[key] = value
        if types := _types(schema):
            made.setdefault("type", types[0])
        return made

    def _reference(self, schema: Schema, path: str, depth: int) -> Schema:
        del depth  # a reference is never followed, so recursion costs nothing
        if "$ref" not in schema:
            return {}
        ref, place = schema["$ref"], join(path, "$ref")
        if not isinstance(ref, str) or unquote(ref) not in self.targets:
            self.report(place, "this is neither `#` nor an entry of `$defs`; move its target there")
        elif _constrained(schema, "$ref"):
            self.report(place, "a `$ref` stands alone; move what is beside it into the definition")
        return {"$ref": ref}

    def _union(self, schema: Schema, path: str, depth: int) -> Schema:
        stood = {key: schema[key] for key in ("anyOf", "oneOf") if key in schema}
        for key, members in stood.items():
            place = join(path, key)
            if not is_array(members) or not members:
                self.report(place, f"`{key}` must be an array of schemas")
            elif len(stood) > 1:
                self.report(place, "strict mode knows one union at a time; merge the two")
            elif "object" in _types(schema):
                self.report(place, "an object is no union; move its keywords into every member")
            else:
                made = [self.visit(m, f"{place}[{i}]", depth) for i, m in enumerate(members)]
                return {"anyOf": made}
        return stood

    def _object(self, schema: Schema, path: str, depth: int) -> Schema:
        if "object" not in _types(schema):
            return {}
        properties, required = schema.get("properties", {}), schema.get("required", [])
        extra = schema.get("additionalProperties", False)
        if extra is not False:
            place = join(path, "additionalProperties")
            self.report(place, f"a strict object is closed; {_BY_PAIRS}")
        if not is_object(properties):
            self.report(join(path, "properties"), "`properties` must be an object")
        elif not are_names(required) or not set(required) <= properties.keys():
            self.report(join(path, "required"), "`required` must list names that `properties` has")
        else:
            made = self._each(properties, join(path, "properties"), depth)
            for name in made.keys() - set(required):
                made[name] = _nullable(made[name]) if is_object(made[name]) else made[name]
            properties, required = made, list(made)
        return {"properties": properties, "required": required, "additionalProperties": extra}

    def _array(self, schema: Schema, path: str, depth: int) -> Schema:
        if "array" not in _types(schema):
            return {}
        if "items" not in schema:
            self.report(path, "strict mode needs `items` with a `type` for an array")
            return {}
        return {"items": self.visit(schema["items"], join(path, "items"), depth)}


def _targets(group: str, entries: Schema) -> dict[object, tuple[Schema, str]]:
    """Return where a `$ref` may point, and what it finds there."""
    return {
        f"#/{group}/{name.replace('~', '~0').replace('/', '~1')}": (entry, join(group, name))
        for name, entry in entries.items()
        if is_object(entry)
    }


def _without_all_of(schema: Schema, path: str) -> tuple[Schema, str]:
    """Open an `allOf` with one member, when nothing beside it could change its meaning."""
    while is_array(members := schema.get("allOf")) and len(members) == 1:
        member, beside = members[0], {key: schema[key] for key in schema if key != "allOf"}
        if not is_object(member):
            break
        if isinstance(kind := beside.get("type"), str) and kind == member.get("type"):
            del beside["type"]
        if _constrained(beside):
            break
        schema, path = {**member, **beside}, join(path, "allOf[0]")
    return schema, path
