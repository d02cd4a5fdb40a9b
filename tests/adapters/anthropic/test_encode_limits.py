"""What Anthropic does not support: rejected, warned of, or sent in another form."""

import pytest

from antiphon.protocol.errors import RequestError
from tests.adapters.anthropic.builders import (
    CALL,
    HIGH_EFFORT,
    NEW_API_VERSION,
    OLD_API_VERSION,
    REQUIRED_TOOL,
    TOOL_LOOP,
    anthropic_message,
    ask,
    user_message,
    user_text,
    warning_codes,
)
from tests.adapters.run_adapter import decode_response
from tests.adapters.scenes import FORMAT, TIME
from tests.adapters.scenes.anthropic import MODEL, stream, text_block, text_deltas, usage


@pytest.mark.parametrize(
    ("model", "fields", "kept", "params"),
    [
        ("claude-opus-4-7", {"temperature": 0.2, "top_p": 0.5}, {}, ["temperature", "top_p"]),
        (MODEL, HIGH_EFFORT | {"temperature": 0.2}, {}, ["temperature"]),
        (MODEL, HIGH_EFFORT | {"temperature": 1}, {}, []),
        (MODEL, {"temperature": 0.2, "top_p": 0.5}, {"temperature": 0.2}, ["top_p"]),
        (MODEL, {"temperature": 1.5}, {}, ["temperature"]),
    ],
)
def test_unsupported_sampling_is_left_out_with_a_warning(model: str, fields: dict, kept: dict, params: list[str]):
    request = ask(model, **fields)
    sent = {name: request.body[name] for name in request.body if name in ("temperature", "top_p")}
    assert sent == kept
    assert warning_codes(request) == [("unsupported_parameter", param) for param in params]
    assert dict(request.sent.headers) == {"anthropic-version": OLD_API_VERSION if kept else NEW_API_VERSION}


def test_a_forced_call_is_rejected_for_models_that_cannot_be_forced():
    with pytest.raises(RequestError) as refused:
        ask("claude-opus-5-5", **REQUIRED_TOOL)
    assert refused.value.payload.param == "tool_choice"
    assert ask("claude-haiku-5-5", **REQUIRED_TOOL).body["tool_choice"] == {"type": "any"}


def test_json_without_a_schema_uses_a_forced_tool():
    request = ask(text={"format": {"type": "json_object"}})
    assert request.body["tool_choice"] == {"type": "tool", "name": "final_answer"}
    assert [tool["name"] for tool in request.body["tools"]] == ["final_answer"]


def test_json_uses_an_instruction_for_models_that_cannot_be_forced():
    request = ask("claude-opus-5-5", text={"format": {"type": "json_object"}})
    assert "tool_choice" not in request.body
    assert "final_answer" in request.body["system"]
    body = stream(text_deltas(0, '{"a": 1}'), "end_turn", usage(1, 1))
    assert decode_response(request, body).output_text == '{"a": 1}'


def test_the_clients_own_forced_call_never_becomes_an_instruction():
    chosen = {"tools": [TIME], "tool_choice": {"type": "function", "name": "time"}}
    with pytest.raises(RequestError) as refused:
        ask("claude-opus-5-5", text={"format": {"type": "json_object"}}, **chosen)
    assert refused.value.payload.param == "tool_choice"


def test_unsupported_parameters_are_warned_of():
    request = ask(
        seed=1,
        presence_penalty=1,
        frequency_penalty=1,
        top_logprobs=2,
        text={"verbosity": "low"},
        service_tier="flex",
        tools=[{"type": "web_search", "search_context_size": "low"}, {"type": "file_search"}],
    )
    assert {param for _, param in warning_codes(request)} == {
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "text.verbosity",
        "service_tier",
        "tools[0].search_context_size",
        "tools[1]",
    }
    assert request.body == {
        "model": MODEL,
        "max_tokens": 8192,
        "messages": [anthropic_message(text_block("Hello"))],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }


