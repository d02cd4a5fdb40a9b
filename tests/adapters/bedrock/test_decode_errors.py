"""Bedrock's errors: before a stream, within it, and unreadable ones."""

from contextlib import closing

import pytest
from botocore.exceptions import ClientError, EventStreamError

from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall
from tests.adapters.bedrock.builders import BEDROCK, CLAUDE, HELLO, aws_client, build_answer
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, synthesize
from tests.adapters.scenes import TIME
from tests.adapters.scenes.bedrock import (
    SCENES,
    block_stop,
    call_start,
    event,
    exception,
    stream,
    stream_end,
    text,
    tool_use,
    whole,
)
from tests.scripted_upstream import scripted_upstream
from tests.wire.eventstream_encoder import encode


@pytest.mark.parametrize(
    ("status", "headers", "body", "type", "code", "message", "retryable"),
    [
        (
            400,
            {"x-amzn-errortype": "ValidationException:http://internal.amazon.com/"},
            b'{"message":"Bad \\"model\\"."}',
            "invalid_request",
            "ValidationException",
            'Bad "model".',
            False,
        ),
        (
            400,
            {"x-amzn-errortype": "ValidationException"},
            b'{"message":"Input is too long for requested model."}',
            "invalid_request",
            "context_length_exceeded",
            "Input is too long for requested model.",
            False,
        ),
        (
            403,
            {"x-amzn-errortype": "AccessDeniedException"},
            b'{"Message":"No."}',
            "permission_denied",
            "AccessDeniedException",
            "No.",
            False,
        ),
        (
            403,
            {"x-amzn-errortype": "UnrecognizedClientException"},
            b'{"message":"The token is invalid."}',
            "authentication_error",
            "UnrecognizedClientException",
            "The token is invalid.",
            False,
        ),
        (
            404,
            {},
            b'{"__type":"com.amazon#ResourceNotFoundException","message":"None."}',
            "not_found",
            "ResourceNotFoundException",
            "None.",
            False,
        ),
        (
            424,
            {"x-amzn-errortype": "ModelErrorException"},
            b'{"message":"Broke.","originalStatusCode":500}',
            "model_error",
            "ModelErrorException",
            "Broke.",
            False,
        ),
        (
            429,
            {"x-amzn-errortype": "ThrottlingException", "retry-after": "3"},
            b'{"message":"Too many."}',
            "too_many_requests",
            "ThrottlingException",
            "Too many.",
            True,
        ),
        (
            500,
            {"x-amzn-errortype": "InternalServerException"},
            b"{}",
            "model_error",
            "InternalServerException",
            "answered 500 and did not say why.",
            True,
        ),
        (503, {}, b"<html>Unavailable</html>", "model_error", None, "answered 503 and did not say why.", True),
        (401, {}, b"", "authentication_error", None, "answered 401 and did not say why.", False),
    ],
)
def test_an_error_response_keeps_its_status_name_and_message(
    status: int, headers: dict, body: bytes, type: str, code: str, message: str, retryable: bool
):
    error = BEDROCK.decode_error(status, headers, body)
    assert (error.status, error.payload.type, error.payload.code) == (status, type, code)
    assert error.payload.message == f"bedrock: {message}"
    assert error.retryable is retryable
    assert error.headers == ({"retry-after": "3"} if "retry-after" in headers else {})


def test_the_sdk_reads_the_same_error():
    answer = build_answer(
        b'{"message":"Too many."}', "application/json", 429, **{"x-amzn-ErrorType": "ThrottlingException"}
    )
    with scripted_upstream(answer) as provider, aws_client(provider) as client, pytest.raises(ClientError) as caught:
        client.converse(modelId=CLAUDE, messages=HELLO)
    error = caught.value.response["Error"]
    ours = BEDROCK.decode_error(429, {"x-amzn-errortype": "ThrottlingException"}, answer.body).payload
    assert (error["Code"], f"bedrock: {error['Message']}") == (ours.code, ours.message)  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("kind", "status", "type", "code"),
    [
        ("internalServerException", 500, "model_error", "InternalServerException"),
        ("modelStreamErrorException", 424, "model_error", "ModelStreamErrorException"),
        ("validationException", 400, "invalid_request", "ValidationException"),
        ("throttlingException", 429, "too_many_requests", "ThrottlingException"),
        ("serviceUnavailableException", 503, "model_error", "ServiceUnavailableException"),
    ],
)
@pytest.mark.parametrize("before", [b"", text(0, "Hel")])
def test_an_exception_within_a_stream_is_a_failure(kind: str, status: int, type: str, code: str, before: bytes):
    body = event("messageStart", role="assistant") + before + exception(kind, message="It broke.")
    request = encode_request(BEDROCK, stream=True)
    decoded = decode_parts(request, body + text(1, "unread") + stream_end())
    failure = decoded[-1]
    assert isinstance(failure, parts.Failure)
    assert failure.status == status
    assert (failure.error.type, failure.error.code) == (type, code)
    assert failure.error.message == "bedrock: It broke."
    response = synthesize(request, decoded)[1]
    assert (response.status, response.output_text) == ("failed", "Hel" if before else "")
    with (
        scripted_upstream(build_answer(body)) as provider,
        aws_client(provider) as client,
        closing(client.converse_stream(modelId=CLAUDE, messages=HELLO)["stream"]) as events,
        pytest.raises(EventStreamError, match=r"It broke\."),
    ):
        list(events)


