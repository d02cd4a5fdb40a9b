"""The adapter's requests compared with those of AWS's SDK."""

import base64
import json

import pytest

from antiphon.adapters.base import Capabilities
from tests.adapters.bedrock.builders import (
    BEDROCK,
    CALL,
    CLAUDE,
    DOCUMENT_BLOCK,
    FILE,
    HELLO,
    IMAGE,
    IMAGE_BLOCK,
    LOOSE_TOOL,
    LOOSE_TOOL_SPEC,
    NEW_CLAUDE,
    TOOL_SPEC,
    TOOL_USE,
    assistant_message,
    aws_client_request,
    call_output,
    tool_result,
    user_input,
    user_message,
)
from tests.adapters.run_adapter import encode_request
from tests.adapters.scenes import FORMAT, SCHEMA, TIME, TOOL

JSON_FORMAT = {
    "type": "json_schema",
    "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA, separators=(",", ":")), "name": "report"}},
}

SAME = {
    "instructions and system messages": (
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": "Hello"},
                {"role": "system", "content": "Be true."},
            ],
        },
        {"system": [{"text": "Be brief."}, {"text": "Be kind."}, {"text": "Be true."}]},
    ),
    "a conversation": (
        {
            "input": [
                {"role": "user", "content": "Hello"},
                {"role": "user", "content": [{"type": "input_text", "text": "you"}]},
                {"role": "assistant", "content": "Hi"},
                {"role": "user", "content": "Bye"},
            ]
        },
        {
            "messages": [
                user_message({"text": "Hello"}, {"text": "you"}),
                assistant_message({"text": "Hi"}),
                user_message({"text": "Bye"}),
            ]
        },
    ),
    "calls and outputs": (
        {
            "input": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Let me see."},
                CALL,
                {**CALL, "call_id": "b", "name": "time", "arguments": ""},
                {"type": "function_call_output", "call_id": "b", "output": ""},
                call_output("Sunny."),
                {"role": "user", "content": "And?"},
            ],
            "tools": [TOOL],
        },
        {
            "messages": [
                *HELLO,
                assistant_message(
                    {"text": "Let me see."}, TOOL_USE, {"toolUse": {"toolUseId": "b", "name": "time", "input": {}}}
                ),
                user_message(
                    {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "Sunny."}]}},
                    {"toolResult": {"toolUseId": "b", "content": [{"text": "(no output)"}]}},
                    {"text": "And?"},
                ),
            ],
            "toolConfig": {"tools": [TOOL_SPEC]},
        },
    ),
    "images": (
        {"input": user_input({"type": "input_text", "text": "What?"}, IMAGE)},
        {"messages": [user_message({"text": "What?"}, IMAGE_BLOCK)]},
    ),
    "files": (
        {"input": user_input(FILE, {"type": "input_text", "text": "What?"}, FILE)},
        {
            "messages": [
                user_message(
                    DOCUMENT_BLOCK,
                    {"text": "What?"},
                    {"document": {**DOCUMENT_BLOCK["document"], "name": "report v1 2"}},
                )
            ]
        },
    ),
    "a file alone": ({"input": user_input(FILE)}, {"messages": [user_message(DOCUMENT_BLOCK, {"text": "report v1"})]}),
    "an image as a file": (
        {"input": user_input({"type": "input_file", "filename": "a.png", "file_data": IMAGE["image_url"]})},
        {"messages": [user_message(IMAGE_BLOCK)]},
    ),
    "a text file": (
        {
            "input": user_input(
                {
                    "type": "input_file",
                    "filename": "mod.py",
                    "file_data": "data:text/x-python;base64," + base64.b64encode(b"x = 1").decode(),
                },
                {"type": "input_text", "text": "What?"},
            )
        },
        {
            "messages": [
                user_message(
                    {"document": {"format": "txt", "name": "mod", "source": {"bytes": b"x = 1"}}}, {"text": "What?"}
                )
            ]
        },
    ),
    "a file whose format only its name tells": (
        {
            "input": user_input(
                {
                    "type": "input_file",
                    "filename": "table.CSV",
                    "file_data": "data:application/octet-stream;base64," + base64.b64encode(b"a,b").decode(),
                },
                {"type": "input_text", "text": "What?"},
            )
        },
        {
            "messages": [
                user_message(
                    {"document": {"format": "csv", "name": "table", "source": {"bytes": b"a,b"}}}, {"text": "What?"}
                )
            ]
        },
    ),
    "outputs with images and files": (
        {
            "input": [
                {"role": "user", "content": "Hello"},
                CALL,
                call_output([{"type": "input_text", "text": "Here."}, IMAGE, FILE], status="incomplete"),
            ],
            "tools": [LOOSE_TOOL],
        },
        {
            "messages": [
                *HELLO,
                assistant_message(TOOL_USE),
                tool_result({"text": "Here."}, IMAGE_BLOCK, DOCUMENT_BLOCK, status="error"),
            ],
            "toolConfig": {"tools": [LOOSE_TOOL_SPEC]},
        },
    ),
    "tools": (
        {"tools": [TOOL, TIME]},
        {
            "toolConfig": {
                "tools": [TOOL_SPEC, {"toolSpec": {"name": "time", "inputSchema": {"json": TIME["parameters"]}}}]
            }
        },
    ),
    "a call that is demanded": (
        {"tools": [LOOSE_TOOL], "tool_choice": "required"},
        {"toolConfig": {"tools": [LOOSE_TOOL_SPEC], "toolChoice": {"any": {}}}},
    ),
    "one tool that is demanded": (
        {"tools": [LOOSE_TOOL], "tool_choice": {"type": "function", "name": "weather"}},
        {"toolConfig": {"tools": [LOOSE_TOOL_SPEC], "toolChoice": {"tool": {"name": "weather"}}}},
    ),
    "no call": ({"tools": [LOOSE_TOOL], "tool_choice": "none"}, {}),
    "no call after calls": (
        {
            "input": [{"role": "user", "content": "Hello"}, CALL, call_output("Sunny.")],
            "tools": [LOOSE_TOOL],
            "tool_choice": "none",
        },
        {
            "messages": [*HELLO, assistant_message(TOOL_USE), tool_result({"text": "Sunny."})],
            "toolConfig": {"tools": [LOOSE_TOOL_SPEC]},
        },
    ),
    "allowed tools": (
        {
            "tools": [LOOSE_TOOL, TIME],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "weather"}],
            },
        },
        {"toolConfig": {"tools": [LOOSE_TOOL_SPEC], "toolChoice": {"any": {}}}},
    ),
    "a tool of the service's own": (
        {"tools": [{"type": "bedrock:nova_grounding"}]},
        {"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}},
    ),
    "a tool of the service's own that is demanded": (
        {"tools": [{"type": "bedrock:nova_grounding"}], "tool_choice": {"type": "bedrock:nova_grounding"}},
        {
            "toolConfig": {
                "tools": [{"systemTool": {"name": "nova_grounding"}}],
                "toolChoice": {"tool": {"name": "nova_grounding"}},
            }
        },
    ),
    "one call at a time": (
        {"tools": [LOOSE_TOOL], "parallel_tool_calls": False},
        {"toolConfig": {"tools": [LOOSE_TOOL_SPEC]}},
    ),
    "a schema": ({"text": FORMAT}, {"outputConfig": {"textFormat": JSON_FORMAT}}),
    "a schema and tools": (
        {"text": FORMAT, "tools": [LOOSE_TOOL]},
        {"outputConfig": {"textFormat": JSON_FORMAT}, "toolConfig": {"tools": [LOOSE_TOOL_SPEC]}},
    ),
    "options": (
        {"max_output_tokens": 100, "temperature": 0.5, "top_p": 1, "stop": ["END", "STOP"]},
        {"inferenceConfig": {"maxTokens": 100, "temperature": 0.5, "stopSequences": ["END", "STOP"]}},
    ),
    "a tier": ({"service_tier": "flex"}, {"serviceTier": {"type": "flex"}}),
    "thinking with a budget": (
        {"reasoning": {"effort": "medium"}},
        {
            "inferenceConfig": {"maxTokens": 8192 + 8192},
            "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 8192}},
        },
    ),
    "caching": (
        {"instructions": "Be brief.", "tools": [LOOSE_TOOL], "prompt_cache_key": "k"},
        {
            "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
            "messages": [user_message({"text": "Hello"}, {"cachePoint": {"type": "default"}})],
            "toolConfig": {"tools": [LOOSE_TOOL_SPEC, {"cachePoint": {"type": "default"}}]},
        },
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_request_equals_the_sdks(name: str):
    ours, equivalent = SAME[name]
    request = encode_request(BEDROCK, upstream_model=CLAUDE, **ours)
    path, body = aws_client_request(**equivalent)
    assert request.sent.url == f"https://bedrock-runtime.eu-west-1.amazonaws.com{path}"
    assert request.body == body
    assert request.warnings == []


HIGH_EFFORT: dict = {"reasoning": {"effort": "high"}}
NOVA = "amazon.nova-2-lite-v1:0"
THINKING = [
    (NEW_CLAUDE, "high", {"thinking": {"type": "adaptive"}}, "high"),
    ("amazon.nova-2-lite-v1:0", "low", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}, None),
    ("openai.gpt-oss-120b-1:0", "medium", {"reasoning_effort": "medium"}, None),
    ("us.moonshot.kimi-k2-thinking", "high", {"reasoning_effort": "high"}, None),
    ("openai.gpt-5.6", "xhigh", {"reasoning": {"effort": "xhigh"}}, None),
    ("openai.gpt-5.6", "none", {"reasoning": {"effort": "none"}}, None),
    ("zai.glm-5", "high", {}, "high"),
    ("zai.glm-5", "none", {}, None),
    ("amazon.nova-2-lite-v1:0", "none", {}, None),
    (CLAUDE, "none", {}, None),
]


@pytest.mark.parametrize(("model", "effort", "fields", "level"), THINKING)
def test_reasoning_is_requested_in_the_fields_of_the_vendor(model: str, effort: str, fields: dict, level: str | None):
    request = encode_request(BEDROCK, upstream_model=model, reasoning={"effort": effort})
    equivalent: dict[str, object] = {"modelId": model}
    if fields:
        equivalent["additionalModelRequestFields"] = fields
    if level:
        equivalent["outputConfig"] = {"effort": level}
    if model == NEW_CLAUDE:
        equivalent["inferenceConfig"] = {"maxTokens": 8192 + 16384}
    path, body = aws_client_request(**equivalent)
    assert request.body == body
    assert request.sent.url.endswith(path)
    assert request.warnings == []


@pytest.mark.parametrize(
    ("model", "options", "fields", "param"),
    [
        ("openai.gpt-oss-20b-1:0", {"reasoning": {"effort": "max"}}, {"reasoning_effort": "high"}, "reasoning.effort"),
        ("openai.gpt-5.6", {"reasoning": {"effort": "minimal"}}, {"reasoning": {"effort": "low"}}, "reasoning.effort"),
        (
            "amazon.nova-2-lite-v1:0",
            {"reasoning": {"effort": "high"}, "max_output_tokens": 500},
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}},
            "reasoning.effort",
        ),
        ("amazon.nova-pro-v1:0", {"reasoning": {"effort": "high"}}, None, "reasoning.effort"),
        ("openai.gpt-5.6", {"reasoning": {"summary": "auto"}}, None, "reasoning.summary"),
        (
            CLAUDE,
            {"reasoning": {"effort": "high"}, "tools": [LOOSE_TOOL], "tool_choice": "required"},
            None,
            "reasoning",
        ),
        (CLAUDE, {"reasoning": {"effort": "high"}, "max_output_tokens": 100}, None, "reasoning"),
        ("anthropic.claude-3-haiku-20240307-v1:0", {"reasoning": {"effort": "low"}}, None, "reasoning"),
        (
            CLAUDE,
            {
                "reasoning": {"effort": "high"},
                "tools": [LOOSE_TOOL],
                "input": [{"role": "user", "content": "Hello"}, CALL, call_output("Sunny.")],
            },
            None,
            "reasoning",
        ),
        (
            CLAUDE,
            {
                "reasoning": {"effort": "high"},
                "tools": [LOOSE_TOOL],
                "input": [
                    {"role": "user", "content": "Hello"},
                    CALL,
                    call_output("Sunny."),
                    {"role": "system", "content": "Be brief."},
                    {"role": "developer", "content": "Be kind."},
                ],
            },
            None,
            "reasoning",
        ),
    ],
)
def test_unsupported_reasoning_options_are_warned_of(model: str, options: dict, fields: dict | None, param: str):
    request = encode_request(BEDROCK, upstream_model=model, **options)
    assert request.body.get("additionalModelRequestFields") == fields
    assert [warning.param for warning in request.warnings] == [param]


