"""Errors of providers: shapes, codes, statuses, redaction and redirects."""

import pytest

from antiphon.adapters.anthropic.adapter import Anthropic
from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.bedrock.adapter import Bedrock
from antiphon.adapters.errors import (
    ErrorInfo,
    client_status,
    infer_code,
    infer_status,
    parse_error,
    redact,
    redirect_target,
)
from antiphon.adapters.google.adapter import Google
from antiphon.adapters.ollama import Ollama
from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.openai import OpenAI
from antiphon.server.settings import Settings
from tests.adapters.run_adapter import make_adapter
from tests.http_client import post_response
from tests.run_server import run_server
from tests.scripted_upstream import json_answer, scripted_upstream

TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
TOO_MANY = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
VLLM = {
    "message": "This model's maximum context length is 4096 tokens. However, you sent more.",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"error": {"message": "No.", "type": "t", "code": 7, "param": "p"}}, ("No.", "t", "7", "p")),
        ({"message": "No.", "code": ""}, ("No.", None, None, None)),
        ({"error": "No."}, ("No.", None, None, None)),
        ({"detail": "No."}, ("No.", None, None, None)),
        ([{"error": {"message": "No."}}], ("No.", None, None, None)),
        ({"error": {"message": ["No."]}}, ("No.", None, None, None)),
        ([], ("", None, None, None)),
        ("No.", ("No.", None, None, None)),
        ({"error": True, "message": 7, "detail": [3, None, {}]}, ("", None, None, None)),
    ],
)
def test_an_error_is_found_in_the_shapes_that_most_servers_use(value: object, fault: tuple):
    assert parse_error(value) == ErrorInfo(*fault)


MISSING = {"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"detail": [MISSING]}, "messages: Field required"),
        ({"detail": [MISSING, {"msg": "No."}]}, "messages: Field required; No."),
        ({"object": "error", "message": {"detail": [MISSING]}}, "messages: Field required"),
        ({"error": {"message": {"detail": [MISSING]}}}, "messages: Field required"),
        ({"detail": [{"loc": ["a", 0], "msg": "No."}]}, "a.0: No."),
        ({"detail": [{"loc": ["a"]}]}, ""),
        ({"detail": [{"loc": "a", "msg": "No."}]}, "No."),
        ({"detail": {"error": "inference exception"}}, "inference exception"),
        ({"errors": [{"message": "AiError: bad", "code": 5006}], "messages": []}, "AiError: bad"),
        ({"extras": {}, "errors": [{"description": "bad", "key": "fail.x"}]}, "bad"),
        ({"errors": ["a", "b", "c", "d", "e", "f"]}, "a; b; c; d; e"),
        ({"detail": {"detail": {"detail": {"detail": {"detail": {"detail": "deep"}}}}}}, "deep"),
        ({"detail": [[[[[[["too deep"]]]]]]]}, ""),
    ],
)
def test_the_message_of_an_error_is_found_wherever_it_is_nested(value: object, words: str):
    assert parse_error(value).message == words


@pytest.mark.parametrize("kind", [OpenAI, Anthropic, Bedrock, Google, Ollama, OpenResponses])
@pytest.mark.parametrize(
    ("content_type", "body", "words"),
    [
        ("text/plain", b"upstream connect error\n", "upstream connect error"),
        ("Text/Plain; charset=utf-8", b"Bad key sk-abcdefgh1234", "Bad key [redacted]"),
        ("text/plain", b"\xff!", "\ufffd!"),
        ("text/plain", b"x" * 3000, "x" * 2000),
        ("text/plain", b"<html>Bad gateway</html>", "answered 503 and did not say why."),
        ("text/html", b"Bad gateway", "answered 503 and did not say why."),
        ("text/plain", b'{"error":{"mess', "answered 503 and did not say why."),
        ("text/plain", b"", "answered 503 and did not say why."),
    ],
)
def test_a_plain_text_error_is_quoted_and_a_web_page_is_not(
    kind: type[Adapter], content_type: str, body: bytes, words: str
):
    there = make_adapter(kind, name="there", region="eu-west-1")
    assert str(there.decode_error(503, {"content-type": content_type}, body)) == f"there: {words}"


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (ErrorInfo(code="429", type="server_error"), 429),
        (ErrorInfo(code="rate_limit_exceeded", type="invalid_request_error"), 429),
        (ErrorInfo(code="oops", type="overloaded_error"), 529),
        (ErrorInfo(type="server_error"), 500),
        (ErrorInfo(type="model_error"), 502),
        (ErrorInfo(code="200"), 502),
        (ErrorInfo(), 502),
    ],
)
def test_an_error_inside_an_answer_has_the_status_that_it_would_have_had(fault: ErrorInfo, status: int):
    assert infer_status(fault) == status


