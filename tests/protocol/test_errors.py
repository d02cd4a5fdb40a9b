from typing import get_args

import pytest

from antiphon.protocol.errors import (
    HTTP_STATUS,
    AntiphonError,
    ErrorCode,
    ErrorPayload,
    ErrorType,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RequestError,
    StoreError,
    UpstreamError,
    describe_for_log,
    drop_tracebacks,
    end_sentence,
    suggest_closest,
)
from antiphon.protocol.request import Request
from antiphon.protocol.struct import InvalidValueError, decode
from tests.protocol.builders import to_json


def test_an_error_object_has_a_param_and_a_code():
    error = ErrorPayload(message="Model not found", type="invalid_request", param="model", code="invalid_model")
    assert to_json(error) == {
        "message": "Model not found",
        "type": "invalid_request",
        "param": "model",
        "code": "invalid_model",
    }


def test_a_code_may_be_any_string():
    assert decode(ErrorPayload, {"message": "m", "type": "t", "code": "odd"}).code == "odd"


@pytest.mark.parametrize(
    ("type", "status"),
    [
        ("server_error", 500),
        ("invalid_request", 400),
        ("not_found", 404),
        ("model_error", 500),
        ("too_many_requests", 429),
        ("authentication_error", 401),
        ("permission_denied", 403),
    ],
)
def test_every_error_type_has_an_http_status(type: ErrorType, status: int):
    assert RequestError("m", type=type).status == status
    assert RequestError("m", type=type, status=409).status == 409


def test_the_types_and_codes_are_those_of_the_specification_and_ours():
    assert set(get_args(ErrorType)) == set(HTTP_STATUS)
    assert get_args(ErrorCode) == (
        "invalid_api_key",
        "insufficient_quota",
        "context_length_exceeded",
        "invalid_model",
        "content_filter",
        "tool_execution_failed",
        "timeout",
        "rate_limit_exceeded",
    )


@pytest.mark.parametrize(
    ("raw", "message", "param", "code"),
    [
        (
            {"temperature": 3},
            "Invalid 'temperature': expected a number between 0 and 2, or null, got 3.",
            "temperature",
            "invalid_value",
        ),
        (
            {"tools": [{"type": "function"}]},
            "Invalid 'tools[0].name': this field is required.",
            "tools[0].name",
            "missing_required_parameter",
        ),
        (5, "Invalid body: expected an object, got 5.", None, "invalid_value"),
    ],
)
def test_an_invalid_value_becomes_a_request_error(raw: object, message: str, param: str | None, code: str):
    with pytest.raises(InvalidValueError) as caught:
        decode(Request, raw)
    error = RequestError.from_invalid_value(caught.value)
    assert str(error) == message
    assert error.payload == ErrorPayload(message=message, type="invalid_request", param=param, code=code)
    assert error.status == 400


def test_an_upstream_error_keeps_its_status_and_message():
    error = UpstreamError("slow down", status=429, type="too_many_requests", retryable=True, headers={"a": "b"})
    assert (error.status, error.retryable, error.headers) == (429, True, {"a": "b"})
    assert error.payload == ErrorPayload(message="slow down", type="too_many_requests")


def test_an_upstream_error_is_502_by_default():
    error = UpstreamError("gone")
    assert (error.status, error.retryable, error.headers) == (502, False, {})
    assert error.payload == ErrorPayload(message="gone", type="model_error")


def test_every_exception_derives_from_antiphon_error():
    assert issubclass(ProtocolError, AntiphonError)
    assert LocalProtocolError.__bases__ == RemoteProtocolError.__bases__ == (ProtocolError,)
    for kind in (RequestError, UpstreamError, StoreError):
        assert kind.__bases__ == (AntiphonError,)


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (ErrorPayload(message="secret", type="server_error", code="overloaded"), "overloaded"),
        (ErrorPayload(message="secret", type="server_error"), "server_error"),
        (ErrorPayload(message="m", type="server_error", code="a prompt"), "server_error"),
        (ErrorPayload(message="m", type="a prompt"), "error"),
    ],
)
def test_a_log_gets_the_code_or_type_of_an_error_and_never_its_message(error: ErrorPayload, label: str):
    assert describe_for_log(502, error) == f"502 {label}"


def test_a_request_error_can_advise_a_retry():
    error = RequestError("Busy.", type="too_many_requests").with_retry_after(3)
    assert (error.status, error.headers) == (429, {"retry-after": "3"})


def test_the_tracebacks_of_an_error_and_its_causes_are_dropped():
    def fail(error: Exception, cause: Exception | None = None) -> None:
        try:
            raise ValueError("context")
        except ValueError:
            raise error from cause

    def catch(error: Exception, cause: Exception | None = None) -> Exception:
        with pytest.raises(type(error)):
            fail(error, cause)
        return error

    member, cause = catch(KeyError("member")), catch(KeyError("cause"))
    group = catch(ExceptionGroup("group", [member]), cause)
    linked = [group, member, cause, group.__context__]
    assert all(error and error.__traceback__ for error in linked)
    drop_tracebacks(group)
    assert [error and error.__traceback__ for error in linked] == [None] * 4


@pytest.mark.parametrize(
    ("text", "sentence"), [("kaboom", "kaboom."), ("Why? ", "Why?"), ("Done.", "Done."), ("…", "…")]
)
def test_a_message_ends_as_a_sentence(text: str, sentence: str):
    assert end_sentence(text) == sentence


def test_the_most_similar_name_is_suggested():
    assert suggest_closest("temprature", ["top_p", "temperature"]) == " Did you mean 'temperature'?"
    assert [suggest_closest(name, ["top_p", "temperature"]) for name in ("wheels", "top_p", "x" * 10_000)] == [
        "",
        "",
        "",
    ]
