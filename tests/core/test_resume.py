"""A stream that was cut can be ended by somebody who has only its events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import ErrorPayload
from antiphon.core.events import Event, decode_event
from antiphon.core.fold import fold
from antiphon.core.judge import judge
from antiphon.core.parts import Call, Finish, Part, Text
from antiphon.core.synth import Synth
from tests.core.making import begun, ending, jsoned, stream, synth
from tests.core.strategies import part_lists

LOST = ErrorPayload(message="The server stopped.", type="server_error", code="server_error")


def failed(made: Synth) -> list[Event]:
    """End as broken."""
    return made.fail(LOST)


def cancelled(made: Synth) -> list[Event]:
    """End as cancelled."""
    made.feed(Finish("cancelled"))
    return made.end()


@settings(deadline=None, max_examples=500)
@given(part_lists(), st.data(), st.sampled_from([failed, cancelled]))
def test_any_stream_cut_anywhere_can_be_ended(parts: list[Part], data: st.DataObject, end) -> None:
    events = stream(*parts)
    cut = data.draw(st.integers(2, len(events) - 1), "cut")
    prefix = [decode_event(jsoned(event)) for event in events[:cut]]
    again = synth()
    again.resume(prefix)
    whole = prefix + end(again)
    assert judge(whole) == []
    assert fold(whole) == ending(whole) == again.response


@settings(deadline=None, max_examples=300)
@given(part_lists(), st.data())
def test_what_had_been_made_before_the_cut_is_kept(parts: list[Part], data: st.DataObject) -> None:
    events = stream(*parts)
    cut = data.draw(st.integers(2, len(events) - 1), "cut")
    prefix = events[:cut]
    again = synth()
    again.resume(prefix)
    assert again.response == fold(prefix)
    again.fail(LOST)
    before, after = fold(prefix).output, again.response.output
    assert [item.id for item in before] == [item.id for item in after]
    assert fold(prefix).output_text == again.response.output_text


def test_a_response_that_never_left_the_queue_can_be_ended() -> None:
    queued = begun(status="queued", background=True)
    for end in (failed, cancelled):
        prefix = synth(queued).start()
        again = synth(queued)
        again.resume(prefix)
        whole = prefix + end(again)
        assert judge(whole) == []
        assert [event.sequence_number for event in whole] == [0, 1, 2]


def test_an_end_that_nobody_heard_can_be_taken_back() -> None:
    made = synth()
    events = [*made.start(), *made.feed(Text("Hello")), *made.end()]
    events[-1:] = made.retract(LOST)
    assert judge(events) == []
    assert fold(events) == ending(events) == made.response
    assert made.response.status == "failed"
    assert made.response.output_text == "Hello"


def test_an_end_that_is_taken_back_says_its_warnings_once() -> None:
    made = synth()
    events = [*made.start(), *made.feed(Call(0, arguments="{}")), *made.end()]
    events[-1:] = made.retract(LOST)
    assert [warning.code for warning in made.response.warnings or []] == ["nameless_call"]
