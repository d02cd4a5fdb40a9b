"""The adapter's requests compared with those of Google's SDK, and what Google does not support."""

import re

import pytest

from antiphon.adapters.base import Capabilities
from antiphon.protocol.errors import RequestError
from tests.adapters.google.builders import (
    AUDIO,
    BYTES,
    FOREIGN_ITEMS,
    GEMINI_3,
    GOOGLE,
    IMAGE,
    PDF,
    PIXEL,
    decode_chunks,
    google_client,
    output_as_input,
    types,
    user_content,
)
from tests.adapters.run_adapter import decode_response, encode_request
from tests.adapters.scenes import FORMAT, SCHEMA, TIME, TOOL
from tests.adapters.scenes.google import PARIS, SCENES, answer, call, sse_stream
from tests.scripted_upstream import sse_answer


def camel(value: object) -> object:
    """Return a value with all names in camel case; the SDK mixes both spellings."""
    match value:
        case dict():
            return {
                re.sub(r"_(\w)", lambda found: found[1].upper(), name): camel(inner) for name, inner in value.items()
            }
        case list():
            return [camel(inner) for inner in value]
        case _:
            return value


def sdk_request(contents: object, model: str = GEMINI_3, **config: object) -> tuple[str, dict]:
    """Return the path and the body that the SDK sends."""
    with google_client(sse_answer(SCENES["text"].stream)) as (google, provider):
        options = types.GenerateContentConfig(**config)  # type: ignore[arg-type]
        list(google.generate_content_stream(model=model, contents=contents, config=options))  # type: ignore[arg-type]
        [request] = provider.requests
    body = camel(request.json)
    assert isinstance(body, dict)
    if "systemInstruction" in body:
        body["systemInstruction"].pop("role")
    for name in ("generationConfig",):
        if not body.get(name):
            body.pop(name, None)
    return request.path, body


def user(*parts: types.Part) -> types.Content:
    """Return a user's content as the SDK's type."""
    return types.Content(role="user", parts=list(parts))


def model(*parts: types.Part) -> types.Content:
    """Return a model's content as the SDK's type."""
    return types.Content(role="model", parts=list(parts))


HELLO = user(types.Part(text="Hello"))
WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather", description="Tell the weather.", parameters_json_schema=TOOL["parameters"]
        )
    ]
)


def tool_config(mode: str, *names: str) -> types.ToolConfig:
    """Return a tool choice as the SDK's type."""
    config = types.FunctionCallingConfig(
        mode=types.FunctionCallingConfigMode(mode), allowed_function_names=list(names) or None
    )
    return types.ToolConfig(function_calling_config=config)


def thinking(**fields: object) -> dict:
    """Return a thinking configuration as the SDK's argument."""
    return {"thinking_config": types.ThinkingConfig(**fields)}  # type: ignore[arg-type]