LONG = "context_length_exceeded"


@pytest.mark.parametrize(
    ("words", "code", "meant"),
    [
        ("prompt is too long: 208310 tokens > 200000 maximum", None, LONG),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", None, LONG),
        ("The input token count (9) exceeds the maximum number of tokens allowed (8).", "INVALID_ARGUMENT", LONG),
        ("Input is too long for requested model.", "ValidationException", LONG),
        ("Number of input tokens exceeds maximum length.", "ValidationException", LONG),
        ("This model's maximum context length is 4096 tokens.", "400", LONG),
        ("This model's maximum prompt length is 131072 but you sent more.", "A sentence", LONG),
        ("the request exceeds the available context size.", "400", LONG),
        ("Your input exceeds the context window of this model.", None, LONG),
        ("input exceeds maximum context length", None, LONG),
        ("Your credit balance is too low to access the Anthropic API.", None, "insufficient_quota"),
        ("Incorrect API key provided: xa***Ab.", "A sentence", "invalid_api_key"),
        ("The provided model identifier is invalid.", "ValidationException", "model_not_found"),
        ("Model x with on-demand throughput isn\u2019t supported.", None, "model_not_found"),
        ("acme/x is not a valid model ID", "400", "model_not_found"),
        ("invalid model ID", None, "model_not_found"),
        ("Model Not Exist", "invalid_request_error", "model_not_found"),
        ("prompt is too long", "content_filter", "content_filter"),
        ("'context window' is not one of the values", "invalid_value", "invalid_value"),
        ("Request refused: 'incorrect api key'.", "content_policy_violation", "content_policy_violation"),
        ("Slow down: credit balance is too low.", "slow_down", "slow_down"),
        ("1 validation error: input_value='the prompt is too long'", "400", "400"),
        ('Bad body: {"a": "The prompt is too long"}', None, None),
        ("'max_tokens' is too large: the maximum context length is 8.", "400", "400"),
        ("Not so fast.", "429", "429"),
        ("Not so.", None, None),
    ],
)
def test_common_error_messages_have_a_code(words: str, code: str | None, meant: str | None):
    assert infer_code(ErrorInfo(words, "t", code, "p")) == ErrorInfo(words, "t", meant, "p")


@pytest.mark.parametrize(
    ("kind", "status", "body", "type"),
    [
        (
            Anthropic,
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": TOO_LONG}},
            "invalid_request_error",
        ),
        (Google, 400, {"error": {"code": 400, "message": TOO_MANY, "status": "INVALID_ARGUMENT"}}, "invalid_request"),
        (Bedrock, 400, {"message": f"The model returned errors: {TOO_LONG}"}, "invalid_request"),
        (Ollama, 400, {"error": "input exceeds maximum context length"}, "invalid_request"),
        (OpenAI, 400, {"object": "error"} | VLLM, "BadRequestError"),
        (OpenAI, 400, {"error": VLLM}, "BadRequestError"),
        (OpenResponses, 400, {"error": VLLM}, "BadRequestError"),
        (
            OpenAI,
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size.",
                    "type": "exceed_context_size_error",
                }
            },
            "exceed_context_size_error",
        ),
    ],
)
def test_a_prompt_that_is_too_long_has_the_same_code_everywhere(
    kind: type[Adapter], status: int, body: dict, type: str
):
    with scripted_upstream(json_answer(body, status)) as played:
        there = Provider(name="there", adapter=kind.name, base_url=played.url, region="eu-west-1")
        chosen = Settings(providers=[there], keys={"there": "secret-key"})
        with run_server(chosen) as address:
            answer = post_response(address, model="there/m")
    told = answer.json()["error"]
    assert (answer.status_code, told["type"], told["code"]) == (400, type, LONG)


