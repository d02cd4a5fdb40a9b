from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.events import Event, ExtensionEvent, OutputTextDelta, decode_event
from antiphon.protocol.items import Content, ExtensionContent, ExtensionItem, InputText, Item, Message
from antiphon.protocol.request import CompactRequest, ReasoningConfig, Request, WebSocketCreate
from antiphon.protocol.response import Response
from antiphon.protocol.struct import (
    InvalidValueError,
    ProtocolStruct,
    decode,
    decode_as,
    encode,
    is_extension_type,
    list_unknown_fields,
    to_builtins,
)
from antiphon.protocol.tools import Tool
from tests.protocol.builders import make_message, make_response, to_json

ITEMS: dict[str, dict[str, object]] = {
    "a message": {
        "type": "message",
        "id": "m",
        "status": "completed",
        "role": "assistant",
        "content": [
            {
                "type": "output_text",
                "text": "Hi",
                "annotations": [
                    {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1, "title": "t", "odd": 1},
                    {"type": "acme:note", "page": 3},
                ],
                "logprobs": [
                    {
                        "token": "a",
                        "logprob": -0.5,
                        "bytes": [97],
                        "top_logprobs": [{"token": "b", "logprob": -1, "bytes": [], "odd": 1}],
                        "odd": 1,
                    }
                ],
                "odd": {"deep": [1, None]},
            },
            {"type": "refusal", "refusal": "No", "odd": None},
            {"type": "acme:chart", "data": [1]},
        ],
        "phase": "commentary",
        "odd": 1,
    },
    "a prompt": {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Hi", "odd": 1},
            {"type": "input_image", "image_url": "u", "detail": "low", "odd": 1},
            {"type": "input_file", "filename": "f", "file_data": "d", "file_url": "u", "odd": 1},
            {"type": "input_video", "video_url": "u", "odd": 1},
            {"type": "text", "text": "Hi", "odd": 1},
        ],
    },
    "a call": {
        "type": "function_call",
        "id": "f",
        "call_id": "c",
        "name": "n",
        "arguments": "{}",
        "status": "completed",
        "odd": 1,
    },
    "an output": {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "42", "odd": 1}],
        "odd": 1,
    },
    "an output of words": {"type": "function_call_output", "call_id": "c", "output": "42"},
    "reasoning": {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "s", "odd": 1}],
        "content": [{"type": "reasoning_text", "text": "t", "odd": 1}],
        "encrypted_content": "e",
        "odd": 1,
    },
    "a compaction": {"type": "compaction", "id": "c", "encrypted_content": "e", "odd": 1},
    "a reference": {"type": "item_reference", "id": "m", "odd": 1},
    "an extension's": {"type": "acme:search", "id": "s", "status": "searching", "query": "q"},
}
TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "odd": None},
        "strict": True,
        "odd": 1,
    },
    {"type": "acme:search", "depth": 2, "nested": {"type": "anything"}},
]
EVENTS: list[dict[str, object]] = [
    {
        "type": "response.output_text.delta",
        "sequence_number": 1,
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
        "delta": "Hi",
        "odd": 1,
    },
    {"type": "acme:tick", "sequence_number": 1, "anything": {"n": None}},
    {
        "type": "error",
        "sequence_number": 1,
        "error": {"type": "t", "message": "m", "code": None, "param": None, "odd": 1},
    },
    {
        "type": "response.output_item.done",
        "sequence_number": 1,
        "output_index": 0,
        "item": {"type": "acme:search", "query": "q"},
    },
]


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_survives_with_the_fields_we_do_not_know(name: str):
    assert to_json(decode_as(Item, ITEMS[name])) == ITEMS[name]


@pytest.mark.parametrize("raw", TOOLS)
def test_every_tool_survives_with_the_fields_we_do_not_know(raw: dict[str, object]):
    assert to_json(decode_as(Tool, raw)) == raw


@pytest.mark.parametrize("raw", EVENTS)
def test_every_event_survives_with_the_fields_we_do_not_know(raw: dict[str, object]):
    assert to_json(decode_event(raw)) == raw


def test_a_whole_request_survives_with_the_fields_we_do_not_know():
    asked: dict[str, object] = {
        "model": "m",
        "input": list(ITEMS.values()),
        "tools": TOOLS,
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "f", "odd": 1}, {"type": "acme:search"}],
            "odd": 1,
        },
        "text": {
            "format": {
                "type": "json_schema",
                "name": "n",
                "description": None,
                "schema": {"type": "object"},
                "strict": True,
                "odd": 1,
            },
            "verbosity": "low",
            "odd": 1,
        },
        "reasoning": {"effort": "low", "summary": None, "odd": 1},
        "stream_options": {"include_obfuscation": True, "odd": 1},
        "odd": {"anything": 1},
    }
    written = cast("dict[str, object]", to_json(decode(Request, asked)))
    assert {name: written[name] for name in asked} == asked