@pytest.mark.parametrize(
    ("fields", "expected", "params"),
    [
        ({"external_web_access": True, "filters": None, "user_location": None}, {}, []),
        ({"external_web_access": False}, {}, ["external_web_access"]),
        ({"user_location": "Oslo"}, {}, ["user_location"]),
        ({"filters": ["a.example"]}, {}, ["filters"]),
        (
            {"filters": {"allowed_domains": ["a.example"], "language": "no"}, "depth": 3},
            {"allowed_domains": ["a.example"]},
            ["filters.language", "depth"],
        ),
    ],
)
def test_unsupported_options_of_a_web_search_are_warned_of(fields: dict, expected: dict, params: list[str]):
    request = ask(tools=[{"type": "web_search"} | fields])
    assert request.body["tools"] == [{"type": "web_search_20250305", "name": "web_search"} | expected]
    assert warning_codes(request) == [("unsupported_parameter", f"tools[0].{name}") for name in params]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [user_message({"type": "input_video", "video_url": "https://h/v.mp4"})]}, "input[0].content[0]"),
        (
            {"input": [user_message({"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"})]},
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    user_message(
                        {"type": "input_text", "text": "x"},
                        {"type": "input_file", "filename": "a.zip", "file_data": "AAAA"},
                    )
                ]
            },
            "input[0].content[1]",
        ),
        (
            {"input": [user_message({"type": "input_file", "file_data": "data:text/plain;base64,/w=="})]},
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {"role": "system", "content": [{"type": "input_image", "image_url": "https://h/a.png"}]},
                    user_text("Hello"),
                ]
            },
            "input[0].content[0]",
        ),
        ({"input": [user_text(" ")]}, "input"),
        ({"stop": ["\n"]}, "stop[0]"),
    ],
)
def test_what_cannot_be_left_out_is_rejected(fields: dict, param: str):
    with pytest.raises(RequestError) as refused:
        ask(**fields)
    assert refused.value.payload.param == param


def test_illegal_ids_and_names_are_replaced_consistently():
    ids = ["call:1", "call.1", "call_1"]
    calls = [{"type": "function_call", "call_id": id, "name": "my.tool", "arguments": "{}"} for id in ids]
    results = [{"type": "function_call_output", "call_id": id, "output": id} for id in ids]
    request = ask(input=[user_text("Hello"), *calls, *results])
    _, used, answered_with = request.body["messages"]
    changed = [block["id"] for block in used["content"]]
    assert len(set(changed)) == 3
    assert {block["name"] for block in used["content"]} == {"my_tool"}
    assert [(b["tool_use_id"], b["content"]) for b in answered_with["content"]] == list(zip(changed, ids, strict=True))


@pytest.mark.parametrize(
    ("arguments", "input"),
    [("", {}), (" ", {}), ('{"a": 1}', {"a": 1}), ("[1]", {"arguments": [1]}), ('{"a": ', {"arguments": '{"a": '})],
)
def test_arguments_are_sent_as_an_object(arguments: str, input: dict):
    loop = [TOOL_LOOP[0], CALL | {"arguments": arguments}, TOOL_LOOP[3]]
    assert ask(input=loop).body["messages"][1]["content"][0]["input"] == input


def test_an_empty_output_has_no_content():
    loop = [TOOL_LOOP[0], TOOL_LOOP[2], TOOL_LOOP[3] | {"output": ""}]
    assert ask(input=loop).body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_01"}]