REQUESTS: dict[str, tuple[dict, object, dict]] = {
    "text": ({}, HELLO, {}),
    "instructions": ({"instructions": "Be brief."}, HELLO, {"system_instruction": "Be brief."}),
    "system": (
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "system", "content": "Be kind."},
                {"role": "developer", "content": "Be true."},
                {"role": "user", "content": "Hello"},
            ],
        },
        HELLO,
        {"system_instruction": ["Be brief.", "Be kind.", "Be true."]},
    ),
    "system later": (
        {
            "input": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi."},
                {"role": "developer", "content": "Be true."},
                {"role": "user", "content": "So?"},
            ]
        },
        [HELLO, model(types.Part(text="Hi.")), user(types.Part(text="Be true.")), user(types.Part(text="So?"))],
        {},
    ),
    "history": (
        {
            "input": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Let me look."},
                {"type": "function_call", "call_id": "fc-1", "name": "weather", "arguments": '{"city": "Paris"}'},
                {"type": "function_call_output", "call_id": "fc-1", "output": "sunny"},
                {"role": "assistant", "content": "Sunny."},
                {"role": "user", "content": "Thanks."},
            ]
        },
        [
            HELLO,
            model(
                types.Part(text="Let me look."),
                types.Part(function_call=types.FunctionCall(id="fc-1", name="weather", args=PARIS)),
            ),
            user(
                types.Part(
                    function_response=types.FunctionResponse(id="fc-1", name="weather", response={"output": "sunny"})
                )
            ),
            model(types.Part(text="Sunny.")),
            user(types.Part(text="Thanks.")),
        ],
        {},
    ),
    "image": (
        user_content({"type": "input_text", "text": "What?"}, IMAGE),
        user(types.Part(text="What?"), types.Part.from_bytes(data=BYTES, mime_type="image/png")),
        {},
    ),
    "image by address": (
        user_content({"type": "input_image", "image_url": "https://a.example/b.png?x=1"}),
        user(types.Part.from_uri(file_uri="https://a.example/b.png?x=1", mime_type="image/png")),
        {},
    ),
    "image in a bucket": (
        user_content({"type": "input_image", "image_url": "gs://a/b"}),
        user(types.Part.from_uri(file_uri="gs://a/b", mime_type="image/jpeg")),
        {},
    ),
    "pdf": (user_content(PDF), user(types.Part.from_bytes(data=BYTES, mime_type="application/pdf")), {}),
    "file by address": (
        user_content({"type": "input_file", "file_url": "https://a.example/b.csv"}),
        user(types.Part.from_uri(file_uri="https://a.example/b.csv", mime_type="text/csv")),
        {},
    ),
    "video": (
        user_content({"type": "input_video", "video_url": "https://www.youtube.com/watch?v=1"}),
        user(types.Part.from_uri(file_uri="https://www.youtube.com/watch?v=1", mime_type="video/mp4")),
        {},
    ),
    "audio": (user_content(AUDIO), user(types.Part.from_bytes(data=BYTES, mime_type="audio/wav")), {}),
    "outputs with media": (
        {
            "input": [
                {"role": "user", "content": "Hello"},
                *output_as_input(decode_chunks(answer(call("weather", PARIS, "fc-1", "c2ln"), finish="STOP"))),
                {
                    "type": "function_call_output",
                    "call_id": "fc-1",
                    "output": [{"type": "input_text", "text": "See:"}, IMAGE, PDF],
                },
            ]
        },
        [
            HELLO,
            model(
                types.Part(
                    function_call=types.FunctionCall(id="fc-1", name="weather", args=PARIS), thought_signature=b"sig"
                )
            ),
            user(
                types.Part(
                    function_response=types.FunctionResponse(
                        id="fc-1",
                        name="weather",
                        response={"output": "See:"},
                        parts=[
                            types.FunctionResponsePart.from_bytes(data=BYTES, mime_type="image/png"),
                            types.FunctionResponsePart.from_bytes(data=BYTES, mime_type="application/pdf"),
                        ],
                    )
                )
            ),
        ],
        {},
    ),
    "tools": ({"tools": [TOOL]}, HELLO, {"tools": [WEATHER]}),
    "tool_choice none": (
        {"tools": [TOOL], "tool_choice": "none"},
        HELLO,
        {"tools": [WEATHER], "tool_config": tool_config("NONE")},
    ),
    "tool_choice required": (
        {"tools": [TOOL], "tool_choice": "required"},
        HELLO,
        {"tools": [WEATHER], "tool_config": tool_config("ANY")},
    ),
    "tool_choice by name": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}},
        HELLO,
        {"tools": [WEATHER], "tool_config": tool_config("ANY", "weather")},
    ),
    "allowed tools": (
        {
            "tools": [TOOL, TIME],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "weather"}],
            },
        },
        HELLO,
        {"tools": [WEATHER], "tool_config": tool_config("ANY")},
    ),
    "allowed tools, no search among them": (
        {
            "tools": [TOOL, {"type": "web_search"}],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]},
        },
        HELLO,
        {"tools": [WEATHER]},
    ),
    "search": ({"tools": [{"type": "web_search"}]}, HELLO, {"tools": [types.Tool(google_search=types.GoogleSearch())]}),
    "a tool of Google's": (
        {"tools": [{"type": "google:codeExecution"}]},
        HELLO,
        {"tools": [types.Tool(code_execution=types.ToolCodeExecution())]},
    ),
    "json_schema": (
        {"text": FORMAT},
        HELLO,
        {"response_mime_type": "application/json", "response_json_schema": SCHEMA},
    ),
    "json_object": ({"text": {"format": {"type": "json_object"}}}, HELLO, {"response_mime_type": "application/json"}),
    "json_schema and tools": (
        {"text": FORMAT, "tools": [TOOL]},
        HELLO,
        {"tools": [WEATHER], "response_mime_type": "application/json", "response_json_schema": SCHEMA},
    ),
    "effort": (
        {"reasoning": {"effort": "medium"}},
        HELLO,
        thinking(include_thoughts=True, thinking_level=types.ThinkingLevel.MEDIUM),
    ),
    "summary": ({"reasoning": {"summary": "auto"}}, HELLO, thinking(include_thoughts=True)),
    "options": (
        {
            "max_output_tokens": 100,
            "temperature": 0,
            "top_p": 0.5,
            "presence_penalty": 0.25,
            "frequency_penalty": -0.25,
            "stop": ["END"],
            "seed": 7,
        },
        HELLO,
        {
            "max_output_tokens": 100,
            "temperature": 0,
            "top_p": 0.5,
            "presence_penalty": 0.25,
            "frequency_penalty": -0.25,
            "stop_sequences": ["END"],
            "seed": 7,
        },
    ),
    "logprobs": (
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        HELLO,
        {"response_logprobs": True, "logprobs": 3},
    ),
    "service_tier": ({"service_tier": "flex"}, HELLO, {"service_tier": types.ServiceTier.FLEX}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_request_equals_the_sdks(name: str):
    ours, contents, config = REQUESTS[name]
    path, body = sdk_request(contents, **config)
    request = encode_request(GOOGLE, upstream_model=GEMINI_3, stream=True, **ours)
    assert request.body == body
    assert request.sent.url == f"https://generativelanguage.googleapis.com{path}"
    strict = ["tools[0].strict"] if any(tool.get("strict") for tool in ours.get("tools", ())) else []
    assert [warning.param for warning in request.warnings] == strict


@pytest.mark.parametrize(
    ("model", "effort", "config", "warned"),
    [
        ("gemini-3.5-flash", "none", {"thinkingLevel": "MINIMAL"}, True),
        ("gemini-3.5-flash", "minimal", {"thinkingLevel": "MINIMAL"}, False),
        ("gemini-3.8-flash", "minimal", {"thinkingLevel": "LOW"}, True),
        ("gemini-3.1-pro", "none", {"thinkingLevel": "LOW"}, True),
        ("gemini-3.1-pro", "high", {"thinkingLevel": "HIGH"}, False),
        ("gemini-3.1-pro", "max", {"thinkingLevel": "HIGH"}, True),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}, False),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024}, False),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}, True),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768}, False),
        ("gemini-2.0-flash", "low", None, True),
        ("gemini-2.0-flash", "none", None, False),
    ],
)
def test_effort_becomes_a_level_or_a_budget(model: str, effort: str, config: dict | None, warned: bool):
    request = encode_request(GOOGLE, upstream_model=model, reasoning={"effort": effort})
    if config and effort != "none":
        config = {"includeThoughts": True} | config
    expected = {"thinkingConfig": config} if config else None
    assert request.body.get("generationConfig") == expected
    assert bool(request.warnings) == warned


