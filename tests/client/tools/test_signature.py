"""Signatures as schemas, conversion of arguments, and docstrings."""

from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from antiphon.client.tools.signature import ToolContext, parse_docstring
from antiphon.client.tools.tool import ToolError, tool
from antiphon.protocol.tools import FunctionTool
from tests.client.tools.sample_types import INTEGER, STRING, Family, Home, Options, Person, Span, Unit, weather


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    schema = tool(function).parameters
    Draft202012Validator.check_schema(schema)
    return schema


def property_of(annotation: Any, **default: Any) -> tuple[Any, Any]:
    """Return the schema of one parameter and its definition."""

    def function(a):
        return a

    function.__annotations__ = {"a": annotation}
    function.__defaults__ = tuple(default.values())
    schema = schema_of(function)
    return schema["properties"]["a"], schema.get("$defs", {})


def test_a_function_is_described_by_its_signature_and_docstring():
    assert weather.declaration == FunctionTool(
        name="weather",
        description="Look up the weather.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": "integer", "description": "how many days ahead", "default": 1},
                "unit": {"$ref": "#/$defs/Unit", "default": "c"},
            },
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"Unit": {"title": "Unit", "enum": ["c", "f"]}},
        },
    )


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, STRING),
        (int, INTEGER),
        (Any, {}),
        (object, {}),
        (int | None, {"anyOf": [INTEGER, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (list[int], {"type": "array", "items": INTEGER}),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (
            tuple[int, str],
            {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [INTEGER, STRING], "items": False},
        ),
        (Annotated[int, "how many"], {**INTEGER, "description": "how many"}),
        (
            Annotated[int, msgspec.Meta(ge=1, description="how many")],
            {**INTEGER, "minimum": 1, "description": "how many"},
        ),
        (Annotated[int, Field(ge=1, description="how many")], {**INTEGER, "minimum": 1, "description": "how many"}),
    ],
)
def test_an_annotation_becomes_a_schema(annotation: Any, expected: object):
    assert property_of(annotation) == (expected, {})


HOME = {
    "title": "Home",
    "description": "Where one lives.",
    "type": "object",
    "properties": {"street": STRING, "zip": {**STRING, "default": "0000"}, "tags": {"type": "array", "items": STRING}},
    "required": ["street"],
}
OPTIONS = {
    "title": "Options",
    "type": "object",
    "properties": {"verbose": {"type": "boolean"}, "limit": INTEGER},
    "required": ["verbose"],
}


@pytest.mark.parametrize(
    ("annotation", "reference", "definitions"),
    [
        (Home, {"$ref": "#/$defs/Home"}, {"Home": HOME}),
        (Options, {"$ref": "#/$defs/Options"}, {"Options": OPTIONS}),
        (list[Home], {"type": "array", "items": {"$ref": "#/$defs/Home"}}, {"Home": HOME}),
        (Annotated[Home, "mine"], {"$ref": "#/$defs/Home", "description": "mine"}, {"Home": HOME}),
        (Person, {"$ref": "#/$defs/Person"}, {"Person": Person.model_json_schema()["$defs"]["Person"]}),
        (
            Family | None,
            {"anyOf": [{"$ref": "#/$defs/Family"}, {"type": "null"}]},
            {
                "Person": Person.model_json_schema()["$defs"]["Person"],
                "Family": {
                    "title": "Family",
                    "type": "object",
                    "properties": {"head": {"$ref": "#/$defs/Person"}},
                    "required": ["head"],
                },
            },
        ),
    ],
)
def test_classes_become_definitions(annotation: Any, reference: object, definitions: object):
    assert property_of(annotation) == (reference, definitions)


def test_pydantic_and_msgspec_types_can_be_mixed():
    def function(a: Person, b: Home, c: list[Person]): ...

    schema = schema_of(function)
    assert list(schema["properties"]) == ["a", "b", "c"]
    assert sorted(schema["$defs"]) == ["Home", "Person"]


def test_two_types_with_one_name_are_rejected():
    class Home(BaseModel):
        other: int

    def function(a: Any, b: Any): ...

    function.__annotations__ = {"a": Home, "b": globals()["Home"]}
    with pytest.raises(TypeError, match="function cannot be a tool: two types are called Home;"):
        tool(function)


def test_a_default_that_is_a_pydantic_field_describes_the_parameter():
    def function(a: int = Field(ge=1, description="how many"), b: str = Field("x", max_length=3)):
        return a, b

    made = tool(function)
    assert made.parameters["properties"] == {
        "a": {**INTEGER, "minimum": 1, "description": "how many"},
        "b": {**STRING, "maxLength": 3, "default": "x"},
    }
    assert made.parameters["required"] == ["a"]


def test_the_annotation_takes_precedence_over_the_docstring():
    def function(a: Annotated[int, "from the annotation"], b: int):
        """Do it.

        :param a: from the docstring
        :param b: from the docstring
        """

    described = {n: p["description"] for n, p in schema_of(function)["properties"].items()}
    assert described == {"a": "from the annotation", "b": "from the docstring"}


def test_a_default_without_json_form_is_omitted():
    def function(a: int = 0, b: Any = print, c: Home = Home("Main")):  # noqa: B008
        return a, b, c

    schema = schema_of(function)
    assert schema["properties"]["b"] == {}
    assert schema["properties"]["c"]["default"] == {"street": "Main", "zip": "0000", "tags": []}
    assert schema["required"] == []


def test_the_context_is_not_in_the_schema():
    def function(a: int, context: ToolContext | None = None): ...

    assert list(schema_of(function)["properties"]) == ["a"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *args: args, "'args' is variadic positional; a model names every argument"),
        (lambda **named: named, "'named' is variadic keyword; a model names every argument"),
        (eval("lambda a, /: a"), "'a' is positional-only; a model names every argument"),
    ],
)
def test_positional_only_and_variadic_parameters_are_rejected(function: Callable[..., Any], message: str):
    with pytest.raises(TypeError) as caught:
        tool(name="f")(function)
    assert str(caught.value).startswith(f"<lambda> cannot be a tool: {message}")


