"""The Open Responses adapter: error responses, and fallbacks to chat and to less."""

import json

import pytest

from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.openai import OpenAI
from tests.adapters.open_responses.builders import ADAPTER, INCLUDE
from tests.adapters.provider_servers import serve_providers, stream_answer, summarize
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes.openai import SCENES as CHAT
from tests.adapters.scenes.responses import message, reasoning
from tests.http_client import stream_events
from tests.scripted_upstream import json_answer


@pytest.mark.parametrize(
    ("status", "body", "type", "code"),
    [
        (401, {"error": {"message": "No.", "code": "invalid_api_key"}}, "authentication_error", "invalid_api_key"),
        (429, {"type": "error", "message": "No.", "code": "slow"}, "too_many_requests", "slow"),
        (400, {"error": {"message": "No.", "type": "invalid_request_error"}}, "invalid_request_error", None),
        (422, {"detail": [{"loc": ["body"], "msg": "No."}]}, "invalid_request", None),
        (500, {"error": "No."}, "model_error", None),
        (404, {"error": {"message": "No.", "code": "model_not_found"}}, "not_found", "model_not_found"),
    ],
)
def test_an_error_response_keeps_its_message_type_and_code(status: int, body: dict, type: str, code: str | None):
    error = ADAPTER.decode_error(status, {"retry-after": "2"}, json.dumps(body).encode())
    assert (error.status, error.payload.type, error.payload.code) == (status, type, code)
    assert error.payload.message == "responses: No."
    assert error.headers == {"retry-after": "2"}


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b'{"detail":[3]}'])
def test_an_error_response_without_a_message_names_its_status(body: bytes):
    assert str(ADAPTER.decode_error(502, {}, body)) == "responses: answered 502 and did not say why."


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("body", [b"", b'{"error":{"message":"Not Found"}}'])
def test_a_server_without_the_endpoint_is_asked_in_chat(status: int, body: bytes):
    here = make_adapter(OpenResponses, base_url="http://there:1234/v1/", api_key_env=None)
    other = here.fallback_adapter(here.decode_error(status, {}, body))
    assert isinstance(other, OpenAI)
    assert encode_request(other).sent.url == "http://there:1234/v1/chat/completions"
    assert other.provider.api_key_env == "OPENRESPONSES_API_KEY"
    assert other.provider.name == "responses"


def test_the_fallback_to_chat_is_remembered():
    with serve_providers(["responses"]) as home:
        behind = home.upstreams["responses"]
        chat = stream_answer(CHAT["text"])
        behind.play(json_answer({"error": {"message": "Not Found"}}, 404), chat, chat)
        for _ in range(2):
            last = stream_events(home.address, model="responses/m")[-1]["response"]
            assert summarize(last, CHAT["text"].expected) == CHAT["text"].expected
    paths = [request.path for request in behind.requests]
    assert paths == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]
    keys = {request.headers["authorization"] for request in behind.requests}
    assert keys == {"Bearer secret-responses"}


@pytest.mark.parametrize(("status", "code"), [(404, "model_not_found"), (400, "x"), (429, "x"), (500, "x")])
def test_other_errors_have_no_fallback(status: int, code: str):
    body = json.dumps({"error": {"message": "No.", "code": code}}).encode()
    assert ADAPTER.fallback_adapter(ADAPTER.decode_error(status, {}, body)) is None


@pytest.mark.parametrize(
    "words",
    [
        "Encrypted content is not supported with this model.",
        "Reasoning input items can only be provided to a reasoning or computer use model.",
    ],
)
def test_a_model_without_reasoning_is_neither_sent_reasoning_nor_asked_for_it(words: str):
    error = ADAPTER.decode_error(400, {}, json.dumps({"error": {"message": words}}).encode())
    other = ADAPTER.fallback_adapter(error)
    assert isinstance(other, OpenResponses)
    user = {"role": "user", "content": "Hi?"}
    history = [user, reasoning("", encrypted_content="sealed"), message("Hi!"), user]
    sent = encode_request(other, input=history).body
    assert "include" not in sent
    assert [item["type"] for item in sent["input"]] == ["message"] * 3
    sent = encode_request(other, input=history, reasoning={"effort": "low"}).body
    assert sent["include"] == INCLUDE
    assert sent["input"][1]["encrypted_content"] == "sealed"
    assert other.fallback_adapter(error) is None
