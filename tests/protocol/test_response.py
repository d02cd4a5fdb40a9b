from typing import cast

import pytest

from antiphon.protocol.items import FunctionCall, Message, OutputText, Reasoning, RefusalContent, user_message
from antiphon.protocol.request import JsonSchemaFormat, ReasoningConfig, Request, TextConfig
from antiphon.protocol.response import CompactResource, Response, ResponseUsage
from antiphon.protocol.struct import decode
from antiphon.protocol.tools import FunctionTool, FunctionToolChoice
from tests.protocol.builders import NOW, make_message, make_response, to_json
from tests.spec.schema_checks import check_compact_resource, check_response

DEFAULTS = {
    "id": "resp_1",
    "object": "response",
    "created_at": NOW,
    "completed_at": None,
    "status": "in_progress",
    "incomplete_details": None,
    "model": "m",
    "previous_response_id": None,
    "instructions": None,
    "output": [],
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def test_a_new_response_has_the_defaults_that_apply():
    new = Response.new(Request(model="m", input=[user_message("Hi")]), id="resp_1", created_at=NOW)
    assert to_json(new) == DEFAULTS
    check_response(to_json(new))


def test_a_new_response_echoes_the_request():
    asked: dict[str, object] = {
        "model": "m",
        "previous_response_id": "resp_0",
        "instructions": "Be kind.",
        "tools": [{"type": "function", "name": "f"}],
        "tool_choice": {"type": "function", "name": "f"},
        "truncation": "auto",
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "top_p": 0.5,
        "presence_penalty": -1.5,
        "frequency_penalty": 1.5,
        "top_logprobs": 3,
        "temperature": 0,
        "reasoning": {"effort": "high"},
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "store": False,
        "service_tier": "flex",
        "metadata": {"k": "v"},
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "user": "u",
    }
    new = to_json(Response.new(decode(Request, asked), id="resp_1", created_at=NOW))
    tool = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}
    assert new == DEFAULTS | asked | {"tools": [tool], "reasoning": {"effort": "high", "summary": None}}
    check_response(new)


def test_a_background_response_starts_as_queued():
    new = Response.new(Request(model="m", background=True), id="resp_1", created_at=NOW)
    assert to_json(new) == DEFAULTS | {"status": "queued", "background": True}


def test_zero_is_not_replaced_by_a_default():
    asked = Request(model="m", temperature=0.0, top_p=0.0)
    new = Response.new(asked, id="resp_1", created_at=NOW)
    assert (new.temperature, new.top_p) == (0.0, 0.0)


def test_the_response_keeps_the_schema_of_its_format():
    format = JsonSchemaFormat(schema={"type": "object"})
    asked = Request(model="m", text=TextConfig(format=format), reasoning=ReasoningConfig())
    assert Response.new(asked, id="r", created_at=NOW).text.format == format


def test_json_types_survive_a_round_trip():
    asked = Request(
        model="m",
        tools=[FunctionTool(name="f", strict=True)],
        tool_choice=FunctionToolChoice(name="f"),
        metadata={"k": "v"},
        store=False,
        temperature=1,
    )
    new = Response.new(asked, id="r", created_at=NOW)
    again = decode(Response, to_json(new))
    assert again == new
    assert to_json(again) == to_json(new)


def test_the_total_of_usage_is_the_sum():
    assert to_json(ResponseUsage.of(1000, 200, cached=500)) == {
        "input_tokens": 1000,
        "output_tokens": 200,
        "total_tokens": 1200,
        "input_tokens_details": {"cached_tokens": 500},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    assert ResponseUsage.of(1, 2, reasoning=2).output_tokens_details.reasoning_tokens == 2


def test_output_text_joins_the_text_of_all_messages():
    response = make_response(
        output=[
            Reasoning(summary=[OutputText(text="thought")]),
            make_message("m", "Hel", "lo"),
            FunctionCall(call_id="c", name="f", arguments="{}"),
            Message(role="assistant", content=[OutputText(text=", world"), RefusalContent(refusal="no")]),
        ]
    )
    assert response.output_text == "Hello, world"
    assert make_response().output_text == ""


@pytest.mark.parametrize("status", ["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"])
def test_every_status_survives_a_round_trip(status: str):
    raw = cast("dict[str, object]", to_json(make_response(status=status)))
    assert raw["status"] == status
    assert to_json(decode(Response, raw)) == raw


def test_a_compacted_conversation_matches_the_specification():
    message = Message(id="msg_1", status="completed", role="user", content=user_message("Hi").content)
    resource = CompactResource(id="c", output=[message], created_at=NOW, usage=ResponseUsage.of(3, 4))
    check_compact_resource(to_json(resource))
