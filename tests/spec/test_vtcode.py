"""VT Code's nine compliance tests, ported, with whole values and the exact order of events."""

import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import OutputItemAdded, OutputTextDelta, ReasoningDone, ResponseCreated
from antiphon.protocol.items import ExtensionItem, FunctionCall, Message, OutputText, Reasoning
from antiphon.protocol.parts import Call, Finish, Text
from antiphon.protocol.parts import Reasoning as Thinking
from antiphon.protocol.request import Request
from antiphon.protocol.response import IncompleteDetails, Response
from antiphon.protocol.rules import ITEM_FINAL_STATUSES, ITEM_START_STATUSES
from antiphon.protocol.struct import InvalidValueError, is_extension_type
from tests.protocol.builders import (
    LATER,
    NOW,
    event_types,
    final_response,
    make_response,
    make_synth,
    synthesize,
    synthesize_with,
    to_json,
)
from tests.spec.schema_checks import check_event, check_item, check_response

pytestmark = pytest.mark.compliance


def test_a_response_object_is_created_and_completed():
    new = Response.new(Request(model="gpt-oss-20b"), id="resp_1", created_at=NOW)
    check_response(to_json(new))
    assert (new.object, new.model, new.status) == ("response", "gpt-oss-20b", "in_progress")
    assert (new.created_at, new.completed_at, new.output) == (NOW, None, [])

    done = final_response(synthesize_with([], make_synth(new)))
    assert (done.status, done.completed_at) == ("completed", LATER)
    written = to_json(done)
    assert isinstance(written, dict)
    assert (written["object"], written["status"]) == ("response", "completed")
    assert written["output"] == [
        {
            "type": "message",
            "id": "msg_0",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "", "annotations": []}],
        }
    ]
    check_response(written)


def test_an_item_passes_through_its_states():
    [added] = [event for event in synthesize(Text("Hello")) if isinstance(event, OutputItemAdded)]
    assert added.item == Message(id="msg_0", status="in_progress", role="assistant", content=[])
    assert {"in_progress"} == ITEM_START_STATUSES
    assert {"completed", "incomplete", "failed"} == ITEM_FINAL_STATUSES
    call = FunctionCall.of("f", {}, call_id="call_1", id="fc_1")
    assert call.status == "in_progress"
    check_item(to_json(call))


def test_events_come_in_the_order_of_the_specification():
    events = synthesize(Text("Hello"), Text(" world"), Text("!"))
    assert event_types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert find_violations(events) == []
    assert final_response(events).output_text == "Hello world!"
    for event in events:
        check_event(to_json(event))


def test_a_request_object_is_encoded_as_specified():
    asked = Request.from_message("gpt-oss-20b", "Hello", temperature=0.7, stream=True)
    written = to_json(asked)
    assert isinstance(written, dict)
    assert (written["model"], written["temperature"], written["stream"]) == ("gpt-oss-20b", 0.7, True)
    assert written["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    ]


def test_an_incomplete_response_has_a_reason():
    response = final_response(synthesize(Text("Hel"), Finish("length")))
    assert response.status == "incomplete"
    assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")
    assert response.output == [
        Message(
            id="msg_0",
            status="incomplete",  # VT Code calls it completed
            role="assistant",
            content=[OutputText(text="Hel")],
        )
    ]
    written = to_json(response)
    assert isinstance(written, dict)
    assert written["status"] == "incomplete"
    assert written["incomplete_details"] == {"reason": "max_output_tokens"}
    check_response(written)


def test_extensions_are_named_by_slug():
    assert is_extension_type("vtcode:file_change")
    assert is_extension_type("acme:search")
    assert not is_extension_type("invalid_type")
    assert to_json(ExtensionItem.of("vtcode", "file_change", id="item_1", path="a.py")) == {
        "type": "vtcode:file_change",
        "id": "item_1",
        "status": "in_progress",
        "path": "a.py",
    }
    with pytest.raises(InvalidValueError):
        ExtensionItem.of("vtcode", "", id="item_1")


def test_an_error_object_is_encoded_as_specified():
    error = ErrorPayload(message="Model not found", type="invalid_request", param="model", code="invalid_model")
    assert to_json(error) == {
        "type": "invalid_request",
        "code": "invalid_model",
        "param": "model",
        "message": "Model not found",
    }


def test_reasoning_is_one_item_with_its_own_events():
    events = synthesize(Thinking("Let me think"), Thinking("..."))
    assert event_types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning.delta",
        "response.reasoning.delta",
        "response.reasoning.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    [item] = final_response(events).output
    assert isinstance(item, Reasoning)
    assert events[6] == ReasoningDone(
        sequence_number=6, item_id="rs_0", output_index=0, content_index=0, text="Let me think..."
    )
    check_item(to_json(item))


def test_a_tool_call_carries_its_arguments_as_a_string():
    events = synthesize(Call(0, "read_file", '{"path":', "call_1"), Call(0, arguments='"README.md"}'))
    assert final_response(events).output == [
        FunctionCall(
            id="fc_0", call_id="call_1", name="read_file", arguments='{"path":"README.md"}', status="completed"
        )
    ]
    assert event_types(events)[2:-1] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    check_item(to_json(final_response(events).output[0]))


def test_three_emitter_calls_are_three_events():
    synth = make_synth()
    events = [synth.start()[0], *synth.feed(Text("Hel"))[-1:], *synth.feed(Text("lo"))]
    location = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    assert events == [
        ResponseCreated(sequence_number=0, response=make_response()),
        OutputTextDelta(sequence_number=4, **location, delta="Hel"),  # pyright: ignore[reportArgumentType]
        OutputTextDelta(sequence_number=5, **location, delta="lo"),  # pyright: ignore[reportArgumentType]
    ]
