"""Example values for JSON schemas, as the demo model makes them."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from antiphon.agents.demo import write_example
from antiphon.protocol.errors import RequestError

WEATHER_QUESTION = "What's the weather in San Francisco?"
NODE = {
    "type": "object",
    "properties": {
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
    "required": ["next", "children"],
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "San Francisco"),
        (True, "San Francisco"),
        ({"type": "string", "maxLength": 3}, "San"),
        ({"type": "string", "minLength": 15}, "San Francisco.."),
        ({"type": ["string", "null"]}, "San Francisco"),
        ({"type": "integer"}, 0),
        ({"type": "number", "minimum": 1.5}, 1.5),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        ({"type": "array"}, []),
        ({"type": "object"}, {}),
        ({"properties": {"a": {"const": 1}, "b": {}}, "required": ["a"]}, {"a": 1}),
        ({"type": "object", "required": ["a"]}, {"a": "San Francisco"}),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "integer", "default": 7}, 7),
        ({"type": "string", "examples": ["x", "y"]}, "x"),
        ({"anyOf": [{"type": "null"}, {"const": 2}]}, 2),
        ({"oneOf": [{"type": "null"}]}, None),
        ({"allOf": [{"type": "integer"}]}, 0),
        ({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}, {"next": None, "children": []}),
    ],
)
def test_an_example_is_built_for_a_schema(schema: Any, value: object) -> None:
    root = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    if isinstance(schema, dict) and "$defs" in schema:
        root["$defs"] = schema["$defs"]
    assert json.loads(write_example(root, WEATHER_QUESTION, "p")) == {"x": value}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string", "pattern": "^[0-9]{5}$"}, "x: "),
        ({"type": "array", "minItems": 10**9}, "x: "),
        ({"type": "string", "minLength": 10**9}, "x: "),
        ({"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999}}, "large"),
    ],
)
def test_a_schema_that_needs_more_than_an_example_is_rejected(schema: Any, problem: str) -> None:
    root = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    with pytest.raises(RequestError, match=problem) as caught:
        write_example(root, "", "tools[0].parameters")
    assert caught.value.payload.param == "tools[0].parameters"


def test_an_example_without_a_topic_is_the_name_of_its_property() -> None:
    schema = {"type": "object", "required": ["city"]}
    assert write_example(schema, "", "p") == '{"city":"city"}'


CARD = {"type": "object", "properties": {"$tag": {"const": "Card"}, "title": {"type": "string"}}, "required": ["$tag"]}
LIST = {
    "type": "object",
    "properties": {"$tag": {"const": "List"}, "$children": {"type": "array", "items": {"$ref": "#/$defs/any"}}},
    "required": ["$tag", "$children"],
}
UI = {
    "type": "object",
    "properties": {"ui": {"type": "array", "items": {"$ref": "#/$defs/any"}}},
    "required": ["ui"],
    "additionalProperties": False,
    "$defs": {"any": {"anyOf": [LIST, CARD]}},
}


def test_a_generated_user_interface_is_not_empty() -> None:
    value = json.loads(write_example(UI, "Hi!", "text.format.schema"))
    assert value == {"ui": [{"$tag": "List", "$children": []}]}
    Draft202012Validator(UI).validate(value)
