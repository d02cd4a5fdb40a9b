"""The adapter's requests compared with those of Anthropic's SDK."""

import base64
import json

import pytest

from tests.adapters.anthropic.builders import (
    CALL,
    OLD_API_VERSION,
    WEATHER,
    anthropic_message,
    ask,
    sdk_client,
    user_message,
)
from tests.adapters.scenes import FORMAT, SCHEMA, TIME, TOOL
from tests.adapters.scenes.anthropic import MODEL, OSLO_CALL, SCENES, call_block, text_block
from tests.scripted_upstream import ScriptedAnswer, scripted_upstream

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
PDF = base64.b64encode(b"%PDF-1.7 and so on").decode()

CLOCK = {"name": "time", "input_schema": {"type": "object", "properties": {}}}


def sdk_request(**params: object) -> tuple[dict, dict]:
    """Return the body and the headers that the SDK sends."""
    answer = ScriptedAnswer(SCENES["text"].whole, headers={"content-type": "application/json"})
    params = {"model": MODEL, "max_tokens": 8192, "messages": [anthropic_message(text_block("Hello"))]} | params
    with scripted_upstream(answer) as provider:
        with sdk_client(provider.url) as sdk:
            sdk.messages.create(**params)  # type: ignore[call-overload]
        assert provider.requests[0].path == "/v1/messages"
        return provider.requests[0].json, provider.requests[0].headers