def test_a_whole_response_survives_with_the_fields_we_do_not_know():
    raw = cast("dict[str, object]", to_json(make_response()))
    raw |= {
        "output": list(ITEMS.values()),
        "tools": TOOLS,
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "total_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0, "odd": 1},
            "output_tokens_details": {"reasoning_tokens": 0, "odd": 1},
            "odd": 1,
        },
        "error": {"code": "c", "message": "m", "odd": 1},
        "incomplete_details": {"reason": "r", "odd": 1},
        "antiphon:warnings": [{"code": "c", "message": "m", "odd": 1}],
        "odd": 1,
    }
    assert to_json(decode(Response, raw)) == raw


def test_an_unknown_field_can_be_read():
    item = decode_as(ExtensionItem, {"type": "acme:search", "query": "q"})
    assert isinstance(item, ExtensionItem)
    assert (item.get("query"), item.get("other"), item.get("other", 3)) == ("q", None, 3)
    assert InputText(text="Hi").get("query", 3) == 3


def test_a_field_we_know_is_never_overwritten_by_an_unknown_one():
    odd = ExtensionEvent(type="acme:tick", sequence_number=1, extra={"sequence_number": 2, "n": 3})
    assert to_json(odd) == {"type": "acme:tick", "sequence_number": 1, "n": 3}


def test_a_value_that_is_already_decoded_is_unchanged():
    message = make_message("m", "Hi")
    assert decode_as(Item, message) is message
    assert decode(Request, {"input": [message]}).input == [message]


OPTIONAL: list[tuple[type[ProtocolStruct], dict[str, object], list[str]]] = [
    (Request, {}, [name for name in Request.__struct_fields__ if name != "extra"]),
    (CompactRequest, {"model": "m"}, ["input", "previous_response_id", "instructions"]),
    (WebSocketCreate, {}, ["type", "generate", "stream_id"]),
    (Message, {"role": "user", "content": []}, ["id", "status", "phase", "type"]),
    (ReasoningConfig, {}, ["effort", "summary"]),
    (
        OutputTextDelta,
        {"sequence_number": 0, "item_id": "m", "output_index": 0, "content_index": 0, "delta": ""},
        ["logprobs", "obfuscation"],
    ),
]


@pytest.mark.parametrize(
    ("kind", "raw", "name"),
    [(kind, raw, name) for kind, raw, names in OPTIONAL for name in names],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_null_means_that_an_optional_field_is_absent(kind: type[ProtocolStruct], raw: dict[str, object], name: str):
    assert decode(kind, raw | {name: None}) == decode(kind, raw)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"type": "message", "role": "user", "content": []}, "phase"),
        ({"type": "message", "role": "user", "content": []}, "status"),
        ({"type": "reasoning", "summary": []}, "content"),
        ({"type": "reasoning", "summary": []}, "encrypted_content"),
        ({"type": "reasoning", "summary": []}, "id"),
        ({"type": "compaction", "encrypted_content": "e"}, "created_by"),
        ({"type": "acme:search"}, "status"),
    ],
)
def test_null_is_never_written_for_an_optional_field(raw: dict[str, object], name: str):
    assert to_json(decode_as(Item, raw | {name: None})) == raw


@pytest.mark.parametrize(
    ("raw", "path", "reason"),
    [
        ({"type": "nonsense"}, "type", None),
        ({}, "type", None),
        ({"type": 5}, "type", None),
        ("words", "", "expected an object, got 'words'"),
        (None, "", "expected an object, got null"),
        ([], "", "expected an object, got an array"),
        (1.5, "", "expected an object, got 1.5"),
        (True, "", "expected an object, got true"),
        ({"type": "message", "role": "user"}, "content", "this field is required"),
        ({"type": "message", "role": "user", "content": 5}, "content", "expected an array, got 5"),
        ({"type": "message", "role": "user", "content": [{}, 5]}, "content[0].type", None),
        ({"type": "message", "role": "user", "content": ["words"]}, "content[0]", "expected an object, got 'words'"),
        (
            {"type": "message", "role": "robot", "content": []},
            "role",
            "expected one of 'user', 'assistant', 'system', 'developer', got 'robot'",
        ),
        (
            {"type": "function_call_output", "call_id": "", "output": ""},
            "call_id",
            "expected a string of 1 to 64 characters, got ''",
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": 5},
            "output",
            "expected a string of at most 10485760 characters, got 5",
        ),
    ],
)
def test_an_invalid_value_is_reported_with_its_path(raw: object, path: str, reason: str | None):
    with pytest.raises(InvalidValueError) as caught:
        decode_as(Item, raw)
    assert caught.value.path == path
    assert reason is None or caught.value.reason == reason


