from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.protocol import items, parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload, LocalProtocolError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ExtensionEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseInProgress,
    ResponseQueued,
)
from antiphon.protocol.fold import fold
from antiphon.protocol.items import ExtensionItem, Message, OutputText, Reasoning, ReasoningText
from antiphon.protocol.parts import Annotation, Call, Failure, Finish, Refusal, Text, Usage
from antiphon.protocol.response import ResponseError, ResponseUsage, ResponseWarning
from antiphon.protocol.struct import encode
from tests.protocol.builders import (
    CITATION,
    ERROR,
    LOGPROB,
    arguments_delta,
    call_end_events,
    completed_event,
    event_types,
    final_response,
    incomplete_event,
    item_added,
    item_done,
    make_call,
    make_final_response,
    make_message,
    make_response,
    make_synth,
    message_events,
    number_events,
    reasoning_part_events,
    refusal_part_events,
    start_events,
    synthesize,
    text_part_events,
    to_json,
)
from tests.protocol.strategies import KEYS, NONEMPTY_TEXTS, PART_INDEXES


def test_text_becomes_the_nine_events_of_the_specification():
    place = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    empty = Message(id="msg_0", status="in_progress", role="assistant", content=[])
    whole = Message(id="msg_0", status="completed", role="assistant", content=[OutputText(text="Hello")])
    assert synthesize(Text("Hel"), Text("lo")) == [
        ResponseCreated(sequence_number=0, response=make_response()),
        ResponseInProgress(sequence_number=1, response=make_response()),
        OutputItemAdded(sequence_number=2, output_index=0, item=empty),
        ContentPartAdded(sequence_number=3, **place, part=OutputText(text="")),
        OutputTextDelta(sequence_number=4, **place, delta="Hel"),
        OutputTextDelta(sequence_number=5, **place, delta="lo"),
        OutputTextDone(sequence_number=6, **place, text="Hello"),
        ContentPartDone(sequence_number=7, **place, part=OutputText(text="Hello")),
        OutputItemDone(sequence_number=8, output_index=0, item=whole),
        ResponseCompleted(sequence_number=9, response=make_final_response(whole)),
    ]


def test_each_part_causes_its_events_at_once():
    synth = make_synth()
    assert event_types(synth.start()) == ["response.created", "response.in_progress"]
    assert event_types(synth.feed(Text("a"))) == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]
    assert event_types(synth.feed(Text("b"))) == ["response.output_text.delta"]
    assert event_types(synth.feed(Usage(1, 2))) == []


def test_empty_text_causes_no_event():
    assert synthesize(Text(""), Text("a"), Text("")) == synthesize(Text("a"))


def test_empty_deltas_are_kept_with_keep_empty():
    assert synthesize(Text(""), keep_empty=True) == number_events(
        start_events(), message_events("msg_0", 0, ""), completed_event(make_message("msg_0", ""))
    )


def test_a_model_without_output_gives_an_empty_message():
    assert synthesize() == number_events(
        start_events(), message_events("msg_0", 0), completed_event(make_message("msg_0", ""))
    )


def test_another_key_is_another_message():
    assert synthesize(Text("a", key=0), Text("b", key=1)) == number_events(
        start_events(),
        message_events("msg_0", 0, "a"),
        message_events("msg_1", 1, "b"),
        completed_event(make_message("msg_0", "a"), make_message("msg_1", "b")),
    )


def test_another_part_number_is_another_content_part():
    assert synthesize(Text("a", part=0), Text("b", part=1)) == number_events(
        start_events(),
        item_added(0, make_message("msg_0", status="in_progress")),
        text_part_events("msg_0", 0, 0, "a"),
        text_part_events("msg_0", 0, 1, "b"),
        item_done(0, make_message("msg_0", "a", "b")),
        completed_event(make_message("msg_0", "a", "b")),
    )


def test_a_change_of_phase_starts_a_new_message():
    first = make_message("msg_0", "Looking.", phase="commentary")
    second = make_message("msg_1", "Found.", phase="final_answer")
    events = synthesize(Text("Looking.", phase="commentary"), Text("Found.", phase="final_answer"))
    assert events == number_events(
        start_events(),
        item_added(0, replace(first, status="in_progress", content=[])),
        text_part_events("msg_0", 0, 0, "Looking."),
        item_done(0, first),
        item_added(1, replace(second, status="in_progress", content=[])),
        text_part_events("msg_1", 1, 0, "Found."),
        item_done(1, second),
        completed_event(first, second),
    )


