"""An interrupted stream can be ended by a synthesizer that has only its events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event, decode_event
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Call, Finish, Part, Text
from antiphon.protocol.synth import Synth
from tests.protocol.builders import final_response, make_response, make_synth, synthesize, to_json
from tests.protocol.strategies import part_lists

SERVER_STOPPED = ErrorPayload(message="The server stopped.", type="server_error", code="server_error")


def end_failed(synth: Synth) -> list[Event]:
    """End as broken."""
    return synth.fail(SERVER_STOPPED)


def end_cancelled(synth: Synth) -> list[Event]:
    """End as cancelled."""
    synth.feed(Finish("cancelled"))
    return synth.end()


@settings(deadline=None, max_examples=200)
@given(part_lists(), st.data(), st.sampled_from([end_failed, end_cancelled]))
def test_any_interrupted_stream_can_be_ended(parts: list[Part], data: st.DataObject, end) -> None:
    events = synthesize(*parts)
    cut = data.draw(st.integers(2, len(events) - 1), "cut")
    prefix = [decode_event(to_json(event)) for event in events[:cut]]
    again = make_synth()
    again.resume(prefix)
    whole = prefix + end(again)
    assert find_violations(whole) == []
    assert fold(whole) == final_response(whole) == again.response


@settings(deadline=None, max_examples=100)
@given(part_lists(), st.data())
def test_output_before_the_interruption_is_kept(parts: list[Part], data: st.DataObject) -> None:
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


def test_a_queued_response_can_be_ended_after_a_resume() -> None:
    queued = make_response(status="queued", background=True)
    for end in (end_failed, end_cancelled):
        prefix = make_synth(queued).start()
        again = make_synth(queued)
        again.resume(prefix)
        whole = prefix + end(again)
        assert find_violations(whole) == []
        assert [event.sequence_number for event in whole] == [0, 1, 2]


def test_an_end_that_was_not_sent_can_be_replaced_by_a_failure() -> None:
    synth = make_synth()
    events = [*synth.start(), *synth.feed(Text("Hello")), *synth.end()]
    events[-1:] = synth.replace_end_with_failure(SERVER_STOPPED)
    assert find_violations(events) == []
    assert fold(events) == final_response(events) == synth.response
    assert synth.response.status == "failed"
    assert synth.response.output_text == "Hello"


def test_a_replaced_end_warns_once() -> None:
    synth = make_synth()
    events = [*synth.start(), *synth.feed(Call(0, arguments="{}")), *synth.end()]
    events[-1:] = synth.replace_end_with_failure(SERVER_STOPPED)
    assert [warning.code for warning in synth.response.warnings or []] == ["nameless_call"]
