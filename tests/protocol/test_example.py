"""An example satisfies its schema, is as small as can be, and is found in bounded work."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from antiphon.protocol.example import Unsatisfiable, example, topic
from antiphon.protocol.json_schema import KEYWORD_VALUES

STRING = {"type": "string"}
WEATHER = "What's the weather in San Francisco?"


def assert_valid(value: object, schema: dict[str, Any]) -> None:
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


# --- one keyword at a time -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "text"),
        (STRING, "text"),
        ({"type": "integer"}, 0),
        ({"type": "number"}, 0),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": "array"}, []),
        ({"type": "object"}, {}),
        ({"type": ["null", "integer"]}, 0),
        ({"type": [], "minLength": "long", "enum": 3}, "text"),
        ({"enum": ["b", "a"]}, "b"),
        ({"enum": ["b", "a"], "default": "a"}, "a"),
        ({"enum": ["b", 1], "type": "integer"}, 1),
        ({"enum": [1, True], "const": True}, True),
        ({"const": None}, None),
        ({"type": "integer", "default": 7}, 7),
        ({"type": "integer", "default": "seven"}, 0),
        ({"type": "string", "examples": ["seven", "eight"]}, "seven"),
        ({"minLength": 6}, "text.."),
        ({"maxLength": 2}, "te"),
        ({"pattern": r"^[A-Z]{2}\d+$", "minLength": 5}, "AA000"),
        ({"minimum": 3}, 3),
        ({"exclusiveMinimum": 3, "type": "integer"}, 4),
        ({"maximum": -3.5, "type": "integer"}, -4),
        ({"exclusiveMaximum": -3}, -4),
        ({"minimum": 10, "multipleOf": 7}, 14),
        ({"exclusiveMinimum": 0.25, "exclusiveMaximum": 0.75}, 0.5),
        ({"minimum": 0.25, "maximum": 0.25}, 0.25),
        ({"type": "number", "minimum": 0.1, "multipleOf": 0.25}, 0.25),
        ({"type": "integer", "minimum": 10**30 + 1, "multipleOf": 10}, 10**30 + 10),
        ({"items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        (
            {"prefixItems": [STRING, {"const": 1}], "minItems": 3, "items": True},
            ["text", 1, "text"],
        ),
        ({"items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True}, [False, True]),
        ({"items": STRING, "minItems": 3, "uniqueItems": True}, ["text", "text2", "text3"]),
        ({"items": {"type": "array"}, "minItems": 2, "uniqueItems": True}, [[], ["text"]]),
        (
            {"items": {"required": ["a"]}, "minItems": 2, "uniqueItems": True},
            [{"a": "a"}, {"a": "a2"}],
        ),
        ({"properties": {"a": STRING, "b": STRING}, "required": ["b"]}, {"b": "b"}),
        ({"properties": {"a": STRING}, "minProperties": 1}, {"a": "a"}),
        ({"required": ["a"], "additionalProperties": {"type": "null"}}, {"a": None}),
        ({"properties": {"a": {"enum": []}}, "additionalProperties": False}, {}),
        ({"anyOf": [{"enum": []}, {"const": 2}]}, 2),
        ({"oneOf": [False, {"const": 2}]}, 2),
        ({"allOf": [{"minimum": 2}, {"minimum": 4}, {"maximum": 9}]}, 4),
        ({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]}, 0),
        ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, 2),
    ],
)
def test_the_smallest_value_is_found(schema: dict[str, Any], value: object):
    assert repr(example(schema)) == repr(value)


@pytest.mark.parametrize(
    "name", "date date-time time duration email uri uuid hostname ipv4 ipv6".split()
)
def test_formats_are_kept(name: str):
    schema = {"type": "array", "items": {"type": "string", "format": name}, "minItems": 20}
    schema["uniqueItems"] = True
    assert_valid(example(schema), schema)


def test_an_unknown_format_is_any_string():
    assert example({"type": "string", "format": "haiku"}) == "text"


def test_properties_that_several_schemas_speak_of_satisfy_all_of_them():
    schema = {
        "properties": {"a": {"minimum": 2}},
        "allOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"a": {"multipleOf": 5}, "b": {"const": 1}}, "required": ["b", "a"]},
        ],
    }
    assert example(schema) == {"a": 5, "b": 1}


def test_items_that_several_schemas_speak_of_satisfy_all_of_them():
    schema = {"items": {"minimum": 2}, "minItems": 1, "allOf": [{"items": {"type": "integer"}}]}
    assert example(schema) == [2]


def test_the_value_is_not_part_of_the_schema():
    schema = {"default": {"a": []}}
    value = example(schema)
    assert value == {"a": []}
    assert value is not schema["default"]


# --- references ------------------------------------------------------------------------------

NODE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        "parent": {"$ref": "#/$defs/Node"},
    },
    "required": ["value", "next", "children"],
}


def test_recursion_ends_at_the_first_branch_that_does():
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}
    assert example(schema) == {"value": 0, "next": None, "children": []}


def test_a_schema_that_holds_itself_ends():
    schema = {
        "properties": {"a": {"oneOf": [{"$ref": "#"}, {"type": "boolean"}]}},
        "required": ["a"],
    }
    assert example(schema) == {"a": False}


def test_a_reference_inside_its_own_neighbour_is_followed():
    schema = {
        "$ref": "#/definitions/Base",
        "properties": {"base": {"$ref": "#/definitions/Base"}},
        "required": ["base"],
        "definitions": {
            "Base": {"type": "object", "properties": {"id": {"const": 1}}, "required": ["id"]}
        },
    }
    assert example(schema) == {"base": {"id": 1}, "id": 1}


@pytest.mark.parametrize(
    "ref", ["#/$defs/a~1b%20~0", "#/properties/list/prefixItems/1", "#/$defs/a~1b ~0"]
)
def test_references_may_point_anywhere_in_the_schema(ref: str):
    schema = {
        "properties": {"list": {"prefixItems": [False, {"const": 1}]}, "x": {"$ref": ref}},
        "required": ["x"],
        "$defs": {"a/b ~": {"const": 1}},
    }
    assert example(schema) == {"x": 1}


# --- the hint --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (WEATHER, "San Francisco"),
        ("capital of France", "France"),
        ("flights for tomorrow in Århus, Denmark", "Århus"),
        ('Any book of "Jane Austen"?', "Jane Austen"),
        ("  what is in it?  ", "what is in it?"),
        ("", ""),
    ],
)
def test_a_question_is_about_the_name_after_its_preposition(hint: str, value: str):
    assert topic(hint) == value


def test_plain_strings_come_from_the_hint():
    schema = {
        "type": "object",
        "properties": {
            "city": STRING,
            "days": {"type": "array", "items": STRING, "minItems": 2, "uniqueItems": True},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "date": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
            "short": {"type": "string", "maxLength": 3},
        },
        "required": ["city", "days", "unit", "date", "code", "short"],
    }
    assert example(schema, hint=WEATHER) == {
        "city": "San Francisco",
        "days": ["San Francisco", "San Francisco2"],
        "unit": "celsius",
        "date": "2025-01-01",
        "code": "AA",
        "short": "San",
    }
    assert example({"type": "string", "maxLength": 5}, hint="hello there") == "hello"


# --- giving up -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"enum": []}, "no value was found that the schema allows"),
        ({"$ref": "#"}, "no value was found that the schema allows"),
        ({"$ref": "https://example.com/#"}, "no value was found that the schema allows"),
        ({"type": "array", "minItems": 10**9}, "no value was found that the schema allows"),
        ({"type": "string", "minLength": 10**9}, "no value was found that the schema allows"),
        ({"type": "string", "pattern": "(?=a)"}, "no value was found that the schema allows"),
        ({"minItems": 2, "maxItems": 1}, "no value was found that the schema allows"),
        (
            {"required": ["a"], "additionalProperties": False},
            "a: no value was found that the schema allows",
        ),
        (
            {"items": {"properties": {"a": {"anyOf": [False]}}, "required": ["a"]}, "minItems": 1},
            "[0].a: no value was found that the schema allows",
        ),
        (
            {"properties": {"a": {"anyOf": [False, STRING]}, "b": False}, "required": ["a", "b"]},
            "b: no value was found that the schema allows",
        ),
        (
            {"minimum": 10**400, "multipleOf": 0.5},
            "the schema holds a number or a value out of reach",
        ),
        (
            {"enum": [10**5000], "const": 1},
            "the schema holds a number or a value out of reach",
        ),
        (
            {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
            "no value was found that the schema allows",
        ),
    ],
)
def test_what_cannot_be_satisfied_says_where(schema: dict[str, Any], message: str):
    with pytest.raises(Unsatisfiable) as caught:
        example(schema)
    assert str(caught.value) == message


def test_a_schema_whose_smallest_value_is_huge_is_refused():
    doubling = {
        f"d{n}": {
            "properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "ab"},
            "required": ["a", "b"],
        }
        for n in range(20)
    }
    with pytest.raises(Unsatisfiable, match="too large to search"):
        example({"$ref": "#/$defs/d0", "$defs": {**doubling, "d20": True}})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"allOf": [', "]}"),
        ('{"anyOf": [', "]}"),
        ('{"minItems": 1, "items": ', "}"),
        ('{"required": ["a"], "additionalProperties": ', "}"),
        ('{"const": [', "]}"),
    ],
)
def test_deep_nesting_is_refused_and_not_a_crash(before: str, after: str):
    with pytest.raises(Unsatisfiable):
        example(json.loads(before * 300 + "true" + after * 300))


# --- properties of all schemas ---------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d"])
sizes = st.integers(0, 4)
texts = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": sizes,
        "maxLength": st.integers(4, 9),
    },
)
numbers = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number", ["null", "integer"]])},
    optional={
        "minimum": st.integers(-50, 10) | st.floats(-50, 10),
        "exclusiveMaximum": st.integers(20, 90) | st.floats(20, 90),
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
    },
)
leaves = (
    texts
    | numbers
    | st.sampled_from([{}, {"type": "boolean"}, {"type": "null"}, {"const": "k"}])
    | st.sampled_from([{"enum": ["x", 2]}, {"default": 4}, {"$ref": "#/$defs/Node"}])
)
forms = st.fixed_dictionaries(
    {"pattern": st.sampled_from(["^a+$", "b", r"^\w{0,4}$", "[0-9]"])},
    optional={"minLength": sizes},
) | st.sampled_from([{"format": "date"}, {"format": "email"}])


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, children, max_size=3)},
        optional={"required": st.lists(names, max_size=3), "additionalProperties": children},
    )


def compounds(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(children, min_size=1, max_size=3)
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": children,
            "minItems": sizes,
            "prefixItems": some,
            "maxItems": st.just(4),
        },
    )
    return objects(children) | arrays | some.map(lambda members: {"anyOf": members})


def schemas(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = st.recursive(leaves, compounds, max_leaves=10)
    return nested.map(lambda schema: {**schema, "$defs": {"Node": NODE}})


@given(schemas(leaves | forms), st.text(max_size=12))
@settings(deadline=None)
def test_an_example_is_found_and_valid(schema: dict[str, Any], hint: str):
    assert_valid(example(schema, hint=hint), schema)


limits = st.fixed_dictionaries(
    {},
    optional={
        "uniqueItems": st.booleans(),
        "minProperties": sizes,
        "maxProperties": sizes,
        "enum": st.lists(st.sampled_from([1, "x", None, True]), max_size=3, unique_by=repr),
    },
)


@given(st.lists(schemas(leaves), max_size=3), limits)
@settings(deadline=None)
def test_an_example_of_schemas_that_hold_together_is_valid_if_there_is_one(
    members: list[Any], limits: dict[str, Any]
):
    schema = {"allOf": members, **limits, "$defs": {"Node": NODE}}
    with suppress(Unsatisfiable):
        assert_valid(example(schema), schema)


keywords = st.sampled_from(
    [*KEYWORD_VALUES, "$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "a"]
)
words = st.sampled_from(
    ["string", "object", "array", "integer", "#", "#/$defs/a", "a", "date", "(a+)+"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words
anything = st.recursive(
    scalars, lambda some: st.lists(some, max_size=3) | st.dictionaries(keywords, some, max_size=4)
)


@given(st.dictionaries(keywords, anything))
@settings(deadline=None)
def test_no_schema_is_too_strange(schema: dict[str, Any]):
    before = repr(schema)
    with suppress(Unsatisfiable):
        assert repr(example(schema)) == repr(example(schema))
    assert repr(schema) == before
