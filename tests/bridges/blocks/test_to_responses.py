"""What each block event becomes in the stream and in the response."""

import pytest

from antiphon.bridges.blocks.events import (
    Block,
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    DeltaType,
    Error,
    Ping,
    RefusalBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import LifecycleEvent, OutputItemAdded, OutputTextDelta
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    ReasoningText,
    RefusalContent,
    SummaryText,
)
from antiphon.protocol.response import IncompleteDetails, ResponseUsage
from antiphon.wire.openresponses import Dialect
from tests.bridges.blocks.runs import (
    CANCELLED,
    COMPLETED,
    FAILED,
    SCHEMES,
    STARTED,
    WEATHER,
    block,
    make_translator,
    text_delta,
    translate,
)
from tests.protocol.builders import event_types


def get_status(item: Item) -> object:
    """Return the status of a message or a call."""
    assert isinstance(item, Message | FunctionCall)
    return item.status


def added_item(run: list[BlockEvent]) -> Item:
    """Return the first item as it is added."""
    return next(event.item for event in translate(run)[0] if isinstance(event, OutputItemAdded))


@pytest.mark.parametrize(
    ("policy", "types"),
    [
        ("created", ["created"]),
        ("created+queued", ["created", "queued"]),
        ("created+in_progress", ["created", "in_progress"]),
        ("created+queued+in_progress", ["created", "queued", "in_progress"]),
    ],
)
def test_started_causes_the_lifecycle_events_of_its_policy(policy: str, types: list[str]):
    translator = make_translator(started=policy)
    assert event_types(translator.feed(STARTED)) == [f"response.{type}" for type in types]
    assert translator.feed(STARTED) == []
    rest = event_types(translator.feed(text_delta("Hi")))
    assert ("response.in_progress" in rest) == ("in_progress" not in types)


def test_started_may_cause_in_progress_alone_after_the_response_was_created():
    translator = make_translator(started="in_progress")
    assert event_types(translator.create()) == ["response.created"]
    assert event_types(translator.feed(STARTED)) == ["response.in_progress"]


def test_any_event_before_started_creates_a_response_that_started_only_puts_in_progress():
    translator = make_translator(started="in_progress")
    assert event_types(translator.feed(Ping())) == ["response.created"]
    assert event_types(translator.feed(STARTED)) == ["response.in_progress"]


def test_a_run_without_started_starts_with_its_first_output():
    events, _ = translate([text_delta("Hi"), COMPLETED])
    assert event_types(events)[:2] == ["response.created", "response.in_progress"]


def test_completed_ends_the_response_at_once():
    translator = make_translator()
    assert event_types(translator.feed(COMPLETED))[-1] == "response.completed"
    assert translator.feed(text_delta("late")) == translator.end() == []


def test_failed_fails_the_response():
    events, response = translate([STARTED, text_delta("Hi"), FAILED])
    assert event_types(events)[-1] == "response.failed"
    assert response.error
    assert response.error.message == "The run failed without a message that says why."
    assert get_status(response.output[0]) == "incomplete"


def test_cancelled_ends_as_incomplete_with_a_cancelled_response():
    events, response = translate([text_delta("Hi"), CANCELLED])
    assert event_types(events)[-1] == "response.incomplete"
    assert (response.status, response.incomplete_details) == ("cancelled", IncompleteDetails(reason="cancelled"))


def test_cancelled_fails_the_response_if_the_policy_says_so():
    events, response = translate([text_delta("Hi"), CANCELLED], cancelled="failed")
    assert event_types(events)[-1] == "response.failed"
    assert response.error
    assert response.error.code == "cancelled"


def test_usage_is_only_in_the_terminal_event_and_the_last_count_wins():
    run = [STARTED, Usage(10, 1, 11), *block(0, TextBlock(), "Hi"), Usage(None, 5, None, 3), COMPLETED]
    events, response = translate(run)
    carried = [event.response.usage for event in events if isinstance(event, LifecycleEvent)]
    assert carried == [None, None, response.usage]
    assert response.usage == ResponseUsage.of(10, 5, cached=3)


