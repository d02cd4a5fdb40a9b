"""What is sent to an Open Responses server is what OpenAI's own client sends."""

import json
import re
from typing import get_args, get_type_hints

import pytest
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from antiphon.adapters.base import Capabilities
from antiphon.adapters.open_responses.adapter import ITEMS_WITH_ID, ITEMS_WITHOUT_STATUS, OpenResponses
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING
from antiphon.protocol.struct import to_builtins, type_names
from tests.adapters.open_responses.builders import (
    ADAPTER,
    INCLUDE,
    OUTPUT,
    RAW_REASONING,
    SEARCH,
    USER,
    decode_stream,
    openai_client,
)
from tests.adapters.run_adapter import decode_response, encode_request, make_adapter
from tests.adapters.scenes import FORMAT, TOOL
from tests.adapters.scenes.responses import SAID, SCENES, SEALED, events_of, reasoning, response, stream
from tests.scripted_upstream import json_answer, scripted_upstream, sse_answer


def sent_by_openai_client(**fields: object) -> dict:
    """Return what OpenAI's own client sends."""
    playing = sse_answer(SCENES["text"].stream) if fields.get("stream") else json_answer(response())
    with scripted_upstream(playing) as provider, openai_client(provider.url) as client:
        answer = client.responses.create(model="gpt-5.4", **fields)  # type: ignore[call-overload]
        if fields.get("stream"):
            list(answer)
        assert provider.requests[0].path == "/v1/responses"
        return provider.requests[0].json


