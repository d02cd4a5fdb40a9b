"""Streams for readers that know fewer events."""

from antiphon.protocol.checker import find_violations
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Call, Text
from tests.protocol.builders import event_types, final_response, make_synth, synthesize

STARTED = ["response.created", "response.in_progress"]


def test_a_response_can_be_created_long_before_it_is_in_progress():
    synth = make_synth()
    assert event_types(synth.create()) == ["response.created"]
    assert event_types(synth.mark_in_progress()) == ["response.in_progress"]


def test_content_part_events_can_be_left_out():
    events = synthesize(Text("Hi"), content_parts=False)
    assert event_types(events) == [
        *STARTED,
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert final_response(events) == final_response(synthesize(Text("Hi")))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert {violation.rule for violation in find_violations(events)} == {"part-added", "item-content"}


def test_deltas_of_arguments_can_be_left_out():
    parts = (Call(0, "f", '{"a":'), Call(0, arguments="1}", complete=True))
    events = synthesize(*parts, argument_deltas=False)
    assert event_types(events) == [
        *STARTED,
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert fold(events) == final_response(events) == final_response(synthesize(*parts))
    assert {violation.rule for violation in find_violations(events)} == {"deltas-add-up"}
