"""Messages on a socket: what is asked, and whose an answer is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.errors import websocket_message_error
from antiphon.client.messages import MessageLabel, encode_create, decode_label, decode_response_id
from antiphon.core.errors import RequestError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "stream_id", "x"]), inner)
    ),
)


@given(JSON)
def test_any_json_has_a_label_and_may_be_an_error(value: object) -> None:
    message = json.dumps(value).encode()
    fields = value if isinstance(value, dict) else {}
    kind, lane = fields.get("type"), fields.get("stream_id")
    label = decode_label(message)
    assert label.type == (kind if isinstance(kind, str) else "")
    assert (label.stream_id or "") == (lane if isinstance(lane, str) else "")
    assert 400 <= websocket_message_error(message).status < 600
    assert decode_response_id(message) is None


@given(st.binary())
def test_any_bytes_have_a_label(message: bytes) -> None:
    assert isinstance(decode_label(message), MessageLabel)
    assert 400 <= websocket_message_error(message).status < 600


def test_a_label_is_read_beside_anything() -> None:
    message = rb'{"delta": "\ud83d", "type": "t", "stream_id": "s", "deep": [[{}]]}'
    assert decode_label(message) == MessageLabel("t", "s")
    assert decode_label(b'{"type": ' + b"[" * 100_000) == MessageLabel("", "")


def test_what_is_no_json_cannot_be_asked() -> None:
    with pytest.raises(RequestError) as refused:
        encode_create({"model": object()}, "")
    assert refused.value.payload.code == "invalid_json"
