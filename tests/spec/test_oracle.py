import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from antiphon.core.content import LogProb
from antiphon.core.parts import Call, Reasoning, Text
from antiphon.core.request import JsonSchemaFormat, TextConfig
from antiphon.core.response import CompactResource, Usage
from tests.core.making import NOW, begun, ended, jsoned, message, stream
from tests.spec.oracle import (
    SCHEMA,
    check_compact,
    check_event,
    check_item,
    check_response,
    validator,
)

CHANCE = LogProb(token="a", logprob=-0.5, bytes=[97], top_logprobs=[])
EVENTS = [
    cast("dict[str, Any]", jsoned(event))
    for event in stream(
        Reasoning("Hmm", summary="So", encrypted_content="s"),
        Text("Hi", logprobs=[CHANCE], phase="final_answer"),
        Call(0, "f"),
    )
]
SCHEMATIC = TextConfig(format=JsonSchemaFormat(schema={"type": "object"}))


def event(type: str) -> dict[str, Any]:
    """Return a fresh copy of the first event of a type."""
    return json.loads(json.dumps(next(event for event in EVENTS if event["type"] == type)))


def response() -> dict[str, Any]:
    """Return a fresh copy of a legal response."""
    return event("response.completed")["response"]


def test_what_is_right_passes():
    for right in EVENTS:
        check_event(right)
    check_response(response())
    for item in response()["output"]:
        check_item(item)
    compact = CompactResource(
        id="c", output=[message("m", "Hi")], created_at=NOW, usage=Usage.of(1, 2)
    )
    check_compact(jsoned(compact))


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a change that puts a value at a path."""
    *place, name = path.split(".")

    def change(target: Any) -> None:
        for step in place:
            target = target[int(step) if step.isdigit() else step]
        target[name] = value

    return change


def drop(name: str) -> Callable[[dict[str, Any]], None]:
    """Return a change that takes a field away."""
    return lambda target: target.pop(name)


@pytest.mark.parametrize(
    ("type", "change", "complaint"),
    [
        ("response.output_text.delta", put("logprobs", None), "logprobs"),
        ("response.output_text.delta", put("obfuscation", None), "obfuscation"),
        ("response.output_text.delta", drop("content_index"), "content_index"),
        ("response.output_text.delta", drop("sequence_number"), "sequence_number"),
        ("response.output_text.delta", put("sequence_number", 4.0), "sequence_number"),
        (
            "response.reasoning.delta",
            put("type", "response.reasoning_text.delta"),
            "reasoning_text",
        ),
        ("response.content_part.done", put("part.type", "thought"), "part"),
        ("response.content_part.done", put("part.text", None), "part"),
        ("response.output_item.added", put("item", {"type": "message"}), "item"),
        ("response.output_item.done", put("item.encrypted_content", None), "encrypted_content"),
        ("response.output_item.done", put("item.content", None), "content"),
        ("response.completed", put("response.text.verbosity", None), "verbosity"),
        ("response.completed", put("response.output.1.phase", None), "phase"),
        ("response.completed", put("response.output.1.status", "done"), "status"),
        ("response.completed", put("response.output.2.arguments", {}), "arguments"),
    ],
)
def test_what_is_wrong_in_an_event_is_caught(
    type: str, change: Callable[[dict[str, Any]], None], complaint: str
):
    wrong = event(type)
    change(wrong)
    with pytest.raises(AssertionError, match=complaint):
        check_event(wrong)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (drop("usage"), "usage"),
        (drop("metadata"), "metadata"),
        (put("created_at", 1.5), "created_at"),
        (put("created_at", float(NOW)), "created_at"),
        (put("usage", {"input_tokens": 1}), "usage"),
        (put("tool_choice", "sometimes"), "tool_choice"),
    ],
)
def test_what_is_wrong_in_a_response_is_caught(
    change: Callable[[dict[str, Any]], None], complaint: str
):
    wrong = response()
    change(wrong)
    with pytest.raises(AssertionError, match=complaint):
        check_response(wrong)


def test_a_schema_echoed_as_an_object_is_caught():
    with pytest.raises(AssertionError, match="schema"):
        check_response(jsoned(begun(text=SCHEMATIC)))


def test_extensions_are_let_pass():
    check_event({"type": "acme:tick", "anything": None})
    check_event({"type": "response.output_item.done", "item": {"type": "acme:search"}})
    check_response(cast("dict[str, Any]", jsoned(ended())) | {"output": [{"type": "acme:search"}]})


@pytest.mark.skipif(not SCHEMA.exists(), reason="the OpenAPI file is not beside the repository")
def test_the_openapi_file_is_asked_too():
    delta = event("response.output_text.delta")
    assert validator("ResponseOutputTextDeltaStreamingEvent").is_valid(delta)
    assert not validator("ResponseOutputTextDeltaStreamingEvent").is_valid(
        delta | {"logprobs": None}
    )
