"""Gemini's errors: instead of a response, within a stream, and unreadable ones."""

import json

import pytest

from antiphon.protocol import parts
from tests.adapters.google.builders import GEMINI_3, GOOGLE, errors, google_client
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, synthesize
from tests.adapters.scenes.google import SCENES, answer, sse_stream, whole
from tests.scripted_upstream import ScriptedAnswer, json_answer, sse_answer


def error_body(code: int, message: str, status: str, *details: dict) -> dict:
    """Return an error in Google's format."""
    error: dict = {"code": code, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
QUOTA = error_body(429, "Quota exceeded.", "RESOURCE_EXHAUSTED", WAIT)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            error_body(400, "API key not valid.", "INVALID_ARGUMENT", BAD_KEY),
            ("authentication_error", "API_KEY_INVALID", "API key not valid.", False),
        ),
        (401, error_body(401, "Who?", "UNAUTHENTICATED"), ("authentication_error", "UNAUTHENTICATED", "Who?", False)),
        (400, [error_body(400, "No.", "INVALID_ARGUMENT")], ("invalid_request", "INVALID_ARGUMENT", "No.", False)),
        (
            404,
            error_body(404, "models/x is not found.", "NOT_FOUND"),
            ("not_found", "NOT_FOUND", "models/x is not found.", False),
        ),
        (429, QUOTA, ("too_many_requests", "RESOURCE_EXHAUSTED", "Quota exceeded.", True)),
        (500, error_body(500, "Oh.", "INTERNAL"), ("model_error", "INTERNAL", "Oh.", True)),
        (503, error_body(503, "Overloaded.", "UNAVAILABLE"), ("model_error", "UNAVAILABLE", "Overloaded.", True)),
        (502, b"<html>Bad gateway</html>", ("model_error", None, "answered 502 and did not say why.", True)),
        (500, b"", ("model_error", None, "answered 500 and did not say why.", True)),
        (400, {"error": "flat"}, ("invalid_request", None, "flat", False)),
    ],
)
def test_an_error_response_keeps_its_code_and_message(status: int, body: object, expected: tuple):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = GOOGLE.decode_error(status, {}, data)
    type, code, message, retryable = expected
    assert (error.status, error.retryable) == (status, retryable)
    assert (error.payload.type, error.payload.code) == (type, code)
    assert error.payload.message == f"google: {message}"


def test_the_retry_delay_of_the_body_is_passed_on():
    data = json.dumps(QUOTA).encode()
    assert GOOGLE.decode_error(429, {}, data).headers == {"retry-after": "35"}
    assert GOOGLE.decode_error(429, {"retry-after": "2"}, data).headers == {"retry-after": "2"}


OVERLOADED = error_body(503, "Overloaded.", "UNAVAILABLE")


@pytest.mark.parametrize(
    "error",
    [
        b"data: " + json.dumps(OVERLOADED).encode() + b"\r\n\r\n",
        json.dumps(OVERLOADED, indent=2).encode(),
        json.dumps([OVERLOADED], indent=2).encode() + b"\n",
    ],
)
@pytest.mark.parametrize("before", [b"", sse_stream(answer({"text": "Well, "}))])
@pytest.mark.parametrize("pieces", [0, 1, 5])
def test_an_error_within_a_stream_is_a_failure(error: bytes, before: bytes, pieces: int):
    request = encode_request(GOOGLE, stream=True)
    decoded = decode_parts(request, before + error, pieces=pieces)
    failure = decoded[-1]
    assert isinstance(failure, parts.Failure)
    assert failure.status == 503
    response = synthesize(request, decoded)[1]
    assert response.status == "failed"
    assert response.error
    assert (response.error.code, response.error.message) == ("UNAVAILABLE", "google: Overloaded.")
    assert response.output_text == ("Well, " if before else "")


@pytest.mark.parametrize(
    ("scripted", "code", "status"),
    [
        (json_answer(QUOTA, 429), 429, "RESOURCE_EXHAUSTED"),
        (sse_answer(sse_stream(answer({"text": "a"})) + json.dumps(OVERLOADED, indent=2).encode()), 503, "UNAVAILABLE"),
        (sse_answer(sse_stream(answer({"text": "a"}), OVERLOADED)), 503, "UNAVAILABLE"),
    ],
)
def test_the_sdk_fails_with_the_same_errors(scripted: ScriptedAnswer, code: int, status: str):
    with google_client(scripted) as (google, _):
        with pytest.raises(errors.APIError) as error:
            list(google.generate_content_stream(model=GEMINI_3, contents="Hello"))
        assert (error.value.code, error.value.status) == (code, status)


@pytest.mark.parametrize("end", range(0, len(SCENES["length"].stream) - 140, 23))
def test_a_truncated_stream_is_never_completed(end: int):
    response = decode_response(encode_request(GOOGLE, stream=True), SCENES["length"].stream[:end])
    assert response.status == "failed"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xfe\x00",
        b"data: {not json}\n\n",
        b"data: [1]\n\n",
        b'data: {"candidates": "no"}\n\n',
        b"{",
        b"[[[[",
        b"<html></html>",
        b"",
    ],
)
def test_an_unreadable_response_is_a_failure(garbage: bytes):
    for stream in (True, False):
        response = decode_response(encode_request(GOOGLE, stream=stream), garbage, stream=stream)
        assert response.status == "failed"


def test_a_response_without_candidates_is_a_failure():
    response = decode_response(encode_request(GOOGLE), b"{}", stream=False)
    assert response.status == "failed"
    response = decode_response(encode_request(GOOGLE), whole(answer({"text": "Hi."})), stream=False)
    assert (response.status, response.output_text) == ("completed", "Hi.")
