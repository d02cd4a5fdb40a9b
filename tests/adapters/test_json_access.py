"""JSON objects and JSON texts of models."""

import pytest
from msgspec import Struct

from antiphon.adapters.json_access import decode_as, drop_empty, normalize_arguments, parse_arguments, to_json_text
from antiphon.protocol.struct import drop_none, omit


def test_empty_fields_are_dropped():
    fields = {"none": None, "text": "", "list": [], "object": {}, "zero": 0, "no": False}
    assert drop_empty(fields) == {"zero": 0, "no": False}
    assert drop_none(fields) == {name: fields[name] for name in fields if name != "none"}
    assert omit(fields, ["none", "text"]) == {"list": [], "object": {}, "zero": 0, "no": False}


@pytest.mark.parametrize(
    ("value", "text"), [('{"a":1}', '{"a":1}'), ("", ""), ({"a": 1}, '{"a":1}'), ([], "[]"), (None, "{}")]
)
def test_a_text_is_kept_and_anything_else_becomes_json(value: object, text: str):
    assert to_json_text(value) == text


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        (" ", {}),
        ('{"a":1}', {"a": 1}),
        ("[1]", {"arguments": [1]}),
        ('{"a', {"arguments": '{"a'}),
        ("\ud83d", {"arguments": "\ud83d"}),
    ],
)
def test_arguments_are_always_an_object(text: str, arguments: dict[str, object]):
    assert parse_arguments(text) == arguments


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", "{}"),
        (" ", "{}"),
        (' { "a" : 1 }', ' { "a" : 1 }'),
        ('{"a":1}{', '{"arguments":"{\\"a\\":1}{"}'),
        ("[1]", '{"arguments":[1]}'),
        ("null", '{"arguments":null}'),
    ],
)
def test_arguments_that_are_an_object_are_written_as_they_came(text: str, written: str):
    assert normalize_arguments(text) == written


class Seal(Struct):
    """Something that we wrote."""

    mark: str


@pytest.mark.parametrize("other", ["gAAAA", '{"mark":1}', "{}", "[" * 10_000, "", None, "\ud83d"])
def test_what_we_did_not_write_is_read_as_nothing(other: object):
    assert decode_as(Seal, to_json_text(Seal("x"))) == Seal("x")
    assert decode_as(Seal, other) is None
