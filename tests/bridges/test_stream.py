"""A bridge's parts become a legal stream, whatever order they come in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.bridges.stream import BridgeStream
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Part
from antiphon.protocol.synth_items import MAX_PIECES
from tests.protocol.builders import LATER, counting_ids, event_types, final_response
from tests.protocol.strategies import part_lists


def make_stream(*, queued: bool = False) -> BridgeStream:
    """Make a stream whose every value is known beforehand."""
    return BridgeStream("m", ids=counting_ids(), clock=lambda: float(LATER), queued=queued)


def test_a_stream_announces_itself_before_its_first_output():
    stream = make_stream()
    assert stream.feed(parts.Usage(input_tokens=1)) == []
    assert event_types(stream.feed(parts.Text("Hi")))[:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]


def test_a_stream_may_be_created_long_before_it_is_in_progress():
    stream = make_stream(queued=True)
    assert event_types(stream.create()) == ["response.created", "response.queued"]
    assert event_types(stream.start()) == ["response.in_progress"]
    assert stream.create() == stream.start() == []


def test_a_stream_without_output_has_no_items():
    stream = make_stream()
    assert stream.response.status == "in_progress"
    assert final_response(stream.end()).output == []


def test_nothing_happens_after_the_end():
    stream = make_stream()
    ended = final_response(stream.fail(ErrorPayload(message="It broke.", type="server_error")))
    assert stream.feed(parts.Text("late")) == stream.start() == stream.end() == []
    assert stream.response == ended


def test_more_items_than_a_response_may_have_end_it_as_failed():
    stream = make_stream()
    events = stream.feed_all(parts.Call(key, "f", "{}", complete=True) for key in range(MAX_PIECES + 1))
    response = final_response(events)
    assert response.error
    assert (response.status, response.error.code) == ("failed", "answer_too_large")
    assert len(response.output) == MAX_PIECES
    assert find_violations(events) == []


@settings(deadline=None, max_examples=100)
@given(part_lists(), st.booleans())
def test_any_parts_become_a_legal_stream_that_folds_to_the_response(batch: list[Part], queued: bool):
    stream = make_stream(queued=queued)
    events = stream.feed_all(batch) + stream.end()
    assert find_violations(events) == []
    assert fold(events) == final_response(events) == stream.response
