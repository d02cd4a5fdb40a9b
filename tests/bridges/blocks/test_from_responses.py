"""What each event of a response becomes as block events."""

import pytest

from antiphon.bridges.blocks.events import (
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    Error,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from antiphon.bridges.blocks.from_responses import EventTranslator
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import ErrorEvent, Event, ResponseCreated, decode_event
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCallOutput,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    SummaryText,
)
from antiphon.protocol.parts import Call, Extension, Failure, Finish, Text, Whole
from tests.bridges.blocks.runs import CANCELLED, COMPLETED, FAILED, STARTED, block
from tests.protocol.builders import CITATION, make_response, synthesize


def translate_back(events: list[Event], translator: EventTranslator | None = None) -> list[BlockEvent]:
    """Return the block events of a stream, which may be cut off."""
    translator = translator or EventTranslator()
    return [back for event in events for back in translator.feed(event)] + translator.end()


def test_created_is_started_and_completed_is_usage_and_completed():
    events = synthesize(Text("Hi"), parts.Usage(input_tokens=3, output_tokens=1, cached_tokens=2))
    assert translate_back(events) == [
        STARTED,
        *block(0, TextBlock(), "Hi", stop_reason="EndTurn"),
        Usage(3, 1, 4, 2),
        COMPLETED,
    ]


def test_failed_is_an_error_and_failed():
    events = synthesize(Text("Hi"), Failure(ErrorPayload(message="It broke.", type="server_error", code="overloaded")))
    assert translate_back(events) == [
        STARTED,
        BlockStart(0, TextBlock()),
        BlockDelta(0, "Text", "Hi"),
        BlockAbort(0, "Text", "overloaded"),
        Error("It broke.", "overloaded"),
        FAILED,
    ]


def test_an_incomplete_response_has_the_stop_reason_or_fails_if_the_policy_says_so():
    events = synthesize(Text("Hi"), Finish("length"))
    begin = [STARTED, BlockStart(0, TextBlock()), BlockDelta(0, "Text", "Hi")]
    assert translate_back(events) == [*begin, BlockStop(0, "Text", "MaxTokens"), COMPLETED]
    failed = [
        BlockAbort(0, "Text", "max_output_tokens"),
        Error("The response is incomplete: max_output_tokens.", "max_output_tokens"),
        FAILED,
    ]
    assert translate_back(events, EventTranslator(incomplete="failed")) == begin + failed


def test_tokens_that_ran_out_before_any_output_are_told_by_a_stop():
    events = synthesize(Finish("length"))
    assert translate_back(events) == [STARTED, BlockStop(0, "Text", "MaxTokens"), COMPLETED]


def test_filtered_content_fails():
    assert translate_back(synthesize(Text("Hi"), Finish("content_filter")))[-2:] == [
        Error("The response is incomplete: content_filter.", "content_filter"),
        FAILED,
    ]


def test_a_cancelled_response_aborts_its_last_block():
    assert translate_back(synthesize(Text("Hi"), Finish("cancelled")))[-2:] == [
        BlockAbort(0, "Text", "Cancelled"),
        CANCELLED,
    ]


def test_each_part_and_each_call_is_a_block_with_a_running_index():
    message = Message(role="assistant", content=[OutputText(text="a"), OutputText(text="b")])
    reasoning = Reasoning(content=[ReasoningText(text="c")], summary=[SummaryText(text="d")])
    events = synthesize(Whole(reasoning), Whole(message), Call(0, "f", "{}", "call_1", complete=True))
    assert translate_back(events) == [
        STARTED,
        *block(0, ThinkingBlock(), "c"),
        *block(1, ThinkingBlock(), "d"),
        *block(2, TextBlock(), "a"),
        *block(3, TextBlock(), "b"),
        *block(4, ToolUseBlock("call_1", "f"), "{}", stop_reason="ToolUse"),
        COMPLETED,
    ]


def test_the_output_of_a_call_is_a_tool_result():
    events = synthesize(Whole(FunctionCallOutput(call_id="call_0", output="12 degrees")))
    result = block(0, ToolResultBlock("call_0"), "12 degrees", stop_reason="EndTurn")
    assert translate_back(events) == [STARTED, *result, COMPLETED]


def test_what_blocks_have_no_word_for_is_counted():
    translator = EventTranslator()
    search = ExtensionItem(type="acme:search_call", status="completed")
    events = synthesize(Whole(search), Text("Hi"), parts.Annotation(CITATION), Extension("acme:tick", {}))
    assert translate_back(events, translator) == [
        STARTED,
        *block(0, TextBlock(), "Hi", stop_reason="EndTurn"),
        COMPLETED,
    ]
    assert translator.ignored == {"acme:search_call": 1, "response.output_text.annotation.added": 1, "acme:tick": 1}


@pytest.mark.parametrize("options", [{"content_parts": False}, {"argument_deltas": False}])
def test_events_that_are_missing_change_nothing(options: dict[str, bool]):
    produced = (Text("Hi"), Call(0, "f", "{}", "call_1", complete=True))
    assert translate_back(synthesize(*produced, response=None, **options)) == translate_back(synthesize(*produced))


def test_a_stream_of_whole_items_becomes_blocks():
    done = [
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
    ]
    events: list[Event] = [
        decode_event({"type": "response.output_item.done", "sequence_number": n, "output_index": n, "item": item})
        for n, item in enumerate(done)
    ]
    assert translate_back(events)[:-2] == [
        STARTED,
        *block(0, TextBlock(), "Hi"),
        *block(1, ThinkingBlock()),
        *block(2, ToolUseBlock("call_1", "f"), "{}"),
    ]


def test_a_stream_that_is_cut_off_fails_once():
    created = ResponseCreated(sequence_number=0, response=make_response())
    error = ErrorEvent(sequence_number=1, error=ErrorPayload(message="Too busy.", type="server_error", code="busy"))
    cut = Error("The stream ended before the response did.", "upstream_cut")
    assert translate_back([created]) == [STARTED, cut, FAILED]
    assert translate_back([created, error]) == [STARTED, Error("Too busy.", "busy"), FAILED]


def test_nothing_follows_the_end():
    translator = EventTranslator()
    events = synthesize(Text("Hi"))
    translate_back(events, translator)
    assert translator.feed(events[0]) == translator.end() == []


def test_arguments_of_a_call_that_was_never_added_are_counted():
    translator = EventTranslator()
    place = {"item_id": "fc_1", "output_index": 0, "sequence_number": 0}
    delta = decode_event({"type": "response.function_call_arguments.delta", **place, "delta": "{}"})
    assert translator.feed(delta) == [Status("Started")]
    assert translator.ignored == {"function_call": 1}
