"""Conversion of schemas to strict mode."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from antiphon.client.tools.strict_schema import MAX_STRICT_DEPTH, StrictProblem, StrictSchema, make_strict
from antiphon.protocol.json_schema import KEYWORD_VALUES, as_list

STRING = {"type": "string"}
NULL = {"type": "null"}


def strict_object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A strict object."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


def optional(schema: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


def required(schema: object) -> dict[str, Any]:
    return {**optional(schema), "required": ["a"]}


def require_strict(schema: dict[str, Any]) -> dict[str, Any]:
    converted = make_strict(schema)
    assert converted.problems == []
    return converted.schema


def paths(schema: dict[str, Any]) -> list[str]:
    return [problem.path for problem in make_strict(schema).problems]


def test_an_object_without_properties_requires_none():
    assert make_strict({"type": "object"}) == StrictSchema(strict_object({}), [])


def test_every_nested_object_is_closed_and_requires_all():
    inner = {"type": "object", "properties": {"street": STRING}, "required": ["street"]}
    schema = {
        "type": "object",
        "properties": {"home": inner, "others": {"type": "array", "items": inner}},
        "required": ["others", "home"],
    }
    strict_inner = strict_object({"street": STRING})
    assert require_strict(schema) == strict_object(
        {"home": strict_inner, "others": {"type": "array", "items": strict_inner}}
    )


def test_the_given_schema_is_not_changed():
    schema = optional({"anyOf": [optional(STRING), {"enum": ["b"], "default": "b"}]})
    before = deepcopy(schema)
    make_strict(schema)
    assert schema == before


def test_properties_can_be_named_like_keywords():
    schema = {
        "type": "object",
        "properties": {"$ref": STRING, "default": STRING, "not": STRING},
        "required": ["$ref", "default", "not"],
    }
    assert require_strict(schema) == strict_object({"$ref": STRING, "default": STRING, "not": STRING})


def test_a_missing_type_is_inferred_from_keywords():
    schema = {"properties": {"a": {"items": STRING}}, "required": ["a"]}
    assert require_strict(schema) == strict_object({"a": {"type": "array", "items": STRING}})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (STRING, {"type": ["string", "null"]}),
        ({"type": ["string", "integer"]}, {"type": ["string", "integer", "null"]}),
        ({"type": ["null", "string"]}, {"type": ["null", "string"]}),
        (NULL, NULL),
        ({"type": "string", "enum": ["b"]}, {"type": ["string", "null"], "enum": ["b", None]}),
        ({"enum": ["b", None]}, {"enum": ["b", None]}),
        ({"anyOf": [STRING]}, {"anyOf": [STRING, NULL]}),
        ({"anyOf": [STRING, NULL]}, {"anyOf": [STRING, NULL]}),
        ({"oneOf": [STRING]}, {"anyOf": [STRING, NULL]}),
        ({"const": 1}, {"anyOf": [{"const": 1}, NULL]}),
        ({"const": None}, {"const": None}),
        ({"const": 1, "title": "One"}, {"title": "One", "anyOf": [{"const": 1}, NULL]}),
        ({"$ref": "#"}, {"anyOf": [{"$ref": "#"}, NULL]}),
        ({"$ref": "#", "description": "itself"}, {"description": "itself", "anyOf": [{"$ref": "#"}, NULL]}),
        ({"type": "object"}, strict_object({}, type=["object", "null"])),
        ({"type": "array", "items": STRING}, {"type": ["array", "null"], "items": STRING}),
    ],
)
def test_an_optional_property_becomes_nullable(given: dict[str, Any], expected: dict[str, Any]):
    assert make_strict(optional(given)) == StrictSchema(strict_object({"a": expected}), [])


def test_limits_and_annotations_are_kept():
    limited = {
        "type": ["string", "number", "array"],
        "title": "T",
        "description": "D",
        "pattern": "^a",
        "format": "date",
        "minLength": 1,
        "maxLength": 2,
        "minimum": 0,
        "maximum": 1.5,
        "exclusiveMinimum": -1,
        "exclusiveMaximum": 2,
        "multipleOf": 0.5,
        "minItems": 0,
        "maxItems": 3,
        "items": STRING,
    }
    assert require_strict(required(limited)) == strict_object({"a": limited})


def test_annotations_that_openai_rejects_are_dropped():
    noted = {**STRING, "default": "x", "examples": ["y"], "format": "uri", "x-order": 1}
    schema = {**required(noted), "$schema": "https://json-schema.org/draft-07/schema#", "$id": "me"}
    assert require_strict(schema) == strict_object({"a": STRING})


def test_a_reference_with_a_description_is_wrapped_in_a_union():
    described = {"$ref": "#", "description": "itself"}
    wrapped = {"description": "itself", "anyOf": [{"$ref": "#"}]}
    assert require_strict(required(described)) == strict_object({"a": wrapped})


def test_an_all_of_with_one_member_is_unwrapped():
    schema = {**required({"allOf": [{"allOf": [{"$ref": "#/$defs/S"}]}]}), "$defs": {"S": STRING}}
    assert require_strict(schema) == strict_object({"a": {"$ref": "#/$defs/S"}}, **{"$defs": {"S": STRING}})
    typed = {"type": "string", "title": "A", "allOf": [{"type": "string", "pattern": "^a"}]}
    assert require_strict(required(typed)) == strict_object({"a": {"type": "string", "pattern": "^a", "title": "A"}})


def test_an_all_of_stays_where_its_neighbours_could_change_its_meaning():
    # Opened, the member's `b` would be allowed by a schema that forbids it.
    schema = {"type": "object", "additionalProperties": False, "allOf": [optional(STRING)]}
    assert paths(required(schema)) == ["properties.a.allOf"]


@pytest.mark.parametrize("group", ["$defs", "definitions"])
def test_recursive_definitions_are_converted_once(group: str):
    node = {"type": "object", "properties": {"next": {"$ref": f"#/{group}/a~1%7E0"}}}
    strict_node = strict_object({"next": {"anyOf": [{"$ref": f"#/{group}/a~1%7E0"}, NULL]}})
    schema = {**required({"$ref": f"#/{group}/a~1~0"}), group: {"a/~": node}}
    expected = strict_object({"a": {"$ref": f"#/{group}/a~1~0"}}, **{group: {"a/~": strict_node}})
    assert require_strict(schema) == expected


def test_a_root_reference_is_resolved():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    strict_node = strict_object({"next": {"anyOf": [{"$ref": "#/$defs/Node"}, NULL]}})
    schema = {"$ref": "#/$defs/Node", "title": "Root", "$defs": {"Node": node}}
    expected = {**strict_node, "title": "Root", "$defs": {"Node": strict_node}}
    assert make_strict(schema) == StrictSchema(expected, [])


def test_a_root_reference_with_more_beside_it_is_a_problem():
    schema = {"$ref": "#/$defs/A", "type": "object", "$defs": {"A": {"type": "object"}}}
    assert paths(schema) == ["$ref"]


@pytest.mark.parametrize(
    "keyword",
    """allOf not if then else dependencies dependentRequired dependentSchemas patternProperties
    propertyNames unevaluatedProperties prefixItems additionalItems unevaluatedItems contains
    minContains maxContains uniqueItems minProperties maxProperties $dynamicRef $id""".split(),
)
def test_unsupported_constraints_are_reported_and_kept(keyword: str):
    schema = required({**STRING, keyword: [1]})
    result = make_strict(schema)
    assert result.schema == strict_object({"a": {**STRING, keyword: [1]}})
    [problem] = result.problems
    assert problem.path == f"properties.a.{keyword}"
    assert problem.message.startswith(f"strict mode has no `{keyword}`; ")


@pytest.mark.parametrize("extra", [True, {}, STRING, "no", 0, None])
def test_a_free_map_is_a_problem(extra: object):
    schema = {"type": "object", "additionalProperties": extra}
    message = "a strict object is closed; use an array of objects with a name and a value"
    assert make_strict(schema).problems == [StrictProblem("additionalProperties", message)]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({}, "properties.a"),
        ({"description": "anything"}, "properties.a"),
        (True, "properties.a"),
        ("string", "properties.a"),
        ({"type": "text"}, "properties.a.type"),
        ({"type": []}, "properties.a.type"),
        ({"type": ["string", ["null"]]}, "properties.a.type"),
        ({"enum": []}, "properties.a.enum"),
        ({"enum": "a"}, "properties.a.enum"),
        ({"type": "number", "exclusiveMinimum": True}, "properties.a.exclusiveMinimum"),
        ({"type": "string", "minLength": -1}, "properties.a.minLength"),
        ({"type": "string", "description": 1}, "properties.a.description"),
        ({"type": "array"}, "properties.a"),
        ({"type": "array", "items": [STRING]}, "properties.a.items"),
        ({"type": "array", "items": {}}, "properties.a.items"),
        ({"anyOf": []}, "properties.a.anyOf"),
        ({"oneOf": {}}, "properties.a.oneOf"),
        ({"anyOf": [STRING, {}]}, "properties.a.anyOf[1]"),
        ({"oneOf": [STRING, {"not": {}, "type": "null"}]}, "properties.a.oneOf[1].not"),
        ({"type": "object", "anyOf": [strict_object({})]}, "properties.a.anyOf"),
        ({"type": "object", "properties": []}, "properties.a.properties"),
        ({"type": "object", "required": "b"}, "properties.a.required"),
        ({"type": "object", "required": [["b"]]}, "properties.a.required"),
        ({"type": "object", "required": ["b"]}, "properties.a.required"),
        ({"$ref": "#/$defs/Missing"}, "properties.a.$ref"),
        ({"$ref": "#/properties/a"}, "properties.a.$ref"),
        ({"$ref": "https://example.com/schema"}, "properties.a.$ref"),
        ({"$ref": ["#"]}, "properties.a.$ref"),
        ({"$ref": "#", "type": "object"}, "properties.a.$ref"),
    ],
)
def test_a_problem_has_a_path(schema: object, path: str):
    assert paths(required(schema)) == [path]


def test_two_unions_side_by_side_are_a_problem():
    schema = required({"anyOf": [STRING], "oneOf": [STRING]})
    assert paths(schema) == ["properties.a.anyOf", "properties.a.oneOf"]


@pytest.mark.parametrize(
    "schema", [STRING, {"type": ["object", "null"]}, {"enum": [{}]}, {"$ref": "#"}, {"type": "array", "items": STRING}]
)
def test_a_root_other_than_an_object_is_a_problem(schema: dict[str, Any]):
    message = "strict mode needs an object at the root; make this a property of one"
    assert make_strict(schema).problems == [StrictProblem("", message)]


def test_a_union_at_the_root_is_a_problem():
    assert [str(problem) for problem in make_strict({"anyOf": [strict_object({})]}).problems] == [
        "strict mode needs an object at the root; make this a property of one",
        "strict mode takes no union at the root; make this a property",
    ]


def test_definitions_of_the_wrong_shape_are_a_problem():
    assert paths({"type": "object", "$defs": [], "definitions": {"A": 1}}) == ["$defs", "definitions.A"]


@pytest.mark.parametrize("key", ["items", "anyOf", "properties", "allOf"])
def test_deep_nesting_is_a_problem(key: str):
    schema: dict[str, Any] = STRING
    for _ in range(5000):
        nested = {"items": schema, "anyOf": [schema], "allOf": [schema], "properties": {"a": schema}}
        schema = {key: nested[key]}
    problems = make_strict(required(schema)).problems
    deep = f"nested deeper than {MAX_STRICT_DEPTH} levels; move it into `$defs`"
    assert [problem.message for problem in problems] == ([] if key == "allOf" else [deep])


def test_the_summary_has_the_first_problem_and_the_number_of_others():
    schema = {"type": "object", "properties": {"a": {}, "b": {"type": "array"}}}
    converted = make_strict(schema)
    assert converted.summary == "properties.a: strict mode needs a `type` here (and 1 more)"
    assert converted.problems == [
        StrictProblem("properties.a", "strict mode needs a `type` here"),
        StrictProblem("properties.b", "strict mode needs `items` with a `type` for an array"),
    ]


names = st.sampled_from(["a", "b", "c"])
leaves = st.sampled_from(
    [
        STRING,
        {"type": "integer", "default": 3},
        {"type": ["number", "null"]},
        {"type": "boolean", "description": "yes or no"},
        {"enum": ["x", 1, None]},
        {"type": "string", "enum": ["x", "y"]},
        {"const": "k"},
        {"$ref": "#/$defs/leaf"},
        {"$ref": "#/$defs/tree", "description": "a tree"},
    ]
)


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def build(properties: dict[str, Any], demanded: set[str], more: dict[str, Any]) -> dict[str, Any]:
        asked = [name for name in properties if name in demanded]
        return {"type": "object", "properties": properties, "required": asked, **more}

    extras = st.sampled_from([{}, {"additionalProperties": False}, {"title": "T"}])
    return st.builds(build, st.dictionaries(names, children, max_size=3), st.sets(names), extras)


def add_tag(tag: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Add a constant property that distinguishes objects."""
    properties = {**schema["properties"], "tag": {"const": tag}}
    return {**schema, "properties": properties, "required": [*schema["required"], "tag"]}


