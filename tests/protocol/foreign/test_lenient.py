"""Lenient reading: fields that fit are read, others are kept in `extra`, nothing is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import FunctionCall, Message, OutputText, Reasoning, UrlCitation
from antiphon.protocol.request import Request
from antiphon.protocol.response import CompactResource, InputTokens, Response, ResponseUsage
from antiphon.protocol.struct import ProtocolStruct, encode, to_builtins
from tests.protocol.foreign.test_reader import VALUES
from tests.protocol.strategies import ITEMS

KINDS: list[type[ProtocolStruct]] = [
    CompactResource,
    ErrorPayload,
    FunctionCall,
    InputTokens,
    Message,
    OutputText,
    Reasoning,
    Request,
    Response,
    UrlCitation,
    ResponseUsage,
]


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (ResponseUsage, {}, ResponseUsage(input_tokens=0, output_tokens=0, total_tokens=0)),
        (
            ResponseUsage,
            {"input_tokens": 3.0, "output_tokens": "many", "input_tokens_details": None},
            ResponseUsage(input_tokens=3, output_tokens=0, total_tokens=0, extra={"output_tokens": "many"}),
        ),
        (
            Message,
            {"type": "message", "role": "critic", "content": "Well.", "phase": "overture"},
            {"role": "critic", "phase": "overture", "content": ["Well."]},
        ),
        (FunctionCall, {"name": ""}, FunctionCall(call_id="", name="", arguments="")),
        (Reasoning, {"summary": None, "content": None}, Reasoning()),
        (InputTokens, 7, InputTokens(input_tokens=0)),
    ],
)
def test_fields_that_fit_are_read(kind: type[ProtocolStruct], raw: object, value: Any):
    read = LENIENT.read(kind, raw)
    if isinstance(value, dict):
        assert isinstance(read, Message)
        assert (read.role, read.phase, [read.text]) == (value["role"], value["phase"], value["content"])
    else:
        assert read == value


def test_fields_of_the_wrong_shape_are_kept_in_extra():
    response = LENIENT.read(
        Response,
        {
            "id": "resp_0",
            "instructions": ["Be brief."],
            "metadata": {"a": "b", "c": 3},
            "top_p": 1,
            "parallel_tool_calls": "yes",
            "tools": [{"type": "function", "name": "f x"}, {"type": "lathe", "rpm": 9}, "no tool"],
            "output": [{"type": "ballad", "verses": 3}],
            "novelty": True,
        },
    )
    assert response.extra == {"instructions": ["Be brief."], "parallel_tool_calls": "yes", "novelty": True}
    assert (response.metadata, response.top_p) == ({"a": "b"}, 1.0)
    assert [to_builtins(tool) for tool in response.tools] == [
        {"type": "function", "name": "f x", "description": None, "parameters": None, "strict": None},
        {"type": "lathe", "rpm": 9},
    ]
    assert [to_builtins(item) for item in response.output] == [{"type": "ballad", "verses": 3}]


@settings(deadline=None)
@given(ITEMS)
def test_a_valid_value_is_read_exactly(item: ProtocolStruct):
    assert LENIENT.read(type(item), to_builtins(item)) == item


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.data())
def test_any_json_is_read(kind: type[ProtocolStruct], data: st.DataObject):
    names = [name for name in kind.__struct_fields__ if name != "extra"]
    fields = st.fixed_dictionaries({}, optional=dict.fromkeys(names, VALUES))
    value = LENIENT.read(kind, data.draw(fields | VALUES))
    assert type(value) is kind
    assert value.extra is UNSET or value.extra
    encode(value)
