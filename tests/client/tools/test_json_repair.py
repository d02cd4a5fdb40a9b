"""JSON that stops short is closed, and JSON that does not is left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.tools.json_repair import repair_json


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
def test_what_is_missing_is_added(text: str, expected: object):
    assert json.loads(repair_json(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"a":',
        '{"a',
        '{"a": tru',
        "]",
        '{"a": 1]',
        "{'a': 1}",
        '{"a": "x',
        '{"a": "x\\',
        '{"a": "\\"',
    ],
)
def test_nothing_else_is_guessed(text: str):
    with pytest.raises(ValueError):
        json.loads(repair_json(text))


values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
)


@given(values)
def test_whole_json_keeps_its_meaning(value: Any):
    assert json.loads(repair_json(json.dumps(value))) == value


@given(values, st.data())
def test_half_a_string_is_not_taken_for_a_whole_one(value: Any, data: st.DataObject):
    whole = json.dumps({"before": value, "text": data.draw(st.text())})
    start = whole.rindex('"text": "') + len('"text": "')
    cut = whole[: data.draw(st.integers(start, len(whole) - 2))]
    with pytest.raises(ValueError):
        json.loads(repair_json(cut))


@given(values)
def test_brackets_that_are_missing_are_added(value: Any):
    whole = json.dumps({"value": [value, "end"]})
    assert (
        json.loads(repair_json(whole[:-1]))
        == json.loads(repair_json(whole[:-2]))
        == json.loads(whole)
    )