def compounds(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    made = objects(children)
    return (
        made
        | st.builds(lambda items: {"type": "array", "items": items}, children)
        | st.builds(lambda some: {"anyOf": some}, st.lists(children, min_size=1, max_size=3))
        | st.builds(lambda x, y: {"oneOf": [add_tag("x", x), add_tag("y", y)]}, made, made)
        | st.builds(lambda member: {"allOf": [member], "description": "D"}, children)
    )


DEFINITIONS = {
    "leaf": {"type": "integer", "minimum": 2},
    "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}},
}
expressible = objects(st.recursive(leaves, compounds, max_leaves=8)).map(
    lambda schema: {**schema, "$defs": DEFINITIONS}
)


def values(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Any value that a strict schema allows."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    inner = lambda entry: values(entry, root, depth + 1)  # noqa: E731
    if "anyOf" in schema:
        members = schema["anyOf"] if depth < 6 else schema["anyOf"][-1:]
        return st.one_of([inner(member) for member in members])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    kinds: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "object": lambda: st.fixed_dictionaries({n: inner(s) for n, s in schema["properties"].items()}),
        "array": lambda: st.lists(inner(schema["items"]), max_size=2),
        "string": lambda: st.text(max_size=3),
        "boolean": st.booleans,
        "null": st.none,
        "number": lambda: st.floats(allow_nan=False, allow_infinity=False),
        "integer": lambda: st.integers(2, 9),
    }
    return st.one_of([kinds[kind]() for kind in as_list(schema["type"])])


def without_nulls(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """Drop the nulls that stand for absent properties."""
    if "$ref" in schema:
        return without_nulls(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    for member in [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]:
        pruned = without_nulls(value, member, root)
        if Draft202012Validator({**member, "$defs": root["$defs"]}).is_valid(pruned):
            return pruned
    if isinstance(value, list):
        return [without_nulls(entry, schema.get("items", {}), root) for entry in value]
    if not isinstance(value, dict):
        return value
    properties, asked = schema.get("properties", {}), schema.get("required", [])
    retained = {name: entry for name, entry in value.items() if name in asked or entry is not None}
    return {name: without_nulls(entry, properties.get(name, {}), root) for name, entry in retained.items()}


def every_schema(schema: Any) -> list[dict[str, Any]]:
    """The schema and all its subschemas."""
    groups = [schema.get(key, {}).values() for key in ("properties", "$defs", "definitions")]
    inner = [*(entry for group in groups for entry in group), *schema.get("anyOf", [])]
    inner += [schema["items"]] if "items" in schema else []
    return [schema, *(found for entry in inner for found in every_schema(entry))]


def assert_strict(schema: dict[str, Any]) -> None:
    for found in every_schema(schema):
        assert not found.keys() & {"oneOf", "allOf", "default", "$schema", "not", "if"}
        assert found.keys() & {"type", "enum", "const", "anyOf", "$ref"}
        assert "$ref" not in found or found.keys() == {"$ref"}
        if "object" in found.get("type", ""):
            assert found["additionalProperties"] is False
            assert found["required"] == list(found["properties"])


@given(expressible)
@settings(deadline=None)
def test_converted_schemas_are_closed_and_stable(schema: dict[str, Any]):
    result = make_strict(schema)
    assert result.problems == []
    assert_strict(result.schema)
    assert make_strict(result.schema) == result


@given(st.data())
@settings(deadline=None)
def test_a_strict_value_without_its_nulls_satisfies_the_original(data: st.DataObject):
    schema = data.draw(expressible)
    made = require_strict(schema)
    value = data.draw(values(made, made))
    Draft202012Validator(made).validate(value)
    Draft202012Validator(schema).validate(without_nulls(value, schema, schema))


def accepted_values(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Any value that a schema allows, and the same with nulls for omitted properties."""
    inner = lambda entry: accepted_values(entry, root)  # noqa: E731
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].rpartition("/")[2]]
        return st.deferred(lambda: inner(target))
    if members := [schema[key] for key in ("anyOf", "oneOf", "allOf") if key in schema]:
        return st.one_of([inner(member) for member in members[0]])
    if "properties" in schema:
        return objects_with_nulls(schema, root)
    if "items" in schema:
        entries = st.lists(inner(schema["items"]), max_size=2)
        return entries.map(lambda some: ([plain for plain, _ in some], [full for _, full in some]))
    return values(schema, root).map(lambda value: (value, value))


@st.composite
def objects_with_nulls(
    draw: st.DrawFn, schema: dict[str, Any], root: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    plain: dict[str, Any] = {}
    full: dict[str, Any] = {}
    for name, member in schema["properties"].items():
        if name in schema.get("required", []) or draw(st.booleans()):
            plain[name], full[name] = draw(accepted_values(member, root))
        else:
            full[name] = None
    return plain, full


@given(st.data())
@settings(deadline=None)
def test_original_values_stay_valid_with_nulls_for_omitted_properties(data: st.DataObject):
    schema = data.draw(expressible)
    value, filled = data.draw(accepted_values(schema, schema))
    Draft202012Validator(schema).validate(value)
    Draft202012Validator(require_strict(schema)).validate(filled)


keywords = st.sampled_from(
    [
        *KEYWORD_VALUES,
        *("required", "properties", "additionalProperties", "items", "prefixItems", "uniqueItems"),
        *("default", "examples", "minProperties", "maxProperties"),
        *("$ref", "$defs", "definitions", "anyOf", "oneOf", "allOf", "not", "$id", "a"),
    ]
)
words = st.sampled_from(["string", "object", "array", "null", "#", "#/$defs/a", "a", "date", ""])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words
anything = st.recursive(scalars, lambda some: st.lists(some, max_size=3) | st.dictionaries(keywords, some, max_size=4))


@given(st.dictionaries(keywords, anything))
@example({"format": "iban", "allOf": [{}]})
@settings(deadline=None)
def test_any_json_can_be_converted(schema: dict[str, Any]):
    before = repr(schema)
    result = make_strict(schema)
    assert repr(schema) == before
    if not result.problems:  # others are not sent as strict
        assert repr(make_strict(result.schema).schema) == repr(result.schema)
    if not result.problems:
        assert_strict(result.schema)
        assert make_strict(result.schema).problems == []


class Address(BaseModel):
    street: str
    number: int | None


class Person(BaseModel):
    """A person."""

    name: str = Field(description="in full")
    kind: Literal["friend", "foe"]
    addresses: list[Address]
    either: Address | str
    nickname: str | None = None


class Tree(BaseModel):
    value: int
    children: list["Tree"]


def summary(schema: dict[str, Any]) -> dict[str, Any]:
    """The objects of a schema and their required properties."""
    objects = {"": schema, **schema.get("$defs", {})}
    return {n: (o["type"], o["required"], o["additionalProperties"]) for n, o in objects.items()}


@pytest.mark.parametrize("model", [Address, Person, Tree])
def test_the_official_sdk_closes_the_same_objects(model: type[BaseModel]):
    ours, theirs = require_strict(model.model_json_schema()), to_strict_json_schema(model)
    assert summary(ours) == summary(theirs)
    assert make_strict(theirs).problems == []


def test_a_model_without_defaults_is_made_the_same_as_by_the_official_sdk():
    assert require_strict(Address.model_json_schema()) == to_strict_json_schema(Address)
    assert require_strict(Tree.model_json_schema()) == to_strict_json_schema(Tree)