def test_an_error_is_an_error_event_with_code_and_message_and_then_failed():
    events, response = translate([STARTED, Error("Too busy", "overloaded"), FAILED])
    frames = b"".join(map(Dialect().encode_sse, events)).decode()
    assert frames.index("event: error\n") < frames.index("event: response.failed\n")
    assert '"message":"Too busy","type":"model_error","param":null,"code":"overloaded"' in frames
    assert response.error
    assert (response.error.code, response.error.message) == ("overloaded", "Too busy")


def test_a_ping_is_never_in_the_stream():
    assert translate([Ping(1), text_delta("Hi"), Ping(), COMPLETED])[0] == translate([text_delta("Hi"), COMPLETED])[0]


def test_an_unknown_event_is_left_out_with_a_warning():
    _, response = translate([STARTED, UnknownEvent("UnhandledSse", {}), COMPLETED])
    assert [warning.code for warning in response.warnings or []] == ["unknown_event"]


def test_the_start_of_a_text_block_adds_a_message_of_the_assistant():
    assert added_item(block(0, TextBlock(), "Hi")) == Message(
        id="msg_0", status="in_progress", role="assistant", content=[]
    )


def test_the_start_of_a_text_block_is_seen_before_its_first_delta():
    translator = make_translator()
    assert event_types(translator.feed(BlockStart(0, TextBlock())))[-1] == "response.output_item.added"


def test_each_delta_of_text_is_one_delta():
    events, _ = translate(block(0, TextBlock(), "a", "b", "c"))
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == ["a", "b", "c"]


def test_the_stop_of_a_text_block_ends_the_text_then_the_part_then_the_item():
    translator = make_translator()
    *begin, stop = block(0, TextBlock(), "Hi")
    for event in begin:
        translator.feed(event)
    assert event_types(translator.feed(stop)) == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]


def test_text_blocks_that_interleave_stay_two_messages():
    run = [BlockStart(0, TextBlock()), BlockStart(1, TextBlock())]
    run += [text_delta("a"), text_delta("x", 1), text_delta("b"), BlockStop(0, "Text"), BlockStop(1, "Text")]
    _, response = translate([*run, COMPLETED])
    assert [item.text for item in response.output if isinstance(item, Message)] == ["ab", "x"]


def test_a_refusal_block_is_a_refusal_in_a_message():
    events, response = translate([*block(0, RefusalBlock(), "I can", "not."), COMPLETED])
    types = event_types(events)
    assert types.count("response.refusal.delta") == 2
    assert types.count("response.refusal.done") == 1
    (message,) = response.output
    assert isinstance(message, Message)
    assert message.content == [RefusalContent(refusal="I cannot.")]


def test_the_start_of_a_tool_use_adds_a_call_with_its_id_and_no_arguments():
    assert added_item(block(0, WEATHER, "{}")) == FunctionCall(
        id="fc_0", call_id="call_1", name="get_weather", arguments="", status="in_progress"
    )


@pytest.mark.parametrize("switched_on", [True, False])
def test_deltas_of_arguments_can_be_switched_off(switched_on: bool):
    run = [*block(0, WEATHER, '{"city":', '"Oslo"}'), COMPLETED]
    events, response = translate(run, argument_deltas=switched_on)
    assert event_types(events).count("response.function_call_arguments.delta") == (2 if switched_on else 0)
    assert event_types(events).count("response.function_call_arguments.done") == 1
    assert [item.arguments for item in response.output if isinstance(item, FunctionCall)] == ['{"city":"Oslo"}']


def test_the_stop_of_a_tool_use_ends_its_arguments_then_the_item_which_is_completed():
    translator = make_translator()
    *begin, stop = block(0, WEATHER, "{}")
    for event in begin:
        translator.feed(event)
    assert event_types(translator.feed(stop)) == ["response.function_call_arguments.done", "response.output_item.done"]
    assert get_status(translator.response.output[0]) == "completed"


def test_a_call_that_the_token_limit_cut_off_is_incomplete():
    _, response = translate([*block(0, WEATHER, '{"ci', stop_reason="MaxTokens"), COMPLETED])
    assert get_status(response.output[0]) == "incomplete"
    assert (response.status, response.incomplete_details) == (
        "incomplete",
        IncompleteDetails(reason="max_output_tokens"),
    )