SAME = {
    "a request": ({}, {}),
    "a system text": (
        {"instructions": "Be brief.", "input": [{"role": "user", "content": "Hello"}]},
        {"system": "Be brief."},
    ),
    "a developer's message": (
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "developer", "content": "Be kind."},
                {"role": "system", "content": "Be true."},
                {"role": "user", "content": "Hello"},
            ],
        },
        {"system": "Be brief.\n\nBe kind.\n\nBe true."},
    ),
    "a conversation": (
        {
            "input": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": "Where?"},
                {"role": "user", "content": "Oslo"},
                {"role": "user", "content": ""},
                CALL | {"arguments": '{"city":"Oslo"}'},
                CALL | {"call_id": "toolu_02", "name": "time", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "toolu_02", "output": "noon"},
                {"type": "function_call_output", "call_id": "toolu_01", "output": "4 degrees"},
                {"role": "user", "content": "And tomorrow?"},
            ],
            "tools": [TOOL, TIME],
        },
        {
            "messages": [
                anthropic_message(text_block("Weather?")),
                anthropic_message(text_block("Where?"), role="assistant"),
                anthropic_message(text_block("Oslo")),
                anthropic_message(call_block(*OSLO_CALL), call_block("toolu_02", "time", {}), role="assistant"),
                anthropic_message(
                    {"type": "tool_result", "tool_use_id": "toolu_01", "content": "4 degrees"},
                    {"type": "tool_result", "tool_use_id": "toolu_02", "content": "noon"},
                    text_block("And tomorrow?"),
                ),
            ],
            "tools": [WEATHER, CLOCK],
        },
    ),
    "images": (
        {
            "input": [
                user_message(
                    {"type": "input_text", "text": "What?"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                    {"type": "input_image", "image_url": "https://host/cat.jpg"},
                    {"type": "input_image", "file_id": "file_1"},
                )
            ]
        },
        {
            "messages": [
                anthropic_message(
                    text_block("What?"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    {"type": "image", "source": {"type": "url", "url": "https://host/cat.jpg"}},
                    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
                )
            ]
        },
    ),
    "files": (
        {
            "input": [
                user_message(
                    {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
                    {"type": "input_file", "file_data": "data:text/csv;base64,YSxiCg=="},
                    {"type": "input_file", "file_url": "https://host/b.pdf"},
                    {"type": "input_file", "file_id": "file_2"},
                    {"type": "input_file", "file_data": f"data:image/png;base64,{PNG}"},
                )
            ]
        },
        {
            "messages": [
                anthropic_message(
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                        "title": "a.pdf",
                    },
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b\n"}},
                    {"type": "document", "source": {"type": "url", "url": "https://host/b.pdf"}},
                    {"type": "document", "source": {"type": "file", "file_id": "file_2"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                )
            ]
        },
    ),
    "outputs with images and files": (
        {
            "tools": [TIME],
            "input": [
                {"role": "user", "content": "Look"},
                CALL | {"arguments": '{"city":"Oslo"}'},
                {
                    "type": "function_call_output",
                    "call_id": "toolu_01",
                    "status": "incomplete",
                    "output": [
                        {"type": "input_text", "text": "Here:"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
                    ],
                },
            ],
        },
        {
            "tools": [CLOCK],
            "messages": [
                anthropic_message(text_block("Look")),
                anthropic_message(call_block(*OSLO_CALL), role="assistant"),
                anthropic_message(
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_01",
                        "content": [
                            text_block("Here:"),
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                            {
                                "type": "document",
                                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                                "title": "a.pdf",
                            },
                        ],
                        "is_error": True,
                    }
                ),
            ],
        },
    ),
    "a prefill": (
        {"input": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Dear  \n"}]},
        {"messages": [anthropic_message(text_block("Hello")), anthropic_message(text_block("Dear"), role="assistant")]},
    ),
    "tools": ({"tools": [TOOL, TIME]}, {"tools": [WEATHER, CLOCK]}),
    "tools, none of them": (
        {"tools": [TIME], "tool_choice": "none", "parallel_tool_calls": False},
        {"tools": [CLOCK], "tool_choice": {"type": "none"}},
    ),
    "tools, any of them": (
        {"tools": [TIME], "tool_choice": "required"},
        {"tools": [CLOCK], "tool_choice": {"type": "any"}},
    ),
    "tools, one of them": (
        {"tools": [TIME], "tool_choice": {"type": "function", "name": "time"}},
        {"tools": [CLOCK], "tool_choice": {"type": "tool", "name": "time"}},
    ),
    "tools, one at a time": (
        {"tools": [TIME], "parallel_tool_calls": False},
        {"tools": [CLOCK], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    "allowed tools": (
        {
            "tools": [TOOL, TIME],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "time"}],
            },
        },
        {"tools": [CLOCK], "tool_choice": {"type": "any"}},
    ),
    "allowed tools, no search among them": (
        {
            "tools": [TIME, {"type": "web_search"}],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "time"}]},
        },
        {"tools": [CLOCK]},
    ),
    "allowed tools, a search by another name": (
        {
            "tools": [TIME, {"type": "web_search"}],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "web_search_preview"}]},
        },
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ),
    "a web search": (
        {
            "tools": [
                {
                    "type": "web_search",
                    "filters": {"allowed_domains": ["oslo.no"]},
                    "user_location": {"type": "approximate", "city": "Oslo"},
                }
            ],
            "tool_choice": {"type": "web_search"},
        },
        {
            "tools": [
                {
                    "type": "web_search_20250305",
                    "name": "web_search",
                    "allowed_domains": ["oslo.no"],
                    "user_location": {"type": "approximate", "city": "Oslo"},
                }
            ],
            "tool_choice": {"type": "tool", "name": "web_search"},
        },
    ),
    "a tool of Anthropic's": (
        {
            "tools": [{"type": "anthropic:bash_20250124", "name": "bash"}],
            "tool_choice": {"type": "anthropic:bash_20250124"},
        },
        {"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "tool", "name": "bash"}},
    ),
    "structured output": ({"text": FORMAT}, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    "thinking": (
        {"reasoning": {"effort": "medium"}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}, "max_tokens": 16384},
    ),
    "thinking with a summary": (
        {"reasoning": {"effort": "max", "summary": "detailed"}, "max_output_tokens": 500},
        {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "max"},
            "max_tokens": 500,
        },
    ),
    "no thinking": ({"reasoning": {"effort": "none"}}, {}),
    "room": ({"max_output_tokens": 99}, {"max_tokens": 99}),
    "stops": ({"stop": ["END", "."]}, {"stop_sequences": ["END", "."]}),
    "a user": ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
    "an identifier": ({"user": "u1", "safety_identifier": "s1"}, {"metadata": {"user_id": "s1"}}),
    "a tier": ({"service_tier": "auto"}, {"service_tier": "auto"}),
    "a better tier": ({"service_tier": "priority"}, {"service_tier": "auto"}),
    "a cache": ({"prompt_cache_key": "k"}, {"cache_control": {"type": "ephemeral"}}),
    "a stream": ({"stream": True}, {"stream": True}),
    "a temperature": (
        {"temperature": 0.2},
        {"extra_body": {"temperature": 0.2}, "extra_headers": {"anthropic-version": OLD_API_VERSION}},
    ),
    "a top_p": (
        {"top_p": 0.5},
        {"extra_body": {"top_p": 0.5}, "extra_headers": {"anthropic-version": OLD_API_VERSION}},
    ),
    "a temperature that holds anyway": ({"temperature": 1, "top_p": 1}, {}),
}


@pytest.mark.parametrize("name", SAME)
def test_the_request_equals_the_sdks(name: str):
    ours, params = SAME[name]
    request = ask(**ours)
    body, headers = sdk_request(**params)
    assert request.body == body
    assert dict(request.sent.headers) == {"anthropic-version": headers["anthropic-version"]}
    assert request.warnings == []


def test_the_body_is_plain_json():
    request = ask(**SAME["a conversation"][0])
    assert json.loads(json.dumps(request.body)) == request.body
