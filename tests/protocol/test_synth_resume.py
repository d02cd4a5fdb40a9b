"""A stream that was cut can be ended by somebody who has only its events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event, decode_event
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import (
    Call,
    Finish,
    Part,
    Text,
)
from antiphon.protocol.synth import Synth
from tests.protocol.builders import (
    final_response,
    make_response,
    make_synth,
    synthesize,
    to_json,
)
from tests.protocol.strategies import part_lists

SERVER_STOPPED = ErrorPayload(
    message="The server stopped.", type="server_error", code="server_error"
)


def end_failed(synth: Synth) -> list[Event]:
    """End as broken."""
    return synth.fail(SERVER_STOPPED)


def end_cancelled(synth: Synth) -> list[Event]:
    """End as cancelled."""
    synth.feed(Finish("cancelled"))
    return synth.end()


@settings(deadline=None, max_examples=500)
@given(part_lists(), st.data(), st.sampled_from([end_failed, end_cancelled]))
def test_any_stream_cut_anywhere_can_be_ended(parts: list[Part], data: st.DataObject, end) -> None:
    events = synthesize(*parts)
    cut = data.draw(st.integers(2, len(events) - 1), "cut")
    prefix = [decode_event(to_json(event)) for event in events[:cut]]
    again = make_synth()
    again.resume(prefix)
    whole = prefix + end(again)
    assert find_violations(whole) == []
    assert fold(whole) == final_response(whole) == again.response


@settings(deadline=None, max_examples=300)
@given(part_lists(), st.data())
def test_what_had_been_made_before_the_cut_is_kept(parts: list[Part], data: st.DataObject) -> None:
    events = synthesize(*parts)
    cut = data.draw(st.integers(2, len(events) - 1), "cut")
    prefix = events[:cut]
    again = make_synth()
    again.resume(prefix)
    assert again.response == fold(prefix)
    again.fail(SERVER_STOPPED)
    before, after = fold(prefix).output, again.response.output
    assert [item.id for item in before] == [item.id for item in after]
    assert fold(prefix).output_text == again.response.output_text


def test_a_response_that_never_left_the_queue_can_be_ended() -> None:
    queued = make_response(status="queued", background=True)
    for end in (end_failed, end_cancelled):
        prefix = make_synth(queued).start()
        again = make_synth(queued)
        again.resume(prefix)
        whole = prefix + end(again)
        assert find_violations(whole) == []
        assert [event.sequence_number for event in whole] == [0, 1, 2]


def test_an_end_that_nobody_heard_can_be_taken_back() -> None:
    made = make_synth()
    events = [*made.start(), *made.feed(Text("Hello")), *made.end()]
    events[-1:] = made.replace_end_with_failure(SERVER_STOPPED)
    assert find_violations(events) == []
    assert fold(events) == final_response(events) == made.response
    assert made.response.status == "failed"
    assert made.response.output_text == "Hello"


def test_an_end_that_is_taken_back_says_its_warnings_once() -> None:
    made = make_synth()
    events = [*made.start(), *made.feed(Call(0, arguments="{}")), *made.end()]
    events[-1:] = made.replace_end_with_failure(SERVER_STOPPED)
    assert [warning.code for warning in made.response.warnings or []] == ["nameless_call"]
