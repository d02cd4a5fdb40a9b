"""Azure: the requests and answers of OpenAI's SDK for Azure are the reference."""

import json
from typing import Any

import openai
import pytest

from antiphon.adapters.azure import Azure
from antiphon.protocol import parts
from antiphon.transport.request import EntraToken, Key
from tests.adapters.chat_summary import HELLO, summarize_sdk, whole_answer
from tests.adapters.run_adapter import decode_parts, encode_request, make_adapter
from tests.adapters.scenes import FORMAT, NAMES, TOOL
from tests.adapters.scenes.azure import SCENES
from tests.scripted_upstream import ScriptedUpstream, scripted_upstream, sse_answer

ENDPOINT = "https://acme.openai.azure.com"
VERSION = "2025-04-01-preview"
AZURE = make_adapter(Azure, endpoint=f"{ENDPOINT}/", api_version=VERSION)
NEWER = make_adapter(Azure, endpoint=ENDPOINT)


def azure_client(provider: ScriptedUpstream) -> openai.AzureOpenAI:
    return openai.AzureOpenAI(azure_endpoint=provider.url, api_version=VERSION, api_key="key", max_retries=0)


# --- answers ---


def test_every_scene_is_played_and_one_of_its_own():
    assert set(SCENES) - set(NAMES) == {"filtered"}
    assert set(SCENES) >= set(NAMES)


@pytest.mark.parametrize("name", SCENES)
def test_openais_own_sdk_for_azure_sees_the_same(name: str):
    scene = SCENES[name]
    end = scene.expected.status, scene.expected.reason
    answers = sse_answer(scene.stream), whole_answer(scene.whole)
    with scripted_upstream(*answers) as provider, azure_client(provider) as client:
        create: Any = client.chat.completions.create
        chunks = list(create(model="m", messages=[HELLO], stream=True))
        answer = create(model="m", messages=[HELLO])
    assert summarize_sdk(chunks, *end) == scene.expected
    assert summarize_sdk([answer], *end) == scene.expected


def test_the_verdict_on_the_prompt_is_no_part_of_the_answer():
    first = SCENES["text"].stream.split(b"\n\n")[0] + b"\n\n"
    assert b"prompt_filter_results" in first
    assert encode_request(AZURE, stream=True).decoder.feed(first) == []


def test_a_stream_that_ends_after_the_verdict_is_cut_short():
    first = SCENES["text"].stream.split(b"\n\n")[0] + b"\n\n"
    (failure,) = decode_parts(encode_request(AZURE, stream=True), first)
    assert isinstance(failure, parts.Failure)
    assert failure.error.code == "upstream_cut"


# --- requests ---


def test_the_request_has_the_url_and_body_of_the_sdk():
    asking = encode_request(
        AZURE,
        upstream_model="gpt 5/mini",
        instructions="Be brief.",
        stream=True,
        max_output_tokens=100,
        reasoning={"effort": "low"},
        tools=[TOOL],
        tool_choice={"type": "function", "name": "weather"},
        text=FORMAT,
    )
    with scripted_upstream(sse_answer(SCENES["text"].stream)) as provider, azure_client(provider) as client:
        create: Any = client.chat.completions.create
        list(
            create(
                model="gpt 5/mini",
                messages=[{"role": "system", "content": "Be brief."}, HELLO],
                stream=True,
                stream_options={"include_usage": True},
                max_completion_tokens=100,
                reasoning_effort="low",
                tools=[{"type": "function", "function": _without_type(TOOL)}],
                tool_choice={"type": "function", "function": {"name": "weather"}},
                response_format={"type": "json_schema", "json_schema": _without_type(FORMAT["format"])},
            )
        )
    (received,) = provider.requests
    assert asking.body == received.json
    assert received.headers["api-key"] == "key"
    assert "authorization" not in received.headers
    quoted = f"/openai/deployments/gpt%205%2Fmini/chat/completions?api-version={VERSION}"
    assert asking.sent.url == ENDPOINT + quoted


def _without_type(value: dict) -> dict:
    return {name: member for name, member in value.items() if name != "type"}


def test_a_deployment_stands_in_the_path_as_the_sdk_writes_it():
    with scripted_upstream(whole_answer(SCENES["text"].whole)) as provider, azure_client(provider) as client:
        client.chat.completions.create(model="gpt-5-mini", messages=[HELLO])  # type: ignore[list-item]
    asking = encode_request(AZURE, upstream_model="gpt-5-mini")
    assert asking.sent.url == ENDPOINT + provider.requests[0].path


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": ENDPOINT},
        {"base_url": ENDPOINT},
        {"base_url": f"{ENDPOINT}/openai/v1/"},
        {"endpoint": f"{ENDPOINT}/openai"},
    ],
)
def test_without_a_version_the_newer_address_is_used(options: dict):
    adapter = make_adapter(Azure, **options)
    assert encode_request(adapter).sent.url == f"{ENDPOINT}/openai/v1/chat/completions"
    listing = adapter.models_request()
    assert listing
    assert listing.url == f"{ENDPOINT}/openai/v1/models"


def test_models_are_listed_by_version_too():
    listing = AZURE.models_request()
    assert listing
    assert (listing.method, listing.url) == ("GET", f"{ENDPOINT}/openai/models?api-version={VERSION}")


def test_a_key_is_sent_unless_the_profile_is_entra():
    assert AZURE.credential() == Key("api-key", "")
    assert make_adapter(Azure, endpoint=ENDPOINT, profile="entra").credential() == EntraToken()


def test_allowed_tools_are_sent_unchanged():
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
    body = encode_request(NEWER, tools=[TOOL], tool_choice=allowed).body
    assert body["tool_choice"]["type"] == "allowed_tools"


# --- errors ---


def test_a_blocked_prompt_is_a_400_with_the_code_content_filter():
    words = "The response was filtered due to the prompt triggering the content policy."
    verdict = {"jailbreak": {"filtered": True, "detected": True}}
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": verdict}
    fields = {"message": words, "type": None, "param": "prompt", "code": "content_filter"}
    body = {"error": fields | {"status": 400, "innererror": inner}}
    error = AZURE.decode_error(400, {}, json.dumps(body).encode())
    assert (error.status, error.retryable) == (400, False)
    assert error.payload.message == f"azure: {words}"
    assert (error.payload.type, error.payload.code, error.payload.param) == (
        "invalid_request",
        "content_filter",
        "prompt",
    )


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, {"error": {"code": "401", "message": "Access denied."}}, "401"),
        (404, {"error": {"code": "DeploymentNotFound", "message": "None."}}, "DeploymentNotFound"),
        (429, {"error": {"code": "429", "message": "Slow down."}}, "429"),
        (401, {"statusCode": 401, "message": "Token is missing."}, None),
    ],
)
def test_other_refusals_keep_their_codes(status: int, body: dict, code: str | None):
    error = AZURE.decode_error(status, {"retry-after": "3"}, json.dumps(body).encode())
    assert (error.status, error.payload.code) == (status, code)
    assert error.payload.message.startswith("azure: ")
    assert error.headers == {"retry-after": "3"}