def test_text_without_a_phase_stays_in_the_open_message():
    item = make_message("msg_0", "ab", phase="commentary")
    assert final_response(synthesize(Text("a", phase="commentary"), Text("b"))) == make_final_response(item)


def test_a_refusal_follows_the_text_in_the_same_message():
    whole = make_message("msg_0", "Well, ")
    whole = replace(whole, content=[*whole.content, items.RefusalContent(refusal="I will not.")])
    assert synthesize(Text("Well, "), Refusal("I will "), Refusal("not.")) == number_events(
        start_events(),
        item_added(0, make_message("msg_0", status="in_progress")),
        text_part_events("msg_0", 0, 0, "Well, "),
        refusal_part_events("msg_0", 0, 1, "I will ", "not."),
        item_done(0, whole),
        completed_event(whole),
    )


def test_annotations_are_numbered_and_kept_in_the_text():
    other = items.ExtensionAnnotation(type="acme:page", extra={"page": 3})
    noted = OutputText(text="Hi", annotations=[CITATION, other])
    place = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    whole = replace(make_message("msg_0"), content=[noted])
    assert synthesize(Text("Hi"), Annotation(CITATION), Annotation(other)) == number_events(
        start_events(),
        item_added(0, make_message("msg_0", status="in_progress")),
        partial(ContentPartAdded, **place, part=OutputText(text="")),
        partial(OutputTextDelta, **place, delta="Hi"),
        partial(OutputTextAnnotationAdded, **place, annotation_index=0, annotation=CITATION),
        partial(OutputTextAnnotationAdded, **place, annotation_index=1, annotation=other),
        partial(OutputTextDone, **place, text="Hi"),
        partial(ContentPartDone, **place, part=noted),
        item_done(0, whole),
        completed_event(whole),
    )


def test_logprobs_are_sent_with_their_delta_and_collected():
    more = replace(LOGPROB, token="!")
    weighed = OutputText(text="Hi!", logprobs=[LOGPROB, more])
    place = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    whole = replace(make_message("msg_0"), content=[weighed])
    assert synthesize(Text("Hi", logprobs=[LOGPROB]), Text("!", logprobs=[more])) == number_events(
        start_events(),
        item_added(0, make_message("msg_0", status="in_progress")),
        partial(ContentPartAdded, **place, part=OutputText(text="")),
        partial(OutputTextDelta, **place, delta="Hi", logprobs=[LOGPROB]),
        partial(OutputTextDelta, **place, delta="!", logprobs=[more]),
        partial(OutputTextDone, **place, text="Hi!", logprobs=[LOGPROB, more]),
        partial(ContentPartDone, **place, part=weighed),
        item_done(0, whole),
        completed_event(whole),
    )


@settings(deadline=None, max_examples=100)
@given(st.lists(st.builds(Text, NONEMPTY_TEXTS, KEYS, PART_INDEXES) | st.builds(Call, KEYS, st.just("f"))))
def test_no_text_is_lost_or_moved(source: list[Text | Call]):
    words = "".join(part.text for part in source if isinstance(part, Text))
    last = synthesize(*source)[-1]
    assert isinstance(last, ResponseCompleted)
    assert last.response.output_text == words


def test_an_extension_event_keeps_its_position_and_its_fields():
    tick = partial(ExtensionEvent, type="acme:tick", extra={"n": 1})
    assert synthesize(parts.Extension("acme:tick", {"n": 1}), Text("Hi")) == number_events(
        start_events(), tick, message_events("msg_0", 0, "Hi"), completed_event(make_message("msg_0", "Hi"))
    )


def test_an_extension_event_gets_our_sequence_number():
    synth = make_synth()
    synth.start()
    [event] = synth.feed(parts.Extension("acme:tick", {"sequence_number": 99, "n": 1}))
    assert to_json(event) == {"type": "acme:tick", "sequence_number": 2, "n": 1}


def test_an_extension_event_without_a_slug_is_a_local_protocol_error():
    synth = make_synth()
    synth.start()
    with pytest.raises(LocalProtocolError, match="'tick' is not of the form slug:name"):
        synth.feed(parts.Extension("tick", {}))


def test_usage_is_merged_field_by_field_and_the_later_wins():
    last = synthesize(Usage(input_tokens=10), Text("Hi"), Usage(11, 3, cached_tokens=4), Usage(None, 5))
    counted = ResponseUsage.of(11, 5, cached=4)
    assert final_response(last) == make_final_response(make_message("msg_0", "Hi"), usage=counted)