def test_a_path_contains_array_indexes():
    asked = {"input": [{"role": "user", "content": [{"type": "input_text", "text": ""}, {"type": "nonsense"}]}]}
    with pytest.raises(InvalidValueError, match=r"^input\[0\]\.content\[1\]\.type: "):
        decode(Request, asked)


def test_an_unknown_type_is_reported_with_the_known_ones():
    with pytest.raises(InvalidValueError) as caught:
        decode_as(Item, {"type": "nonsense"}, "input[2]")
    assert str(caught.value) == (
        "input[2].type: unknown type 'nonsense'; known: 'message', 'function_call', "
        "'function_call_output', 'reasoning', 'compaction', 'item_reference'; "
        "extensions are written 'slug:nonsense'"
    )


def test_a_missing_type_is_reported_with_the_known_ones():
    with pytest.raises(InvalidValueError) as caught:
        decode_as(Tool, {"name": "f"}, "tools[0]")
    assert str(caught.value) == "tools[0].type: this field is required: one of 'function'"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_fast_and_slow_encoding_agree(text: str):
    message = make_message("m", text, '"~extra":', "~extra")
    assert encode(message) == msgspec.json.encode(to_builtins(message))


def test_unknown_fields_are_written_beside_the_known_ones():
    part = ExtensionContent(type="acme:chart", extra={"data": [1], "~extra": 2})
    assert encode([part]) == b'[{"type":"acme:chart","data":[1],"~extra":2}]'


def test_a_field_named_like_the_extra_marker_survives():
    tool = {"type": "function", "name": "f", "parameters": {"~extra": 1}}
    written = cast("dict[str, object]", to_json(decode_as(Tool, tool)))
    assert written["parameters"] == {"~extra": 1}


def test_the_types_of_extensions_can_be_renamed():
    message = decode_as(Item, ITEMS["a message"])
    renamed = cast("dict[str, list[object]]", to_builtins(message, lambda name: name.split(":")[1]))
    assert renamed["content"][2] == {"type": "chart", "data": [1]}
    assert renamed["type"] == "message"


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("vtcode:file_change", True),
        ("acme:search_result", True),
        ("Acme2:Search_3", True),
        ("file_change", False),
        ("vt-code:x", False),
        ("vtcode:file-change", False),
        (":x", False),
        ("vtcode:", False),
        (":", False),
        ("", False),
        ("a:b:c", False),
        ("a :b", False),
        ("ä:b", False),
        ("a:b\n", False),
    ],
)
def test_an_extension_type_is_a_slug_and_a_name(name: str, valid: bool):
    assert is_extension_type(name) is valid


@pytest.mark.parametrize("union", [Item, Content, Tool, Event])
def test_every_union_accepts_extensions_and_rejects_other_unknown_types(union: object):
    raw = {"type": "acme:thing", "sequence_number": 0, "odd": [1]}
    assert to_json(decode_as(union, raw)) == raw
    with pytest.raises(InvalidValueError, match="unknown type 'thing'"):
        decode_as(union, raw | {"type": "thing"})


def test_unknown_fields_are_listed_unless_null_or_an_extensions():
    request = decode(Request, {"odd": 1, "none": None, "acme:own": 2})
    assert list_unknown_fields(request) == ["odd"]
    assert list_unknown_fields(Request()) == []


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"temperature": "hot"}, "temperature: expected a number between 0 and 2, or null, got 'hot'"),
        ({"store": "yes"}, "store: expected true or false, got 'yes'"),
        ({"metadata": {"a": 1}}, "metadata.a: expected a string of at most 512 characters, got 1"),
        (
            {"metadata": {str(index): "" for index in range(17)}},
            "metadata: expected an object of at most 16 entries, got an object of 17",
        ),
        ({"stop": ["a", ""]}, "stop[1]: expected a string that is not empty, got ''"),
        ({"user": ["a"]}, "user: expected a string, or null, got an array"),
        (
            {"safety_identifier": "x" * 65},
            "safety_identifier: expected a string of at most 64 characters, or null, "
            f"got '{'x' * 40}…' (65 characters)",
        ),
        (
            {"top_logprobs": 10**400},
            "top_logprobs: expected a whole number between 0 and 20, or null, got a whole number",
        ),
    ],
)
def test_types_and_limits_are_reported_in_words(raw: object, message: str):
    with pytest.raises(InvalidValueError) as caught:
        decode(Request, raw)
    assert str(caught.value) == message
