"""What Anthropic does not take: refused, warned of, or written in another way."""

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
from tests.adapters.scenes.anthropic import (
    MODEL,
    stream,
    text_block,
    text_deltas,
    usage,
)

# --- what another parameter or the model forbids --------------------------------------------------


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
def test_sampling_that_is_forbidden_is_left_out_with_a_warning(
    model: str, fields: dict, kept: dict, params: list[str]
):
    question = ask(model, **fields)
    sent = {name: question.body[name] for name in question.body if name in ("temperature", "top_p")}
    assert sent == kept
    assert warning_codes(question) == [("unsupported_parameter", param) for param in params]
    assert dict(question.sent.headers) == {
        "anthropic-version": OLD_API_VERSION if kept else NEW_API_VERSION
    }


def test_a_model_that_cannot_be_made_to_call_is_not_asked_to():
    with pytest.raises(RequestError) as refused:
        ask("claude-opus-5-5", **REQUIRED_TOOL)
    assert refused.value.payload.param == "tool_choice"
    assert ask("claude-haiku-5-5", **REQUIRED_TOOL).body["tool_choice"] == {"type": "any"}


def test_json_without_a_schema_is_a_tool_that_must_be_called():
    question = ask(text={"format": {"type": "json_object"}})
    assert question.body["tool_choice"] == {"type": "tool", "name": "final_answer"}
    assert [tool["name"] for tool in question.body["tools"]] == ["final_answer"]


def test_json_of_a_model_that_cannot_be_made_to_call_is_asked_for_in_words():
    question = ask("claude-opus-5-5", text={"format": {"type": "json_object"}})
    assert "tool_choice" not in question.body
    assert "final_answer" in question.body["system"]
    body = stream(text_deltas(0, '{"a": 1}'), "end_turn", usage(1, 1))
    assert decode_response(question, body).output_text == '{"a": 1}'


def test_a_demand_of_the_client_is_never_softened():
    chosen = {"tools": [TIME], "tool_choice": {"type": "function", "name": "time"}}
    with pytest.raises(RequestError) as refused:
        ask("claude-opus-5-5", text={"format": {"type": "json_object"}}, **chosen)
    assert refused.value.payload.param == "tool_choice"


def test_what_the_dialect_lacks_is_warned_of():
    question = ask(
        seed=1,
        presence_penalty=1,
        frequency_penalty=1,
        top_logprobs=2,
        text={"verbosity": "low"},
        service_tier="flex",
        tools=[{"type": "web_search", "search_context_size": "low"}, {"type": "file_search"}],
    )
    assert {param for _, param in warning_codes(question)} == {
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "text.verbosity",
        "service_tier",
        "tools[0].search_context_size",
        "tools[1]",
    }
    assert question.body == {
        "model": MODEL,
        "max_tokens": 8192,
        "messages": [anthropic_message(text_block("Hello"))],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }


@pytest.mark.parametrize(
    ("fields", "told", "params"),
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
def test_what_a_search_cannot_be_told_is_warned_of(fields: dict, told: dict, params: list[str]):
    question = ask(tools=[{"type": "web_search"} | fields])
    assert question.body["tools"] == [{"type": "web_search_20250305", "name": "web_search"} | told]
    assert warning_codes(question) == [
        ("unsupported_parameter", f"tools[0].{name}") for name in params
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"input": [user_message({"type": "input_video", "video_url": "https://h/v.mp4"})]},
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    user_message(
                        {"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"}
                    )
                ]
            },
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
            {
                "input": [
                    user_message({"type": "input_file", "file_data": "data:text/plain;base64,/w=="})
                ]
            },
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {
                        "role": "system",
                        "content": [{"type": "input_image", "image_url": "https://h/a.png"}],
                    },
                    user_text("Hello"),
                ]
            },
            "input[0].content[0]",
        ),
        ({"input": [user_text(" ")]}, "input"),
        ({"stop": ["\n"]}, "stop[0]"),
    ],
)
def test_what_would_change_the_meaning_is_refused(fields: dict, param: str):
    with pytest.raises(RequestError) as refused:
        ask(**fields)
    assert refused.value.payload.param == param


# --- history from elsewhere -----------------------------------------------------------------------


def test_ids_and_names_that_anthropic_refuses_are_changed_alike_everywhere():
    ids = ["call:1", "call.1", "call_1"]
    calls = [
        {"type": "function_call", "call_id": id, "name": "my.tool", "arguments": "{}"} for id in ids
    ]
    results = [{"type": "function_call_output", "call_id": id, "output": id} for id in ids]
    question = ask(input=[user_text("Hello"), *calls, *results])
    _, used, answered_with = question.body["messages"]
    changed = [block["id"] for block in used["content"]]
    assert len(set(changed)) == 3
    assert {block["name"] for block in used["content"]} == {"my_tool"}
    assert [(b["tool_use_id"], b["content"]) for b in answered_with["content"]] == list(
        zip(changed, ids, strict=True)
    )


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ("", {}),
        (" ", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"arguments": [1]}),
        ('{"a": ', {"arguments": '{"a": '}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, input: dict):
    loop = [TOOL_LOOP[0], CALL | {"arguments": arguments}, TOOL_LOOP[3]]
    assert ask(input=loop).body["messages"][1]["content"][0]["input"] == input


def test_an_output_without_words_has_no_content():
    loop = [TOOL_LOOP[0], TOOL_LOOP[2], TOOL_LOOP[3] | {"output": ""}]
    assert ask(input=loop).body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_01"}
    ]