def test_a_negative_count_is_ignored():
    last = synthesize(Usage(10, 3), Text("Hi"), Usage(-1, -(2**63), cached_tokens=-5))
    assert final_response(last) == make_final_response(make_message("msg_0", "Hi"), usage=ResponseUsage.of(10, 3))


def test_a_fallback_starts_without_the_usage_and_warnings_of_the_first_model():
    maker = make_synth()
    maker.feed(parts.Warn("a", "A."))
    events = maker.start()
    for part in (Usage(9, 9, 9, 9), parts.Warn("b", "B."), Call(arguments="{"), Finish("length")):
        events += maker.feed(part)
    assert len(events) == len(number_events(start_events()))  # and nothing else
    maker.reset_for_fallback()
    maker.feed(Call(name="f", arguments="{}", call_id="c"))
    known = ResponseWarning(code="a", message="A.")
    assert final_response(maker.end()) == make_final_response(make_call("fc_0", "f", "{}", "c"), warnings=[known])


def test_usage_after_the_finish_is_kept():
    events = synthesize(Text("Hi"), Finish("stop"), Usage(1, 2, 0, 1))
    assert events == number_events(
        start_events(),
        message_events("msg_0", 0, "Hi"),
        completed_event(make_message("msg_0", "Hi"), usage=ResponseUsage.of(1, 2, reasoning=1)),
    )


def test_warnings_follow_the_initial_ones_in_the_final_response():
    known = ResponseWarning(code="a", message="A.")
    events = synthesize(parts.Warn("b", "B.", "tools[0]"), Text("Hi"), response=make_response(warnings=[known]))
    added = ResponseWarning(code="b", message="B.", param="tools[0]")
    assert events == number_events(
        start_events(warnings=[known]),
        message_events("msg_0", 0, "Hi"),
        completed_event(make_message("msg_0", "Hi"), warnings=[known, added]),
    )


@pytest.mark.parametrize(
    ("reason", "details", "status"),
    [
        ("length", "max_output_tokens", "incomplete"),
        ("content_filter", "content_filter", "incomplete"),
        ("cancelled", "cancelled", "cancelled"),
    ],
)
def test_an_early_finish_leaves_the_last_item_incomplete(reason: parts.Reason, details: str, status: str):
    thought = Reasoning(id="rs_0", content=[ReasoningText(text="Hmm")])
    cut = make_message("msg_0", "Hi", status="incomplete")
    assert synthesize(parts.Reasoning("Hmm"), Text("Hi"), Finish(reason)) == number_events(
        start_events(),
        item_added(0, Reasoning(id="rs_0")),
        reasoning_part_events("rs_0", 0, 0, "Hmm"),
        item_done(0, thought),
        message_events("msg_0", 1, "Hi", status="incomplete"),
        incomplete_event(details, thought, cut, status=status),
    )


def test_only_the_call_that_was_cut_off_is_incomplete():
    whole = make_call("fc_0", "f", "{}", "x")
    cut = make_call("fc_1", "g", '{"a"', "y", "incomplete")
    events = synthesize(Call(0, "f", "{}", "x"), Call(1, "g", '{"a"', "y"), Finish("length"))
    assert events == number_events(
        start_events(),
        item_added(0, replace(whole, status="in_progress", arguments="")),
        arguments_delta("fc_0", 0, "{}"),
        call_end_events(0, whole),
        item_added(1, replace(cut, status="in_progress", arguments="")),
        arguments_delta("fc_1", 1, '{"a"'),
        call_end_events(1, cut),
        incomplete_event("max_output_tokens", whole, cut),
    )


def test_an_early_finish_without_output_has_no_items():
    assert synthesize(Finish("length")) == number_events(start_events(), incomplete_event("max_output_tokens"))


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_an_ordinary_finish_is_completed(reason: parts.Reason):
    assert synthesize(Text("Hi"), Finish(reason)) == synthesize(Text("Hi"))


def test_a_failure_in_the_middle_of_a_text_keeps_the_text_so_far():
    cut = make_message("msg_0", "Hi", status="incomplete")
    error = ResponseError(code="overloaded", message="It broke.", type="server_error")
    response = make_final_response(cut, status="failed", error=error, usage=ResponseUsage.of(3, 0))
    assert synthesize(Usage(3), Text("Hi"), Failure(ERROR)) == number_events(
        start_events(),
        message_events("msg_0", 0, "Hi", status="incomplete"),
        partial(ResponseFailed, response=response),
    )


