"""Errors decoded from WebSocket messages."""

import json

import pytest

from antiphon.client.errors import websocket_message_error

LIMIT = "rate_limit_exceeded"


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
def test_every_shape_of_error_message_is_decoded(
    envelope: dict[str, object], status: int, type: str, code: str | None, message: str | None
) -> None:
    error = websocket_message_error(json.dumps({"type": "error"} | envelope).encode())
    assert (error.status, error.payload.type) == (status, type)
    assert error.payload.code == code
    assert str(error) == (message or f"The server answered {status} and did not say why.")
