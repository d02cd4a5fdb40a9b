"""Every rule is broken once, by a stream that is legal otherwise."""

import re

import pytest
from msgspec.structs import replace

from antiphon.protocol.checker import StreamChecker, find_violations
from antiphon.protocol.events import Event, ExtensionEvent, decode_event
from antiphon.protocol.parts import Extension, Finish
from antiphon.protocol.rules import ITEM_FINAL_STATUSES, ITEM_START_STATUSES, RULES, RuleViolation
from tests.protocol.broken_streams import (
    FAILED,
    KNOWN_MISTAKES,
    LEGAL,
    NO_OUTPUT,
    PARALLEL_CALLS,
    RULE_BREAKS,
    TRUNCATED,
    Change,
    Stream,
    alter,
    insert_copy,
    set_field,
)
from tests.protocol.builders import final_response, make_call, make_response, make_synth, to_json


def broken_rules(events: Stream) -> list[str]:
    """Return the names of the rules that a stream breaks."""
    return [violation.rule for violation in find_violations([decode_event(event) for event in events])]


@pytest.mark.parametrize("events", [LEGAL, PARALLEL_CALLS, NO_OUTPUT, TRUNCATED, FAILED])
def test_a_legal_stream_breaks_no_rule(events: list[Event]):
    assert find_violations(events) == []


def test_every_rule_has_a_stream_that_breaks_it():
    assert {*RULE_BREAKS, "event-type"} == set(RULES)


@pytest.mark.parametrize("rule", RULE_BREAKS)
def test_each_rule_can_be_broken_alone(rule: str):
    assert broken_rules(RULE_BREAKS[rule]) == [rule]


def test_an_unknown_event_without_a_slug_is_a_violation():
    # It cannot be decoded from JSON, only be constructed.
    checker = StreamChecker()
    synth = make_synth()
    for event in [*synth.start(), *synth.feed(Extension("acme:tick", {}))]:
        checker.feed(event)
    checker.feed(ExtensionEvent(type="tick", sequence_number=3))
    assert checker.violations == [RuleViolation("event-type", "'tick' is neither.", 3)]


@pytest.mark.parametrize("mistake", KNOWN_MISTAKES)
def test_a_known_mistake_of_other_servers_is_rejected(mistake: str):
    events, rules = KNOWN_MISTAKES[mistake]
    assert set(broken_rules(events)) == rules


def test_a_failure_may_be_announced_by_an_error():
    announced = alter(
        lambda events: events.insert(
            -1, {"type": "error", "sequence_number": 0, "error": {"type": "t", "message": "m"}}
        ),
        events=FAILED,
    )
    assert broken_rules(announced) == []


def test_an_empty_stream_is_a_violation():
    assert [violation.rule for violation in find_violations([])] == ["response-order"]


def test_a_violation_names_its_position_and_its_rule():
    assert str(RuleViolation("item-id", "'' is missing or taken.", 3)) == (
        "event 3: An item has an id, and no two items share one. '' is missing or taken. [item-id]"
    )


def test_a_violation_names_its_rule_in_words():
    first = find_violations([decode_event(event) for event in RULE_BREAKS["id-stable"]])[0]
    assert re.search(r"names the item's own id\. .* \[id-stable\]$", str(first))


def test_a_cancelled_response_ends_as_incomplete():
    synth = make_synth(make_response(status="queued"))
    events = synth.start() + synth.feed(Finish("cancelled")) + synth.end()
    assert find_violations(events) == []
    assert to_json(events[-1].type) == "response.incomplete"


def test_an_item_is_added_in_progress_and_done_in_a_final_status():
    assert {"in_progress"} == ITEM_START_STATUSES
    assert {"completed", "incomplete", "failed"} == ITEM_FINAL_STATUSES


def test_a_response_without_streaming_is_checked_too():
    response = final_response(LEGAL)
    checker = StreamChecker()
    checker.check_whole(response)
    assert checker.violations == []
    call = make_call("fc_0", "f", "{}", "call_0", "in_progress")
    running = replace(response, status="in_progress", output=[call, call])
    checker = StreamChecker()
    checker.check_whole(running)
    rules = [violation.rule for violation in checker.violations]
    assert rules == ["response-status", "item-status", "item-id", "item-status"]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (set_field("content_part.done", "part", {"type": "refusal", "refusal": "No"}, nth=1), {"part-kind"}),
        (set_field("content_part.done", "part.text", "Other", nth=1), {"deltas-add-up"}),
        (set_field("summary_part.done", "part.text", "Other"), {"deltas-add-up"}),
        (set_field("output_item.done", "item.summary", []), {"item-content", "output-matches"}),
        (set_field("output_item.done", "item.content", []), {"item-content", "output-matches"}),
        (insert_copy("summary_part.added", "output_item.done", item_id="msg_0", output_index=1), {"item-added"}),
    ],
)
def test_a_part_that_differs_from_its_events_is_a_violation(change: Change, rules: set[str]):
    events = alter(change)
    assert rules <= set(broken_rules(events))
