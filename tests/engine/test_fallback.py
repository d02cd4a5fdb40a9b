"""Which errors end the fallback."""

import pytest

from antiphon.engine.fallback import is_request_fault
from antiphon.protocol.errors import UpstreamError


@pytest.mark.parametrize(
    ("status", "type", "code", "final"),
    [
        (400, "invalid_request", None, True),
        (400, "invalid_request_error", "unsupported_value", True),
        (400, "invalid_request", "content_filter", True),
        (413, "request_too_large", None, True),
        (422, "invalid_request", None, True),
        (400, "authentication_error", "API_KEY_INVALID", False),
        (400, "permission_denied", None, False),
        (400, "permission_error", None, False),
        (400, "invalid_request_error", "invalid_api_key", False),
        (400, "invalid_request_error", "insufficient_quota", False),
        (400, "billing_error", None, False),
        (400, "invalid_request_error", "context_length_exceeded", False),
        (413, "invalid_request", "context_length_exceeded", False),
        (413, "tokens", "rate_limit_exceeded", False),
        (400, "invalid_request", "model_not_found", False),
        (400, "invalid_model", "1500", False),
        (400, "invalid_request_error", "model_decommissioned", False),
        (401, "authentication_error", None, False),
        (402, "billing_error", None, False),
        (404, "not_found", None, False),
        (429, "too_many_requests", None, False),
        (500, "model_error", None, False),
    ],
)
def test_an_error_is_final_if_every_model_would_reject_the_request(
    status: int, type: str, code: str | None, final: bool
) -> None:
    assert is_request_fault(UpstreamError("No.", status=status, type=type, code=code)) is final
