"""Errors, as providers tell them."""

import pytest

from antiphon.adapters.faults import Fault, fault_in, passed_on, redacted, status_of


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (
            {"error": {"message": "No.", "type": "t", "code": 7, "param": "p"}},
            ("No.", "t", "7", "p"),
        ),
        ({"message": "No.", "code": ""}, ("No.", None, None, None)),
        ({"error": "No."}, ("No.", None, None, None)),
        ({"detail": "No."}, ("No.", None, None, None)),
        ([{"error": {"message": "No."}}], ("No.", None, None, None)),
        ({"error": {"message": ["No."]}}, ("", None, None, None)),
        ([], ("", None, None, None)),
        ("No.", ("", None, None, None)),
    ],
)
def test_an_error_is_found_in_the_shapes_that_most_servers_use(value: object, fault: tuple):
    assert fault_in(value) == Fault(*fault)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault(code="429", type="server_error"), 429),
        (Fault(code="rate_limit_exceeded", type="invalid_request_error"), 429),
        (Fault(code="oops", type="overloaded_error"), 529),
        (Fault(type="server_error"), 500),
        (Fault(type="model_error"), 502),
        (Fault(code="200"), 502),
        (Fault(), 502),
    ],
)
def test_an_error_inside_an_answer_has_the_status_that_it_would_have_had(fault: Fault, status: int):
    assert status_of(fault) == status


def test_a_client_is_told_the_status_of_an_error_that_it_knows():
    assert [passed_on(status) for status in (302, 404, 529, 503, 600)] == [502, 404, 503, 503, 502]


def test_what_looks_like_a_key_is_not_repeated():
    said = "Bad key sk-abcdefgh1234 for bearer abcdefgh12345678, half a \ud83d."
    assert redacted(said) == "Bad key [redacted] for [redacted], half a \ufffd."
    assert redacted("x" * 300, 200) == "x" * 200


def test_a_header_that_holds_a_secret_is_not_repeated():
    said = (
        "The Canonical String for this request should have been\n'POST\n/model/x/converse\n\n"
        "host:bedrock-runtime.eu-west-1.amazonaws.com\nX-Amz-Security-Token:FwoGZXIv/+YXdzEJr==\n\n"
        "host;x-amz-security-token\n0f1e'\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=me/20261101, Signature=abcd\nNo."
    )
    assert redacted(said) == (
        "The Canonical String for this request should have been\n'POST\n/model/x/converse\n\n"
        "host:bedrock-runtime.eu-west-1.amazonaws.com\n[redacted]\n\n"
        "host;x-amz-security-token\n0f1e'\n"
        "[redacted]\nNo."
    )


@pytest.mark.parametrize("name", ["x-api-key", "X-Goog-Api-Key", "api-key"])
def test_a_header_with_a_key_is_not_repeated(name: str):
    said = f'Bad headers {{"{name}": "0123456789abcdef", "a": 1}} or {name}=0123456789abcdef.'
    assert redacted(said) == 'Bad headers {"[redacted]", "a": 1} or [redacted]'
    assert redacted(f"The header {name} is missing.") == f"The header {name} is missing."


def test_words_beside_a_header_are_kept():
    said = "Use a header (i.e. Authorization: Basic YWJjOmRlZg==), or a field. See our page."
    assert redacted(said) == "Use a header (i.e. [redacted]), or a field. See our page."