def test_items_of_other_providers_are_left_out_with_a_warning():
    foreign = {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": []}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    request = ask(input=[user_text("Hello"), foreign, search, user_text("Go on")])
    assert request.body["messages"] == [anthropic_message(text_block("Hello"), text_block("Go on"))]
    assert warning_codes(request) == [("unsupported_item", "input[1]")]


@pytest.mark.parametrize("block", [None, {}, {"type": "text", "text": "x"}, "server_tool_use"])
def test_a_server_tool_item_without_a_block_is_left_out(block: object):
    item = {"type": "anthropic:server_tool_use", "id": "item_1", "block": block}
    request = ask(input=[user_text("Hello"), item, user_text("Go on")])
    assert request.body["messages"] == [anthropic_message(text_block("Hello"), text_block("Go on"))]


def test_a_refusal_in_the_history_is_sent_as_text():
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    request = ask(input=[user_text("Hello"), refused, user_text("Please")])
    assert request.body["messages"][1] == anthropic_message(text_block("No."), role="assistant")


SYSTEM = {"role": "developer", "content": "Be brief."}
MARKED = text_block("<system>\nBe brief.\n</system>")


@pytest.mark.parametrize(
    ("model", "input", "messages"),
    [
        (
            "claude-opus-4-8",
            [user_text("Hello"), SYSTEM],
            [anthropic_message(text_block("Hello")), anthropic_message(text_block("Be brief."), role="system")],
        ),
        (
            "claude-opus-4-8",
            [user_text("A"), SYSTEM, {"role": "assistant", "content": "B"}, user_text("C")],
            [
                anthropic_message(text_block("A")),
                anthropic_message(text_block("Be brief."), role="system"),
                anthropic_message(text_block("B"), role="assistant"),
                anthropic_message(text_block("C")),
            ],
        ),
        (
            "claude-opus-4-8",
            [user_text("A"), SYSTEM, user_text("B")],
            [anthropic_message(text_block("A"), MARKED, text_block("B"))],
        ),
        (
            "claude-opus-4-8",
            [user_text("A"), {"role": "assistant", "content": "B"}, SYSTEM],
            [
                anthropic_message(text_block("A")),
                anthropic_message(text_block("B"), role="assistant"),
                anthropic_message(MARKED),
            ],
        ),
        ("claude-opus-4-7", [user_text("A"), SYSTEM], [anthropic_message(text_block("A"), MARKED)]),
        ("claude-opus-4-8", [SYSTEM], [anthropic_message(text_block("Be brief."))]),
    ],
)
def test_later_system_messages_go_where_the_model_accepts_them(model: str, input: list, messages: list):
    assert ask(model, input=input).body["messages"] == messages


def test_a_schema_is_closed_and_unenforceable_keywords_move_into_descriptions():
    schema = {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "minimum": 1, "description": "A count."},
            "tags": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/tag"}},
            "kind": {"oneOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
        },
        "$defs": {"tag": {"type": "object", "properties": {"s": {"type": "string", "format": "x"}}}},
    }
    request = ask(text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
    assert request.body["output_config"]["format"]["schema"] == {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "description": "A count. (minimum: 1)"},
            "tags": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/tag"}},
            "kind": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
        },
        "$defs": {
            "tag": {
                "type": "object",
                "properties": {"s": {"type": "string", "description": "(format: x)"}},
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    }
    assert warning_codes(request) == [("schema_relaxed", "text.format.schema")]


CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        (
            {"anyOf": [{"type": "string"}], "oneOf": [{"const": "x"}, {"const": "y"}]},
            {"anyOf": [{"type": "string"}], "allOf": [{"anyOf": [{"const": "x"}, {"const": "y"}]}]},
        ),
        (
            {"oneOf": [{"properties": {}, "type": "object"}], "allOf": [{"a": 1}], "anyOf": []},
            {"anyOf": [], "allOf": [{"a": 1}, {"anyOf": [CLOSED]}]},
        ),
        ({"oneOf": [{"const": "x"}], "allOf": [{"a": 1}]}, {"anyOf": [{"const": "x"}], "allOf": [{"a": 1}]}),
        ({"oneOf": "strange", "anyOf": [{"a": 1}]}, {"oneOf": "strange", "anyOf": [{"a": 1}]}),
    ],
)
def test_one_of_is_replaced_without_losing_other_alternatives(schema: dict, made: dict):
    whole = {"type": "object", "properties": {"a": schema}}
    request = ask(text={"format": {"type": "json_schema", "name": "x", "schema": whole}})
    sent = request.body["output_config"]["format"]["schema"]
    assert sent["properties"] == {"a": made}
    assert request.warnings == []


def test_a_tool_that_is_not_strict_keeps_its_schema():
    loose = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    tool = {"type": "function", "name": "count", "parameters": loose}
    assert ask(tools=[tool]).body["tools"] == [{"name": "count", "input_schema": loose}]
    bare = {"type": "function", "name": "count", "parameters": {"required": []}}
    assert ask(tools=[bare]).body["tools"][0]["input_schema"]["type"] == "object"


@pytest.mark.parametrize("strange", [["date"], {"date": 1}, None, 7])
def test_an_unknown_format_moves_into_the_description(strange: object):
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": strange}}}
    made = {
        "type": "object",
        "properties": {"day": {"type": "string", "description": f"(format: {strange})"}},
        "additionalProperties": False,
    }
    tool = {"type": "function", "name": "f", "strict": True, "parameters": schema}
    request = ask(tools=[tool])
    assert request.body["tools"] == [{"name": "f", "strict": True, "input_schema": made}]
    assert warning_codes(request) == [("schema_relaxed", "tools[0].parameters")]
    format = {"type": "json_schema", "name": "n", "schema": schema}
    request = ask(text={"format": format})
    assert request.body["output_config"]["format"]["schema"] == made
    assert warning_codes(request) == [("schema_relaxed", "text.format.schema")]


@pytest.mark.parametrize(
    ("model", "native"),
    [
        ("claude-3-5-haiku-latest", False),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-sonnet-4-20250514", False),
        ("claude-opus-4-1", False),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-haiku-4-5", True),
        ("claude-opus-5", True),
        ("some-model", True),
    ],
)
def test_models_before_4_5_get_schemas_through_a_tool(model: str, native: bool):
    request = ask(model=model, text=FORMAT)
    assert ("output_config" in request.body) == native
    choice = None if native else {"type": "tool", "name": "final_answer"}
    assert request.body.get("tool_choice") == choice
    strict = ask(model=model, tools=[TIME | {"strict": True}])
    assert strict.body["tools"][0].get("strict") == (native or None)
    warned = [warning.param for warning in strict.warnings]
    assert warned == ([] if native else ["tools[0].strict"])