def test_items_of_other_providers_are_left_out_with_a_warning():
    foreign = {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": []}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    question = ask(input=[user_text("Hello"), foreign, search, user_text("Go on")])
    assert question.body["messages"] == [
        anthropic_message(text_block("Hello"), text_block("Go on"))
    ]
    assert warning_codes(question) == [("unsupported_item", "input[1]")]


@pytest.mark.parametrize("block", [None, {}, {"type": "text", "text": "x"}, "server_tool_use"])
def test_an_item_of_ours_that_holds_no_block_is_left_out(block: object):
    item = {"type": "anthropic:server_tool_use", "id": "item_1", "block": block}
    question = ask(input=[user_text("Hello"), item, user_text("Go on")])
    assert question.body["messages"] == [
        anthropic_message(text_block("Hello"), text_block("Go on"))
    ]


def test_a_refusal_in_the_history_is_text():
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    question = ask(input=[user_text("Hello"), refused, user_text("Please")])
    assert question.body["messages"][1] == anthropic_message(text_block("No."), role="assistant")


SYSTEM = {"role": "developer", "content": "Be brief."}
MARKED = text_block("<system>\nBe brief.\n</system>")


@pytest.mark.parametrize(
    ("model", "input", "messages"),
    [
        (
            "claude-opus-4-8",
            [user_text("Hello"), SYSTEM],
            [
                anthropic_message(text_block("Hello")),
                anthropic_message(text_block("Be brief."), role="system"),
            ],
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
def test_what_the_system_says_later_stands_where_the_model_takes_it(
    model: str, input: list, messages: list
):
    assert ask(model, input=input).body["messages"] == messages


# --- schemas --------------------------------------------------------------------------------------


def test_a_schema_is_closed_and_what_cannot_be_enforced_is_said_in_words():
    schema = {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "minimum": 1, "description": "A count."},
            "tags": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/tag"}},
            "kind": {"oneOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
        },
        "$defs": {
            "tag": {"type": "object", "properties": {"s": {"type": "string", "format": "x"}}}
        },
    }
    question = ask(text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
    assert question.body["output_config"]["format"]["schema"] == {
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
    assert warning_codes(question) == [("schema_relaxed", "text.format.schema")]


CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        (
            {"anyOf": [{"type": "string"}], "oneOf": [{"const": "x"}, {"const": "y"}]},
            {
                "anyOf": [{"type": "string"}],
                "allOf": [{"anyOf": [{"const": "x"}, {"const": "y"}]}],
            },
        ),
        (
            {"oneOf": [{"properties": {}, "type": "object"}], "allOf": [{"a": 1}], "anyOf": []},
            {"anyOf": [], "allOf": [{"a": 1}, {"anyOf": [CLOSED]}]},
        ),
        (
            {"oneOf": [{"const": "x"}], "allOf": [{"a": 1}]},
            {"anyOf": [{"const": "x"}], "allOf": [{"a": 1}]},
        ),
        ({"oneOf": "strange", "anyOf": [{"a": 1}]}, {"oneOf": "strange", "anyOf": [{"a": 1}]}),
    ],
)
def test_no_alternatives_of_a_schema_are_lost(schema: dict, made: dict):
    whole = {"type": "object", "properties": {"a": schema}}
    question = ask(text={"format": {"type": "json_schema", "name": "x", "schema": whole}})
    sent = question.body["output_config"]["format"]["schema"]
    assert sent["properties"] == {"a": made}
    assert question.warnings == []


def test_a_tool_that_is_not_strict_keeps_its_schema():
    loose = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    tool = {"type": "function", "name": "count", "parameters": loose}
    assert ask(tools=[tool]).body["tools"] == [{"name": "count", "input_schema": loose}]
    bare = {"type": "function", "name": "count", "parameters": {"required": []}}
    assert ask(tools=[bare]).body["tools"][0]["input_schema"]["type"] == "object"


@pytest.mark.parametrize("strange", [["date"], {"date": 1}, None, 7])
def test_a_format_that_is_no_word_is_told_in_the_description(strange: object):
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": strange}}}
    made = {
        "type": "object",
        "properties": {"day": {"type": "string", "description": f"(format: {strange})"}},
        "additionalProperties": False,
    }
    tool = {"type": "function", "name": "f", "strict": True, "parameters": schema}
    question = ask(tools=[tool])
    assert question.body["tools"] == [{"name": "f", "strict": True, "input_schema": made}]
    assert warning_codes(question) == [("schema_relaxed", "tools[0].parameters")]
    format = {"type": "json_schema", "name": "n", "schema": schema}
    question = ask(text={"format": format})
    assert question.body["output_config"]["format"]["schema"] == made
    assert warning_codes(question) == [("schema_relaxed", "text.format.schema")]


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
def test_a_model_before_4_5_is_known_to_lack_schemas_and_has_them_by_a_tool(
    model: str, native: bool
):
    question = ask(model=model, text=FORMAT)
    assert ("output_config" in question.body) == native
    choice = None if native else {"type": "tool", "name": "final_answer"}
    assert question.body.get("tool_choice") == choice
    strict = ask(model=model, tools=[TIME | {"strict": True}])
    assert strict.body["tools"][0].get("strict") == (native or None)
    warned = [warning.param for warning in strict.warnings]
    assert warned == ([] if native else ["tools[0].strict"])