def test_media_are_sent_beside_the_function_response_of_old_models():
    history = [
        {"role": "user", "content": "Hello"},
        {"type": "function_call", "call_id": "a", "name": "time", "arguments": ""},
        {"type": "function_call", "call_id": "b", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [IMAGE]},
        {"type": "function_call_output", "call_id": "b", "output": '{"at": 12}'},
    ]
    contents = encode_request(GOOGLE, upstream_model="gemini-2.5-flash", input=history).body["contents"]
    assert contents[1]["parts"] == [call("time", {}, "a"), call("time", {}, "b")]
    assert contents[2]["parts"] == [
        {"functionResponse": {"id": "a", "name": "time", "response": {"output": ""}}},
        {"functionResponse": {"id": "b", "name": "time", "response": {"at": 12}}},
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
    ]


def test_instructions_alone_become_the_users_message():
    sent = encode_request(GOOGLE, instructions="Greet.", input=[{"role": "system", "content": "Now."}])
    assert sent.body == {"contents": [{"role": "user", "parts": [{"text": "Greet."}, {"text": "Now."}]}]}


def test_a_system_message_with_an_image_becomes_the_users():
    content = [{"type": "input_text", "text": "Our logo:"}, IMAGE]
    sent = encode_request(GOOGLE, input=[{"role": "system", "content": content}]).body
    assert sent["contents"][0]["parts"][1]["inlineData"]["mimeType"] == "image/png"
    assert "systemInstruction" not in sent


