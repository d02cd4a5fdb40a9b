import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from antiphon.protocol.items import LogProb
from antiphon.protocol.parts import Call, Reasoning, Text
from antiphon.protocol.request import JsonSchemaFormat, TextConfig
from antiphon.protocol.response import CompactResource, ResponseUsage
from tests.protocol.builders import NOW, make_final_response, make_message, make_response, synthesize, to_json
from tests.spec.schema_checks import (
    SCHEMA,
    check_compact_resource,
    check_event,
    check_item,
    check_response,
    schema_validator,
)

LOGPROB = LogProb(token="a", logprob=-0.5, bytes=[97], top_logprobs=[])
EVENTS = [
    cast("dict[str, Any]", to_json(event))
    for event in synthesize(
        Reasoning("Hmm", summary="So", encrypted_content="s"),
        Text("Hi", logprobs=[LOGPROB], phase="final_answer"),
        Call(0, "f"),
    )
]
SCHEMA_FORMAT = TextConfig(format=JsonSchemaFormat(schema={"type": "object"}))


def make_event(type: str) -> dict[str, Any]:
    """Return a fresh copy of the first event of a type."""
    return json.loads(json.dumps(next(event for event in EVENTS if event["type"] == type)))


def make_response_json() -> dict[str, Any]:
    """Return a fresh copy of a legal response."""
    return make_event("response.completed")["response"]


def test_a_valid_event_and_response_pass():
    for right in EVENTS:
        check_event(right)
    check_response(make_response_json())
    for item in make_response_json()["output"]:
        check_item(item)
    compact = CompactResource(id="c", output=[make_message("m", "Hi")], created_at=NOW, usage=ResponseUsage.of(1, 2))
    check_compact_resource(to_json(compact))


def set_field(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a change that puts a value at a path."""
    *place, name = path.split(".")

    def change(target: Any) -> None:
        for step in place:
            target = target[int(step) if step.isdigit() else step]
        target[name] = value

    return change


def remove_field(name: str) -> Callable[[dict[str, Any]], None]:
    """Return a change that takes a field away."""
    return lambda target: target.pop(name)


@pytest.mark.parametrize(
    ("type", "change", "complaint"),
    [
        ("response.output_text.delta", set_field("logprobs", None), "logprobs"),
        ("response.output_text.delta", set_field("obfuscation", None), "obfuscation"),
        ("response.output_text.delta", remove_field("content_index"), "content_index"),
        ("response.output_text.delta", remove_field("sequence_number"), "sequence_number"),
        ("response.output_text.delta", set_field("sequence_number", 4.0), "sequence_number"),
        ("response.reasoning.delta", set_field("type", "response.reasoning_text.delta"), "reasoning_text"),
        ("response.content_part.done", set_field("part.type", "thought"), "part"),
        ("response.content_part.done", set_field("part.text", None), "part"),
        ("response.output_item.added", set_field("item", {"type": "message"}), "item"),
        ("response.output_item.done", set_field("item.encrypted_content", None), "encrypted_content"),
        ("response.output_item.done", set_field("item.content", None), "content"),
        ("response.completed", set_field("response.text.verbosity", None), "verbosity"),
        ("response.completed", set_field("response.output.1.phase", None), "phase"),
        ("response.completed", set_field("response.output.1.status", "done"), "status"),
        ("response.completed", set_field("response.output.2.arguments", {}), "arguments"),
    ],
)
def test_an_invalid_event_is_rejected(type: str, change: Callable[[dict[str, Any]], None], complaint: str):
    wrong = make_event(type)
    change(wrong)
    with pytest.raises(AssertionError, match=complaint):
        check_event(wrong)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (remove_field("usage"), "usage"),
        (remove_field("metadata"), "metadata"),
        (set_field("created_at", 1.5), "created_at"),
        (set_field("created_at", float(NOW)), "created_at"),
        (set_field("usage", {"input_tokens": 1}), "usage"),
        (set_field("tool_choice", "sometimes"), "tool_choice"),
    ],
)
def test_an_invalid_response_is_rejected(change: Callable[[dict[str, Any]], None], complaint: str):
    wrong = make_response_json()
    change(wrong)
    with pytest.raises(AssertionError, match=complaint):
        check_response(wrong)


def test_a_schema_echoed_as_an_object_is_rejected():
    with pytest.raises(AssertionError, match="schema"):
        check_response(to_json(make_response(text=SCHEMA_FORMAT)))


def test_extensions_are_accepted():
    check_event({"type": "acme:tick", "anything": None})
    check_event({"type": "response.output_item.done", "item": {"type": "acme:search"}})
    check_response(cast("dict[str, Any]", to_json(make_final_response())) | {"output": [{"type": "acme:search"}]})


@pytest.mark.skipif(not SCHEMA.exists(), reason="the OpenAPI file is not beside the repository")
def test_the_openapi_file_is_used_too():
    delta = make_event("response.output_text.delta")
    assert schema_validator("ResponseOutputTextDeltaStreamingEvent").is_valid(delta)
    assert not schema_validator("ResponseOutputTextDeltaStreamingEvent").is_valid(delta | {"logprobs": None})
