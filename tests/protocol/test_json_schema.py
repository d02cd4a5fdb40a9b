"""Schemas are validated against, resolved and recognised without trusting their shape."""

import pytest

from antiphon.protocol.json_schema import KEYWORD_VALUES, SchemaValidator, is_number, resolve_reference

ROOT = {"$defs": {"a/b": {"const": 1}, "~": [False, {"const": 2}]}, "x": 3}


@pytest.mark.parametrize(
    ("keyword", "value", "well_formed"),
    [
        ("type", "string", True),
        ("type", ["string", "null"], True),
        ("type", "text", False),
        ("type", [], False),
        ("type", ["string", ["null"]], False),
        ("type", None, False),
        ("minLength", 2, True),
        ("maxLength", -1, False),
        ("minItems", 1.5, False),
        ("minimum", True, False),
        ("maximum", float("inf"), False),
        ("multipleOf", 0, False),
        ("multipleOf", 0.5, True),
        ("enum", "a", False),
        ("pattern", None, False),
        ("const", None, True),
    ],
)
def test_a_well_formed_keyword_is_recognised(keyword: str, value: object, well_formed: bool):
    assert KEYWORD_VALUES[keyword][0](value) is well_formed


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


def test_a_boolean_and_an_infinite_number_are_no_json_numbers():
    assert [is_number(value) for value in (1, 1.5, True, float("nan"))] == [True, True, False, False]


def test_a_problem_names_its_place():
    validator = SchemaValidator({"properties": {"days": {"items": {"type": "integer"}}}})
    assert validator.is_valid({"days": [1]})
    assert validator.problems({"days": [1, "x"]}) == ['days[1]: "x" is not of type "integer"']


def test_a_problem_of_a_union_names_every_branch():
    validator = SchemaValidator({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    [problem] = validator.problems("x")
    assert problem == '"x" is not of type "integer" and "x" is not of type "null"'


@pytest.mark.parametrize("schema", [{"type": "odd"}, {"$ref": "https://example.com/a.json"}])
def test_a_schema_that_cannot_be_used_allows_everything(schema: dict[str, object]):
    validator = SchemaValidator(schema)
    assert validator.is_valid("x")
    assert validator.problems("x") == []