def test_a_conversation_that_starts_with_a_call_gets_an_opening_message():
    contents = encode_request(GOOGLE, input=FOREIGN_ITEMS).body["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[0]["parts"] == [{"text": "Go on."}]


def test_json_with_tools_uses_a_tool_before_gemini_3():
    request = encode_request(GOOGLE, upstream_model="gemini-2.5-flash", text=FORMAT, tools=[TOOL])
    [offered] = request.body["tools"]
    assert [made["name"] for made in offered["functionDeclarations"]] == ["weather", "final_answer"]
    assert "generationConfig" not in request.body
    answer_of = call("final_answer", {"city": "Paris", "degrees": 21})
    response = decode_response(request, sse_stream(answer(answer_of, finish="STOP")))
    assert response.output_text == '{"city":"Paris","degrees":21}'


def test_models_configured_without_json_with_tools_use_a_tool():
    request = encode_request(
        GOOGLE, capabilities=Capabilities(lacks=frozenset({"tools_with_format"})), text=FORMAT, tools=[TOOL]
    )
    assert "generationConfig" not in request.body


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"safety_identifier": "k"}, "safety_identifier"),
        ({"user": "k"}, "user"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"tools": [{"type": "web_search", "search_context_size": "low"}]}, "tools[0]"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, "tools[0]"),
    ],
)
def test_unsupported_parameters_are_left_out_with_a_warning(fields: dict, param: str):
    request = encode_request(GOOGLE, **fields)
    assert [warning.param for warning in request.warnings] == [param]
    assert request.body.keys() <= {"contents", "tools"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        (user_content({"type": "input_image", "file_id": "f"}), "input[0].content[0]"),
        (user_content({"type": "input_image", "image_url": "s3://a/b.png"}), "input[0].content[0]"),
        (user_content({"type": "input_image", "image_url": "data:image/png;base64,?"}), "input[0].content[0]"),
        (user_content({"type": "input_audio", "input_audio": {}}), "input[0].content[0]"),
        (
            {"input": [{"role": "system", "content": [{"type": "input_image", "image_url": "?"}]}]},
            "input[0].content[0]",
        ),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ],
)
def test_what_cannot_be_left_out_is_rejected(fields: dict, param: str):
    with pytest.raises(RequestError) as refusal:
        encode_request(GOOGLE, **fields)
    assert refusal.value.payload.param == param


def test_tool_choice_none_leaves_hosted_tools_out():
    body = encode_request(GOOGLE, tools=[TOOL, {"type": "web_search"}], tool_choice="none").body
    assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"]]
