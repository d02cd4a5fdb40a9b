"""All text in one message, for clients that show one text per answer."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import (
    Event,
    FunctionCallArgumentsDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
)
from antiphon.protocol.fold import fold
from antiphon.protocol.items import FunctionCall, Message, OutputText, UrlCitation
from antiphon.protocol.items import RefusalContent as RefusalContent
from antiphon.protocol.parts import Annotation, Call, Part, Reasoning, Refusal, Text, Whole
from tests.protocol.builders import event_types, final_response, synthesize
from tests.protocol.strategies import part_lists

quick = settings(deadline=None, max_examples=150)


def synthesize_single(*parts: Part, keep_empty: bool = True) -> list[Event]:
    """Return the stream that some parts become."""
    return synthesize(*parts, keep_empty=keep_empty, single_message=True, reuse_call_ids=True)


def text_deltas(events: list[Event]) -> list[tuple[int, int, str]]:
    """Return where each piece of text went, and what it is."""
    deltas = [event for event in events if isinstance(event, OutputTextDelta)]
    return [(event.output_index, event.content_index, event.delta) for event in deltas]


@quick
@given(part_lists(), st.booleans())
def test_any_stream_breaks_no_rule_but_done_in_order(parts: list[Part], keep_empty: bool) -> None:
    events = synthesize_single(*parts, keep_empty=keep_empty)
    assert {violation.rule for violation in find_violations(events)} <= {"done-in-order"}
    assert fold(events) == final_response(events)


@quick
@given(part_lists())
def test_any_stream_has_one_message_and_it_comes_first(parts: list[Part]) -> None:
    items = [event.item for event in synthesize_single(*parts) if isinstance(event, OutputItemAdded)]
    assert [isinstance(item, Message) for item in items] == [index == 0 for index in range(len(items))]


@quick
@given(part_lists())
def test_the_id_of_a_call_item_is_its_call_id(parts: list[Part]) -> None:
    calls = [item for item in final_response(synthesize_single(*parts)).output if isinstance(item, FunctionCall)]
    assert all(call.id == call.call_id for call in calls)


@quick
@given(part_lists())
def test_no_text_is_lost_or_changed(parts: list[Part]) -> None:
    plain, gathered = final_response(synthesize(*parts)), final_response(synthesize_single(*parts))
    assert joined_texts(gathered.output) == joined_texts(plain.output)
    assert gathered.status == plain.status


def joined_texts(items: list) -> tuple[str, str]:
    """Return all text, and all words of refusals, without characters that half a surrogate pair can become."""
    # The halves of a pair in two content parts are one character only where these parts become one text.
    parts = [part for item in items if isinstance(item, Message) for part in item.content]
    refused = "".join(part.refusal for part in parts if isinstance(part, RefusalContent))
    text = "".join(part.text for part in parts if isinstance(part, OutputText))
    halves = re.compile("[\ufffd\U00010000-\U0010ffff]")
    return halves.sub("", text), halves.sub("", refused)


def test_text_between_calls_goes_to_the_one_message() -> None:
    events = synthesize_single(
        Text("a", key=0),
        Call(0, "f", "{}", "call_1", complete=True),
        Text("b", key=3, part=1),
        Call(1, "g", '{"x":1}', "call_2", complete=True),
        Text("", key=5),
    )
    assert text_deltas(events) == [(0, 0, "a"), (0, 0, "b"), (0, 0, "")]
    (done,) = [event for event in events if isinstance(event, OutputTextDone)]
    assert done.text == "ab"
    ends = [event.output_index for event in events if isinstance(event, OutputItemDone)]
    assert ends == [1, 2, 0]  # the calls did not wait


def test_the_message_comes_before_a_call_that_came_first() -> None:
    events = synthesize_single(Call(0, "f", "{}", "call_1", complete=True))
    assert event_types(events)[2:] == [
        "response.output_item.added",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.done",
        "response.completed",
    ]
    message, call = final_response(events).output
    assert (message.type, message.content) == ("message", [])  # type: ignore[union-attr]
    assert (call.id, call.type) == ("call_1", "function_call")


def test_interleaved_arguments_stay_apart() -> None:
    events = synthesize_single(
        Call(0, "f", call_id="call_1"),
        Call(1, "g", call_id="call_2"),
        Call(0, arguments='{"a":'),
        Call(1, arguments='{"b":'),
        Text(""),
        Call(0, arguments="1}"),
        Call(1, arguments="2}"),
    )
    deltas = [event for event in events if isinstance(event, FunctionCallArgumentsDelta)]
    assert [(delta.item_id, delta.output_index, delta.delta) for delta in deltas] == [
        ("call_1", 1, '{"a":'),
        ("call_2", 2, '{"b":'),
        ("call_1", 1, "1}"),
        ("call_2", 2, "2}"),
    ]
    assert find_violations(events) == []  # the message ends first, and so nothing is out of order


def test_a_missing_or_taken_call_id_is_replaced() -> None:
    events = synthesize_single(Call(0, "f", "{}"), Call(1, "g", "{}", "same"), Call(2, "h", "{}", "same"))
    _, *calls = final_response(events).output
    assert [call.id for call in calls] == ["call_0", "same", "call_1"]


def test_reasoning_ends_when_text_begins() -> None:
    events = synthesize_single(Reasoning("hm"), Text("So."), Text(" Yes."))
    assert event_types(events)[2:] == [
        "response.output_item.added",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning.delta",
        "response.reasoning.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_an_empty_delta_does_not_end_a_refusal() -> None:
    events = synthesize_single(Text(""), Refusal("I can"), Text(""), Refusal("not."))
    (message,) = final_response(events).output
    assert isinstance(message, Message)
    assert [part.type for part in message.content] == ["output_text", "refusal"]
    assert message.text == "I cannot."


def test_an_annotation_is_shifted_to_its_text() -> None:
    note = UrlCitation(url="https://a.example", title="A", start_index=0, end_index=3)
    events = synthesize_single(Text("One. ", key=0), Text("Two.", key=1, part=2), Annotation(note, 1, 2))
    (message,) = final_response(events).output
    assert isinstance(message, Message)
    (part,) = message.content
    (cited,) = part.annotations  # type: ignore[union-attr]
    assert part.text[cited.start_index : cited.end_index] == "Two"  # type: ignore[union-attr]


def test_a_whole_message_is_added_to_the_one_text() -> None:
    note = UrlCitation(url="https://a.example", title="A", start_index=0, end_index=1)
    whole = Message(
        role="assistant",
        content=[OutputText(text="b", annotations=[note]), OutputText(text="c"), RefusalContent(refusal="no")],
    )
    (message,) = final_response(synthesize_single(Text("a"), Whole(whole))).output
    assert isinstance(message, Message)
    text, refused = message.content
    assert (text.text, text.annotations[0].start_index) == ("abc", 1)  # type: ignore[union-attr]
    assert refused == RefusalContent(refusal="no")


def test_item_ids_come_from_the_given_source() -> None:
    events = synthesize(Text("a"), single_message=True, new_id=lambda prefix: f"own-{prefix}")
    (message,) = final_response(events).output
    assert message.id == "own-msg"


def test_a_model_without_output_has_one_empty_text() -> None:
    (message,) = final_response(synthesize_single()).output
    assert isinstance(message, Message)
    assert [part.type for part in message.content] == ["output_text"]
