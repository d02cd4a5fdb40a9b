"""Messages on a socket: what is asked, whose an answer is, and how refusals read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.messages import Label, asked, labelled, refusal, response_id
from antiphon.core.errors import RequestError

LIMIT = "rate_limit_exceeded"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "stream_id", "x"]), inner)
    ),
)


@given(JSON)
def test_any_json_has_a_label_and_may_be_a_refusal(value: object) -> None:
    message = json.dumps(value).encode()
    fields = value if isinstance(value, dict) else {}
    kind, lane = fields.get("type"), fields.get("stream_id")
    label = labelled(message)
    assert label.type == (kind if isinstance(kind, str) else "")
    assert (label.stream_id or "") == (lane if isinstance(lane, str) else "")
    assert 400 <= refusal(message).status < 600
    assert response_id(message) is None


@given(st.binary())
def test_any_bytes_have_a_label(message: bytes) -> None:
    assert isinstance(labelled(message), Label)
    assert 400 <= refusal(message).status < 600


def test_a_label_is_read_beside_anything() -> None:
    message = rb'{"delta": "\ud83d", "type": "t", "stream_id": "s", "deep": [[{}]]}'
    assert labelled(message) == Label("t", "s")
    assert labelled(b'{"type": ' + b"[" * 100_000) == Label("", "")


@pytest.mark.parametrize(
    ("envelope", "status", "type", "code", "message"),
    [
        ({"status": 429, "error": {"type": "t", "code": "c", "message": "m"}}, 429, "t", "c", "m"),
        ({"error": {"code": LIMIT}}, 429, "too_many_requests", LIMIT, None),
        ({"code": "c", "message": "flat"}, 500, "model_error", "c", "flat"),
        ({"error": "only words"}, 500, "model_error", None, "only words"),
        ({"status": 200, "error": {"message": "m"}}, 500, "model_error", None, "m"),
        ({"status": "400"}, 500, "model_error", None, None),
    ],
)
def test_errors_of_every_shape_are_read(
    envelope: dict[str, object], status: int, type: str, code: str | None, message: str | None
) -> None:
    error = refusal(json.dumps({"type": "error"} | envelope).encode())
    assert (error.status, error.payload.type) == (status, type)
    assert error.payload.code == code
    assert str(error) == (message or f"The server answered {status} and did not say why.")


def test_what_is_no_json_cannot_be_asked() -> None:
    with pytest.raises(RequestError) as refused:
        asked({"model": object()}, "")
    assert refused.value.payload.code == "invalid_json"
