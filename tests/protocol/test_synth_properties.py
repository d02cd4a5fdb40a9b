"""For any parts, the stream is legal and folds to the response of its terminal event."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode, encode
from tests.protocol.builders import final_response, make_response, make_synth, synthesize, to_json
from tests.protocol.strategies import part_lists
from tests.spec.schema_checks import check_event, check_response

slow = settings(deadline=None, max_examples=60)
quick = settings(deadline=None, max_examples=150)


@quick
@given(part_lists(), st.booleans())
def test_any_parts_become_a_legal_stream(parts: list[Part], keep_empty: bool):
    assert find_violations(synthesize(*parts, keep_empty=keep_empty)) == []


@quick
@given(part_lists())
def test_any_stream_folds_to_the_response_it_ends_with(parts: list[Part]):
    events = synthesize(*parts)
    assert fold(events) == final_response(events)


@quick
@given(part_lists())
def test_any_stream_is_numbered_from_zero_without_a_gap(parts: list[Part]):
    events = synthesize(*parts)
    assert [event.sequence_number for event in events] == list(range(len(events)))


@quick
@given(part_lists())
def test_any_event_survives_encoding_and_decoding(parts: list[Part]):
    events = synthesize(*parts)
    assert [decode_event(msgspec.json.decode(encode(event))) for event in events] == events


@quick
@given(part_lists())
def test_any_response_survives_encoding_and_decoding(parts: list[Part]):
    response = final_response(synthesize(*parts))
    assert decode(Response, to_json(response)) == response


@quick
@given(part_lists())
def test_any_prefix_folds_to_the_response_of_the_synthesizer(parts: list[Part]):
    synth = make_synth()
    events = synth.start()
    for part in parts:
        if not synth.ended:
            events += synth.feed(part)
            assert fold(events) == synth.response


@slow
@given(part_lists(max_size=6))
def test_any_stream_matches_the_specification(parts: list[Part]):
    events = synthesize(*parts, obfuscate=lambda text: "x" * (3 - len(text) % 3))
    for event in events:
        check_event(to_json(event))
    check_response(to_json(final_response(events)))


@quick
@given(part_lists())
def test_any_queued_response_is_a_legal_stream(parts: list[Part]):
    synth = make_synth(make_response(status="queued", background=True))
    events = synth.start() + synth.mark_in_progress()
    for part in parts:
        if not synth.ended:
            events += synth.feed(part)
    assert find_violations(events + synth.end()) == []
