"""Parsing, repairing and validating the arguments of a call."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from antiphon.client.tools.strict_schema import MAX_NULL_DEPTH
from antiphon.client.tools.tool import Tool, ToolError, repair_json
from antiphon.protocol.tools import FunctionTool
from tests.client.tools.test_strict_schema import accepted_values, expressible

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "unit": {"enum": ["c", "f"]},
        "home": {"$ref": "#/$defs/Home"},
        "others": {"type": "array", "items": {"$ref": "#/$defs/Home"}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "Home": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street"],
        }
    },
}


def read(text: str, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    return Tool(FunctionTool(name="weather", parameters=schema)).validate(text)


def error_message(text: str, schema: dict[str, Any] = SCHEMA) -> str:
    with pytest.raises(ToolError) as caught:
        read(text, schema)
    return str(caught.value)


def test_arguments_that_fit_are_returned():
    text = '{"city": "Oslo", "days": 3, "home": {"street": "Main"}}'
    assert read(text) == {"city": "Oslo", "days": 3, "home": {"street": "Main"}}


@pytest.mark.parametrize("text", ["", "  ", "null", "{}"])
def test_empty_arguments_are_an_empty_object(text: str):
    assert read(text, {"type": "object"}) == {}


def test_a_missing_brace_is_added():
    assert read('{"city": "Oslo", "days": 3') == {"city": "Oslo", "days": 3}


def test_invalid_json_is_rejected_and_quoted():
    assert error_message('{"city": Oslo}') == (
        "Tool weather failed: Invalid JSON arguments: invalid character (byte 9). Send exactly one "
        'JSON value in UTF-8. You sent: {"city": Oslo}'
    )


def test_arguments_other_than_an_object_are_rejected():
    expected = "Tool weather failed: Invalid arguments: the arguments must be a JSON object"
    assert error_message("[1]") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", '"city" is a required property'),
        ('{"city": 5}', 'city: 5 is not of type "string"'),
        ('{"city": "", "unit": "k"}', 'unit: "k" is not one of "c" or "f"'),
        ('{"city": "", "days": "x"}', 'days: "x" is not of type "integer" and days: "x" is not of type "null"'),
        ('{"city": "", "others": [{"street": ""}, {"street": 1}]}', 'others[1].street: 1 is not of type "string"'),
        ('{"city": "", "x": 1}', "Additional properties are not allowed ('x' was unexpected)"),
        ('{"city": 1, "unit": 2}', 'city: 1 is not of type "string"; unit: 2 is not one of "c" or "f"'),
    ],
)
def test_an_error_names_the_argument_the_expected_type_and_the_value(text: str, problem: str):
    assert error_message(text) == f"Tool weather failed: Invalid arguments: {problem}"


def test_a_null_for_an_optional_property_is_dropped():
    text = """{"city": "Oslo", "days": null, "unit": null, "home": {"street": "a", "zip": null},
        "others": [{"street": "b", "zip": null}]}"""
    assert read(text) == {"city": "Oslo", "home": {"street": "a"}, "others": [{"street": "b"}]}


def test_a_null_for_a_required_property_is_kept():
    nullable = {"type": ["string", "null"]}
    schema = {"type": "object", "properties": {"a": nullable}, "required": ["a"]}
    assert read('{"a": null}', schema) == {"a": None}


def test_nulls_are_dropped_according_to_the_matching_union_member():
    def shape(tag: str, **properties: Any) -> dict[str, Any]:
        members = {"tag": {"const": tag}, **properties}
        return {"type": "object", "properties": members, "required": ["tag"]}

    a = shape("a", x={"type": "integer"}, y={"type": "integer"})
    b = {**shape("b", x={"type": ["integer", "null"]}), "required": ["tag", "x"]}
    schema = {
        "type": "object",
        "properties": {"one": {"anyOf": [a, b]}},
        "allOf": [{"properties": {"two": {"oneOf": [b, a]}}}],
    }
    text = '{"one": {"tag": "b", "x": null}, "two": {"tag": "a", "x": null, "y": 1}}'
    assert read(text, schema) == {"one": {"tag": "b", "x": None}, "two": {"tag": "a", "y": 1}}


def test_nested_unions_take_linear_time():
    def branch(tag: str) -> dict[str, Any]:
        members = {"tag": {"const": tag}, "left": {"$ref": "#/$defs/Tree"}, "note": {}}
        return {"type": "object", "properties": members, "required": ["tag", "left"]}

    tree = {"anyOf": [{"type": "integer"}, *(branch(tag) for tag in "abcd")]}
    schema = {"type": "object", "properties": {"tree": tree}, "$defs": {"Tree": tree}}
    sent, result = {"left": 1, "tag": "d", "note": None}, {"left": 1, "tag": "d"}
    for _ in range(40):  # asked for every way that leads there, this takes longer than the sun has
        sent, result = sent | {"left": sent}, result | {"left": result}
    assert read(json.dumps({"tree": sent}), schema) == {"tree": result}


@given(st.data())
@settings(deadline=None)
def test_strict_values_are_read_as_the_original_schema_allows(data: st.DataObject):
    schema = data.draw(expressible)
    _, filled = data.draw(accepted_values(schema, schema))
    Draft202012Validator(schema).validate(read(json.dumps(filled), schema))


@pytest.mark.parametrize(
    "schema",
    [{"type": "nonsense"}, {"$ref": "https://example.invalid/schema"}, {"properties": {"a": {"$ref": "#/$defs/none"}}}],
)
def test_an_invalid_schema_validates_nothing(schema: dict[str, Any]):
    assert read('{"a": 1}', schema) == {"a": 1}


def test_a_recursive_schema_terminates():
    schema = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}
    assert MAX_NULL_DEPTH < 1000
    assert read('{"a": {"b": null}}', schema) == {"a": {"b": None}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1', {"a": 1}),
        ('{"a": [1, {"b": 2', {"a": [1, {"b": 2}]}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2 , ], }', {"a": [1, 2]}),
        ('{"a": 1,  ', {"a": 1}),
        ('{"a": ",]}", "b": [', {"a": ",]}", "b": []}),
        ("{,", {}),
    ],
)
def test_missing_brackets_and_extra_commas_are_repaired(text: str, expected: object):
    assert json.loads(repair_json(text)) == expected


@pytest.mark.parametrize(
    "text", ['{"a":', '{"a', '{"a": tru', "]", '{"a": 1]', "{'a': 1}", '{"a": "x', '{"a": "x\\', '{"a": "\\"']
)
def test_nothing_else_is_guessed(text: str):
    with pytest.raises(ValueError):
        json.loads(repair_json(text))


values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
)


@given(values)
def test_valid_json_keeps_its_meaning(value: Any):
    assert json.loads(repair_json(json.dumps(value))) == value


@given(values, st.data())
def test_half_a_string_is_not_completed(value: Any, data: st.DataObject):
    whole = json.dumps({"before": value, "text": data.draw(st.text())})
    start = whole.rindex('"text": "') + len('"text": "')
    cut = whole[: data.draw(st.integers(start, len(whole) - 2))]
    with pytest.raises(ValueError):
        json.loads(repair_json(cut))


@given(values)
def test_brackets_that_are_missing_are_added(value: Any):
    whole = json.dumps({"value": [value, "end"]})
    assert json.loads(repair_json(whole[:-1])) == json.loads(repair_json(whole[:-2])) == json.loads(whole)