def test_a_tool_result_is_an_input_item_of_the_next_request_and_no_output():
    translator = make_translator()
    for event in block(0, WEATHER, "{}"):
        translator.feed(event)
    for event in block(1, ToolResultBlock("call_1"), "12", " degrees"):
        assert translator.feed(event) == []
    translator.feed(COMPLETED)
    assert [item.type for item in translator.response.output] == ["function_call"]
    assert translator.tool_results == [FunctionCallOutput(call_id="call_1", output="12 degrees", status="completed")]


def test_a_tool_result_may_come_after_the_end_and_be_cut_off():
    translator = make_translator()
    for event in [*block(0, WEATHER, "{}"), COMPLETED, BlockStart(1, ToolResultBlock("call_1")), text_delta("1", 1)]:
        translator.feed(event)
    assert translator.feed(BlockAbort(1, "ToolResult", "Cancelled")) == []
    assert translator.tool_results == [FunctionCallOutput(call_id="call_1", output="1", status="incomplete")]


def test_results_of_calls_with_the_same_id_answer_one_call_each():
    calls = [*block(0, WEATHER, "{}"), *block(1, WEATHER, "{}")]
    results = [*block(2, ToolResultBlock("call_1"), "a"), *block(3, ToolResultBlock("call_1"), "b")]
    translator = make_translator()
    for event in [*calls, *results, COMPLETED]:
        translator.feed(event)
    call_ids = [item.call_id for item in translator.response.output if isinstance(item, FunctionCall)]
    assert len(set(call_ids)) == 2
    assert [(result.call_id, result.text) for result in translator.tool_results] == list(
        zip(call_ids, "ab", strict=True)
    )


def test_a_tool_result_that_can_answer_no_call_is_left_out_with_a_warning():
    translator = make_translator()
    for event in [
        *block(0, ToolResultBlock("x" * 65), "lost"),
        *block(1, ToolResultBlock("earlier"), "kept"),
        COMPLETED,
    ]:
        translator.feed(event)
    assert [result.call_id for result in translator.tool_results] == ["earlier"]
    assert [warning.code for warning in translator.response.warnings or []] == ["tool_result_without_call"]


def test_the_start_of_a_thinking_block_adds_a_reasoning_item():
    assert added_item(block(0, ThinkingBlock(), "Hm.")) == Reasoning(id="rs_0")


def test_thinking_is_raw_reasoning():
    events, response = translate([*block(0, ThinkingBlock(), "Hm", "."), COMPLETED])
    assert event_types(events)[2:-1] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning.delta",
        "response.reasoning.delta",
        "response.reasoning.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert response.output == [Reasoning(id="rs_0", content=[ReasoningText(text="Hm.")])]


def test_thinking_can_be_a_summary():
    events, response = translate([*block(0, ThinkingBlock(), "Hm", "."), COMPLETED], thinking="summary")
    assert event_types(events)[2:-1] == [
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
    ]
    assert response.output == [Reasoning(id="rs_0", summary=[SummaryText(text="Hm.")])]


@pytest.mark.parametrize(
    ("kind", "reason"), [(TextBlock(), "EndTurn"), (TextBlock(), "StopSequence"), (WEATHER, "ToolUse")]
)
def test_a_good_stop_reason_completes_the_response_and_its_item(kind: Block, reason: StopReason):
    _, response = translate(block(0, kind, "{}", stop_reason=reason))
    assert response.status == get_status(response.output[0]) == "completed"
    assert not response.warnings


def test_max_tokens_leaves_the_response_and_its_last_item_incomplete():
    run = [*block(0, TextBlock(), "a"), *block(1, TextBlock(), "b", stop_reason="MaxTokens"), COMPLETED]
    _, response = translate(run)
    assert [get_status(item) for item in response.output] == ["completed", "incomplete"]
    assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")