@pytest.mark.parametrize(
    ("model", "fields", "sent", "params"),
    [
        (CLAUDE, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, ["top_p"]),
        (CLAUDE, {"temperature": 1, "top_p": 0.9}, {"topP": 0.9}, []),
        (CLAUDE, {"temperature": 1.5}, None, ["temperature"]),
        (NEW_CLAUDE, {"temperature": 1, "top_p": 1}, None, []),
        (NEW_CLAUDE, {"temperature": 0.5, "top_p": 0.9}, None, ["temperature", "top_p"]),
        (NOVA, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "topP": 0.9}, []),
        (NOVA, {"temperature": 1, "top_p": 1}, {"temperature": 1, "topP": 1}, []),
        (NOVA, {"reasoning": {"effort": "high"}, "temperature": 0.5, "top_p": 0.9}, None, ["temperature", "top_p"]),
    ],
)
def test_sampling_follows_the_rules_of_the_vendor(model: str, fields: dict, sent: dict | None, params: list[str]):
    request = encode_request(BEDROCK, upstream_model=model, **fields)
    assert request.body.get("inferenceConfig") == sent
    assert [warning.param for warning in request.warnings] == params


def test_sampling_is_left_out_while_the_model_thinks():
    request = encode_request(BEDROCK, upstream_model=CLAUDE, reasoning={"effort": "low"}, temperature=0.5, top_p=0.5)
    assert request.body["inferenceConfig"] == {"maxTokens": 8192 + 2048}
    assert [warning.param for warning in request.warnings] == ["temperature", "top_p"]


@pytest.mark.parametrize(
    ("model", "fields", "configured", "room"),
    [
        (CLAUDE, HIGH_EFFORT, None, 8192 + 16384),
        (CLAUDE, HIGH_EFFORT | {"max_output_tokens": 20000}, 64000, 20000),
        (CLAUDE, HIGH_EFFORT, 64000, 64000),
        (CLAUDE, {}, 64000, 64000),
        (NEW_CLAUDE, HIGH_EFFORT, None, 8192 + 16384),
        (NEW_CLAUDE, {}, None, None),
        ("anthropic.claude-sonnet-5-0", {}, None, 8192 + 16384),
        (NOVA, HIGH_EFFORT, 64000, None),
    ],
)
def test_thinking_raises_the_output_limit(model: str, fields: dict, configured: int | None, room: int | None):
    capabilities = Capabilities(max_output_tokens=configured)
    request = encode_request(BEDROCK, upstream_model=model, capabilities=capabilities, **fields)
    sent = {"maxTokens": room} if room else None
    assert request.body.get("inferenceConfig") == sent
    assert request.warnings == []
