"""WebSocket messages as they are read, and the envelope of what came to nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import WebSocketError
from antiphon.protocol.items import user_message
from antiphon.protocol.request import WebSocketCreate
from antiphon.wire.openai import OpenAIDialect
from antiphon.wire.openresponses import Dialect
from antiphon.wire.websocket import (
    ClientMessage,
    add_lane,
    decode_message,
    websocket_error,
)

CREATE = {"type": "response.create", "model": "demo", "input": "Hi!"}


def refusal(data: str | bytes, limit: int = 1000) -> tuple[str | None, str | None, int]:
    """Return the code, param and status that a message is refused with."""
    error = decode_message(data, limit).create
    assert isinstance(error, RequestError)
    return error.payload.code, error.payload.param, error.status


def test_a_create_is_read_with_its_lane_and_what_it_continues() -> None:
    sent = CREATE | {"stream_id": "a.B_c-9", "previous_response_id": "resp_1", "generate": False}
    asked = decode_message(json.dumps(sent), 1000)
    assert asked == ClientMessage(
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
def test_without_a_stream_id_the_lane_has_no_name(stream_id: dict[str, object]) -> None:
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
def test_what_is_implied_may_be_said(implied: dict[str, object]) -> None:
    assert decode_message(json.dumps(CREATE | implied), 1000) == decode_message(
        json.dumps(CREATE), 1000
    )


def test_both_dialects_are_read() -> None:
    asked = decode_message(json.dumps(CREATE | {"tools": [{"type": "web_search"}]}), 1000).create
    assert isinstance(asked, WebSocketCreate)
    assert asked.tools[0].type == "openai:web_search"


@pytest.mark.parametrize(
    ("data", "told"),
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
def test_what_is_no_create_is_refused(data: str | bytes, told: tuple[object, ...]) -> None:
    assert refusal(data) == told


@pytest.mark.parametrize(
    ("fields", "told"),
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
def test_a_create_that_cannot_be_is_refused(
    fields: dict[str, object], told: tuple[object, ...]
) -> None:
    assert refusal(json.dumps(CREATE | fields)) == told


def test_a_lane_may_have_a_name_of_256_characters() -> None:
    assert decode_message(json.dumps(CREATE | {"stream_id": "x" * 256}), 1000).lane == "x" * 256


def test_what_is_refused_keeps_its_lane_and_what_it_would_have_continued() -> None:
    sent = CREATE | {"stream_id": "a", "previous_response_id": "resp_1", "temperature": 3}
    lane, previous, create = decode_message(json.dumps(sent), 1000)
    assert (lane, previous) == ("a", "resp_1")
    assert isinstance(create, RequestError)


@given(st.text() | st.binary() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_no_message_is_too_strange_to_be_answered(data: str | bytes) -> None:
    assert isinstance(decode_message(data, 10_000).create, RequestError)


def test_an_envelope_always_has_a_code_and_headers_only_if_there_are_some() -> None:
    payload = ErrorPayload(message="No.", type="model_error")
    assert websocket_error(payload, 502, {}) == WebSocketError(
        status=502,
        error=ErrorPayload(message="No.", type="model_error", code="model_error", headers=UNSET),
    )
    assert websocket_error(payload, 429, {"retry-after": "1"}).error.headers == {"retry-after": "1"}


def test_an_envelope_is_written_in_the_dialect_of_its_door() -> None:
    error = websocket_error(RequestError("No.", code="no").payload, 400, {})
    said = {"message": "No.", "type": "invalid_request", "param": None, "code": "no"}
    whole = {"type": "error", "status": 400, "error": said}
    assert json.loads(Dialect().encode_websocket_error(error)) == whole
    theirs = whole | {"error": said | {"type": "invalid_request_error"}}
    assert json.loads(OpenAIDialect().encode_websocket_error(error)) == theirs


def test_a_message_of_a_named_lane_bears_its_name() -> None:
    assert add_lane(b'{"type":"x"}', "a.b") == b'{"type":"x","stream_id":"a.b"}'
    assert add_lane(b'{"type":"x"}', "") == b'{"type":"x"}'
