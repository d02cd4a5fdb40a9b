"""Anthropic's addresses, credentials, model list and error responses."""

import json

import pytest

from antiphon.adapters.anthropic.adapter import Anthropic
from antiphon.transport.request import Key
from tests.adapters.anthropic.builders import (
    ANTHROPIC,
    OLD_API_VERSION,
    WEATHER,
    anthropic_message,
    ask,
    error_body,
    sdk_client,
)
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes import TOOL
from tests.adapters.scenes.anthropic import MODEL, text_block
from tests.scripted_upstream import ScriptedAnswer, scripted_upstream


@pytest.mark.parametrize(
    ("status", "type", "ours", "retryable"),
    [
        (400, "invalid_request_error", 400, False),
        (401, "authentication_error", 401, False),
        (402, "billing_error", 402, False),
        (404, "not_found_error", 404, False),
        (429, "rate_limit_error", 429, True),
        (500, "api_error", 500, True),
        (529, "overloaded_error", 503, True),
    ],
)
def test_an_error_response_keeps_its_type_and_message(status: int, type: str, ours: int, retryable: bool):
    headers = {"retry-after": "7", "request-id": "req_1"}
    error = ANTHROPIC.decode_error(status, headers, json.dumps(error_body(type)).encode())
    payload = error.payload
    assert (error.status, error.retryable, error.headers) == (ours, retryable, {"retry-after": "7"})
    assert (payload.type, payload.message) == (type, "anthropic: No.")


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[]", b'{"error": null}'])
def test_an_unreadable_error_response_is_reported_with_its_status(body: bytes):
    error = ANTHROPIC.decode_error(502, {}, body)
    assert (error.status, error.payload.type) == (502, "model_error")
    assert "502" in error.payload.message


def test_the_key_is_sent_as_x_api_key():
    assert ANTHROPIC.credential() == Key("x-api-key", "")


@pytest.mark.parametrize("base", ["http://host:1", "http://host:1/", "http://host:1/v1", "http://host:1/v1/"])
def test_the_configured_url_may_end_with_the_version_or_not(base: str):
    adapter = make_adapter(Anthropic, base_url=base)
    assert encode_request(adapter).sent.url == "http://host:1/v1/messages"
    listing = adapter.models_request()
    assert listing
    assert listing.url == "http://host:1/v1/models?limit=1000"


def test_models_are_listed_like_the_sdk_does():
    page = {
        "data": [
            {"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
            for id in ("claude-opus-5", "claude-haiku-5-5")
        ],
        "has_more": False,
        "first_id": "claude-opus-5",
        "last_id": "claude-haiku-5-5",
    }
    answer = ScriptedAnswer(json.dumps(page).encode(), headers={"content-type": "application/json"})
    with scripted_upstream(answer) as provider, sdk_client(provider.url) as sdk:
        listed = [model.id for model in sdk.models.list(limit=1000)]
        sent = provider.requests[0]
    ours = make_adapter(Anthropic, base_url=provider.url).models_request()
    assert ours
    assert ours.url == f"{provider.url}{sent.path}"
    assert dict(ours.headers) == {"anthropic-version": sent.headers["anthropic-version"]}
    assert ANTHROPIC.decode_models(page) == listed


def test_tokens_are_counted_like_the_sdk_does():
    with scripted_upstream(
        ScriptedAnswer(b'{"input_tokens": 14}', headers={"content-type": "application/json"})
    ) as provider:
        sdk = sdk_client(provider.url)
        counted = sdk.messages.count_tokens(
            model=MODEL,
            system="Be brief.",
            messages=[anthropic_message(text_block("Hello"))],  # type: ignore[list-item]
            tools=[WEATHER],  # type: ignore[list-item]
            thinking={"type": "adaptive"},
            output_config={"effort": "low"},
        )
        sdk.close()
    request = ask(instructions="Be brief.", tools=[TOOL], reasoning={"effort": "low"}, stop=["x"], stream=True)
    adapter = make_adapter(Anthropic, base_url=provider.url)
    assert isinstance(adapter, Anthropic)
    ours, count = adapter.count_tokens_request(request.prompt)
    assert (ours.url, ours.body) == (f"{provider.url}{provider.requests[0].path}", provider.requests[0].json)
    assert count({"input_tokens": 14}) == counted.input_tokens


def test_the_api_version_can_be_configured():
    adapter = make_adapter(Anthropic, api_version=OLD_API_VERSION)
    assert dict(encode_request(adapter).sent.headers) == {"anthropic-version": OLD_API_VERSION}