def test_a_later_stop_reason_does_not_complete_what_was_cut_off():
    run = [*block(0, TextBlock(), "a", stop_reason="MaxTokens"), *block(1, TextBlock(), "b", stop_reason="EndTurn")]
    events, response = translate([*run, COMPLETED])
    assert find_violations(events) == []
    assert [get_status(item) for item in response.output] == ["incomplete", "completed"]


def test_tool_use_completes_a_message_and_then_a_call():
    run = [*block(0, TextBlock(), "Let me see."), *block(1, WEATHER, "{}", stop_reason="ToolUse"), COMPLETED]
    _, response = translate(run)
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["message", "function_call"]


def test_a_source_that_ends_without_a_stop_reason_is_completed_with_a_warning():
    _, response = translate([text_delta("Hi")])
    assert response.status == "completed"
    assert [warning.code for warning in response.warnings or []] == ["no_stop_reason"]


def test_an_aborted_block_is_incomplete_and_cancels_the_run():
    run = [BlockStart(0, TextBlock()), text_delta("Hi"), BlockAbort(0, "Text", "Cancelled")]
    for ending in ([CANCELLED], [COMPLETED], []):
        events, response = translate([*run, *ending])
        assert find_violations(events) == []
        assert (response.status, get_status(response.output[0])) == ("cancelled", "incomplete")
    assert translate(run, cancelled="failed")[1].status == "failed"


@pytest.mark.parametrize("switched_on", [True, False])
def test_content_part_events_can_be_switched_off(switched_on: bool):
    events, response = translate([*block(0, TextBlock(), "Hi"), COMPLETED], content_parts=switched_on)
    counts = [event_types(events).count(f"response.content_part.{step}") for step in ("added", "done")]
    assert counts == ([1, 1] if switched_on else [0, 0])
    assert response.output_text == "Hi"


@pytest.mark.parametrize(("kind", "type"), [("Text", "message"), ("Thinking", "reasoning"), ("Refusal", "message")])
def test_deltas_without_a_start_begin_a_block(kind: DeltaType, type: str):
    _, response = translate([BlockDelta(0, kind, "a"), BlockDelta(0, kind, "b"), COMPLETED])
    assert [item.type for item in response.output] == [type]


def test_arguments_without_a_start_belong_to_no_call_and_cause_a_warning():
    _, response = translate([BlockDelta(0, "InputJson", "{}"), COMPLETED])
    assert response.output == []
    assert [warning.code for warning in response.warnings or []] == ["nameless_call"]


def test_a_block_without_a_stop_ends_when_its_index_starts_again():
    run = [BlockStart(0, WEATHER), BlockDelta(0, "InputJson", "{}"), BlockStart(0, ToolUseBlock("call_2", "f"))]
    events, response = translate([*run, COMPLETED])
    assert find_violations(events) == []
    assert [item.call_id for item in response.output if isinstance(item, FunctionCall)] == ["call_1", "call_2"]


def test_a_stop_of_the_wrong_type_stops_the_block_of_its_index():
    translator = make_translator()
    for event in (BlockStart(1, WEATHER), BlockDelta(1, "InputJson", "{}")):
        translator.feed(event)
    assert event_types(translator.feed(BlockStop(1, "Text")))[-1] == "response.output_item.done"


def test_a_stop_of_a_block_that_is_not_open_changes_nothing():
    assert make_translator().feed(BlockStop(7, "Text")) == []


def test_text_and_a_tool_use_may_share_an_index():
    _, response = translate(SCHEMES["openai"])
    assert [item.type for item in response.output] == ["message", "function_call"]
    assert {get_status(item) for item in response.output} == {"completed"}


def test_a_text_without_start_and_stop_ends_when_another_block_starts():
    translator = make_translator()
    translator.feed(text_delta("Hi"))
    assert "response.output_item.done" in event_types(translator.feed(BlockStart(0, WEATHER)))


def test_empty_deltas_make_no_item_and_no_event():
    events, response = translate(SCHEMES["ollama"])
    assert "response.output_text.delta" not in event_types(events)
    assert [item.type for item in response.output] == ["function_call"]


def test_empty_deltas_can_be_kept_one_for_one():
    events, _ = translate(SCHEMES["ollama"], empty_deltas=True)
    assert find_violations(events) == []
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == [""] * 6
