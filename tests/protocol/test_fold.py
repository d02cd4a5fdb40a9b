import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.protocol.errors import ErrorPayload, RemoteProtocolError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ErrorEvent,
    Event,
    ExtensionEvent,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningSummaryTextDelta,
    ResponseCreated,
)
from antiphon.protocol.fold import fold
from antiphon.protocol.items import FunctionCallOutput, OutputText, RefusalContent
from antiphon.protocol.parts import Annotation, Call, Reasoning, Text
from tests.protocol.builders import (
    CITATION,
    final_response,
    make_call,
    make_message,
    make_response,
    make_synth,
    synthesize,
)

PLACE: dict[str, Any] = {"item_id": "msg_0", "output_index": 0, "content_index": 0}


def location(**changes: int) -> dict[str, Any]:
    """Return another place."""
    return PLACE | changes


def test_a_stream_folds_to_the_response_of_its_terminal_event():
    events = synthesize(Reasoning("Hmm"), Text("Hi"), Annotation(CITATION), Call(0, "f", "{}", "x"))
    assert fold(events) == final_response(events)


def test_a_stream_without_its_terminal_event_folds_to_the_same_output():
    events = synthesize(Reasoning("Hmm"), Text("Hi"), Annotation(CITATION), Call(0, "f", "{}", "x"))
    assert fold(events[:-1]) == make_response(output=final_response(events).output)


def test_a_prefix_folds_to_the_text_so_far():
    texts = [fold(events).output_text for events in prefixes(synthesize(Text("He"), Text("llo")))]
    assert texts == ["", "", "", "", "He", "Hello", "Hello", "Hello", "Hello", "Hello"]


def prefixes(events: list[Event]) -> list[list[Event]]:
    """Return every beginning of a stream, the shortest first."""
    return [events[: end + 1] for end in range(len(events))]


def test_arguments_are_joined_from_their_deltas():
    events = synthesize(Call(0, "f", '{"a"', "x"), Call(0, arguments=":1}"))
    assert [fold(some).output for some in prefixes(events)[2:5]] == [
        [make_call("fc_0", "f", "", "x", "in_progress")],
        [make_call("fc_0", "f", '{"a"', "x", "in_progress")],
        [make_call("fc_0", "f", '{"a":1}', "x", "in_progress")],
    ]


def test_a_done_event_overrides_the_deltas():
    opened = [
        ResponseCreated(sequence_number=0, response=make_response()),
        OutputItemAdded(sequence_number=1, output_index=0, item=make_message("msg_0")),
        ContentPartAdded(sequence_number=2, **PLACE, part=OutputText(text="")),
        OutputTextDelta(sequence_number=3, **PLACE, delta="draft"),
    ]
    texts = [
        fold([*opened, *more]).output_text
        for more in (
            [],
            [OutputTextDone(sequence_number=4, **PLACE, text="text")],
            [OutputTextDone(sequence_number=4, **PLACE, text="")],
            [ContentPartDone(sequence_number=4, **PLACE, part=OutputText(text="part"))],
            [OutputItemDone(sequence_number=4, output_index=0, item=make_message("msg_0", "item"))],
        )
    ]
    assert texts == ["draft", "text", "", "part", "item"]


def test_done_arguments_override_the_deltas():
    begun_call = make_call("fc_0", "f", "", "x", "in_progress")
    events: list[Event] = [
        ResponseCreated(sequence_number=0, response=make_response()),
        OutputItemAdded(sequence_number=1, output_index=0, item=begun_call),
        FunctionCallArgumentsDelta(sequence_number=2, item_id="fc_0", output_index=0, delta="{"),
        FunctionCallArgumentsDone(sequence_number=3, item_id="fc_0", output_index=0, arguments="{}"),
    ]
    assert fold(events).output == [replace(begun_call, arguments="{}")]


def test_a_part_may_be_added_with_text_and_annotations():
    part = OutputText(text="Hel", annotations=[CITATION])
    events: list[Event] = [
        ResponseCreated(sequence_number=0, response=make_response()),
        OutputItemAdded(sequence_number=1, output_index=0, item=make_message("msg_0")),
        ContentPartAdded(sequence_number=2, **PLACE, part=part),
        OutputTextDelta(sequence_number=3, **PLACE, delta="lo"),
        OutputTextAnnotationAdded(sequence_number=4, **PLACE, annotation_index=1, annotation=CITATION),
    ]
    noted = OutputText(text="Hello", annotations=[CITATION, CITATION])
    assert fold(events).output == [replace(make_message("msg_0"), content=[noted])]


