"""What Bedrock does not support, and the history of other providers."""

import json

import pytest

from antiphon.adapters.base import Capabilities
from antiphon.protocol.errors import RequestError
from tests.adapters.bedrock.builders import (
    BEDROCK,
    CALL,
    CLAUDE,
    FILE,
    HELLO,
    IMAGE,
    LOOSE_TOOL_SPEC,
    NEW_CLAUDE,
    aws_client_request,
    user_input,
    user_message,
)
from tests.adapters.run_adapter import decode_response, encode_request
from tests.adapters.scenes import FORMAT, TIME, TOOL
from tests.adapters.scenes.bedrock import call, stream


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"frequency_penalty": 1.0}, "frequency_penalty"),
        ({"seed": 7}, "seed"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"safety_identifier": "u"}, "safety_identifier"),
        ({"user": "u"}, "user"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
    ],
)
def test_unsupported_parameters_are_left_out_with_a_warning(fields: dict, param: str):
    request = encode_request(BEDROCK, **fields)
    assert request.body == {"messages": HELLO}
    assert [warning.param for warning in request.warnings] == [param]


def test_a_temperature_above_one_becomes_one():
    request = encode_request(BEDROCK, temperature=1.5)
    assert request.body["inferenceConfig"] == {"temperature": 1.0}
    assert [warning.code for warning in request.warnings] == ["approximated_parameter"]


@pytest.mark.parametrize("model", [NEW_CLAUDE, "anthropic.claude-sonnet-4-20250514-v1:0"])
def test_strict_is_not_sent_to_models_that_reject_it(model: str):
    request = encode_request(BEDROCK, upstream_model=model, tools=[TOOL])
    assert request.body["toolConfig"] == {"tools": [LOOSE_TOOL_SPEC]}
    assert [warning.param for warning in request.warnings] == ["tools[0].strict"]


def test_unenforceable_keywords_move_into_descriptions():
    format = {"type": "json_schema", "name": "n", "schema": {"type": "array", "maxItems": 3}}
    request = encode_request(BEDROCK, text={"format": format})
    schema = json.loads(request.body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"])
    assert "maxItems" not in schema
    assert [warning.code for warning in request.warnings] == ["schema_relaxed"]


VIDEO = {"type": "input_video", "video_url": "data:video/mp4;base64,AAAA"}
LINKED = {"type": "input_image", "image_url": "https://a.example/b.png"}
UPLOADED = {"type": "input_file", "file_id": "file-1"}
LINKED_FILE = {"type": "input_file", "file_url": "https://a.example/b.pdf"}
BITMAP = {"type": "input_image", "image_url": "data:image/bmp;base64,AAAA"}
ARCHIVE = {"type": "input_file", "filename": "a.zip", "file_data": "data:application/zip;base64,AA=="}
BROKEN = {"type": "input_image", "image_url": "data:image/png;base64,!"}


@pytest.mark.parametrize("part", [VIDEO, LINKED, UPLOADED, LINKED_FILE, BITMAP, ARCHIVE, BROKEN])
def test_unsupported_content_is_rejected(part: dict):
    with pytest.raises(RequestError) as caught:
        encode_request(BEDROCK, input=user_input({"type": "input_text", "text": "What?"}, part))
    assert caught.value.payload.param == "input[0].content[1]"
    assert caught.value.status == 400


def test_an_image_in_a_system_message_is_rejected():
    with pytest.raises(RequestError) as caught:
        encode_request(BEDROCK, input=[{"role": "system", "content": [IMAGE]}])
    assert caught.value.payload.param == "input[0].content[0]"


def test_json_without_a_schema_uses_a_forced_tool():
    request = encode_request(BEDROCK, text={"format": {"type": "json_object"}}, stream=True)
    assert request.body["toolConfig"]["toolChoice"] == {"tool": {"name": "final_answer"}}
    body = stream(call(0, "t", "final_answer", '{"a":', "1}"), reason="tool_use")
    response = decode_response(request, body)
    assert (response.output_text, response.status) == ('{"a":1}', "completed")


def test_json_uses_an_instruction_for_models_that_cannot_be_forced():
    model = "anthropic.claude-opus-5-5-v1"
    request = encode_request(BEDROCK, upstream_model=model, text={"format": {"type": "json_object"}})
    assert "toolChoice" not in request.body["toolConfig"]
    assert "final_answer" in request.body["system"][-1]["text"]
    with pytest.raises(RequestError) as caught:
        encode_request(BEDROCK, upstream_model=model, tools=[TIME], tool_choice="required")
    assert caught.value.payload.param == "tool_choice"


def test_models_configured_without_schemas_get_them_through_a_tool():
    lacks = Capabilities(lacks=frozenset({"json_schema"}))
    request = encode_request(BEDROCK, text=FORMAT, capabilities=lacks)
    assert "outputConfig" not in request.body
    assert request.body["toolConfig"]["toolChoice"] == {"tool": {"name": "final_answer"}}


@pytest.mark.parametrize(
    ("model", "native"),
    [
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", False),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", False),
        ("anthropic.claude-opus-4-1-20250805-v1:0", False),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("amazon.nova-pro-v1:0", True),
    ],
)
def test_claude_before_4_5_gets_schemas_through_a_tool(model: str, native: bool):
    request = encode_request(BEDROCK, upstream_model=model, text=FORMAT)
    assert ("outputConfig" in request.body) == native
    assert ("toolConfig" in request.body) != native