def test_an_unknown_exception_is_a_failure():
    failure = decode_parts(encode_request(BEDROCK, stream=True), exception("newException", message="Hm."))[-1]
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.code) == (502, "NewException")


def test_the_original_message_of_an_exception_is_used_if_there_is_no_other():
    body = exception("modelStreamErrorException", originalStatusCode=500, originalMessage="Deep.")
    failure = decode_parts(encode_request(BEDROCK, stream=True), body)[-1]
    assert isinstance(failure, parts.Failure)
    assert failure.error.message == "bedrock: Deep."


def test_a_connection_error_within_a_stream_is_a_failure():
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "Hm."}
    failure = decode_parts(encode_request(BEDROCK, stream=True), encode(headers, b""))[-1]
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.code, failure.error.message) == (502, "InternalError", "bedrock: Hm.")


@pytest.mark.parametrize("name", SCENES)
def test_a_truncated_stream_is_never_completed(name: str):
    scene = SCENES[name]
    end = scene.stream.index(b"messageStop") - 30
    for cut in range(0, end, 23):
        request = encode_request(BEDROCK, stream=True, **scene.request)
        response = decode_response(request, scene.stream[:cut])
        assert response.status == "failed"
        assert response.error
        assert response.error.code == "upstream_cut"


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b'data: {"a": 1}\n\n', b"\0" * 40])
def test_an_unreadable_response_is_a_failure(body: bytes):
    failure = decode_parts(encode_request(BEDROCK, stream=True), text(0, "Hel") + body)[-1]
    assert isinstance(failure, parts.Failure)
    assert failure.error.code == "upstream_invalid"


@pytest.mark.parametrize("body", [b"", b"<html></html>", b"[]", b"{}", b'{"output":7}', b'{"message":"hm"}'])
def test_an_unreadable_complete_response_is_a_failure(body: bytes):
    (failure,) = decode_parts(encode_request(BEDROCK), body, stream=False)
    assert isinstance(failure, parts.Failure)
    assert failure.error.code == "upstream_invalid"


@pytest.mark.parametrize(
    "payload",
    [
        b"not JSON",
        b'{"contentBlockIndex":"0","delta":{"text":"a"}}',
        b'{"contentBlockIndex":0,"delta":{"text":7}}',
        b'{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"a"}}}',
    ],
)
def test_an_unreadable_event_is_a_failure(payload: bytes):
    headers = {":message-type": "event", ":event-type": "contentBlockDelta"}
    failure = decode_parts(encode_request(BEDROCK, stream=True), encode(headers, payload))[-1]
    assert isinstance(failure, parts.Failure)
    assert failure.error.code == "upstream_invalid"


def test_a_split_emoji_is_joined():
    headers = {":message-type": "event", ":event-type": "contentBlockDelta"}
    halves = encode(headers, b'{"contentBlockIndex":0,"delta":{"text":"a\\ud83c"}}') + encode(
        headers, b'{"contentBlockIndex":0,"delta":{"text":"\\udfb5!"}}'
    )
    assert decode_response(encode_request(BEDROCK, stream=True), stream(halves, block_stop(0))).output_text == "a🎵!"


def test_a_call_without_a_stop_event_is_complete():
    body = stream(call_start(0, "t", "time"), text(1, "Hm"), reason="tool_use")
    response = decode_response(encode_request(BEDROCK, tools=[TIME], stream=True), body)
    assert [item.arguments for item in response.output if isinstance(item, FunctionCall)] == ["{}"]
    assert not response.warnings


def test_a_complete_call_without_input_has_empty_arguments():
    missing = {"toolUse": {"toolUseId": "t", "name": "time"}}
    for block in (missing, tool_use("t", "time", {}), {"toolUse": {**missing["toolUse"], "input": None}}):
        body = whole(block, reason="tool_use")
        response = decode_response(encode_request(BEDROCK, tools=[TIME]), body, stream=False)
        assert [item.arguments for item in response.output if isinstance(item, FunctionCall)] == ["{}"]