def test_parts_are_ordered_by_their_index():
    events: list[Event] = [
        ResponseCreated(sequence_number=0, response=make_response()),
        OutputItemAdded(sequence_number=1, output_index=0, item=make_message("msg_0")),
        ContentPartAdded(sequence_number=2, **location(content_index=1), part=RefusalContent(refusal="No")),
        ContentPartAdded(sequence_number=3, **PLACE, part=OutputText(text="Hi")),
    ]
    parts = [OutputText(text="Hi"), RefusalContent(refusal="No")]
    assert fold(events).output == [replace(make_message("msg_0"), content=parts)]


def test_an_item_that_was_never_added_is_kept_when_it_is_done():
    output = FunctionCallOutput(id="fco_0", call_id="x", output="42", status="completed")
    events: list[Event] = [
        ResponseCreated(sequence_number=0, response=make_response()),
        OutputItemDone(sequence_number=1, output_index=0, item=output),
    ]
    assert fold(events) == make_response(output=[output])


def test_events_that_do_not_change_the_response_are_ignored():
    events: list[Event] = [
        ResponseCreated(sequence_number=0, response=make_response()),
        ExtensionEvent(sequence_number=1, type="acme:tick"),
        ErrorEvent(sequence_number=2, error=ErrorPayload(message="m", type="t")),
    ]
    assert fold(events) == make_response()


@pytest.mark.parametrize(
    "stray",
    [
        OutputTextDelta(sequence_number=9, **location(output_index=5), delta="Hi"),
        OutputTextDelta(sequence_number=9, **location(content_index=1), delta="Hi"),
        OutputTextDelta(sequence_number=9, **location(content_index=-1), delta="Hi"),
        OutputTextDone(sequence_number=9, **location(output_index=-1), text="Hi"),
        ContentPartAdded(sequence_number=9, **location(output_index=5), part=OutputText(text="")),
        FunctionCallArgumentsDelta(sequence_number=9, item_id="fc", output_index=5, delta="{"),
        ReasoningSummaryTextDelta(sequence_number=9, item_id="rs", output_index=0, summary_index=0, delta=""),
    ],
)
def test_an_event_of_a_part_that_was_never_added_is_a_remote_protocol_error(stray: Event):
    synth = make_synth()
    events = synth.start() + synth.feed(Text("Hi"))
    with pytest.raises(RemoteProtocolError, match=f"{stray.type} names a part that was never"):
        fold([*events, stray])


def test_a_delta_of_an_item_that_is_done_is_a_remote_protocol_error():
    late = OutputTextDelta(sequence_number=9, **PLACE, delta="Hi")
    with pytest.raises(RemoteProtocolError):
        fold([*synthesize(Text("Hi")), late])


def test_there_is_no_response_before_the_first_event():
    with pytest.raises(RemoteProtocolError, match="no event has carried a response yet"):
        fold([])


class Piece(str):
    """A text that may be joined with others, but never added to them one by one."""

    def __add__(self, other: str) -> str:
        raise AssertionError("added")

    __radd__ = __add__


def long_stream(deltas: int) -> list[Event]:
    """Return a stream with many deltas of text."""
    events = synthesize(Text("ab"))
    delta = OutputTextDelta(sequence_number=4, **PLACE, delta=Piece("ab"))
    text = "ab" * deltas
    return [*events[:4], *[delta] * deltas, OutputTextDone(sequence_number=5, **PLACE, text=text)]


def count_calls(run: Callable[[], object]) -> int:
    """Count the calls that the core makes in a run, of Python's functions and of C's."""
    count = 0

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += "antiphon/core" in frame.f_code.co_filename and event in ("call", "c_call")

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_twenty_thousand_deltas_are_joined_once():
    events = long_stream(20_000)[:-1]
    assert fold(events).output_text == "ab" * 20_000


def test_the_fold_is_linear_in_the_number_of_deltas():
    one, two, three = (count_calls(lambda n=n: fold(long_stream(n))) for n in (1000, 2000, 3000))
    assert three - two == two - one


def test_the_synthesizer_is_linear_in_the_number_of_parts():
    one, two, three = (count_calls(lambda n=n: synthesize(*[Text("ab")] * n)) for n in (1000, 2000, 3000))
    assert three - two == two - one