def test_history_of_another_provider_is_sent_in_a_legal_form():
    history = [
        {"role": "assistant", "content": "  "},
        {"role": "assistant", "content": "Hello!"},
        {**CALL, "call_id": "call|a b/ü", "name": "mcp.weather now", "arguments": "[1"},
        {"type": "acme:thing", "id": "x"},
        {"type": "function_call_output", "call_id": "call|a b/ü", "output": " "},
    ]
    request = encode_request(BEDROCK, upstream_model=CLAUDE, input=history)
    first, second, third = request.body["messages"]
    assert first == user_message({"text": "Continue."})
    text_block, use_block = second["content"]
    assert text_block == {"text": "Hello!"}
    id = use_block["toolUse"]["toolUseId"]
    assert use_block["toolUse"] == {"toolUseId": id, "name": "mcp_weather_now", "input": {"arguments": "[1"}}
    assert third == user_message({"toolResult": {"toolUseId": id, "content": [{"text": "(no output)"}]}})
    assert [warning.code for warning in request.warnings] == ["unsupported_item", "added_message"]
    assert aws_client_request(**request.body)[1] == request.body  # AWS's SDK validates it


def test_trailing_reasoning_and_white_space_are_left_out():
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": '{"text":"A","signature":"s"}'}
    request = encode_request(
        BEDROCK,
        input=[
            {"role": "user", "content": "Hello"},
            reasoning,
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": "It is \n"},
        ],
    )
    assert request.body["messages"] == [
        user_message({"text": "Hello"}, {"text": "Well?"}),
        {"role": "assistant", "content": [{"text": "It is"}]},
    ]


def test_only_illegal_ids_are_replaced():
    kimi = {**CALL, "call_id": "functions.weather:0"}
    answer = {"type": "function_call_output", "call_id": "functions.weather:0", "output": "x"}
    history = [{"role": "user", "content": "Hello"}, kimi, answer]

    def id_for(model: str) -> str:
        body = encode_request(BEDROCK, upstream_model=model, input=history).body
        return body["messages"][1]["content"][0]["toolUse"]["toolUseId"]

    assert id_for("moonshot.kimi-k2-thinking") == "functions.weather:0"
    assert id_for(CLAUDE) == id_for(CLAUDE) != "functions.weather:0"


def test_documents_get_legal_and_unique_names():
    names = ["a/b  c.pdf", "a b c.PDF", "", "ünï.pdf", ".pdf", "x" * 300 + ".pdf", "a [1] (2)-3.pdf"]
    files = [{**FILE, "filename": name} for name in names]
    request = encode_request(BEDROCK, input=user_input(*files, {"type": "input_text", "text": "What?"}))
    content = request.body["messages"][0]["content"]
    titles = [block["document"]["name"] for block in content if "document" in block]
    assert titles == ["a b c", "a b c 2", "document", "n", "pdf", "x" * 180, "a [1] (2)-3"]
