"""What a schema demands is read from whatever came, and holds for all schemas together."""

from typing import Any

import pytest

from antiphon.protocol.json_schema import (
    JSON_TYPES,
    Demands,
    keep_known_keywords,
    resolve_reference,
)

ROOT = {"$defs": {"a/b": {"const": 1}, "~": [False, {"const": 2}]}, "x": 3}


def test_only_known_and_well_formed_keywords_are_read():
    schema = {
        "type": "string",
        "minLength": 2,
        "maxLength": -1,
        "minimum": True,
        "maximum": float("inf"),
        "multipleOf": 0,
        "required": ["a", 1],
        "properties": [],
        "enum": "a",
        "pattern": None,
        "const": None,
        "x-order": 1,
    }
    assert keep_known_keywords(schema) == {"type": ["string"], "minLength": 2, "const": None}


@pytest.mark.parametrize("types", ["text", [], ["string", "text"], ["string", ["null"]], None, 1])
def test_a_type_that_is_none_is_not_read(types: object):
    assert keep_known_keywords({"type": types}) == {}


@pytest.mark.parametrize(
    ("ref", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"const": 1}),
        ("#/$defs/a%7E1b", {"const": 1}),
        ("#/$defs/~0/1", {"const": 2}),
        ("#/$defs/~0/2", False),
        ("#/$defs/~0/-1", False),
        ("#/$defs/~0/99999999999", False),
        ("#/$defs/missing", False),
        ("#/x/y", False),
        ("#anchor", False),
        ("other.json#/$defs/a~1b", False),
        ("", False),
    ],
)
def test_a_reference_finds_its_schema_or_one_that_allows_nothing(ref: str, target: object):
    assert resolve_reference(ROOT, ref) == target


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ("a", ["string"]),
        (1, ["number", "integer"]),
        (1.0, ["number", "integer"]),
        (1.5, ["number"]),
        (float("nan"), []),
        (True, ["boolean"]),
        ({}, ["object"]),
        ([], ["array"]),
        (None, ["null"]),
    ],
)
def test_every_value_has_its_types(value: object, types: list[str]):
    assert [name for name, belongs in JSON_TYPES.items() if belongs(value)] == types


def demands(*schemas: dict[str, Any]) -> Demands:
    together = Demands()
    for schema in schemas:
        together &= schema
    return together


def test_demands_add_up():
    both = demands(
        {"type": ["number", "string"], "minimum": 1}, {"type": ["integer"], "minimum": 3}
    )
    assert both.every("minimum") == [1, 3]
    assert both.types() == ["integer"]
    assert [both.allow(value) for value in (2, 3, 3.5, "a")] == [False, True, False, False]


def test_each_schema_judges_properties_and_items_by_its_own_neighbours():
    both = demands(
        {"properties": {"a": {"const": 1}}, "additionalProperties": False, "prefixItems": [True]},
        {"properties": {"b": {"const": 2}}, "items": False},
    )
    assert both.property("a") == [{"const": 1}, True]
    assert both.property("b") == [False, {"const": 2}]
    assert both.item(0) == [True, False]
    assert both.names("properties") == ["a", "b"]


@pytest.mark.parametrize(
    ("schema", "kept", "broken"),
    [
        ({"minimum": 1}, [1, "", None], [0.5]),
        ({"maximum": 1}, [1], [1.5]),
        ({"exclusiveMinimum": 1}, [2], [1]),
        ({"exclusiveMaximum": 1}, [0], [1]),
        ({"multipleOf": 0.5}, [1.5, 2, True], [1.25]),
        ({"multipleOf": 3}, [10**30 - 1], [10**30]),
        ({"minLength": 2}, ["ab", []], ["a"]),
        ({"maxLength": 2}, ["ab"], ["abc"]),
        ({"minItems": 1}, [[0], ""], [[]]),
        ({"maxItems": 1}, [[0]], [[0, 0]]),
        ({"minProperties": 1}, [{"a": 0}, []], [{}]),
        ({"maxProperties": 1}, [{"a": 0}], [{"a": 0, "b": 0}]),
        ({"required": ["a"]}, [{"a": 0}, []], [{"b": 0}]),
    ],
)
def test_a_limit_concerns_only_values_of_its_kind(
    schema: dict[str, Any], kept: list[object], broken: list[object]
):
    assert [demands(schema).allow(value) for value in kept] == [True] * len(kept)
    assert [demands(schema).allow(value) for value in broken] == [False] * len(broken)