def test_a_failure_without_a_code_uses_its_type():
    synth = make_synth()
    synth.start()
    synth.fail(ErrorPayload(message="It broke.", type="model_error"))
    assert synth.response.error == ResponseError(code="model_error", message="It broke.", type="model_error")


def test_nothing_can_be_fed_after_the_end():
    synth = make_synth()
    synth.start()
    synth.end()
    with pytest.raises(LocalProtocolError, match="Text after the end of the response"):
        synth.feed(Text("Hi"))


def test_only_the_first_end_counts():
    synth = make_synth()
    synth.start()
    synth.fail(ERROR)
    assert synth.end() == synth.fail(ERROR) == []
    assert synth.response.status == "failed"


def test_a_queued_response_waits_until_it_is_marked_in_progress():
    synth = make_synth(make_response(status="queued"))
    assert synth.start() == [
        ResponseCreated(sequence_number=0, response=make_response(status="queued")),
        ResponseQueued(sequence_number=1, response=make_response(status="queued")),
    ]
    assert synth.mark_in_progress() == [ResponseInProgress(sequence_number=2, response=make_response())]


def test_a_queued_response_can_be_cancelled():
    synth = make_synth(make_response(status="queued"))
    synth.start()
    synth.feed(Finish("cancelled"))
    assert event_types(synth.end()) == ["response.incomplete"]
    assert synth.response.status == "cancelled"


def test_deltas_are_obfuscated_but_those_of_refusals():
    events = synthesize(
        parts.Reasoning("Hmm", summary="So."),
        Text("Hi"),
        Refusal("No."),
        Call(0, "f", "{}"),
        obfuscate=lambda text: "*" * len(text),
    )
    padded = {event.type: to_json(event) for event in events if event.type.endswith("delta")}
    assert {name: event.get("obfuscation") for name, event in padded.items()} == {  # pyright: ignore
        "response.reasoning.delta": "***",
        "response.reasoning_summary_text.delta": "***",
        "response.output_text.delta": "**",
        "response.refusal.delta": None,
        "response.function_call_arguments.delta": "**",
    }


def test_absent_optional_fields_are_not_encoded():
    data = b"".join(encode(event) for event in synthesize(Text("Hi"), parts.Reasoning("Hmm")))
    for name in ("logprobs", "obfuscation", "phase", "encrypted_content", "verbosity"):
        assert f'"{name}"'.encode() not in data


HALF, REPLACED = "a\ud83c", "a\ufffd"


@pytest.mark.parametrize("single_message", [False, True])
def test_a_lone_surrogate_in_any_part_can_be_encoded(single_message: bool):
    chance = replace(LOGPROB, token=HALF, top_logprobs=[])
    note = replace(CITATION, title=HALF)
    written = OutputText(text=HALF, annotations=[note], logprobs=[chance])
    item = ExtensionItem(type="acme:search", extra={"query": [HALF]})
    events = synthesize(
        Text("Hi", logprobs=[chance]),
        Annotation(note),
        parts.Whole(item),
        parts.Whole(Message(role="assistant", content=[written])),
        parts.Whole(Reasoning(encrypted_content=HALF)),
        parts.Reasoning("Hm", encrypted_content=HALF),
        parts.Extension("acme:event", {HALF: HALF}),
        parts.Warn(HALF, HALF, HALF),
        Failure(ErrorPayload(message=HALF, type=HALF, code=HALF)),
        single_message=single_message,
    )
    encoded = b"".join(map(encode, events))
    assert encoded.decode().count(REPLACED) > 12
    assert fold(events) == final_response(events)
    assert final_response(events).error == ResponseError(code=REPLACED, message=REPLACED, type=REPLACED)
    assert final_response(events).warnings == [ResponseWarning(code=REPLACED, message=REPLACED, param=REPLACED)]


def test_a_response_can_end_as_an_earlier_one_did():
    earlier = final_response(synthesize(Text("Hi"), Finish("length")))
    synth = make_synth()
    assert not synth.started
    events = [*synth.start(), *synth.feed(Text("Hi")), *synth.end_as(earlier)]
    assert synth.started
    assert final_response(events) == earlier
    assert find_violations(events) == []


def test_a_failure_can_drop_the_output():
    synth = make_synth()
    synth.start()
    synth.feed(Text("Hi"))
    [event] = synth.fail_without_output(ERROR)
    response = final_response([event])
    assert (response.status, response.output, synth.ended) == ("failed", [], True)
