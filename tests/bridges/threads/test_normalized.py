import pytest

from antiphon.bridges.threads import (
    LLMResponse,
    NormalizedDone,
    NormalizedEvent,
    NormalizedReasoningDelta,
    NormalizedTextDelta,
    NormalizedToolCallDelta,
    NormalizedToolCallStart,
    NormalizedUsage,
    OutputItem,
)
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.items import Item, Reasoning, ReasoningText
from antiphon.protocol.response import IncompleteDetails, Response, ResponseError, ResponseUsage
from tests.bridges.threads.play import check_stream, play_normalized
from tests.protocol.builders import event_types, make_call, make_message

PATTERN = '{"pattern":"phase"}'


def finish(*stream: NormalizedEvent) -> Response:
    """Return the response of a whole stream, which has to be legal."""
    events, response = play_normalized(*stream)
    check_stream(events, response)
    return response


def reasoning(text: str) -> Item:
    return Reasoning(id="rs_0", content=[ReasoningText(text=text)])


def test_response_builder_consumes_normalized_stream_events():
    call = OutputItem.function_call("call_1", "unified_search", PATTERN)
    events, response = play_normalized(
        NormalizedTextDelta("Hello "),
        NormalizedReasoningDelta("Thinking"),
        NormalizedToolCallStart("call_1", "unified_search"),
        NormalizedToolCallDelta("call_1", PATTERN),
        NormalizedUsage(ResponseUsage.of(10, 4)),
        NormalizedDone(
            LLMResponse(content="Hello world", reasoning="Thinking", tool_calls=[call], finish_reason="tool_calls")
        ),
    )
    check_stream(events, response)
    assert response.status == "completed"
    assert response.usage == ResponseUsage.of(10, 4)
    assert response.output == [
        make_message("msg_0", "Hello world"),
        reasoning("Thinking"),
        make_call("fc_0", "unified_search", PATTERN, "call_1"),
    ]
    assert event_types(events)[:2] == ["response.created", "response.in_progress"]
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == ["Hello ", "world"]
    assert "response.function_call_arguments.delta" in event_types(events)


def test_response_builder_marks_length_finish_as_incomplete():
    response = finish(NormalizedDone(LLMResponse(content="truncated", finish_reason="length")))
    assert response.status == "incomplete"
    assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")
    # VT Code marks the item as completed.
    assert response.output == [make_message("msg_0", "truncated", status="incomplete")]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_only_what_grew_last_is_incomplete_in_a_truncated_answer(reason: str):
    response = finish(
        NormalizedReasoningDelta("Hm"),
        NormalizedTextDelta("Let me look."),
        NormalizedToolCallStart("call_1", "f"),
        NormalizedToolCallDelta("call_1", '{"a":'),
        NormalizedDone(LLMResponse(content="Let me look.", finish_reason=reason)),
    )
    assert response.status == "incomplete"
    assert response.output == [
        reasoning("Hm"),
        make_message("msg_0", "Let me look."),
        make_call("fc_0", "f", '{"a":', "call_1", status="incomplete"),
    ]


def test_an_error_is_a_failed_response():
    response = finish(
        NormalizedTextDelta("Hel"), NormalizedDone(LLMResponse(finish_reason="error", error="Overloaded"))
    )
    assert response.error == ResponseError(code="model_error", message="Overloaded", type="model_error")
    assert response.output == [make_message("msg_0", "Hel", status="incomplete")]


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "pause", "refusal", "something new"])
def test_any_other_reason_completes_the_response(reason: str):
    assert finish(NormalizedDone(LLMResponse(content="Hi", finish_reason=reason))).status == "completed"


def test_empty_deltas_cause_nothing_but_the_start():
    events, response = play_normalized(
        NormalizedTextDelta(""), NormalizedReasoningDelta(""), NormalizedToolCallDelta("call_1", "")
    )
    assert event_types(events) == ["response.created", "response.in_progress"]
    assert response.output == []


def test_an_answer_that_was_not_streamed_has_its_reasoning_first():
    calls = [OutputItem.function_call(f"call_{number}", "f", "{}") for number in (1, 2)]
    usage = ResponseUsage.of(3, 2, cached=1, reasoning=1)
    response = finish(NormalizedDone(LLMResponse(content="Hi", reasoning="Hm", tool_calls=calls, usage=usage)))
    assert response.output == [
        reasoning("Hm"),
        make_message("msg_0", "Hi"),
        make_call("fc_0", "f", "{}", "call_1"),
        make_call("fc_1", "f", "{}", "call_2"),
    ]
    assert response.usage == usage


def test_a_response_has_one_message_and_one_reasoning_item():
    response = finish(
        NormalizedTextDelta("a"),
        NormalizedReasoningDelta("x"),
        NormalizedTextDelta("b"),
        NormalizedReasoningDelta("y"),
        NormalizedDone(LLMResponse()),
    )
    assert response.output == [make_message("msg_0", "ab"), reasoning("xy")]


def test_a_call_whose_name_comes_with_the_end_is_one_call():
    call = OutputItem.function_call("call_1", "f", '{"a":1}')
    response = finish(
        NormalizedToolCallStart("call_1"),
        NormalizedToolCallDelta("call_1", '{"a"'),
        NormalizedDone(LLMResponse(tool_calls=[call])),
    )
    assert response.output == [make_call("fc_0", "f", '{"a":1}', "call_1")]


def test_a_call_that_was_closed_meanwhile_is_not_sent_again():
    call = OutputItem.function_call("call_1", "f", "{}")
    response = finish(
        NormalizedToolCallStart("call_1", "f"),
        NormalizedToolCallDelta("call_1", "{}"),
        NormalizedTextDelta("Done."),
        NormalizedDone(LLMResponse(content="Done.", tool_calls=[call])),
    )
    assert response.output == [make_call("fc_0", "f", "{}", "call_1"), make_message("msg_0", "Done.")]


def test_final_arguments_that_differ_from_the_streamed_ones_are_a_warning():
    call = OutputItem.function_call("call_1", "f", '{"b":2}')
    response = finish(
        NormalizedToolCallStart("call_1", "f"),
        NormalizedToolCallDelta("call_1", '{"a":1}'),
        NormalizedDone(LLMResponse(tool_calls=[call])),
    )
    assert response.output == [make_call("fc_0", "f", '{"a":1}', "call_1")]
    assert [warning.code for warning in response.warnings or []] == ["arguments_replaced"]


def test_nothing_follows_the_end():
    done = NormalizedDone(LLMResponse(content="Hi"))
    assert play_normalized(done, NormalizedTextDelta("more"), done) == play_normalized(done)