def test_a_client_gets_a_standard_error_status():
    assert [client_status(status) for status in (302, 404, 529, 503, 600)] == [502, 404, 503, 503, 502]


def test_what_looks_like_a_key_is_redacted():
    said = "Bad key sk-abcdefgh1234 for bearer abcdefgh12345678, half a \ud83d."
    assert redact(said) == "Bad key [redacted] for [redacted], half a \ufffd."
    assert redact("x" * 300, 200) == "x" * 200


def test_a_header_with_a_secret_is_redacted():
    said = (
        "The Canonical String for this request should have been\n'POST\n/model/x/converse\n\n"
        "host:bedrock-runtime.eu-west-1.amazonaws.com\nX-Amz-Security-Token:FwoGZXIv/+YXdzEJr==\n\n"
        "host;x-amz-security-token\n0f1e'\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=me/20261101, Signature=abcd\nNo."
    )
    assert redact(said) == (
        "The Canonical String for this request should have been\n'POST\n/model/x/converse\n\n"
        "host:bedrock-runtime.eu-west-1.amazonaws.com\n[redacted]\n\n"
        "host;x-amz-security-token\n0f1e'\n"
        "[redacted]\nNo."
    )


@pytest.mark.parametrize("name", ["x-api-key", "X-Goog-Api-Key", "api-key"])
def test_a_header_with_a_key_is_redacted(name: str):
    said = f'Bad headers {{"{name}": "0123456789abcdef", "a": 1}} or {name}=0123456789abcdef.'
    assert redact(said) == 'Bad headers {"[redacted]", "a": 1} or [redacted]'
    assert redact(f"The header {name} is missing.") == f"The header {name} is missing."


def test_text_beside_a_header_is_kept():
    said = "Use a header (i.e. Authorization: Basic YWJjOmRlZg==), or a field. See our page."
    assert redact(said) == "Use a header (i.e. [redacted]), or a field. See our page."


@pytest.mark.parametrize("name", ["secret_access_key", "SecretAccessKey", "SESSION_TOKEN"])
def test_aws_secrets_are_redacted(name: str):
    said = f"Bad aws_{name}=wJalrXUtnFEMI/K7MDENG here"
    assert redact(said) == "Bad aws_[redacted] here"


BASE = "http://here.example/v1"
ASKED = f"{BASE}/responses"


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("https://there.example/v2/responses", "https://there.example/v2"),
        ("https://me:secret@there.example/v2/responses?key=secret#x", "https://there.example/v2"),
        ("wss://there.example:8000/v2/responses", "https://there.example:8000/v2"),
        ("ws://there.example/responses", "http://there.example"),
        ("//there.example/v1/responses", "http://there.example/v1"),
        ("/v2/responses", "http://here.example/v2"),
        ("/login", "http://here.example/login"),
        ("http://[", None),
        ("mailto:a@b.example", None),
        ("", None),
    ],
)
def test_the_error_of_a_redirect_names_the_new_base_url(location: str, place: str | None) -> None:
    headers = {"location": location}
    assert redirect_target(308, headers, ASKED, BASE) == place
    assert redirect_target(302, headers, f"{ASKED}?a=b", BASE) == place


@pytest.mark.parametrize("status", [200, 201, 404, 503])
def test_only_a_redirect_has_a_target(status: int) -> None:
    assert redirect_target(status, {"location": ASKED}, ASKED, BASE) is None


def test_a_redirect_without_a_place_leads_nowhere() -> None:
    assert redirect_target(304, {}, ASKED, BASE) is None
