"""WebSocket messages and error messages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import WebSocketError
from antiphon.protocol.items import user_message
from antiphon.protocol.request import WebSocketCreate
from antiphon.wire.openresponses import Dialect, OpenAIDialect
from antiphon.wire.websocket import ClientMessage, add_lane, decode_message, websocket_error

CREATE = {"type": "response.create", "model": "demo", "input": "Hi!"}


def rejection(data: str | bytes, limit: int = 1000) -> tuple[str | None, str | None, int]:
    """Return the code, parameter and status of a rejected message."""
    error = decode_message(data, limit).create
    assert isinstance(error, RequestError)
    return error.payload.code, error.payload.param, error.status


def test_a_request_is_decoded_with_lane_and_previous_response() -> None:
    sent = CREATE | {"stream_id": "a.B_c-9", "previous_response_id": "resp_1", "generate": False}
    decoded = decode_message(json.dumps(sent), 1000)
    assert decoded == ClientMessage(
        "a.B_c-9",
        "resp_1",
        WebSocketCreate(
            model="demo",
            input=[user_message("Hi!")],
            previous_response_id="resp_1",
            generate=False,
            stream_id="a.B_c-9",
        ),
    )


@pytest.mark.parametrize("stream_id", [{}, {"stream_id": None}])
def test_without_a_stream_id_the_lane_is_empty(stream_id: dict[str, object]) -> None:
    assert decode_message(json.dumps(CREATE | stream_id), 1000).lane == ""


@pytest.mark.parametrize(
    "implied",
    [
        {"stream": True},
        {"stream": False},
        {"stream": None},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        {"background": False},
        {"background": None},
    ],
)
def test_implied_fields_are_ignored(implied: dict[str, object]) -> None:
    assert decode_message(json.dumps(CREATE | implied), 1000) == decode_message(json.dumps(CREATE), 1000)


def test_both_dialects_are_decoded() -> None:
    decoded = decode_message(json.dumps(CREATE | {"tools": [{"type": "web_search"}]}), 1000).create
    assert isinstance(decoded, WebSocketCreate)
    assert decoded.tools[0].type == "openai:web_search"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{}", ("unsupported_message", None, 400)),
        (b"", ("unsupported_message", None, 400)),
        ("", ("invalid_json", None, 400)),
        ("{", ("invalid_json", None, 400)),
        ("[" * 200, ("invalid_json", None, 400)),
        ("[]", ("invalid_message", None, 400)),
        ("null", ("invalid_message", None, 400)),
        ("{}", ("unsupported_message", "type", 400)),
        ('{"type": 7}', ("unsupported_message", "type", 400)),
        ('{"type": "response.steer"}', ("unsupported_message", "type", 400)),
        ('{"type": "response.cancel"}', ("unsupported_message", "type", 400)),
        ('"' + "x" * 1000 + '"', ("request_too_large", None, 413)),
        ('"' + "ü" * 500 + '"', ("request_too_large", None, 413)),
    ],
)
def test_an_invalid_message_is_rejected(data: str | bytes, expected: tuple[object, ...]) -> None:
    assert rejection(data) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"background": True}, ("unsupported_parameter", "background", 400)),
        ({"temperature": 3}, ("invalid_value", "temperature", 400)),
        ({"generate": "no"}, ("invalid_value", "generate", 400)),
        ({"include": ["everything"]}, ("invalid_value", "include[0]", 400)),
        ({"stream_id": ""}, ("invalid_stream_id", "stream_id", 400)),
        ({"stream_id": "a b"}, ("invalid_stream_id", "stream_id", 400)),
        ({"stream_id": "a\n"}, ("invalid_stream_id", "stream_id", 400)),
        ({"stream_id": "ü"}, ("invalid_stream_id", "stream_id", 400)),
        ({"stream_id": "x" * 257}, ("invalid_stream_id", "stream_id", 400)),
        ({"stream_id": 7}, ("invalid_stream_id", "stream_id", 400)),
    ],
)
def test_an_invalid_request_is_rejected(fields: dict[str, object], expected: tuple[object, ...]) -> None:
    assert rejection(json.dumps(CREATE | fields)) == expected


def test_a_lane_may_have_a_name_of_256_characters() -> None:
    assert decode_message(json.dumps(CREATE | {"stream_id": "x" * 256}), 1000).lane == "x" * 256


def test_an_error_keeps_its_lane_and_previous_response() -> None:
    sent = CREATE | {"stream_id": "a", "previous_response_id": "resp_1", "temperature": 3}
    lane, previous, create = decode_message(json.dumps(sent), 1000)
    assert (lane, previous) == ("a", "resp_1")
    assert isinstance(create, RequestError)


@given(st.text() | st.binary() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_any_message_is_decoded_or_rejected(data: str | bytes) -> None:
    assert isinstance(decode_message(data, 10_000).create, RequestError)


def test_an_error_message_always_has_a_code() -> None:
    payload = ErrorPayload(message="No.", type="model_error")
    assert websocket_error(payload, 502, {}) == WebSocketError(
        status=502, error=ErrorPayload(message="No.", type="model_error", code="model_error", headers=UNSET)
    )
    assert websocket_error(payload, 429, {"retry-after": "1"}).error.headers == {"retry-after": "1"}


def test_an_error_message_has_the_doors_dialect() -> None:
    error = websocket_error(RequestError("No.", code="no").payload, 400, {})
    raw_text = {"message": "No.", "type": "invalid_request", "param": None, "code": "no"}
    whole = {"type": "error", "status": 400, "error": raw_text}
    assert json.loads(Dialect().encode_websocket_error(error)) == whole
    theirs = whole | {"error": raw_text | {"type": "invalid_request_error"}}
    assert json.loads(OpenAIDialect().encode_websocket_error(error)) == theirs


def test_a_message_of_a_named_lane_has_its_name() -> None:
    assert add_lane(b'{"type":"x"}', "a.b") == b'{"type":"x","stream_id":"a.b"}'
    assert add_lane(b'{"type":"x"}', "") == b'{"type":"x"}'


def test_a_repeated_key_is_rejected_by_name() -> None:
    assert rejection('{"type": "response.create", "model": "a", "model": "b"}') == ("invalid_json", "model", 400)
