"""Answers in one piece before the rulebook."""

import json

import pytest

from tests.adapters.hearing import decode_response, encode_request
from tests.adapters.retelling import STRICT_ADAPTER, ADAPTER, warning_message
from tests.adapters.scripts.responses import SCENES, call, message, response, usage

INVALID_RESPONSES = {
    "a call without a name": (response(call("", "{}", "1")), "wrong shape"),
    "ids that are missing": (response(message("a", id="")), "[item-id]"),
    "ids that are shared": (response(message("a"), message("b")), "[item-id]"),
    "an item in progress": (response(message("a", status="in_progress")), "[item-status]"),
    "an incomplete item": (response(message("a", status="incomplete")), "[no-incomplete-in-"),
    "no reason": (response(message("a"), status="incomplete"), "[reason-told]"),
    "no status": ({"object": "response", "id": "r", "output": []}, "[response-status]"),
    "a wrong sum": (response(usage=usage(1, 2) | {"total_tokens": 4}), "[usage-adds-up]"),
}


@pytest.mark.parametrize("name", INVALID_RESPONSES)
def test_a_whole_answer_that_breaks_rules_is_mended_with_a_warning(name: str):
    body, rule = INVALID_RESPONSES[name]
    result = decode_response(encode_request(ADAPTER), json.dumps(body).encode(), stream=False)
    assert result.status == body.get("status", "completed")
    assert rule in warning_message(result)


@pytest.mark.parametrize("name", INVALID_RESPONSES)
def test_a_strict_reader_takes_no_whole_answer_that_breaks_rules(name: str):
    body, rule = INVALID_RESPONSES[name]
    result = decode_response(encode_request(STRICT_ADAPTER), json.dumps(body).encode(), stream=False)
    assert (result.status, result.output) == ("failed", [])
    assert result.error
    assert result.error.code == "upstream_protocol"
    assert rule in result.error.message


@pytest.mark.parametrize("name", SCENES)
def test_a_whole_answer_as_it_should_be_is_warned_of_by_nobody(name: str):
    result = decode_response(encode_request(STRICT_ADAPTER), SCENES[name].whole, stream=False)
    assert result.status in ("completed", "incomplete")
    assert not warning_message(result)


def test_a_whole_answer_that_failed_says_why_even_to_a_strict_reader():
    failure = {"code": "c", "message": "Oh."}
    body = response(message("a", status="in_progress"), status="failed", error=failure)
    result = decode_response(encode_request(STRICT_ADAPTER), json.dumps(body).encode(), stream=False)
    assert result.error
    assert result.error.code == "c"