def test_a_type_without_a_schema_is_rejected():
    class Strange: ...

    def function(a: Any): ...

    function.__annotations__ = {"a": Strange}
    with pytest.raises(TypeError, match=r"function cannot be a tool: no JSON Schema can be made of"):
        tool(function)


def test_a_type_unknown_to_pydantic_is_rejected():
    def function(a: Annotated[Span, Field()]): ...

    with pytest.raises(TypeError, match="function cannot be a tool: pydantic can make no JSON"):
        tool(function)


def test_a_builtin_without_a_signature_is_rejected():
    with pytest.raises(TypeError, match="dict cannot be a tool: no signature is known"):
        tool(dict)


def test_an_undefined_annotation_is_rejected():
    def function(a: "Nowhere"): ...  # noqa: F821  # pyright: ignore

    with pytest.raises(TypeError, match="cannot be evaluated: name 'Nowhere' is not defined"):
        tool(function)


@pytest.mark.parametrize(
    ("annotation", "sent", "expected"),
    [
        (int, "5.0", 5),
        (float, "5", 5.0),
        (int | str, '"5"', "5"),
        (set[int], "[1, 2]", {1, 2}),
        (dict[int, str], '{"1": "a"}', {1: "a"}),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (date, '"2026-01-02"', date(2026, 1, 2)),
        (Unit, '"f"', Unit.FAHRENHEIT),
        (Home, '{"street": "Main", "zip": null, "tags": ["x"]}', Home("Main", "0000", ["x"])),
        (Span, '{"first": "2026-01-02"}', Span(date(2026, 1, 2))),
        (Options, '{"verbose": true, "limit": null}', {"verbose": True}),
        (Person, '{"name": "A", "age": null}', Person(name="A")),
        (
            list[Family],
            '[{"head": {"name": "A", "parent": {"name": "B"}}}]',
            [Family(Person(name="A", parent=Person(name="B")))],
        ),
        (Annotated[int, Field(ge=1)], "1", 1),
    ],
)
def test_json_is_converted_to_the_annotated_type(annotation: Any, sent: str, expected: object):
    def function(a): ...

    function.__annotations__ = {"a": annotation}
    values = tool(function).validate(f'{{"a": {sent}}}')
    assert values == {"a": expected}
    assert type(values["a"]) is type(expected)


def test_a_null_means_the_default():
    assert weather.validate('{"city": "Oslo", "days": null}') == {"city": "Oslo"}


@pytest.mark.parametrize(
    ("annotation", "sent", "problem"),
    [
        (int, '"x"', 'a: "x" is not of type "integer"'),
        (date, '"x"', "a: Invalid RFC3339 encoded date"),
        (list[Span], '[{"first": "x"}]', "a[0].first: Invalid RFC3339 encoded date"),
        (Annotated[int, msgspec.Meta(ge=1)], "0", "a: 0 is less than the minimum of 1"),
        (Person, '{"age": 1}', 'a: "name" is a required property'),
        (
            dict[str, Annotated[date, Field()]],
            '{"x": "y"}',
            "a.x: Input should be a valid date or datetime, input is too short",
        ),
    ],
)
def test_a_failed_conversion_is_reported_to_the_model(annotation: Any, sent: str, problem: str):
    def function(a): ...

    function.__annotations__ = {"a": annotation}
    with pytest.raises(ToolError) as caught:
        tool(function).validate(f'{{"a": {sent}}}')
    assert str(caught.value) == f"Tool function failed: Invalid arguments: {problem}"


EXPECTED = (
    "Look up the weather.\n\nFor any city.",
    {"city": "where, in the local spelling", "days": "how many: at most ten"},
)

GOOGLE = """Look up the weather.

    For any city.

    Args:
        city (str, optional): where,
            in the local spelling
        days (dict(str, int)): how many: at most ten
        nothing:

    Returns:
        days: not a parameter
    """

NUMPY = """
    Look up the weather.

    For any city.

    Parameters
    ----------
    city : str
        where, in the local
        spelling

    days : int, optional
        how many: at most ten
    nothing

    Returns
    -------
    days : str
        not a parameter
    """

SPHINX = """Look up the weather.

    For any city.

    :param str city: where, in the
        local spelling
    :type days: int
    :param days: how many: at most ten
    :returns: days
    :raises ValueError: never
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_every_docstring_style_is_parsed(text: str):
    assert parse_docstring(text) == EXPECTED


@pytest.mark.parametrize("text", [None, "", "   \n "])
def test_a_missing_docstring_is_empty(text: str | None):
    assert parse_docstring(text) == ("", {})


def test_two_names_can_share_a_numpy_entry():
    text = "Add.\n\nParameters\n----------\nx, y : int\n    a summand"
    assert parse_docstring(text) == ("Add.", {"x": "a summand", "y": "a summand"})


def test_a_google_section_ends_with_its_indentation():
    text = "Add.\n\nArgs:\n    x: first\n\nMore words.\n    y: no parameter"
    assert parse_docstring(text) == ("Add.", {"x": "first"})


def test_a_line_with_a_colon_is_not_a_section():
    text = "Add numbers:\n    x: one\n\nBeware: it is slow."
    assert parse_docstring(text) == (text, {})