IMAGE = {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "low"}
DATA = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
FILES = [
    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
    {"type": "input_file", "file_url": "https://a.example/b.pdf"},
    {"type": "input_file", "file_id": "file_1"},
]
TEXT_PART = {"type": "input_text", "text": "Look."}
HISTORY = [
    {"type": "message", "role": "user", "content": [TEXT_PART]},
    {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city":"Paris"}'},
    {"type": "function_call_output", "call_id": "a", "output": "sun"},
    {
        "type": "message",
        "role": "assistant",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Sun.", "annotations": []}],
    },
    {"type": "message", "role": "user", "content": [TEXT_PART]},
]
ALLOWED = {
    "type": "allowed_tools",
    "mode": "required",
    "tools": [{"type": "function", "name": "weather"}, {"type": "web_search"}],
}
SAME_REQUESTS: dict[str, dict] = {
    "instructions": {"instructions": "Be brief."},
    "a history": {"input": HISTORY},
    "system and developer text": {
        "input": [
            {"type": "message", "role": "system", "content": [TEXT_PART]},
            {"type": "message", "role": "developer", "content": [TEXT_PART]},
        ]
    },
    "images and files": {"input": [{"type": "message", "role": "user", "content": [TEXT_PART, IMAGE, DATA, *FILES]}]},
    "a tool's image and file": {
        "input": [*HISTORY[:2], {"type": "function_call_output", "call_id": "a", "output": [TEXT_PART, DATA, FILES[0]]}]
    },
    "audio": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}],
            }
        ]
    },
    "tools": {"tools": [TOOL, {"type": "web_search", "search_context_size": "low"}]},
    "a tool of another server's": {"tools": [{"type": "acme:search", "depth": 2}]},
    "a required call": {"tools": [TOOL], "tool_choice": "required"},
    "no call": {"tools": [TOOL], "tool_choice": "none"},
    "a named call": {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}},
    "a hosted call": {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
    "allowed tools": {"tools": [TOOL, {"type": "web_search"}], "tool_choice": ALLOWED},
    "one call at a time": {"tools": [TOOL], "parallel_tool_calls": False},
    "a schema": {"text": FORMAT},
    "any json, briefly": {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    "thinking": {"reasoning": {"effort": "high", "summary": "auto"}},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "top_logprobs": 3},
    "limits": {"max_output_tokens": 99, "max_tool_calls": 3, "truncation": "auto"},
    "who and where": {
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "service_tier": "flex",
    },
    "chat's own": {"extra_body": {"stop": ["END"], "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.25}},
    "fields that nobody knows": {"extra_body": {"acme_mode": {"deep": True}}},
    "a stream": {"stream": True},
    "what only OpenAI's items hold": {
        "input": [
            SEARCH,
            {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "a"},
            {"type": "acme:note", "status": "completed", "page": 3},
            {"type": "compaction", "encrypted_content": "sealed"},
        ]
    },
}


@pytest.mark.parametrize("name", SAME_REQUESTS)
def test_a_request_is_what_openais_own_client_sends(name: str):
    fields = {"input": HISTORY[:1], **SAME_REQUESTS[name]}
    theirs = sent_by_openai_client(**{"stream": False, "store": False, "include": INCLUDE, **fields})
    extra = fields.pop("extra_body", {})
    request = encode_request(ADAPTER, upstream_model="gpt-5.4", **{**fields, **extra})
    assert request.body == theirs
    assert request.warnings == []


def test_state_and_ids_of_antiphon_are_not_sent():
    request = encode_request(
        ADAPTER,
        input=[
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": "Hi"},
            SAID,
            OUTPUT | {"id": "fco_1", "status": "completed"},
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "x", "created_by": "us"},
            SEARCH,
        ],
        previous_response_id="resp_1",
        conversation="conv_1",
        background=True,
        store=True,
        stream_options={"include_obfuscation": True},
    )
    assert request.body.keys() == {"model", "input", "include", "stream", "store"}
    assert request.body["store"] is False
    assert [sorted(item) for item in request.body["input"]] == [
        ["content", "role", "type"],
        ["arguments", "call_id", "name", "type"],
        ["call_id", "output", "type"],
        ["encrypted_content", "type"],
        ["action", "id", "status", "type"],
    ]


def test_ids_and_statuses_are_sent_where_openais_types_have_them():
    with_id, without_status = set(), set()
    known = {name for kind in get_args(Item) for name in type_names(kind)}
    for kind in get_args(ResponseInputItemParam):
        fields = get_type_hints(kind, include_extras=True)
        (type,) = re.findall(r"Literal\['(\w+)'\]", str(fields["type"]))
        if type not in known:
            with_id |= {f"openai:{type}"} if "Required" in str(fields["id"]) else set()
            without_status |= {f"openai:{type}"} if "status" not in fields else set()
    assert with_id == ITEMS_WITH_ID
    assert without_status == ITEMS_WITHOUT_STATUS


def test_an_approval_names_the_id_of_the_request_that_is_sent_with_it():
    wanted = {"server_label": "x", "name": "f", "arguments": "{}"}
    item = {"type": "mcp_approval_request", "id": "mcpr_theirs", **wanted}
    result = decode_response(encode_request(ADAPTER), stream(events_of(item), response(item)))
    (kept,) = result.output
    assert str(kept.id).startswith("mcpr_")
    assert kept.id != item["id"]
    approval = {"type": "mcp_approval_response", "approval_request_id": kept.id, "approve": True}
    sent = encode_request(ADAPTER, input=[USER, to_builtins(kept), {"id": "item_1", **approval}]).body["input"]
    assert sent[1:] == [{"type": "mcp_approval_request", "id": kept.id, **wanted}, approval]


def test_encrypted_reasoning_is_requested_once_beside_the_clients_includes():
    wanted = [INCLUDE_ENCRYPTED_REASONING, "message.output_text.logprobs"]
    assert encode_request(ADAPTER, include=wanted).body["include"] == wanted[::-1]


@pytest.mark.parametrize("streamed", [True, False])
def test_encrypted_reasoning_is_sent_back_unchanged(streamed: bool):
    scene = SCENES["thinking_and_call"]
    asking = encode_request(ADAPTER, stream=streamed, tools=[TOOL])
    result = decode_response(asking, scene.stream if streamed else scene.whole, stream=streamed)
    history = [USER, *(to_builtins(item) for item in result.output), OUTPUT]
    sent = encode_request(ADAPTER, tools=[TOOL], input=history).body["input"]
    assert sent[1] == {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Paris is a city."}],
        "encrypted_content": SEALED,
    }
    assert sent[2] == {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Paris"}'}


def test_encrypted_reasoning_without_text_is_sent_back():
    hidden = reasoning("")
    result = decode_stream(stream([*events_of(hidden), *events_of(SAID, 1)], response(hidden, SAID)))
    history = [USER, *(to_builtins(item) for item in result.output), OUTPUT]
    assert encode_request(ADAPTER, input=history).body["input"][1] == {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": SEALED,
    }


@pytest.mark.parametrize("streamed", [True, False])
def test_raw_reasoning_is_sent_back_to_its_server(streamed: bool):
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [RAW_REASONING]}
    end = response(item, SAID)
    events = [*events_of(item), *events_of(SAID, 1)]
    body = stream(events, end) if streamed else json.dumps(end).encode()
    result = decode_response(encode_request(ADAPTER, stream=streamed), body, stream=streamed)
    history = [USER, *(to_builtins(item) for item in result.output), OUTPUT]
    assert encode_request(ADAPTER, input=history).body["input"][1] == {
        "type": "reasoning",
        "id": result.output[0].id,
        "summary": [],
        "content": [RAW_REASONING],
    }


def test_reasoning_of_others_and_reasoning_without_output_is_left_out():
    foreign = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    orphan = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    request = encode_request(ADAPTER, input=[USER, foreign, SAID, OUTPUT, orphan, USER, orphan])
    assert [item["type"] for item in request.body["input"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert request.warnings == []


def test_calls_of_other_models_get_legal_names():
    odd = SAID | {"name": "functions.weather:" + "x" * 70, "call_id": "a/b c"}
    sent = encode_request(ADAPTER, input=[USER, odd, OUTPUT | {"call_id": "a/b c"}]).body["input"]
    assert sent[1]["name"] == ("functions_weather_" + "x" * 70)[:64]
    assert sent[1]["call_id"] == "a/b c"


@pytest.mark.parametrize("slug", ["anthropic", "google", "antiphon"])
def test_types_private_to_another_adapter_are_left_out_with_a_warning(slug: str):
    request = encode_request(
        ADAPTER, input=[{"type": f"{slug}:search_call", "id": "x"}, USER], tools=[{"type": f"{slug}:search"}]
    )
    assert [warning.param for warning in request.warnings] == ["tools[0]", "input[0]"]
    assert len(request.body["input"]) == 1
    assert "tools" not in request.body


def test_a_type_that_came_without_a_slug_is_sent_back_without_one():
    new = {"id": "n_1", "type": "brand_new_call", "status": "completed", "page": 3}
    result = decode_stream(stream(events_of(new), response(new)))
    history = [to_builtins(result.output[0]), USER]
    request = encode_request(ADAPTER, input=history, tools=[{"type": "responses:brand_new", "a": 1}])
    assert request.body["input"][0] == {"type": "brand_new_call", "status": "completed", "page": 3}
    assert request.body["tools"] == [{"type": "brand_new", "a": 1}]


def test_a_feature_that_the_model_lacks_is_not_sent():
    lacking = Capabilities(lacks=frozenset({"temperature", "json_schema", "max_output_tokens"}))
    request = encode_request(ADAPTER, temperature=1, capabilities=lacking)
    assert "temperature" not in request.body
    assert [warning.param for warning in request.warnings] == ["temperature"]
    with pytest.raises(RequestError):
        encode_request(ADAPTER, max_output_tokens=99, capabilities=lacking)


@pytest.mark.parametrize("url", ["http://there/v1", "http://there/v1/"])
def test_the_address_may_end_with_a_slash(url: str):
    there = make_adapter(OpenResponses, base_url=url)
    assert encode_request(there).sent.url == "http://there/v1/responses"
    listing = there.models_request()
    assert listing
    assert listing.url == "http://there/v1/models"


def test_the_default_address_is_that_of_open_responses():
    assert encode_request(ADAPTER).sent.url == "https://api.openresponses.com/v1/responses"
    assert OpenResponses.key_env == ("OPENRESPONSES_API_KEY",)


OPENAI = make_adapter(OpenResponses, base_url="https://api.openai.com/v1")


def test_openai_is_not_sent_parameters_that_it_rejects():
    unknown = {"seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.5}
    question = encode_request(OPENAI, **unknown)
    assert not unknown.keys() & question.body.keys()
    assert {(warning.code, warning.param) for warning in question.warnings} == {
        ("unsupported_parameter", name) for name in unknown
    }
    with pytest.raises(RequestError) as refused:
        encode_request(OPENAI, stop=["end"])
    assert refused.value.payload.param == "stop"
    assert encode_request(make_adapter(OpenResponses), **unknown, stop=["end"]).body.items() >= unknown.items()
