"""Answers in one piece before the rulebook."""

import json

import pytest

from tests.adapters.hearing import answered, asked
from tests.adapters.retelling import STRICT, THERE, warned
from tests.adapters.scripts.responses import SCENES, call, message, response, usage

UNRULY = {
    "a call without a name": (response(call("", "{}", "1")), "wrong shape"),
    "ids that are missing": (response(message("a", id="")), "[item-id]"),
    "ids that are shared": (response(message("a"), message("b")), "[item-id]"),
    "an item in progress": (response(message("a", status="in_progress")), "[item-status]"),
    "an incomplete item": (response(message("a", status="incomplete")), "[no-incomplete-in-"),
    "no reason": (response(message("a"), status="incomplete"), "[reason-told]"),
    "no status": ({"object": "response", "id": "r", "output": []}, "[response-status]"),
    "a wrong sum": (response(usage=usage(1, 2) | {"total_tokens": 4}), "[usage-adds-up]"),
}


@pytest.mark.parametrize("name", UNRULY)
def test_a_whole_answer_that_breaks_rules_is_mended_with_a_warning(name: str):
    body, rule = UNRULY[name]
    result = answered(asked(THERE), json.dumps(body).encode(), stream=False)
    assert result.status == body.get("status", "completed")
    assert rule in warned(result)


@pytest.mark.parametrize("name", UNRULY)
def test_a_strict_reader_takes_no_whole_answer_that_breaks_rules(name: str):
    body, rule = UNRULY[name]
    result = answered(asked(STRICT), json.dumps(body).encode(), stream=False)
    assert (result.status, result.output) == ("failed", [])
    assert result.error
    assert result.error.code == "upstream_protocol"
    assert rule in result.error.message


@pytest.mark.parametrize("name", SCENES)
def test_a_whole_answer_as_it_should_be_is_warned_of_by_nobody(name: str):
    result = answered(asked(STRICT), SCENES[name].whole, stream=False)
    assert result.status in ("completed", "incomplete")
    assert not warned(result)


def test_a_whole_answer_that_failed_says_why_even_to_a_strict_reader():
    failure = {"code": "c", "message": "Oh."}
    body = response(message("a", status="in_progress"), status="failed", error=failure)
    result = answered(asked(STRICT), json.dumps(body).encode(), stream=False)
    assert result.error
    assert result.error.code == "c"
